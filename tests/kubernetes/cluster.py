"""A Kubernetes of one node whose containers really run: built from source, in namespaces of Linux of its own.

Nothing is fetched but Go modules and what `make containers` fetches.  The node has a network, mounts and processes that
nobody else sees and that end with it.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

from stream_dp.dev.child_process import spawn, stop_owned
from tests.containers import engine
from tests.docs.compose import ROOT
from tests.system.waiting import wait_until

HERE = Path(__file__).parent
BINARIES = ROOT / "build" / "kubernetes"
PARTS = ["apiserver", "controllers", "etcd", "kubectl", "kubelet", "policies", "proxy", "scheduler"]
[VERSION] = re.findall(r"k8s.io/kubernetes (\S+)", (HERE / "program" / "go.mod").read_text())
PLUGINS = Path("/usr/lib/cni")
CONTROL_GROUPS = Path("/sys/fs/cgroup")
IMAGES = ["stream-dp:0.1.0", "apache/kafka:4.3.1", "valkey/valkey:9.1", "names", "pause"]
PAUSE = 'FROM python:3.12.12-slim\nCMD ["sleep", "infinity"]\n'
"""What holds the network of a pod."""

ADDRESS = "192.0.2.1"
API = [
    f"--advertise-address={ADDRESS}",
    "--authorization-mode=Node,RBAC",
    "--cert-dir=certificates",
    "--etcd-servers=http://127.0.0.1:2379",
    "--kubelet-preferred-address-types=InternalIP",
    "--service-account-issuer=https://kubernetes.default.svc",
    "--service-account-key-file=key.pem",
    "--service-account-signing-key-file=key.pem",
    "--service-cluster-ip-range=10.96.0.0/16",
    "--token-auth-file=tokens.csv",
]
ADMIN = "--kubeconfig=admin.yaml"
NODE = [ADMIN, "--hostname-override=node"]
OF_THE_MACHINE = ["--conntrack-max-per-core=0", "--conntrack-tcp-timeout-established=0"]
"""Settings of the kernel that a node alone may change, left as they are."""


def lacking() -> str | None:
    """Why no cluster can be started here; None if one can."""
    if reason := engine.lacking():
        return reason
    if not (PLUGINS / "ptp").exists():
        return f"no {PLUGINS}/ptp (Debian: apt-get install containernetworking-plugins)"
    return None


def build() -> None:
    """Kubernetes and Helm, from their sources."""
    named = f"-X k8s.io/component-base/version.gitVersion={VERSION}"
    words = ["go", "build", "-mod=readonly", "-trimpath", f"-ldflags=-s -w {named}", "-o", f"{BINARIES}/"]
    subprocess.run([*words, ".", "helm.sh/helm/v3/cmd/helm"], cwd=HERE / "program", check=True)
    for part in PARTS:
        (BINARIES / part).unlink(missing_ok=True)
        (BINARIES / part).symlink_to("kubernetes")


def prepare_images(folder: Path) -> None:
    """The images of all pods, ours built from the Dockerfile, in one archive."""
    engine.copy_project(folder / "project")
    (folder / "pause").mkdir()
    (folder / "pause" / "Dockerfile").write_text(PAUSE)
    builder = engine.Engine(folder)
    builder.start()
    try:
        builder.prepare_images()
        if not builder.has("names"):
            builder.debian("names", "dnsmasq-base,ca-certificates", "true")
        builder.build(folder / "project")
        builder.docker("tag", "stream-dp", IMAGES[0])
        builder.docker("build", "--tag", "pause", folder / "pause")
        builder.docker("save", "--output", folder / "images.tar", *IMAGES)
    finally:
        builder.leave()


class Cluster:
    """Its commands run in `folder`/project, which is a copy of this repository."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        self._inside: list[str] = []
        shutil.copytree(HERE / "node", folder, dirs_exist_ok=True)
        config = (folder / "kubeconfig.yaml").read_text()
        for user in ("admin", "installer"):
            (folder / f"{user}.yaml").write_text(config.replace("USER", user))
        (folder / "tokens.csv").write_text("admin,admin,1,system:masters\ninstaller,installer,2\n")
        subprocess.run(["openssl", "genrsa", "-out", folder / "key.pem"], check=True, capture_output=True)

    def start(self) -> None:
        first = 'setpriv --pdeathsig KILL sh "$0/start.sh" "$0" & wait'
        self._run("unshare", "--mount", "--net", "--pid", "sh", "-c", first, str(self._folder))
        told = self._folder / "pid"
        wait_until(lambda: told.exists() and told.read_text().endswith("\n"), self._logs)
        self._inside = ["nsenter", "--target", told.read_text().strip(), "--mount", "--net", "--pid"]
        self._run("etcd", "--data-dir=etcd", "--unsafe-no-fsync")
        self._run("apiserver", *API)
        self._run("containerd", "--config=containerd.toml", f"--root={self._folder}/containerd")
        self._wait_for("ctr version")
        self.run("ctr --namespace k8s.io images import ../images.tar")
        (self._folder / "images.tar").unlink()
        self._wait_for("kubectl get --raw /readyz")
        self._run("controllers", ADMIN, "--service-account-private-key-file=key.pem")
        self._run("scheduler", ADMIN)
        self._run("kubelet", *NODE, "--config=kubelet.yaml", f"--node-ip={ADDRESS}")
        self._run("proxy", *NODE, *OF_THE_MACHINE)
        self._run("policies")
        self._wait_for("kubectl wait --for=condition=Ready node/node --timeout=1s")

    def _run(self, *words: str) -> None:
        log = self._folder / f"{len(self._processes)}.log"
        begin = 'umask 022; cd "$0"; exec "$@"'  # users of containers read what containerd makes
        command = [*self._inside, "env", *self._environment("admin"), "sh", "-c", begin, str(self._folder)]
        self._processes.append(spawn([*command, *words], log, owned=True))

    def _environment(self, user: str) -> list[str]:
        return [f"PATH={BINARIES}:{os.environ['PATH']}", f"KUBECONFIG={self._folder}/{user}.yaml"]

    def _wait_for(self, script: str) -> None:
        wait_until(
            lambda: self.tried(script).returncode == 0, lambda: self.tried(script).stderr + self._logs()
        )

    def _logs(self) -> str:
        return "\n".join(f"{log}: {log.read_text()[-2000:]}" for log in sorted(self._folder.glob("*.log")))

    def leave(self) -> None:
        """Stop; all processes end with the first one."""
        for process in reversed(self._processes):
            stop_owned(process)
        if self._inside:
            wait_until(
                lambda: not Path("/proc", self._inside[2]).exists(), lambda: "a process of the node stays"
            )
        for group in [*CONTROL_GROUPS.glob("kubepods"), *CONTROL_GROUPS.glob("*/kubepods")]:
            for folder, _, _ in os.walk(group, topdown=False):
                os.rmdir(folder)
        shutil.rmtree(self._folder / "containerd", ignore_errors=True)

    def tried(self, script: str, user: str = "admin", given: str = "") -> subprocess.CompletedProcess[str]:
        shell = ["env", "-C", f"{self._folder}/project", *self._environment(user), "sh", "-ec", script]
        return subprocess.run([*self._inside, *shell], input=given, capture_output=True, text=True)

    def run(self, script: str, user: str = "admin", given: str = "") -> str:
        done = self.tried(script, user, given)
        assert done.returncode == 0, (script, done.stdout[-3000:] + done.stderr[-3000:])
        return done.stdout
