"""The list of folders is the same for people, for the linter and on the disk."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "stream_dp"
PAGE = (ROOT / "docs" / "architecture.md").read_text()


def test_the_page_lists_the_folders_in_the_order_that_imports_obey() -> None:
    rows = re.findall(r"^\| `(\w+)(?:/|\.py)` \|", PAGE, re.MULTILINE)
    [contract, _] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    assert rows == contract["layers"][::-1]
    folders = [path.parent.name for path in PACKAGE.glob("*/__init__.py")]
    assert sorted(rows) == sorted([*folders, *(path.stem for path in PACKAGE.glob("[!_]*.py"))])


def test_every_file_that_the_page_names_is_there() -> None:
    named = re.findall(r"\b((?:\w+/)+\w+\.py)\b", PAGE)
    assert len(named) > 10
    assert [name for name in named if not (PACKAGE / name).is_file()] == []


OF_NO_FOLDER = {
    "system": "whole processes",
    "statistical": "mechanisms against what they promise, over many runs",
    "docs": "documents and schemas",
    "deploy": "the chart, the Compose file and the units that run it as a service",
    "containers": "the Compose file in a container engine",
    "kubernetes": "the chart in a Kubernetes of one node",
    "spark": "jobs on Apache Spark",
    "vectors": "expected values from elsewhere",
    "apache_kafka": "starts a Kafka",
    "apache_spark": "runs what needs Java, on Apache Spark",
    "kafka_connect": "starts Kafka Connect",
    "packaging": "what people install, and how a release is made",
    "schema_registry": "starts a schema registry",
}
"""The folders of tests/ that stand for none of the package, and what is in them."""


def folders(of: Path) -> set[str]:
    return {str(path.parent.relative_to(of)) for path in of.rglob("__init__.py")} - {"."}


def test_every_folder_of_the_package_has_tests_at_the_same_place() -> None:
    tests = ROOT / "tests"
    untested = {
        folder
        for folder in folders(ROOT / "stream_dp")
        if not [*(tests / folder).glob("test_*.py")]
        and not (tests / folder).with_name(f"test_{Path(folder).name}.py").is_file()
    }
    assert untested == set()


def test_every_folder_of_the_tests_is_one_of_the_package_or_says_what_it_is() -> None:
    strangers = {name for name in folders(ROOT / "tests") if name.partition("/")[0] not in OF_NO_FOLDER}
    assert strangers <= folders(ROOT / "stream_dp")


LONG = 400
ONE_IDEA = {
    "stream_dp/engine/window_histogram.py": "the rule of windows, and the labels that it shows",
    "stream_dp/store/checkpoints.py": "how a checkpoint is written and read, in one transaction each",
    "tests/batch/test_sequential_set_union.py": "the two unions that depend on the order of users",
    "tests/counters/test_blt.py": "the law of the noise of one counter",
    "tests/system/test_neighbours.py": "what two logs that differ in one record have in common in public",
}
"""The files of more lines that hold one idea all the same, and which."""


def long_files(root: Path) -> set[str]:
    """Our own scripts and modules of more than `LONG` lines."""
    files = [path for suffix in ("py", "js") for path in root.glob(f"[!.]*/**/*.{suffix}")]
    return {
        path.relative_to(root).as_posix()
        for path in files
        if not {"vendor", "build"} & {*path.relative_to(root).parts}
        and len(path.read_bytes().splitlines()) > LONG
    }


def test_no_long_file_holds_more_than_one_idea() -> None:
    assert long_files(ROOT) - ONE_IDEA.keys() == set(), "part it by idea"


def test_a_long_file_would_be_noticed(tmp_path: Path) -> None:
    for name, lines in (("a/short.py", LONG), ("a/b/long.py", LONG + 1), ("a/vendor/theirs.js", LONG + 1)):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x = 1\n" * lines)
    assert long_files(tmp_path) == {"a/b/long.py"}
