"""Count the imports between the parts of the package: `python -m tests.structure`.

A part is a folder of `stream_dp/`, or a file that lies in none.  Imports for types alone do not count.
With `--draw docs/pictures/imports.svg` the imports are drawn as they were before the folders came, and as they are now.
"""

import argparse
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import NamedTuple

import grimp

import stream_dp

PACKAGE = Path(stream_dp.__file__).parent
BEFORE_THE_FOLDERS = "2b5aba1"
"""The last commit before files were moved so that imports run one way."""

_CELL, _MARGIN, _TOP = 7, 96, 64


class House(NamedTuple):
    """The parts, which imports which other one, and the groups of files that import each other."""

    parts: list[str]
    arrows: set[tuple[str, str]]
    circles: list[set[str]]


def parts() -> list[str]:
    """The folders of the package, and the files that lie in none."""
    folders = [path.parent.name for path in PACKAGE.glob("*/__init__.py")]
    return sorted([*folders, *(path.stem for path in PACKAGE.glob("[!_]*.py"))])


def arrows() -> set[tuple[str, str]]:
    """Which part imports which other one."""
    graph = grimp.build_graph("stream_dp", exclude_type_checking_imports=True)
    found = set()
    for importer in graph.modules:
        for imported in graph.find_modules_directly_imported_by(importer):
            pair = tuple(f"{name}.".split(".")[1] for name in (importer, imported))
            if all(pair) and pair[0] != pair[1]:
                found.add((pair[0], pair[1]))
    return found


def circles() -> list[set[str]]:
    """The groups of files that import each other, at the top or within functions."""
    graph = grimp.build_graph("stream_dp", exclude_type_checking_imports=True)
    groups = []
    for module in sorted(graph.modules):
        ahead = graph.find_upstream_modules(module) & graph.find_downstream_modules(module)
        if ahead and {module, *ahead} not in groups:
            groups.append({module, *ahead})
    return groups


def house_now() -> House:
    """The package of this checkout."""
    return House(parts(), arrows(), circles())


def house_at(commit: str) -> House:
    """The package as it was at a commit, which the clone must have; counted by this file."""
    packed = subprocess.run(
        ["git", "archive", commit, "stream_dp"], stdout=subprocess.PIPE, check=True
    ).stdout
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            archive.extractall(folder, filter="data")
        told = subprocess.run(
            [sys.executable, str(Path(__file__).resolve()), "--json"],
            stdout=subprocess.PIPE,
            check=True,
            cwd=folder,
            env=os.environ | {"PYTHONPATH": folder},
        ).stdout
    found = json.loads(told)
    return House(found["parts"], {(one, other) for one, other in found["arrows"]}, found["circles"])


def reached(house: House) -> dict[str, set[str]]:
    """What each part imports, at once or through others."""
    found = {part: {other for one, other in house.arrows if one == part} for part in house.parts}
    for through in house.parts:
        for part in house.parts:
            if through in found[part]:
                found[part] |= found[through]
    return found


def tangled(house: House) -> set[tuple[str, str]]:
    """The arrows that lie in a circle of parts."""
    ahead = reached(house)
    return {(one, other) for one, other in house.arrows if one in ahead[other]}


def summary(house: House) -> str:
    """The figures of docs/architecture.md."""
    return (
        f"{len(house.parts)} parts, {len(house.arrows)} arrows between them, {len(tangled(house))} of these in circles "
        f"of parts; circles of files: {len(house.circles)}"
    )


def drawn(houses: dict[str, House]) -> str:
    """An SVG of squares: a dot where the part of the row imports that of the column, red where both are in a circle.

    Whoever imports stands above what is imported, so without circles all dots lie right of the diagonal.
    """
    pieces, left = [], 0
    for title, house in houses.items():
        ahead = reached(house)
        order = sorted(house.parts, key=lambda part: (-len(ahead[part] - {part}), part))
        place, wrong, size = {part: n for n, part in enumerate(order)}, tangled(house), len(order) * _CELL
        x, y = left + _MARGIN, _TOP
        pieces.append(f'<text x="{x}" y="20" class="title">{title}</text>')
        pieces.append(f'<text x="{x}" y="38">{len(house.parts)} parts, {len(house.arrows)} arrows,</text>')
        pieces.append(f'<text x="{x}" y="52">{len(wrong)} of these in circles</text>')
        pieces.append(f'<rect x="{x}" y="{y}" width="{size}" height="{size}" class="frame"/>')
        pieces.append(f'<line x1="{x}" y1="{y}" x2="{x + size}" y2="{y + size}" class="frame"/>')
        pieces += [
            f'<text x="{x - 4}" y="{y + place[part] * _CELL + _CELL - 1}" class="part">{part}</text>'
            for part in order
        ]
        pieces += [
            f'<rect x="{x + place[other] * _CELL + 1}" y="{y + place[one] * _CELL + 1}" width="{_CELL - 2}" '
            f'height="{_CELL - 2}" class="{"circle" if (one, other) in wrong else "arrow"}"/>'
            for one, other in sorted(house.arrows)
        ]
        left = x + size + 24
    height = _TOP + max(len(house.parts) for house in houses.values()) * _CELL + 12
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left} {height}" width="{left}" height="{height}">',
            "<style>text{font:11px sans-serif;fill:#333}.title{font-weight:bold;font-size:14px}"
            ".part{font-size:7px;text-anchor:end}.frame{fill:none;stroke:#bbb}.arrow{fill:#4477aa}.circle{fill:#cc3311}"
            "</style>",
            f'<rect width="{left}" height="{height}" fill="#fff"/>',
            *pieces,
            "</svg>\n",
        ]
    )


def main() -> None:
    """See the top of this file."""
    parser = argparse.ArgumentParser(description="Count the imports between the parts of the package.")
    parser.add_argument(
        "--draw", type=Path, help="write a picture of before and now, which needs the whole history"
    )
    parser.add_argument("--json", action="store_true", help="what was counted, to read by a program")
    asked = parser.parse_args()
    house = house_now()
    if asked.json:
        found = {
            "parts": house.parts,
            "arrows": sorted(house.arrows),
            "circles": [sorted(each) for each in house.circles],
        }
        print(json.dumps(found))
        return
    if asked.draw is not None:
        before = house_at(BEFORE_THE_FOLDERS)
        print(f"before: {summary(before)}")
        asked.draw.write_text(drawn({"Before": before, "Now": house}))
    print(f"now: {summary(house)}")


if __name__ == "__main__":
    main()
