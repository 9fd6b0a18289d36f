"""No data are ever run: the program's code nowhere unpickles, evaluates or loads what can name code."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import stream_dp

ROOT = Path(stream_dp.__file__).parents[1]
FILES = sorted([*ROOT.glob("stream_dp/**/*.py"), *ROOT.glob("topologies/**/*.py")])
MODULES = {
    "pickle",
    "cPickle",
    "_pickle",
    "cloudpickle",
    "dill",
    "joblib",
    "shelve",
    "marshal",
    "jsonpickle",
    "yaml",
}
BUILTINS = {"eval", "exec", "compile", "__import__"}
OTHERS = {
    "allow_pickle": "an argument",
    "read_pickle": "a call",
    "to_pickle": "a call",
    "shell": "an argument",
}


def dangers(code: str) -> Iterator[str]:
    """What in `code` could run what it reads, each with its line."""
    for node in ast.walk(ast.parse(code)):
        found: set[str] = set()
        if isinstance(node, ast.Import):
            found = {alias.name.partition(".")[0] for alias in node.names} & MODULES
        elif isinstance(node, ast.ImportFrom):
            found = {(node.module or "").partition(".")[0]} & MODULES
        elif isinstance(node, ast.Name):
            found = {node.id} & BUILTINS
        elif isinstance(node, ast.Attribute):
            found = {node.attr} & OTHERS.keys()
            if isinstance(node.value, ast.Name) and node.value.id == "builtins":
                found |= {node.attr} & BUILTINS
        elif isinstance(node, ast.keyword) and not (
            isinstance(node.value, ast.Constant) and node.value.value is False
        ):
            found = {node.arg or ""} & OTHERS.keys()
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            named = node.args and isinstance(node.args[0], ast.Constant) and node.args[0].value in MODULES
            found = {str(node.func.attr)} if node.func.attr == "import_module" and named else set()
        yield from (f"line {getattr(node, 'lineno', 0)}: {name}" for name in sorted(found))


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_no_data_are_run(file: Path) -> None:
    assert list(dangers(file.read_text())) == []


def test_all_of_the_program_is_looked_at() -> None:
    names = {str(file.relative_to(ROOT)) for file in FILES}
    assert {
        "stream_dp/workers/histogram.py",
        "stream_dp/store/checkpoints.py",
        "topologies/roles.py",
    } <= names


@pytest.mark.parametrize(
    "code",
    [
        "import pickle",
        "import numpy, pickle as p",
        "from pickle import loads",
        "import yaml\nyaml.load(text)",
        "eval(text)",
        "exec(text)",
        "run = eval",
        "import builtins\nbuiltins.exec(text)",
        "__import__(name)",
        "numpy.load(file, allow_pickle=True)",
        "numpy.load(file, allow_pickle=setting)",
        "frame = pandas.read_pickle(file)",
        "importlib.import_module('pickle')",
        "subprocess.run(text, shell=True)",
        "import marshal",
        "import shelve",
    ],
)
def test_each_danger_would_be_seen(code: str) -> None:
    assert len(list(dangers(f"def harmless():\n    return 1\n{code}\n"))) >= 1


@pytest.mark.parametrize(
    "code", ["re.compile(text)", "numpy.load(file, allow_pickle=False)", "shell = 1", "x.exec_()"]
)
def test_what_only_looks_like_it_is_let_through(code: str) -> None:
    assert list(dangers(code)) == []
