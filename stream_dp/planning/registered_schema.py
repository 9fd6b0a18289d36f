"""The schema that is registered for a topic's values, by the protocol of Confluent's registry.  No record is read."""

import json
from typing import NamedTuple
from urllib.parse import quote

import httpx2

from stream_dp.config.events_section import Format
from stream_dp.errors import Refused
from stream_dp.planning.record_shapes import Shape, shape_of_avro, shape_of_json_schema

_ANSWER_SECONDS = 5.0
_OK, _NOT_FOUND = 200, 404
_FORMATS: dict[str, Format] = {"AVRO": "avro", "JSON": "json-schema", "PROTOBUF": "protobuf"}


class RegistryRefused(Refused):
    """A registry that does not tell what is registered; the message says what to change."""


class RegisteredSchema(NamedTuple):
    """How values are written, and what they are made of; None where that cannot be told."""

    format: Format
    shape: Shape


def registered_schema(registry: str, topic: str, login: tuple[str, str] | None) -> RegisteredSchema | None:
    """What is registered for the values of a topic; None for nothing.  Raises `RegistryRefused`."""
    place = f"{registry.rstrip('/')}/subjects/{quote(topic, safe='')}-value/versions/latest"
    try:
        answer = httpx2.get(place, auth=login, timeout=_ANSWER_SECONDS, trust_env=False)
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise RegistryRefused(
            f"the schema registry at {registry} does not answer ({type(error).__name__}): check --schema-registry"
        ) from None
    if answer.status_code == _NOT_FOUND:
        return None
    if answer.status_code != _OK:
        raise RegistryRefused(
            f"the schema registry at {registry} answers with status {answer.status_code}: check its address, and "
            "--registry-username and --registry-password"
        )
    try:
        found = answer.json()
        form = _FORMATS[found.get("schemaType", "AVRO")]
        schema = None if form == "protobuf" else json.loads(found["schema"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise RegistryRefused(
            f"the schema registry at {registry} answers with something else than a schema"
        ) from None
    return RegisteredSchema(form, shape_of_avro(schema) if form == "avro" else shape_of_json_schema(schema))
