"""The Helm chart, rendered by Helm's own engine: what Kubernetes accepts, and what may reach what.

There is no cluster in continuous integration.  So manifests are compared with the schemas of Kubernetes, and the
containers run as processes on their own commands and environments.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import pytest
import yaml
from kafka import KafkaProducer
from kafka.admin import KafkaAdminClient, NewTopic

from stream_dp.config.reading import ENVIRONMENT_PREFIX, OPERATOR_TOKEN, load_settings
from stream_dp.dev import redis_server
from stream_dp.dev.servers import start_broker
from stream_dp.releases.subscribe import subscribe
from tests.apache_kafka.server import free_ports
from tests.docs.commands import parse
from tests.system.waiting import GIVE_UP_SECONDS, wait_until

helm = pytest.importorskip("helm_python", reason="make deployment installs what renders the chart")
kubernetes_validate = pytest.importorskip("kubernetes_validate", reason="make deployment installs it")

CHART = Path(__file__).parents[2] / "deploy" / "chart"
KAFKA, REDIS = ([{"namespaceSelector": {"matchLabels": {"name": name}}}] for name in ("kafka", "redis"))
ADDRESSES = {"kafka": "kafka.kafka.svc:9092", "redis": "redis://redis.redis.svc:6379/0"}
SERVERS: dict[str, Any] = {**ADDRESSES, "network": {"kafka": {"peers": KAFKA}, "redis": {"peers": REDIS}}}
TICKS = """
stream = "shop"
epsilon = 4.0
rounds = "ticks"
tick_seconds = 0.25
unmetered = true
"""
WHOLE: dict[str, Any] = {
    **SERVERS,
    "settings": TICKS,
    "parts": {"table": {"replicas": 1}},
    "ingress": {"host": "counts.example", "tlsSecret": "counts-tls"},
    "image": {"digest": f"sha256:{'ab' * 32}"},
    "network": {
        **SERVERS["network"],
        "registry": {"port": 8081, "peers": KAFKA},
        "viewers": [{"ipBlock": {"cidr": "10.20.0.0/16"}}],
        "monitoring": [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}],
    },
    "podMonitor": {"enabled": True},
}
NOT_OF_KUBERNETES = "PodMonitor"


def manifests(values: dict[str, Any]) -> list[dict[str, Any]]:
    """Everything that the chart makes of the values."""
    with helm.Chart.load(CHART) as chart:
        chart.validate_schema(chart.merge_values(values))
        rendered = chart.render(values, name="shop", namespace="counts")
    texts = [text for path, text in rendered.items() if not path.endswith("NOTES.txt")]
    return [made for text in texts for made in yaml.safe_load_all(text) if made]


def pods(values: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The pod template of each part."""
    return {
        made["metadata"]["labels"]["app.kubernetes.io/component"]: made["spec"]["template"]
        for made in manifests(values)
        if made["kind"] == "Deployment"
    }


def container(pod: dict[str, Any]) -> dict[str, Any]:
    [only] = pod["spec"]["containers"]
    return only


def environment(pod: dict[str, Any]) -> dict[str, str]:
    return {variable["name"]: variable["value"] for variable in container(pod)["env"]}


@pytest.mark.parametrize("values", [SERVERS, WHOLE], ids=["smallest", "whole"])
def test_helm_and_kubernetes_accept_it(values: dict[str, Any]) -> None:
    found = helm.lint(CHART, values, strict=True)
    assert found["errors"] == []
    assert [message for message in found["messages"] if message["severity"] > 1] == []
    for made in manifests(values):
        if made["kind"] != NOT_OF_KUBERNETES:
            kubernetes_validate.validate(made, "1.33", strict=True)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, "set kafka"),
        ({"kafka": "kafka:9092"}, "set redis"),
        ({**SERVERS, "redis": "redis://:secret@redis:6379/0"}, "redis"),
        ({**SERVERS, "parts": {"workers": {"replicas": 2}}}, "workers"),
        (ADDRESSES, r"set network\.kafka\.peers"),
        ({**SERVERS, "network": {"kafka": {"peers": KAFKA}}}, r"set network\.redis\.peers"),
        (
            {**WHOLE, "network": {**SERVERS["network"], "registry": {"port": 8081}}},
            r"network\.registry\.peers",
        ),
        ({**SERVERS, "image": {"digest": "sha256:abc"}}, "digest"),
        ({**SERVERS, "parts": {"worker": {"resources": {"limits": None}}}}, "limits"),
    ],
)
def test_values_that_lead_nowhere_are_refused(values: dict[str, Any], said: str) -> None:
    with pytest.raises(helm.HelmError, match=said):
        manifests(values)


def test_every_part_runs_a_command_that_exists_with_settings_that_exist(tmp_path: Path) -> None:
    made = manifests(WHOLE)
    [settings] = [each["data"]["stream.toml"] for each in made if each["kind"] == "ConfigMap"]
    (tmp_path / "stream.toml").write_text(settings)
    for name, pod in pods(WHOLE).items():
        assert parse(container(pod)["args"]).startswith("stream-dp ")
        loaded = load_settings(tmp_path / "stream.toml", environment(pod))
        assert (loaded.stream, loaded.kafka) == ("shop", ADDRESSES["kafka"])
        if name == "worker":
            assert (loaded.redis, loaded.noise_key) == (ADDRESSES["redis"], "env:NOISE_KEY")


def test_what_sees_releases_only_is_given_neither_redis_nor_the_key() -> None:
    for name, pod in pods(WHOLE).items():
        private = name == "worker"
        [given] = [source["secretRef"]["name"] for source in container(pod)["envFrom"]]
        assert given == ("stream-dp-private" if private else "stream-dp-public")
        assert ("STREAM_DP_REDIS" in environment(pod)) is private
        assert ("STREAM_DP_NOISE_KEY" in environment(pod)) is private
        assert pod["metadata"]["labels"]["stream-dp/sees"] == ("events" if private else "releases")


def test_network_policies_close_everything_but_what_a_part_needs() -> None:
    everywhere = {each["metadata"]["name"]: each["spec"] for each in manifests(WHOLE) if is_policy(each)}
    of_all = {"app.kubernetes.io/name": "stream-dp", "app.kubernetes.io/instance": "shop"}
    assert everywhere["shop-closed"] == {
        "podSelector": {"matchLabels": of_all},
        "policyTypes": ["Ingress", "Egress"],
    }

    def reachable(labels: dict[str, str]) -> set[int]:
        """The ports that a pod with these labels may connect to."""
        rules = [
            rule
            for policy in everywhere.values()
            if policy["podSelector"]["matchLabels"].items() <= labels.items()
            for rule in policy.get("egress", [])
        ]
        return {port["port"] for rule in rules for port in rule["ports"]}

    for name, pod in pods(WHOLE).items():
        known = {53, 9092} | ({6379, 8081} if name == "worker" else set())
        assert reachable(pod["metadata"]["labels"]) == known, name
    assert {name for name, policy in everywhere.items() if policy.get("ingress")} == {
        "shop-page",
        "shop-metrics",
    }
    named = {each["metadata"]["name"] for each in manifests(SERVERS) if is_policy(each)}
    assert named == {"shop-closed", "shop-kafka", "shop-redis"}, (
        "nobody reads metrics or sees the page unnamed"
    )


@pytest.mark.parametrize("values", [SERVERS, WHOLE], ids=["smallest", "whole"])
def test_no_rule_of_a_network_policy_is_open_to_all(values: dict[str, Any]) -> None:
    """A rule without peers, or with an empty list of them, is open to everybody: so an empty list makes no rule."""
    for each in filter(is_policy, manifests(values)):
        for direction, peers in (("ingress", "from"), ("egress", "to")):
            assert all(rule.get(peers) and rule.get("ports") for rule in each["spec"].get(direction, []))


def is_policy(made: dict[str, Any]) -> bool:
    return bool(made["kind"] == "NetworkPolicy")


def test_containers_have_no_privileges_and_bounded_memory() -> None:
    for pod in pods(WHOLE).values():
        assert container(pod)["resources"]["limits"]["memory"]
        assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
        assert pod["spec"]["automountServiceAccountToken"] is False
        assert container(pod)["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


def test_the_image_is_named_by_its_digest_if_there_is_one() -> None:
    [version] = {container(pod)["image"] for pod in pods(SERVERS).values()}
    assert {container(pod)["image"] for pod in pods(WHOLE).values()} == {f"{version}@sha256:{'ab' * 32}"}


def test_a_part_of_several_replicas_is_guarded_against_disruptions() -> None:
    made = manifests(WHOLE)
    guarded = {each["metadata"]["name"] for each in made if each["kind"] == "PodDisruptionBudget"}
    assert guarded == {"shop-worker"}


@contextmanager
def running(pod: dict[str, Any], folder: Path, reachable: dict[str, str]) -> Iterator[str | None]:
    """The pod's container as a process; gives the address of its readiness probe, if it has one."""
    only = container(pod)
    port, operators = free_ports()
    here = {
        "8080": str(port),
        "0.0.0.0": "127.0.0.1",
        "0.0.0.0:9464": f"127.0.0.1:{port}",
        "0.0.0.0:9465": f"127.0.0.1:{operators}",
    }
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ENVIRONMENT_PREFIX)}
    given = {name: here.get(value, value) for name, value in environment(pod).items()}
    given |= {name: value for name, value in reachable.items() if name in given or name == "NOISE_KEY"}
    log = folder / f"{only['name']}-{port}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "stream_dp.cli", *(here.get(word, word) for word in only["args"])],
            cwd=folder,
            env=kept | given | {OPERATOR_TOKEN: "0123456789abcdef"},
            stdout=output,
            stderr=output,
        )
    probe = only.get("readinessProbe")
    try:
        yield f"http://127.0.0.1:{port}{probe['httpGet']['path']}" if probe else None
        assert process.poll() is None, log.read_text()
    finally:
        process.terminate()
        process.wait(GIVE_UP_SECONDS)
    assert process.returncode in (0, -signal.SIGTERM), log.read_text()
    assert b"Traceback" not in log.read_bytes()


def is_ready(address: str) -> bool:
    try:
        with urlopen(address, timeout=30) as answer:
            return bool(answer.status == 200)
    except (URLError, OSError):
        return False


def test_the_containers_release_what_was_sent(tmp_path: Path) -> None:
    """Two workers, the table and the page, as the chart runs them."""
    broker = start_broker(tmp_path / "kafka")
    (tmp_path / "stream.toml").write_text(TICKS)
    try:
        with redis_server.running(tmp_path / "redis") as redis:
            admin = KafkaAdminClient(bootstrap_servers=broker.address)
            admin.create_topics([NewTopic("shop.events", 2, 1)])
            admin.close()
            reachable = {
                "STREAM_DP_KAFKA": broker.address,
                "STREAM_DP_REDIS": redis.url,
                "NOISE_KEY": "ab" * 32,
            }
            with ExitStack() as started:
                replicas = [
                    pod for name, pod in pods(WHOLE).items() for _ in range(1 if name in ("table", "dashboard") else 2)
                ]  # fmt: skip
                probes = [started.enter_context(running(pod, tmp_path, reachable)) for pod in replicas]
                for probe in filter(None, probes):
                    wait_until(partial(is_ready, probe), partial("{} is not ready".format, probe))
                with KafkaProducer(bootstrap_servers=broker.address) as producer:
                    for number in range(400):
                        producer.send("shop.events", b'{"items": ["tea"]}', partition=number % 2)
                with subscribe(broker.address, "shop", "earliest") as releases:
                    shown = next(release for release in releases if release.histogram)
                assert list(shown.histogram) == ["tea"]
    finally:
        broker.stop()


def test_the_versions_are_those_of_the_package() -> None:
    told = yaml.safe_load((CHART / "Chart.yaml").read_text())
    package = (CHART.parents[1] / "stream_dp" / "__init__.py").read_text()
    [version] = re.findall(r'__version__ = "(.+)"', package)
    assert (told["version"], told["appVersion"]) == (version, version)
