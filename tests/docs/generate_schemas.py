"""Write docs/schemas from the structs that records are decoded into: `make schemas`.

Which fields there are, their types, and which of them are required comes from the structs.  What a field means, bounds
that no decoder needs and examples come from schema_notes/, in the form of a schema that says nothing else: a note about
a field that no struct has is an error, and so is a field without a description.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from stream_dp.epochs.journal import EpochEntry
from stream_dp.epochs.registry import Registered
from stream_dp.events.barrier_chain import BarrierRecord
from stream_dp.events.event import Event
from stream_dp.jobs.mechanisms import MECHANISMS
from stream_dp.jobs.request import Cancel, JobRequest
from stream_dp.jobs.result import JobResult
from stream_dp.releases.release import Release
from stream_dp.releases.table_row import Row
from stream_dp.releases.window_record import WindowRecord
from stream_dp.store.ledger_records import BudgetSet, Entry
from stream_dp.verification.verify import Certificate
from tests.docs.schemas import SCHEMAS

NOTES = Path(__file__).parent / "schema_notes"

STRUCTS: dict[str, Any] = {
    "barrier": BarrierRecord,
    "budget": BudgetSet,
    "certificate": Certificate,
    "charge": Entry,
    "epoch": EpochEntry,
    "event": Event,
    "release": Release,
    "job": (JobRequest, Cancel),
    "result": JobResult,
    "row": Row,
    "source": Registered,
    "window": WindowRecord,
}
"""By the name of its schema, the struct that a record is decoded into or encoded from."""

_FROM_STRUCTS = {"type", "properties", "items", "anyOf", "prefixItems", "$ref", "discriminator"}
_WIDTH = 118

Node = dict[str, Any]


class BadNotes(Exception):
    """The notes and the structs do not belong together."""


def generated(name: str) -> Node:
    """The schema of this name."""
    notes = json.loads((NOTES / f"{name}.json").read_text())
    shape = plain(_schema_of(STRUCTS[name]))
    shapes = shape.pop("$defs")
    if "$ref" in shape:
        shape = shapes.pop(shape["$ref"].rpartition("/")[2])
    of_parts = notes.pop("$defs", {})
    if of_parts.keys() != shapes.keys():
        raise BadNotes(f"{name}: there are notes about {sorted(of_parts)}, and structs {sorted(shapes)}")
    schema: Node = {"$schema": "https://json-schema.org/draft/2020-12/schema"} | noted(shape, notes, name)
    if shapes:
        schema["$defs"] = {part: noted(shapes[part], of_parts[part], part) for part in shapes}
    if name == "job":
        schema["$defs"]["mechanisms"] = {job: {"enum": sorted(known)} for job, known in MECHANISMS.items()}
    if "examples" in schema:
        schema["examples"] = schema.pop("examples")  # at the end
    return schema


def _schema_of(kind: Any) -> Node:
    """The schema by msgspec: of a struct, or of several where a record is one of them and no tag says which."""
    if not isinstance(kind, tuple):
        return msgspec.json.schema(kind)
    references, parts = msgspec.json.schema_components(kind, ref_template="#/$defs/{name}")
    return {"oneOf": list(references), "$defs": parts}


def plain(node: Any) -> Any:
    """A schema of msgspec without titles, docstrings and defaults, whose patterns any language reads."""
    if isinstance(node, list):
        return [plain(each) for each in node]
    if not isinstance(node, dict):
        return node
    found: Node = {}
    for key, value in node.items():
        if key == "properties":
            found[key] = {field: plain(each) for field, each in value.items()}
        elif key == "pattern":
            found[key] = value.replace("\\Z", "$")
        elif key not in ("title", "description", "default") and not (key == "required" and not value):
            found[key] = plain(value)
    return _nullable(found)


def _nullable(node: Node) -> Node:
    """`type: [x, null]` instead of two alternatives, where that says the same."""
    kinds = node.get("anyOf", [])
    if len(kinds) < 2 or kinds[-1] != {"type": "null"} or any("type" not in each for each in kinds):
        return node
    first, *others = kinds
    if any(each.keys() != {"type"} for each in others):
        return node
    rest = {key: value for key, value in node.items() if key != "anyOf"}
    return first | {"type": [each["type"] for each in kinds]} | rest


def noted(shape: Node, notes: Node, where: str) -> Node:
    """A shape with what the notes say about it."""
    fields, notes_of = shape.get("properties", {}), notes.get("properties", {})
    if fields.keys() != notes_of.keys():
        raise BadNotes(f"{where}: fields {sorted(fields)}, and notes about {sorted(notes_of)}")
    result: Node = {}
    for key in (*_FIRST, *shape, *notes):
        if key in result or (key not in shape and key not in notes):
            continue
        if key == "required":
            result[key] = [*shape.get(key, []), *notes.get(key, [])]
        elif key == "properties":
            result[key] = {
                field: noted(fields[field], notes_of[field], f"{where}.{field}") for field in fields
            }
        elif key in ("items", "additionalProperties", "propertyNames") and key in notes and key in shape:
            result[key] = noted(shape[key], notes[key], f"{where}.{key}")
        elif key in ("prefixItems", "anyOf") and key in notes and key in shape:
            pairs = zip(shape[key], notes[key], strict=True)
            result[key] = [noted(one, note, f"{where}.{key}") for one, note in pairs]
        elif key in shape and key in notes:
            raise BadNotes(f"{where}: {key} follows from the struct")
        elif key in _FROM_STRUCTS and key not in shape:
            raise BadNotes(f"{where}: no struct says {key}")
        else:
            result[key] = shape[key] if key in shape else notes[key]
    for field in fields:
        if (
            not result["properties"][field].get("description") and field != "type"
        ):  # which tells structs apart
            raise BadNotes(f"{where}.{field} is not described")
    return result


_FIRST = ("$id", "title", "description")


def written(schema: Node) -> str:
    """The text of a schema: what fits into a line is one."""
    return "".join(_lines(schema, "", "")) + "\n"


def _lines(value: Any, indent: str, before: str) -> Iterator[str]:
    short = json.dumps(value, ensure_ascii=False)
    if isinstance(value, dict) and value:
        short = "{ " + short[1:-1] + " }"
    if not isinstance(value, dict | list) or not value or (indent and len(indent + before + short) <= _WIDTH):
        yield before + short
        return
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    yield before + opening
    pairs = value.items() if isinstance(value, dict) else ((None, each) for each in value)
    for number, (key, each) in enumerate(pairs):
        yield ("," if number else "") + "\n" + indent + "  "
        yield from _lines(
            each, indent + "  ", "" if key is None else f"{json.dumps(key, ensure_ascii=False)}: "
        )
    yield "\n" + indent + closing


def main() -> None:
    """Write all of them."""
    for name in STRUCTS:
        (SCHEMAS / f"{name}.json").write_text(written(generated(name)))


if __name__ == "__main__":
    main()
