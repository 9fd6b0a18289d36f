{{/* What runs in each part.  `private` parts see events: they reach Redis and have the noise key. */}}
{{- define "stream-dp.parts" -}}
worker: {command: [worker, --standby, --log-format, json], private: true, ports: true}
intake: {command: [intake, --log-format, json], private: true, ports: true}
shard: {command: [shard, --log-format, json], private: true, ports: true}
merge: {command: [merge, --log-format, json], private: false, ports: true}
table: {command: [table, --log-format, json], private: false, ports: false}
dashboard: {command: [dashboard, --host, 0.0.0.0, --port, "8080"], private: false, ports: false}
{{- end }}

{{- define "stream-dp.labels" -}}
app.kubernetes.io/name: stream-dp
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
