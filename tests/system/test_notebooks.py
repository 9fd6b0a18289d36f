"""The notebooks of the documents run in a real kernel, and hold the outputs of such a run."""

from pathlib import Path
from typing import Any

import nbformat
import pytest

from tests.docs.notebooks import FOLDER, NAMES, executed


def outputs(notebook: Any) -> list[tuple[str, list[str]]]:
    """The source of each cell of code, and the kinds of what it shows: streams by name, data by their types."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return [
        (
            cell.source,
            [each.get("name") or ",".join(sorted(each.get("data", {}))) for each in cell.outputs],
        )
        for cell in cells
    ]


WITH_WIDGETS = ("analysts",)


def test_there_are_those_that_the_documents_name() -> None:
    assert NAMES == ("analysts", "board", "jobs", "teachers")


@pytest.mark.parametrize("name", NAMES)
def test_it_runs_and_shows_what_it_holds(name: str, kafka: str, tmp_path: Path) -> None:
    found = outputs(executed(name, kafka, tmp_path))
    held = outputs(nbformat.read(FOLDER / f"{name}.ipynb", as_version=4))  # type: ignore[no-untyped-call]
    assert [source for source, _ in found] == [source for source, _ in held]
    assert "stderr" not in str(held)
    widgets = "application/vnd.jupyter.widget-view+json"
    assert (widgets in str(found)) == (name in WITH_WIDGETS)
    assert "text/html" in str(held)
    for (source, shown), (_, kept) in zip(found, held, strict=True):
        assert bool(shown) == bool(kept), source
