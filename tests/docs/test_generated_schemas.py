"""The schemas are what the structs and the notes give, and notes that do not fit a struct are told."""

import json
from pathlib import Path

import pytest
from starlette.routing import Route

from tests.docs import generate_openapi, generate_schemas
from tests.docs.generate_openapi import OPENAPI, described, routes
from tests.docs.generate_schemas import NOTES, STRUCTS, BadNotes, generated, written
from tests.docs.schemas import SCHEMAS


@pytest.mark.parametrize("name", STRUCTS)
def test_a_schema_is_current(name: str) -> None:
    assert (SCHEMAS / f"{name}.json").read_text() == written(generated(name)), "run make schemas"


def test_the_description_of_the_dashboards_api_is_current() -> None:
    """tests/dashboard/test_app.py compares it with what is served."""
    assert OPENAPI.read_text() == written(described()), "run make schemas"


def test_an_address_that_nothing_describes_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generate_openapi, "routes", lambda: [*routes(), Route("/api/v1/more", print)])
    with pytest.raises(BadNotes, match=r"serves .*/api/v1/more"):
        described()


def test_all_schemas_of_structs_are_generated() -> None:
    assert {file.stem for file in SCHEMAS.glob("*.json")} == {*STRUCTS}
    assert {file.stem for file in NOTES.glob("*.json")} == {*STRUCTS}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"properties": {"label": {"description": "d"}}}, "fields .* and notes about"),
        ({"count": {"description": ""}}, "row.count is not described"),
        ({"count": {"description": "d", "type": "string"}}, "row.count: type follows from the struct"),
        ({"count": {"description": "d", "items": {}}}, "row.count: no struct says items"),
    ],
)
def test_notes_that_do_not_fit_are_told(
    changed: dict[str, object], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = json.loads((NOTES / "row.json").read_text())
    if "properties" in changed:
        notes |= changed
    else:
        notes["properties"] |= changed
    (tmp_path / "row.json").write_text(json.dumps(notes))
    monkeypatch.setattr(generate_schemas, "NOTES", tmp_path)
    with pytest.raises(BadNotes, match=message):
        generated("row")
