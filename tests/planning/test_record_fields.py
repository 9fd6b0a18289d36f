"""Which fields are proposed as items and as users, from schemas and from records of a public topic."""

import json
from typing import Any

import pytest

from stream_dp.planning.record_fields import fields_of, items_among, users_among
from stream_dp.planning.record_shapes import joined, shape_of_avro, shape_of_json_schema, shape_of_value

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


@pytest.mark.parametrize(
    ("shape", "items", "users"),
    [
        (shape_of_avro(AVRO), ["lines[*].sku", "lines[*].name"], ["customer.id"]),
        (shape_of_json_schema(JSON_SCHEMA), ["lines[*].sku"], ["customer.id"]),
        (shape_of_value(VALUE), ["lines[*].sku"], ["customer.id"]),
        (shape_of_value({"items": ["tea", "milk"], "user": "u"}), ["items"], ["user"]),
        (shape_of_value({"userId": "u", "pageUrl": "/", "e-mail": "x"}), ["pageUrl"], ["userId"]),
        (shape_of_value({"product": {"id": 7}, "odd field": 1}), ["product.id"], []),
        (shape_of_value({"a b": [{"tags": ["x"]}], "amount": 3, "note": "secret"}), [], []),
        (None, [], []),
    ],
    ids=[
        "avro",
        "json schema",
        "value",
        "own format",
        "camel case",
        "an id of a product",
        "nothing",
        "no schema",
    ],
)
def test_what_is_called_like_an_item_or_a_user_is_proposed(
    shape: Any, items: list[str], users: list[str]
) -> None:
    fields = fields_of(shape)
    assert items_among(fields) == items
    assert users_among(fields) == users


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
    assert items_among(fields_of(shape_of_json_schema(hostile))) == []
    assert items_among(fields_of(shape_of_avro(hostile))) == []


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
