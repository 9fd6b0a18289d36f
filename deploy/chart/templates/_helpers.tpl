{{/* What runs in each part.  `private` parts see events: they reach Redis and have the noise key. */}}
{{- define "stream-dp.parts" -}}
worker: {command: [worker, --standby, --json], private: true}
table: {command: [table, --json], private: false}
dashboard: {command: [dashboard, --host, 0.0.0.0, --port, "8080"], private: false}
{{- end }}

{{- define "stream-dp.labels" -}}
app.kubernetes.io/name: stream-dp
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
