"""What the container, the services and the workflows are made of is named by digest, by hash or by commit."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.docs.compose import COMPOSE, ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS = ["worker", "jobs"]
LOCKS = ROOT / "deploy"
OF_IMAGES = re.compile(r"^ *(?:FROM|image:) (?!stream-dp(?:-jobs)?$|common )(.+?)(?: AS \w+)?$", re.MULTILINE)
OF_ACTIONS = re.compile(r"uses: *(.+)$", re.MULTILINE)
BY_DIGEST = re.compile(r"[\w./-]+:[\w.-]+@sha256:[0-9a-f]{64}")
BY_COMMIT = re.compile(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v[\w.]+")


@pytest.mark.parametrize(
    ("written", "files", "form", "least", "loose"),
    [
        (OF_IMAGES, [ROOT / "Dockerfile", COMPOSE], BY_DIGEST, 6, "    image: valkey/valkey:9.1"),
        (OF_ACTIONS, [*(ROOT / ".github/workflows").glob("*.yml")], BY_COMMIT, 15, "- uses: actions/checkout@v4"),
    ],
    ids=["images", "actions"],
)  # fmt: skip
def test_nothing_is_named_by_a_tag_alone(
    written: re.Pattern[str], files: list[Path], form: re.Pattern[str], least: int, loose: str
) -> None:
    found = [each for file in files for each in written.findall(file.read_text())]
    assert len(found) >= least
    assert [each for each in found if not form.fullmatch(each)] == []
    assert [each for each in written.findall(loose) if form.fullmatch(each)] == [], "it would be noticed"


def required(texts: list[str]) -> dict[str, Requirement]:
    """What these requirements name, extras of the package itself resolved."""
    found: dict[str, Requirement] = {}
    for each in map(Requirement, texts):
        if canonicalize_name(each.name) == "stream-dp":
            for extra in each.extras:
                found |= required(PROJECT["project"]["optional-dependencies"][extra])
        else:
            found[canonicalize_name(each.name)] = each
    return found


@pytest.mark.parametrize(
    ("lock", "wanted"),
    [
        ("image/requirements.txt", [*PROJECT["project"]["dependencies"], f"stream-dp[{','.join(EXTRAS)}]"]),
        ("image/build.txt", [*PROJECT["dependency-groups"]["build"], *PROJECT["build-system"]["requires"]]),
        ("release.txt", [*PROJECT["dependency-groups"]["release"], *PROJECT["build-system"]["requires"]]),
    ],
)
def test_the_locks_are_in_step_with_the_project(lock: str, wanted: list[str]) -> None:
    """`make lock` mends it.  What the project asks for is what the lock says the project asked for, with hashes."""
    entries = re.findall(r"^([\w.-]+)==(\S+).*\n((?: +.*\n?)+)", (LOCKS / lock).read_text(), re.MULTILINE)
    assert [name for name, _, rest in entries if "--hash=sha256:" not in rest] == []
    direct = {name: version for name, version, rest in entries if "stream-dp (pyproject.toml" in rest}
    needed = required(wanted)
    assert direct.keys() == needed.keys()
    for name, version in direct.items():
        assert needed[name].specifier.contains(version), f"{name} {version}: run `make lock`"


def test_the_image_installs_what_the_locks_name_and_nothing_else() -> None:
    lines = re.sub(r"\\\n", "", (ROOT / "Dockerfile").read_text())
    runs = [
        run.strip() for line in lines.splitlines() if line.startswith("RUN ") for run in line[4:].split("&&")
    ]
    fetching = [run for run in runs if re.search(r"\bpip (--python \S+ )?(install|wheel|download)\b", run)]
    assert len(fetching) == 5
    assert [run for run in fetching if "--require-hashes" not in run and "--no-index" not in run] == []
    assert [run for run in fetching if "pip wheel" in run and "--no-build-isolation" not in run] == []
    assert not [run for run in runs if re.search(r"\b(apt-get|apk|curl|wget|npm)\b", run)]
    makefile = (ROOT / "Makefile").read_text()
    assert "".join(f"--extra {extra} " for extra in EXTRAS) in makefile


FAKE = """#!/bin/sh
case "$*" in
  *imagetools*) echo sha256:%(a)s ;;
  *ls-remote*checkout*) printf '%(b)s\\trefs/tags/v4.3.1\\n%(c)s\\trefs/tags/v4.3.1^{}\\n' ;;
  *) for last; do :; done; tag=${last%%%%^*}; printf '%(b)s\\t%%s\\n' "$tag" ;;
esac
"""


def test_pins_are_renewed_from_what_the_tags_stand_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With servers in place of registries; a signed tag stands for the commit that it points to."""
    answers = {"a": "a" * 64, "b": "b" * 40, "c": "c" * 40}
    (tmp_path / "bin").mkdir()
    for program in ("docker", "git"):
        (tmp_path / "bin" / program).write_text(FAKE % answers)
        (tmp_path / "bin" / program).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    (tmp_path / "deploy").mkdir()
    (tmp_path / ".github" / "workflows").mkdir(parents=True)
    files = [
        Path("Dockerfile"),
        Path(COMPOSE.name),
        Path("deploy/pins.py"),
        Path(".github/workflows/tests.yml"),
    ]
    for file in files:
        (tmp_path / file).write_text((ROOT / file).read_text())
    subprocess.run([sys.executable, tmp_path / "deploy" / "pins.py"], check=True, capture_output=True)
    digests = [re.findall(r"sha256:(\w+)", (tmp_path / file).read_text()) for file in files[:2]]
    assert digests == [[answers["a"]] * 2, [answers["a"]] * 4]
    pinned = OF_ACTIONS.findall((tmp_path / files[3]).read_text())
    assert set(pinned) == {
        f"actions/checkout@{answers['c']} # v4.3.1",
        f"actions/setup-python@{answers['b']} # v5.6.0",
    }
