"""What the records of a topic are made of, from a schema or from values: objects, lists, texts and numbers."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Union

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor

Shape = Union["dict[str, Shape]", "list[Shape]", str, None]
"""An object by its fields, a list by the one thing that it holds, a kind such as "text", or None for all else."""

_DEEPEST = 6
_NUMBER, _TRUTH = "number", "true or false"
_AVRO = {"string": "text", "enum": "text", "boolean": _TRUTH} | dict.fromkeys(
    ("int", "long", "float", "double"), _NUMBER
)
_JSON = {"string": "text", "integer": _NUMBER, "number": _NUMBER, "boolean": _TRUTH}


def shape_of_avro(schema: Any, known: Mapping[str, Any] | None = None, depth: int = 0) -> Shape:
    """The shape of what an Avro schema describes; `known` has the schemas that may be named in it."""
    known = known or {}
    if depth > 3 * _DEEPEST:
        return None
    if isinstance(schema, list):  # a union: the first of it that is anything
        shapes = (shape_of_avro(each, known, depth + 1) for each in schema)
        return next((shape for shape in shapes if shape is not None), None)
    if isinstance(schema, str):
        return _AVRO.get(schema) if schema not in known else shape_of_avro(known[schema], known, depth + 1)
    if not isinstance(schema, Mapping):
        return None
    kind = schema.get("type")
    if kind == "array":
        return [shape_of_avro(schema.get("items"), known, depth + 1)]
    if kind == "record":
        name = str(schema.get("name", ""))
        known = {**known, name: schema, f"{schema.get('namespace', '')}.{name}": schema}
        return {
            str(field["name"]): shape_of_avro(field.get("type"), known, depth + 1)
            for field in schema.get("fields", ())
        }
    return "text" if kind == "enum" else shape_of_avro(kind, known, depth + 1)


def shape_of_json_schema(schema: Any, root: Any = None, depth: int = 0) -> Shape:
    """The shape of what a JSON Schema describes; references into other files are nothing."""
    root = schema if root is None else root
    if depth > 3 * _DEEPEST or not isinstance(schema, Mapping):
        return None
    if isinstance(schema.get("$ref"), str):
        return shape_of_json_schema(_referred(root, schema["$ref"]), root, depth + 1)
    for name in ("anyOf", "oneOf", "allOf"):
        if isinstance(schema.get(name), list):
            shapes = (shape_of_json_schema(each, root, depth + 1) for each in schema[name])
            return next((shape for shape in shapes if shape is not None), None)
    if isinstance(schema.get("properties"), Mapping):
        fields = schema["properties"].items()
        return {str(name): shape_of_json_schema(each, root, depth + 1) for name, each in fields}
    if "items" in schema:
        return [shape_of_json_schema(schema["items"], root, depth + 1)]
    kinds = schema.get("type")
    return next(
        (_JSON[each] for each in (kinds if isinstance(kinds, list) else [kinds]) if each in _JSON), None
    )


def _referred(root: Any, reference: str) -> Any:
    found = root
    for step in reference.removeprefix("#/").split("/") if reference.startswith("#/") else ():
        found = found.get(step) if isinstance(found, Mapping) else None
    return found if found is not root else None


def shape_of_protobuf(message: "Descriptor", depth: int = 0) -> Shape:
    """The shape of a message of Protobuf; maps are nothing."""
    if depth > _DEEPEST:
        return None
    found: dict[str, Shape] = {}
    for field in message.fields:
        inner = field.message_type
        is_map = inner is not None and inner.GetOptions().map_entry
        kind = _PROTOBUF.get(field.cpp_type) if inner is None else shape_of_protobuf(inner, depth + 1)
        found[field.name] = None if is_map else [kind] if field.is_repeated else kind
    return found


_PROTOBUF = {7: _TRUTH, 8: "text", 9: "text"} | dict.fromkeys(range(1, 7), _NUMBER)
"""By what a field is in C++: a bool, an enum, a string, or one of six numbers."""


def shape_of_value(value: Any, depth: int = 0) -> Shape:
    """The shape of one decoded JSON value."""
    if depth > _DEEPEST:
        return None
    if isinstance(value, bool):
        return _TRUTH
    if isinstance(value, Mapping):
        return {str(name): shape_of_value(each, depth + 1) for name, each in value.items()}
    if isinstance(value, list):
        found: Shape = None
        for each in value:
            found = joined(found, shape_of_value(each, depth + 1))
        return [found]
    return "text" if isinstance(value, str) else _NUMBER if isinstance(value, int | float) else None


def joined(one: Shape, other: Shape) -> Shape:
    """What is of one shape or the other; where they contradict each other, the first counts."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one | {name: joined(one.get(name), each) for name, each in other.items()}
    if isinstance(one, list) and isinstance(other, list):
        return [joined(one[0], other[0])]
    return other if one is None else one
