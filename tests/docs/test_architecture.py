"""The list of folders is the same for people, for the linter and on the disk."""

import re
import tomllib
from pathlib import Path

from tests.structure import House, circles, drawn, house_now, parts, tangled

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text()


def test_the_page_lists_the_folders_in_the_order_that_imports_obey() -> None:
    rows = re.findall(r"^\| `(\w+)(?:/|\.py)` \|", PAGE, re.MULTILINE)
    [contract] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    assert rows == contract["layers"][::-1]
    assert sorted(rows) == parts()


def test_every_file_that_the_page_names_is_there() -> None:
    named = re.findall(r"\b((?:\w+/)+\w+\.py)\b", PAGE)
    assert len(named) > 10
    assert [name for name in named if not (ROOT / "stream_dp" / name).is_file()] == []


def test_no_two_files_import_each_other() -> None:
    assert circles() == []


TANGLED = House(["a", "b", "c"], {("a", "b"), ("b", "c"), ("c", "b")}, [])


def test_circles_of_parts_are_found_and_drawn_red() -> None:
    assert tangled(TANGLED) == {("b", "c"), ("c", "b")}
    assert drawn({"Before": TANGLED}).count('class="circle"') == 2
    assert drawn({"Before": TANGLED}).count('class="arrow"') == 1


def test_there_is_no_circle_of_parts_now() -> None:
    assert tangled(house_now()) == set()


def test_the_picture_shows_the_figures_of_the_page() -> None:
    picture = (ROOT / "docs" / "pictures" / "imports.svg").read_text()
    for figures in ("75 parts, 481 arrows", "24 parts, 151 arrows"):
        assert figures in picture
        assert all(f"| {figure.split()[0]} |" in PAGE for figure in figures.split(", "))
