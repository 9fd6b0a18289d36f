"""A container engine of one's own, stand-ins for the images that no registry was asked for, and Compose.

It runs as root, by Debian's packages docker.io and mmdebstrap.  What it stores is below build/containers, so that a
second run takes its images from there; no network, process or container of it is left behind.
"""

import os
import re
import shutil
import subprocess
import time
from pathlib import Path

from stream_dp.dev.child_process import spawn, stop_owned, wait_until
from tests.apache_kafka import server as apache_kafka
from tests.docs.compose import ROOT

HERE = Path(__file__).parent
PLACE = ROOT / "build" / "containers"
DIGEST = re.compile(r"@sha256:[0-9a-f]{64}")
PYTHON = "python3,python3-venv,libpython3-dev,ca-certificates,passwd"
SERVERS = "openjdk-25-jre-headless,valkey-server,valkey-tools,prometheus,wget,passwd"
STAND_INS = {
    "kafka": "apache/kafka:4.3.1",
    "valkey": "valkey/valkey:9.1",
    "prometheus": "prom/prometheus:v3.5.0",
}
EMPTY = {
    "filter": ":INPUT ACCEPT\n:FORWARD ACCEPT\n:OUTPUT ACCEPT",
    "nat": ":PREROUTING ACCEPT\n:INPUT ACCEPT\n:OUTPUT ACCEPT\n:POSTROUTING ACCEPT",
}
"""Tables of the firewall that an engine makes, as they are without one."""

MIRROR = "http://deb.debian.org/debian"


def lacking() -> str | None:
    """Why no engine can be started here; None if one can."""
    if os.geteuid():
        return "only root may start a container engine"
    if Path("/run/docker.sock").exists():
        return "an engine runs here already, and a second one would share its firewall"
    for program, package in {"dockerd": "docker.io", "mmdebstrap": "mmdebstrap", "go": "golang"}.items():
        if shutil.which(program) is None:
            return f"no {program} (Debian: apt-get install {package})"
    return None


class Engine:
    def __init__(self, folder: Path) -> None:
        PLACE.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._rules = ""
        self._socket = folder / "engine.sock"
        self.environment = {
            **os.environ,
            "DOCKER_HOST": f"unix://{self._socket}",
            "DOCKER_BUILDKIT": "0",  # the builder that is in the engine
        }

    def start(self) -> None:
        self._rules = self._rules or subprocess.check_output(["iptables-save"], text=True)
        places: list[str | Path] = ["--data-root", PLACE / "engine", "--exec-root", self._folder / "run"]
        own: list[str | Path] = [
            "--pidfile",
            self._folder / "pid",
            "--host",
            f"unix://{self._socket}",
            "--bridge",
            "none",
        ]
        log = self._folder / "engine.log"
        self._process = spawn(["dockerd", *places, *own], log, owned=True)
        wait_until(self._answers, self._process, log, "the engine")

    def stop(self) -> None:
        assert self._process is not None
        self._process.terminate()
        self._process.wait(120)  # it ends its containers, each of which has a minute
        stop_owned(self._process)

    def leave(self) -> None:
        """Stop, and leave the firewall and the mounts of this machine as they were."""
        self.stop()
        for mount in reversed(Path("/proc/mounts").read_text().splitlines()):
            if mount.split()[1].startswith(f"{self._folder}/"):
                subprocess.run(["umount", mount.split()[1]], check=True)
        new = [
            f"*{name}\n{chains}\nCOMMIT\n"
            for name, chains in EMPTY.items()
            if f"*{name}\n" not in self._rules
        ]
        subprocess.run(["iptables-restore"], input=self._rules + "".join(new), text=True, check=True)

    def _answers(self) -> bool:
        return self.tried("info").returncode == 0

    def tried(self, *words: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["docker", *words], env=self.environment, capture_output=True, text=True)

    def docker(self, *words: str | Path) -> str:
        done = self.tried(*words)
        assert done.returncode == 0, (words, done.stdout[-2000:] + done.stderr[-2000:])
        return done.stdout.strip()

    def has(self, image: str) -> bool:
        return self.tried("image", "inspect", image).returncode == 0

    def prepare_images(self) -> None:
        """All images but ours, under the names that the files use."""
        if not self.has("python:3.12.12-slim"):
            self.debian("python:3.12.12-slim", PYTHON, 'ln -s python3 "$1/usr/bin/python"')
        if not self.has("servers"):
            self.debian("servers", SERVERS, "true")
        context = self._folder / "images"
        shutil.copytree(HERE / "images", context)
        shutil.copytree(apache_kafka.jars(), context / "libs")
        tools = apache_kafka.JAR_CACHE / f"tools-{apache_kafka.version()}"
        apache_kafka.fetch(HERE / "pom.xml", tools)
        shutil.copytree(tools, context / "libs", dirs_exist_ok=True)
        for target, image in STAND_INS.items():
            self.docker("build", "--quiet", "--network", "host", "--target", target, "--tag", image, context)

    def debian(self, image: str, packages: str, hook: str) -> None:
        """A Debian of few packages, which trusts whom this machine trusts."""
        made = self._folder / "system.tar"
        trust = "copy-in /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs"
        subprocess.run(
            [
                *("mmdebstrap", "--quiet", "--variant=apt", f"--include={packages}"),
                *("--aptopt=Apt::Install-Recommends false", "--dpkgopt=path-exclude=/usr/share/doc/*"),
                "--dpkgopt=path-exclude=/usr/lib/*.a",  # the image that it stands for has headers, too
                *(f"--customize-hook={hook}", f"--customize-hook={trust}", "trixie", made, MIRROR),
            ],
            check=True,
        )
        path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        self.docker("import", "--change", f"ENV {path}", made, image)
        made.unlink()

    def build(self, project: Path, *options: str) -> float:
        """Our images from the Dockerfile; gives the seconds."""
        began = time.monotonic()
        for target, name in (("worker", "stream-dp"), ("jobs", "stream-dp-jobs")):
            self.docker("build", "--network", "host", "--target", target, "--tag", name, *options, project)
        return time.monotonic() - began


def compose_program() -> Path:
    program = PLACE / "docker-compose"
    build: list[str | Path] = [
        "go",
        "build",
        "-mod=readonly",
        "-o",
        program,
        "github.com/docker/compose/v2/cmd",
    ]
    subprocess.run(build, cwd=HERE / "compose", check=True)
    return program


def copy_project(folder: Path) -> None:
    """What git has of this repository; no image is asked for by a digest that only a registry knows."""
    for name in subprocess.check_output(["git", "ls-files", "-z"], cwd=ROOT, text=True).split("\0")[:-1]:
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    for name in ("Dockerfile", "docker-compose.yml"):
        (folder / name).write_text(DIGEST.sub("", (folder / name).read_text()))
