"""deploy/chart in a Kubernetes whose containers run, installed with the commands and values of docs/operations."""

import json
import re
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from tests.docs.compose import ROOT
from tests.docs.shown import blocks
from tests.kubernetes.cluster import IMAGES, Cluster, build, lacking, prepare_images
from tests.system.waiting import wait_until

pytestmark = pytest.mark.timeout(3600)

PAGE = (
    (ROOT / "docs" / "operations" / "deployment.md")
    .read_text()
    .partition("## Kubernetes\n")[2]
    .partition("\n## ")[0]
)
SERVERS = Path(__file__).parent / "servers.yaml"
INSTALL, BUDGET = blocks(PAGE, "sh")
[VALUES] = blocks(PAGE, "yaml")
ALL = """
parts: {table: {replicas: 1}}
ingress: {host: counts.example, className: nginx, tlsSecret: counts-tls}
network:
  registry: {port: 8081, peers: [{ipBlock: {cidr: 10.20.0.0/16}}]}
  monitoring: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: monitoring}}}]
"""
HELM = "helm {} shop deploy/chart --values values.yaml --values all.yaml --wait --timeout 2m"
SEND = """kubectl exec --namespace kafka --stdin deployment/kafka -- java -Xmx256m -cp '/opt/kafka/libs/*' \
    org.apache.kafka.tools.ConsoleProducer --bootstrap-server localhost:9092 --topic shop.events"""
TRY = """
import socket, sys
for place in sys.argv[1:]:
    try:
        socket.create_connection(place.split(":"), 3)
        print(place)
    except OSError:
        pass
"""


class Deployment(Cluster):
    sent = 0

    def install(self) -> None:
        """As the page says, but for the image, which comes from no registry; then with every part."""
        values = VALUES.replace("registry.example/stream-dp", "stream-dp")
        self.run("cat > values.yaml", given=re.sub("sha256:[.]+", self.digest(), values))
        self.run("cat > all.yaml", given=ALL)
        self.run(INSTALL.partition("\n")[2], "installer")
        self.run(BUDGET, "installer")
        self.wait_until_available()
        self.run(HELM.format("upgrade"), "installer")

    def digest(self) -> str:
        """Of our image, which is found by it from now on."""
        image = f"docker.io/library/{IMAGES[0]}"
        listed = self.run(f"ctr --namespace k8s.io images list name=={image}")
        [digest] = re.findall("sha256:[0-9a-f]{64}", listed)
        self.run(f"ctr --namespace k8s.io images tag {image} {image.rpartition(':')[0]}@{digest}")
        return str(digest)

    def wait_until_available(self) -> None:
        self.run("kubectl rollout status --timeout 3m deployment --selector app.kubernetes.io/instance=shop")

    def pods(self, part: str) -> dict[str, str]:
        """The addresses of the pods of a part."""
        selector = f"app.kubernetes.io/component={part}"
        found = json.loads(self.run(f"kubectl get pods --output json --selector {selector}"))["items"]
        return {
            each["metadata"]["name"]: each["status"]["podIP"]
            for each in found
            if "deletionTimestamp" not in each["metadata"]
        }

    def send(self, events: int) -> None:
        self.run(SEND, given='{"items": ["tea"]}\n' * events)
        self.sent += events

    def check_releases(self) -> None:
        """All that was sent is released, as one worker releases it, byte by byte."""
        told: dict[str, object] = {}

        def whole() -> bool:
            done = self.tried("kubectl exec deployment/shop-worker -- stream-dp verify --json")
            told.update(json.loads(done.stdout) if done.returncode == 0 else {"error": done.stderr})
            return told.get("rounds") == self.sent

        wait_until(whole, lambda: f"{self.sent} events were sent: {told}")
        assert (told["verdict"], told["sound"], told["missing"]) == ("identical", True, 0)


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    if reason := lacking():
        pytest.skip(reason)
    times = [time.monotonic()]
    build()
    times.append(time.monotonic())
    folder = tmp_path_factory.mktemp("kubernetes")
    prepare_images(folder)
    times.append(time.monotonic())
    running = Deployment(folder)
    try:
        running.start()
        running.run("kubectl apply --filename -", given=SERVERS.read_text())
        running.run("kubectl wait --all-namespaces --for=condition=Ready --timeout=3m pod --all")
        times.append(time.monotonic())
        running.install()
        times.append(time.monotonic())
        steps = [f"{after - before:.0f}" for before, after in pairwise(times)]
        print("\nbuilt in {} s, images in {} s, Kubernetes up in {} s, chart in {} s".format(*steps))
        yield running
    finally:
        running.leave()


def test_what_was_sent_is_on_the_page(deployment: Deployment) -> None:
    deployment.send(200)
    deployment.check_releases()
    service = "/api/v1/namespaces/counts/services/shop-dashboard:page/proxy"
    assert "tea" in deployment.run(f"kubectl get --raw '{service}/api/v1/release/latest?stream=shop'")


@pytest.mark.parametrize(
    ("who", "reached"),
    [
        ("worker", {"kafka", "redis"}),
        ("table", {"kafka"}),
        ("dashboard", {"kafka"}),
        ("--namespace ingress-nginx viewer", {"kafka", "redis", "page"}),
        ("--namespace monitoring prometheus", {"kafka", "redis", "metrics"}),
        ("--namespace default stranger", {"kafka", "redis"}),
    ],
)
def test_network_policies_let_through_what_the_page_says(
    deployment: Deployment, who: str, reached: set[str]
) -> None:
    pods = {part: next(iter(deployment.pods(part).items())) for part in ("worker", "table", "dashboard")}
    name, own = pods.get(who, (who, ""))
    worker, page = pods["worker"][1], pods["dashboard"][1]
    service = deployment.run("kubectl get service shop-dashboard --output jsonpath={.spec.clusterIP}")
    places = {
        "kafka.kafka.svc:9092": "kafka",
        "redis.redis.svc:6379": "redis",
        f"{service}:80": "page",
        f"{page}:8080": "page",
        f"{worker}:9464": "metrics",
        f"{worker}:9465": "metrics",
    }
    tried = [place for place in places if place.split(":")[0] != own]
    told = deployment.run(f"kubectl exec {name} -- python -c '{TRY}' {' '.join(tried)}").split()
    assert told == [place for place in tried if places[place] in reached]


@pytest.mark.parametrize("part", ["worker", "table", "dashboard"])
def test_a_container_may_do_nothing_but_its_work(deployment: Deployment, part: str) -> None:
    inside = f"kubectl exec deployment/shop-{part} --"
    status = deployment.run(f"{inside} cat /proc/self/status").splitlines()
    told = dict(line.split(":\t", 1) for line in status)
    locked = {"CapEff": "0" * 16, "CapBnd": "0" * 16, "NoNewPrivs": "1", "Seccomp": "2"}
    assert {name: told[name] for name in locked} == locked
    assert set(told["Uid"].split()) == set(told["Gid"].split()) == {"10001"}
    for place in ("/", "/etc", "/opt", "/app"):
        assert deployment.tried(f"{inside} touch {place}/new").returncode, place


@pytest.mark.parametrize(
    "more", ["", "--values all.yaml", "--set parts.dashboard.replicas=0 --set network.enabled=false"]
)
def test_nothing_is_refused_or_warned_about_where_pods_are_restricted(
    deployment: Deployment, more: str
) -> None:
    made = deployment.run(f"helm template other deploy/chart --values values.yaml {more}")
    apply = "kubectl apply --dry-run=server --filename -"
    done = deployment.tried(apply, "installer", made)
    assert (done.returncode, done.stderr) == (0, "")
    done = deployment.tried(apply, "installer", made.replace("Escalation: false", "Escalation: true"))
    assert "would violate PodSecurity" in done.stderr


def kill(deployment: Deployment) -> None:
    """Each worker, so the one that counts too."""
    for name in deployment.pods("worker"):
        deployment.run(f"kubectl delete pod {name} --force --grace-period=0 --wait=false")
        deployment.send(20)
        deployment.wait_until_available()


def evict(deployment: Deployment) -> None:
    """At most one pod of a part is taken away at a time."""

    def tried(name: str) -> str:
        asked = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
        place = f"/api/v1/namespaces/counts/pods/{name}/eviction"
        return deployment.tried(f"kubectl create --raw {place} --filename -", given=json.dumps(asked)).stderr

    first, second = deployment.pods("worker")
    assert tried(first) == ""
    assert "would violate the pod's disruption budget" in tried(second)


def upgrade(deployment: Deployment) -> None:
    """New settings start new pods."""
    before = set(deployment.pods("worker"))
    changed = f"settings:{VALUES.partition('settings:')[2]}\n  batch_rounds = 50\n"
    deployment.run("cat > settings.yaml", given=changed)
    done = deployment.tried(f"{HELM.format('upgrade')} --values settings.yaml", "installer")
    assert (done.returncode, done.stderr) == (0, "")
    assert not before & set(deployment.pods("worker"))


def uninstall_and_install(deployment: Deployment) -> None:
    deployment.run("helm uninstall shop --wait", "installer")
    kinds = "deployments,services,configmaps,networkpolicies,poddisruptionbudgets,ingresses,secrets"
    left = deployment.run(f"kubectl get {kinds} --output name").split()
    assert left == ["configmap/kube-root-ca.crt", "secret/stream-dp-private"]
    deployment.run(HELM.format("install"), "installer")


@pytest.mark.parametrize("happens", [kill, evict, upgrade, uninstall_and_install])
def test_nothing_is_lost_or_counted_twice(
    deployment: Deployment, happens: Callable[[Deployment], None]
) -> None:
    deployment.send(20)
    happens(deployment)
    deployment.send(20)
    deployment.wait_until_available()
    deployment.check_releases()
