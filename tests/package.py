"""Build the package, install it with each extra on each Python that is here, and let it do something: `make package`.

Every environment is new and holds only what that extra brings.  It ends with a table: which worked, and how large each
is without what Python compiles.  It needs uv and PyPI.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

import stream_dp

ROOT = Path(__file__).parents[1]
UV = shutil.which("uv", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}") or "uv"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
ORDERS = "customer,sku\n" + "".join(f"{number},tea\n" for number in range(500))

COUNT = "top-k --file orders.csv --item sku --user customer --epsilon 1 -k 1 --json"
CALIBRATE = "calibrate --epsilon 2 --delta 1e-6 --horizon 1023 --items-per-event 3 --json"
HISTOGRAM = """
import stream_dp
with stream_dp.Histogram(epsilon=20, delta=0.1, horizon=63, items_per_event=1, key_file="it.key") as found:
    assert found.observe(["tea"]).round == 1
"""


@dataclass(frozen=True)
class Smoke:
    """What an extra must be able to do: a program, or a command whose output holds a word."""

    extra: str
    command: str = ""
    word: str = ""
    program: str = ""


SMOKES = [
    Smoke(
        "", "--version", stream_dp.__version__, "import stream_dp; stream_dp.subscribe, stream_dp.read_table"
    ),
    Smoke("estimates", CALIBRATE, "epsilon"),
    Smoke("local", program=HISTOGRAM),
    Smoke("dashboard", "dashboard --help", "--port", "import stream_dp.dashboard.app"),
    Smoke("worker", CALIBRATE, "epsilon", "import stream_dp.workers.histogram"),
    Smoke("jobs", COUNT, '"tea"'),
    Smoke("demo", "demo --rounds 300 --json --no-dashboard --folder demo", "300"),
    Smoke("notebook", program="import stream_dp; stream_dp.watch"),
    Smoke("all", CALIBRATE, "epsilon"),
]


def main() -> int:
    """0 if every extra works on every Python that was asked for and is here."""
    arguments = argparse.ArgumentParser(prog="python -m tests.package", description=__doc__)
    arguments.add_argument(
        "--python", action="append", choices=PYTHONS, help="only this one; may be repeated"
    )
    arguments.add_argument("--extra", action="append", help="only this one; may be repeated")
    asked = arguments.parse_args()
    console, failed = Console(), 0
    with tempfile.TemporaryDirectory(prefix="package-") as name:
        folder = Path(name)
        wheel, source = built(folder)
        table = Table("Python", "extra", "MB", "works")
        for python in asked.python or PYTHONS:
            program = interpreter(python)
            if program is None:
                table.add_row(python, "", "", "not here")
                continue
            for smoke in SMOKES:
                if asked.extra and smoke.extra not in asked.extra:
                    continue
                # What is installed from source once is enough to know that it is whole.
                archive = source if (python, smoke.extra) == ("3.11", "jobs") else wheel
                size, why = tried(program, smoke, archive, folder / "tried")
                failed += bool(why)
                table.add_row(python, smoke.extra or "(none)", f"{size / 1e6:.0f}", why or "yes")
                console.print(
                    f"Python {python}, {smoke.extra or 'no extra'}: {why or 'works'}", highlight=False
                )
        console.print(table)
    return int(failed > 0)


def built(folder: Path) -> tuple[Path, Path]:
    """The wheel and the source archive, made of a copy of what git knows."""
    copy = folder / "source"
    subprocess.run(["git", "clone", "--quiet", ROOT, copy], check=True)
    subprocess.run([UV, "build", "--quiet", "--out-dir", str(folder / "dist"), str(copy)], check=True)
    [wheel], [source] = (list((folder / "dist").glob(f"*{ending}")) for ending in (".whl", ".tar.gz"))
    return wheel, source


def interpreter(python: str) -> str | None:
    """The program of this version: one that is on the path and runs, or one of pyenv."""
    of_pyenv = map(str, sorted(Path.home().glob(f".pyenv/versions/{python}.*/bin/python")))
    for found in filter(None, (shutil.which(f"python{python}"), *of_pyenv)):
        done = subprocess.run([found, "--version"], capture_output=True, text=True, check=False)
        if done.stdout.startswith(f"Python {python}."):
            return found
    return None


def tried(program: str, smoke: Smoke, archive: Path, folder: Path) -> tuple[int, str]:
    """The size of an environment with this extra, and what does not work there; nothing if all does."""
    shutil.rmtree(folder, ignore_errors=True)
    place, programs = folder / "venv", folder / "venv" / "bin"
    (folder / "work").mkdir(parents=True)
    (folder / "work" / "orders.csv").write_text(ORDERS)
    made = [UV, "venv", "--quiet", "--no-project", "--python", program, place]
    wanted = f"stream_dp{f'[{smoke.extra}]' if smoke.extra else ''} @ {archive.as_uri()}"
    installed = [UV, "pip", "install", "--quiet", "--python", programs / "python", wanted]
    for words in (made, installed):
        done = run(words, folder)
        if done.returncode:
            return 0, last_line(done.stderr)
    if smoke.program:
        done = run([programs / "python", "-W", "error::SyntaxWarning", "-c", smoke.program], folder)
        if done.returncode:
            return size_of(place), last_line(done.stderr)
    if smoke.command:
        done = run([programs / "stream-dp", *smoke.command.split()], folder)
        if done.returncode or smoke.word not in done.stdout:
            return size_of(place), last_line(done.stderr or done.stdout)
    return size_of(place), ""


def run(words: Sequence[object], folder: Path) -> "subprocess.CompletedProcess[str]":
    """A command in a place of its own, which knows nothing of this checkout."""
    kept = {"PATH", "HOME", "LANG"} | {name for name in os.environ if name.lower().endswith("_proxy")}
    kept |= {name for name in os.environ if name.startswith(("UV_", "SSL_", "PIP_"))}
    values = {name: os.environ[name] for name in kept if name in os.environ}
    values |= {"XDG_STATE_HOME": str(folder / "state"), "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "200"}
    return subprocess.run(
        [str(word) for word in words],
        cwd=folder / "work",
        env=values,
        capture_output=True,
        text=True,
        check=False,
    )


def size_of(folder: Path) -> int:
    """The bytes of all files, without those that Python compiled."""
    files = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return sum(path.stat().st_size for path in files if path.suffix != ".pyc")


def last_line(text: str) -> str:
    return (text.strip().splitlines() or ["it says nothing"])[-1][:150]


if __name__ == "__main__":
    sys.exit(main())
