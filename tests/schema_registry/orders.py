"""Orders by two schemas: to the later one a field was added, and another one got another name."""

import io
import json
from collections.abc import Mapping
from typing import Any

import fastavro

FIRST = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "sku", "type": {"type": "array", "items": "string"}}],
}
LATER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "shop", "type": "string", "default": "north"},
        {"name": "items", "aliases": ["sku"], "type": {"type": "array", "items": "string"}},
    ],
}
PROTOBUF = (
    'syntax = "proto3"; message Order { repeated string sku = 1; }',
    'syntax = "proto3"; message Order { repeated string items = 1; optional string shop = 2; }',
)
_TEXTS = {"type": "array", "items": {"type": "string"}}
JSON_SCHEMA = (
    json.dumps({"type": "object", "properties": {"sku": _TEXTS}}),
    json.dumps({"type": "object", "properties": {"items": _TEXTS, "shop": {"type": "string"}}}),
)


def framed(number: int, payload: bytes) -> bytes:
    """A value in the format of a registry's clients."""
    return b"\0" + number.to_bytes(4) + payload


def avro(number: int, schema: Mapping[str, Any], **fields: Any) -> bytes:
    """A framed record of Avro."""
    written = io.BytesIO()
    fastavro.schemaless_writer(written, dict(schema), fields)
    return framed(number, written.getvalue())
