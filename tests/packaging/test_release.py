"""A release in a clone: all of it or nothing, and what the workflow then does with the tag."""

import hashlib
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from stream_dp import __version__
from tests.package import PYTHONS

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "deploy" / "release.py"
WORKFLOWS = ROOT / ".github" / "workflows"
KNOWN = runpy.run_path(str(SCRIPT))
PLACES: dict[str, str] = KNOWN["PLACES"]
LOCK: str = KNOWN["LOCK"]
LIKE_A_VERSION = r"""(?:__version__ = |[vV]ersion: |\bstream[-_]dp(?:==|[:@-]))["']?(\d+\.\d+\.\d+)"""
CHANGELOG = "# Changelog\n\n## [Unreleased]\n\n### Added\n\n- Tea.\n\n## [7.0.0] - 2026-01-02\n\n- Milk.\n"
ENVIRONMENT = os.environ | {
    "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    "GIT_CONFIG_GLOBAL": os.devnull,
    **{f"GIT_{who}_{what}": "tester" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
}


def told(command: str, at: Path, **environment: str) -> str:
    done = ["bash", "-eo", "pipefail", "-c", command]
    return subprocess.run(
        done, cwd=at, env=ENVIRONMENT | environment, stdout=subprocess.PIPE, text=True, check=True
    ).stdout.strip()


def asked(version: str, at: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, str(SCRIPT), "make", version]
    return subprocess.run(command, cwd=at, env=ENVIRONMENT, capture_output=True, text=True, check=False)


def repository(place: Path) -> Path:
    """What a release needs, with a changelog and a tag of its own; of the package its first file alone, to be quick."""
    for name in (*PLACES, "deploy/release.py", LOCK, "pyproject.toml", "README.md", "LICENSE", ".gitignore"):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, place / name)
    (place / "CHANGELOG.md").write_text(CHANGELOG)
    told(
        "git init --quiet --initial-branch main; git add .; git commit --quiet -m All; git tag v7.0.1", place
    )
    return place


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = repository(tmp_path_factory.mktemp("released"))
    done = asked("7.1.0", place)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].endswith("git push --atomic origin main v7.1.0")
    return place


def test_the_version_stands_where_the_release_writes_it_and_nowhere_else() -> None:
    names = told("git ls-files -- ':!tests' ':!*.svg' ':!*/vendor/*'", ROOT).splitlines()
    texts = ((name, (ROOT / name).read_text(errors="ignore")) for name in names)
    found = {(name, version) for name, text in texts for version in re.findall(LIKE_A_VERSION, text)}
    assert found == {(name, __version__) for name in PLACES}


def test_a_release_is_one_commit_on_main_with_a_tag(released: Path) -> None:
    assert told("git log -1 --format='%s %D'", released).startswith("Release 7.1.0 HEAD -> main, tag: v7.1.0")
    state = told("git cat-file -t v7.1.0; git status --porcelain; git worktree list | wc -l", released)
    assert state == "tag\n1"
    changed = told("git diff --name-only HEAD~1", released).splitlines()
    assert changed == sorted(["CHANGELOG.md", *PLACES])
    written = {v for name in PLACES for v in re.findall(LIKE_A_VERSION, (released / name).read_text())}
    assert written == {"7.1.0"}
    before, day, after = re.split(r"(?<=\[7\.1\.0\] - )([\d-]{10})", (released / "CHANGELOG.md").read_text())
    assert day == told("git log -1 --format=%as", released)
    assert before + after == CHANGELOG.replace("[Unreleased]\n", "[Unreleased]\n\n## [7.1.0] - \n")


def test_digests_are_right_and_the_sbom_names_each_package_with_all_its_hashes(released: Path) -> None:
    files = released / "build" / "stream_dp-7.1.0"
    sums = dict(line.split()[::-1] for line in (files / "SHA256SUMS").read_text().splitlines())
    digests = {each.name: hashlib.sha256(each.read_bytes()).hexdigest() for each in files.iterdir()}
    assert digests.items() - sums.items() == {("SHA256SUMS", digests["SHA256SUMS"])}
    assert len(sums.keys() - {"stream_dp-7.1.0.cdx.json", "stream_dp-7.1.0.tar.gz"}) == 1, "the wheel"
    bill = json.loads((files / "stream_dp-7.1.0.cdx.json").read_text())
    short = bill | {key: bill[key][:2] for key in ("components", "dependencies")}  # one is like another
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(short)) is None
    assert bill["metadata"]["component"]["purl"] == "pkg:pypi/stream-dp@7.1.0"
    lock = (ROOT / LOCK).read_text()
    entries = re.findall(r"^([\w.-]+)==([\w.]+)[^\\]*((?: \\\n +--hash=sha256:\w+)+)", lock, re.MULTILINE)
    wanted = {(name, version): set(re.findall(r"sha256:(\w+)", hashes)) for name, version, hashes in entries}
    listed = {
        (each["name"], each["version"]): {one["content"] for one in each["externalReferences"][0]["hashes"]}
        for each in bill["components"]
    }
    assert listed == wanted
    assert len(wanted) == len(re.findall(r"^\w", lock, re.MULTILINE))


REFUSED = [
    ("true", "7.1", "'7.1' is not a version: give three numbers, as in `make release VERSION=0.2.0`."),
    ("true", "7.0.1", "Version 7.0.1 is not newer than 7.0.1, which has been released: choose a newer one."),
    ("true", "6.9.0", "Version 6.9.0 is not newer than 7.0.1, which has been released: choose a newer one."),
    (
        "git switch --quiet -c tea",
        "7.1.0",
        "Releases are made on main, and this is tea: run `git switch main`.",
    ),
    ("echo >new; rm LICENSE", "7.1.0", "Commit these changes first, or take them back: LICENSE, new."),
    (
        "sed -i '/Tea/d' CHANGELOG.md; git commit -qam Less",
        "7.1.0",
        "CHANGELOG.md says nothing under `## [Unreleased]`: write there what has changed.",
    ),
]


@pytest.mark.parametrize(("before", "version", "sentence"), REFUSED)
def test_what_is_wrong_is_said_in_a_sentence(
    before: str, version: str, sentence: str, tmp_path: Path
) -> None:
    told(before, repository(tmp_path))
    done = asked(version, tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", sentence + "\n")


NO_LOOPS = (
    f"cp '{ROOT}/setup.py' .; mkdir stream_dp/loops; echo '#error' >stream_dp/loops/broken.c; git add ."
)
BREAKS = {
    "build": ("echo broken >>pyproject.toml; git commit -qam Broken", "`.* build .*` failed, as said above."),
    "compile": (
        f"{NO_LOOPS}; git commit -qm Broken",
        "The loops in C were not compiled: install a C compiler .*",
    ),
    "sign": (
        "git config user.signingkey nobody; git config gpg.program false",
        "`git tag .*` failed, as said above.",
    ),
    "move main": ("touch .git/index.lock", "`git merge .*` failed, as said above."),
}


@pytest.mark.parametrize("step", BREAKS)
def test_nothing_is_changed_if_a_step_fails(step: str, tmp_path: Path) -> None:
    broken, sentence = BREAKS[step]
    told(broken, repository(tmp_path))
    state = "git status --porcelain --ignored; git for-each-ref; git worktree list"
    before = told(state, tmp_path)
    done = asked("7.1.0", tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(sentence, done.stderr.splitlines()[-1])
    assert told(state, tmp_path) == before


GH = """#!/bin/sh
echo "$*" >>"$STORE.log"
case "$1 $2" in
  "release view") test -d "$STORE" ;;
  "release create") mkdir "$STORE" && cat >"$STORE.notes" ;;
  "release upload") shift 4 && cp "$@" "$STORE" ;;
  "release download") mkdir "$5" && cp "$STORE"/$7 "$5" ;;
esac
"""


def test_the_steps_of_the_workflow_work_together(released: Path, tmp_path: Path) -> None:
    """With a folder in place of the release on GitHub; what is installed is here already."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/gh").write_text(GH)
    (tmp_path / "bin/gh").chmod(0o755)
    values = {
        "PATH": f"{tmp_path}/bin:{ENVIRONMENT['PATH']}",
        "STORE": str(tmp_path / "store"),
        "GITHUB_SERVER_URL": "https://github.com",
        "GITHUB_REPOSITORY": "tea/stream_dp",
        "GITHUB_REF_NAME": "v7.1.0",
    } | dict.fromkeys(("GITHUB_REF", "GITHUB_SHA", "GITHUB_WORKFLOW_REF"), "it")
    for job, described in yaml.safe_load((WORKFLOWS / "release.yml").read_text())["jobs"].items():
        told(f"git clone --quiet --branch v7.1.0 '{released}' {job} 2>/dev/null", tmp_path)
        for step in described["steps"]:
            if "run" in step and "pip install" not in step["run"]:
                told(step["run"], tmp_path / job, **values)
    store, shown = tmp_path / "store", (tmp_path / "store.log").read_text()
    names = {each.name for each in store.iterdir()}
    assert len(names) == 4
    told("sha256sum --check --strict SHA256SUMS", store)
    for name in names - {"SHA256SUMS"}:
        assert f"attestation verify dist/{name} --repo tea/stream_dp" in shown
    assert {each.name for each in (tmp_path / "publish/dist").iterdir()} == {
        n for n in names if n.endswith((".whl", ".gz"))
    }
    assert shown.splitlines()[-1] == "release edit v7.1.0 --draft=false"
    assert re.fullmatch(
        r"## \[7.1.0\] - [\d-]+\n\n### Added\n\n- Tea.\n\n", (tmp_path / "store.notes").read_text()
    )
    [wheel] = store.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        metadata = packed.read("stream_dp-7.1.0.dist-info/METADATA").decode()
    assert "\nProject-URL: Source, https://github.com/tea/stream_dp\n" in metadata


def test_the_pythons_are_those_of_the_metadata_everywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = [each[1] for each in map(re.compile(r".* :: (3\.\d+)$").match, project["classifiers"]) if each]
    jobs = yaml.safe_load((WORKFLOWS / "tests.yml").read_text())["jobs"].values()
    matrices = [job["strategy"]["matrix"] for job in jobs if "strategy" in job]
    assert [matrix["python"] for matrix in matrices if "python" in matrix] == [named, named]
    assert list(PYTHONS) == named
