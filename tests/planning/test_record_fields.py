"""Which fields records have to choose items and users from, by schemas and by records of a public topic."""

import json
from typing import Any

import pytest

from stream_dp.events.mapping.proto_files import top_level_messages
from stream_dp.events.mapping.schema import Schema
from stream_dp.planning.record_fields import fields_of, missing, row_of
from stream_dp.planning.record_shapes import (
    joined,
    shape_of_avro,
    shape_of_json_schema,
    shape_of_protobuf,
    shape_of_value,
)

AVRO: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "order_id", "type": "string"},
        {"name": "customer", "type": {"type": "record", "name": "Customer", "fields": [
            {"name": "id", "type": "string"}, {"name": "email", "type": ["null", "string"]}]}},
        {"name": "lines", "type": {"type": "array", "items": {"type": "record", "name": "Line", "fields": [
            {"name": "quantity", "type": "int"}, {"name": "name", "type": "string"}, {"name": "sku", "type": "string"}
        ]}}},
        {"name": "channel", "type": {"type": "enum", "name": "Channel", "symbols": ["web", "shop"]}},
    ],
}  # fmt: skip
JSON_SCHEMA = {
    "type": "object",
    "properties": {
        "customer": {"$ref": "#/definitions/customer"},
        "lines": {"type": "array", "items": {"properties": {"sku": {"type": ["null", "string"]}}}},
    },
    "definitions": {"customer": {"properties": {"id": {"type": "integer"}}}},
}
VALUE = {"customer": {"id": 7}, "lines": [{}, {"sku": "tea", "price": 1.5}], "paid": True}


PROTO = """syntax = "proto3"; message Order { int64 customer = 1; repeated Line lines = 2; map<string, int32> m = 3;
repeated string tags = 4; bool paid = 5; Order parent = 6; } message Line { string sku = 1; }"""


@pytest.mark.parametrize(
    ("shape", "told"),
    [
        (shape_of_avro(AVRO), "order_id (text), customer.id (text), customer.email (text), lines[*].quantity (number, "
         "several), lines[*].name (text, several), lines[*].sku (text, several), channel (text)"),
        (shape_of_json_schema(JSON_SCHEMA), "customer.id (number), lines[*].sku (text, several)"),
        (shape_of_value(VALUE), "customer.id (number), lines[*].sku (text, several), lines[*].price (number, "
         "several), paid (true or false)"),
        (shape_of_value([{"a b": [["x"]]}, {"c": [1]}]), '[]."a b"[][] (text, several), [].c[] (number, several)'),
        (shape_of_value(["x"]), "@ (text, several)"),
        (shape_of_protobuf(top_level_messages(Schema(PROTO))[0], 5), "customer (number), lines[*].sku (text, several),"
         " tags (text, several), paid (true or false), parent.customer (number), parent.tags (text, several), "
         "parent.paid (true or false)"),
        (None, ""),
    ],
    ids=["avro", "json schema", "value", "lists in lists", "a list", "protobuf", "no schema"],
)  # fmt: skip
def test_every_value_of_a_record_is_listed(shape: Any, told: str) -> None:
    assert ", ".join(map(str, fields_of(shape))) == told


@pytest.mark.parametrize(
    ("expression", "gone"),
    [
        ("lines[*].sku", None),
        ("lines[*].skuu", "lines[*].skuu"),
        ("lines.sku", "lines.sku"),
        ("new || order_id", None),
        ("new || old", "new"),
        ("lines[?quantity > `1`].name", None),
        ("lines[?amount > `1`].name", "lines[*].amount"),
        ("order_id.x", "order_id.x"),
        ("channel[*].x", "channel[*]"),
        ("$key", None),
        ("keys(@)", None),
    ],
)
def test_a_path_that_the_schema_does_not_have_is_named(expression: str, gone: str | None) -> None:
    assert missing(expression, shape_of_avro(AVRO)) == gone
    assert missing(expression, None) is None


def test_changes_of_a_table_are_told_by_their_fields() -> None:
    change = shape_of_value({"op": "c", "before": None, "after": {"sku": "tea"}})
    assert row_of(change) == row_of({"payload": change, "schema": None}) == {"sku": "text"}
    assert row_of(shape_of_value({"op": "c", "after": {"sku": "tea"}})) is None


@pytest.mark.parametrize(
    "hostile",
    [
        {"$ref": "#"},
        {"$ref": "#/definitions/a", "definitions": {"a": {"$ref": "#/definitions/a"}}},
        {"properties": {"sku": {"$ref": "other.json#/sku"}}},
        {"anyOf": [{"type": "null"}, {"anyOf": []}]},
        [],
        "string",
    ],
)
def test_no_schema_makes_the_walk_go_on_for_ever(hostile: Any) -> None:
    assert fields_of(shape_of_json_schema(hostile)) == []
    assert [each.path for each in fields_of(shape_of_avro(hostile))] in ([], ["@"])


def test_a_record_that_holds_itself_ends() -> None:
    tree = {"type": "record", "name": "Tree", "fields": [{"name": "child", "type": ["null", "Tree"]}]}
    assert fields_of(shape_of_avro(tree)) == []
    deep: Any = "tea"
    for _ in range(50):
        deep = {"sku": deep}
    assert fields_of(shape_of_value(deep)) == []


def test_records_of_several_shapes_are_one_shape() -> None:
    one, other = shape_of_value({"a": None, "b": []}), shape_of_value({"a": "x", "b": [{"c": 1}]})
    assert joined(one, other) == other
    assert joined(other, one) == other
    assert json.dumps(other) == '{"a": "text", "b": [{"c": "number"}]}'
