"""Write the description of the dashboard's API (`make schemas`): routes, structs of answers and openapi_notes.json.

The notes say what structs cannot: what an address is for, its parameters, its statuses, and what a field means.
"""

import json
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET
from starlette.routing import Route

from stream_dp.config.connections import KafkaAddress
from stream_dp.dashboard.answers import (
    Frame,
    FrameRelease,
    HistoryAnswer,
    LabelHistory,
    Problem,
    StreamSummary,
    ToldRelease,
)
from stream_dp.dashboard.app import Dashboard
from stream_dp.dashboard.board import Board
from stream_dp.dashboard.reader import Reader
from stream_dp.dashboard.results import Result
from stream_dp.releases.new_labels import NewLabel
from stream_dp.releases.release import TestRecord
from stream_dp.releases.window_record import WindowRecord
from stream_dp.releases.windows import Move
from tests.docs.generate_schemas import NOTES, BadNotes, Node, noted, plain, written

OPENAPI = Path(__file__).parents[2] / "stream_dp" / "dashboard" / "static" / "openapi.json"

_NOTES = Path(__file__).parent / "openapi_notes.json"
_STREAM = "/api/v1/stream"
_ANSWERS: dict[str, Any] = {
    "/api/v1/release/latest": ToldRelease,
    "/api/v1/release": ToldRelease,
    "/api/v1/window": WindowRecord,
    "/api/v1/history": HistoryAnswer,
    "/api/v1/results": list[Result],
    _STREAM: Frame,
    "/api/v1/streams": list[StreamSummary],
}
"""What an address answers.  The probes answer in plain text."""

_STRUCTS = (
    ToldRelease,
    WindowRecord,
    Move,
    NewLabel,
    TestRecord,
    HistoryAnswer,
    LabelHistory,
    Result,
    Problem,
    FrameRelease,
    Frame,
    StreamSummary,
)
_RECORDS: dict[type, tuple[str, ...]] = {
    ToldRelease: ("release", "properties"),
    FrameRelease: ("release", "properties"),
    WindowRecord: ("window", "properties"),
    Move: ("window", "$defs", "Move", "properties"),
    NewLabel: ("window", "$defs", "NewLabel", "properties"),
    TestRecord: ("release", "$defs", "TestRecord", "properties"),
}
"""Structs with the fields of a record: the notes about that record explain them."""


def described() -> Node:
    """The whole description."""
    notes = json.loads(_NOTES.read_text())
    served = {route.path for route in routes()}
    if served != notes["paths"].keys():
        raise BadNotes(f"the dashboard serves {sorted(served)}, and notes are about {sorted(notes['paths'])}")
    forms, shapes = msgspec.json.schema_components(
        [*_ANSWERS.values(), Problem], ref_template="#/components/schemas/{name}"
    )
    *answers, problem = forms
    paths = {
        path: {"get": _operation(each, dict(zip(_ANSWERS, answers, strict=True)).get(path), path)}
        for path, each in notes["paths"].items()
    }
    said, components = notes["components"]["schemas"], notes["components"]
    known = {kind.__name__: kind for kind in _STRUCTS}
    if not known.keys() == said.keys() == shapes.keys():
        raise BadNotes(f"there are structs {sorted(shapes)}, and notes about {sorted(said)}")
    components["responses"] = {"Problem": _content(problem, "What went wrong, in one sentence.")}
    components["schemas"] = {
        name: _component(kind, plain(shapes[name]), said[name]) for name, kind in known.items()
    }
    return notes | {"paths": paths, "components": components}


def routes() -> list[Route]:
    """Those of the API; the files of the page are mounted beside them."""
    reader = Reader(KafkaAddress("localhost:9092"), "shop.releases", "shop.results", Board())  # never started
    return [route for route in Dashboard(reader).app().routes if isinstance(route, Route)]


def _operation(notes: Node, answer: Node | None, path: str) -> Node:
    """What an address does, and the form of its answers.  A status without a description is a problem."""
    responses: Node = {}
    for status, description in notes["responses"].items():
        if description is None:
            responses[status] = {"$ref": "#/components/responses/Problem"}
        elif answer is None:
            responses[status] = {"description": description}
        else:
            media_type = "text/event-stream" if path == _STREAM else "application/json"
            responses[status] = _content(answer, description, media_type)
    return notes | {"responses": responses}


def _content(schema: Node, description: str, media_type: str = "application/json") -> Node:
    return {"description": description, "content": {media_type: {"schema": schema}}}


def _component(kind: type[msgspec.Struct], shape: Node, notes: Node) -> Node:
    """The schema of an answer.  All fields are always there, but those of a frame that have not changed."""
    if kind in _RECORDS:
        record, *path = _RECORDS[kind]
        of_record = reduce(getitem, path, json.loads((NOTES / f"{record}.json").read_text()))
        notes["properties"] = {
            field: of_record.get(field, {}) | notes.get("properties", {}).get(field, {})
            for field in kind.__struct_encode_fields__
        }
    fields = msgspec.structs.fields(kind)
    required = [field.encode_name for field in fields if field.default is not UNSET]
    return noted(shape, notes, kind.__name__) | {"required": required}


if __name__ == "__main__":
    OPENAPI.write_text(written(described()))
