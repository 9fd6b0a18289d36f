"""The schema that is registered for a topic's values, and what values of it are made of.  No record is read."""

import json
from contextlib import closing
from typing import NamedTuple

from stream_dp.config.events_section import EventsSection, Format
from stream_dp.errors import Refused, needs_extra
from stream_dp.events.mapping.schema import Schema, UnusableSchema
from stream_dp.kafka.schema_registry import NoSchema, NotRegistered, RegistryAway, SchemaRegistry
from stream_dp.planning.record_shapes import Shape, shape_of_avro, shape_of_json_schema, shape_of_protobuf

_FORMATS: dict[str, Format] = {"AVRO": "avro", "JSON": "json-schema", "PROTOBUF": "protobuf"}


class RegisteredSchema(NamedTuple):
    """How values are written, and what they are made of; None where that cannot be told."""

    format: Format
    shape: Shape


def registered_schema(section: EventsSection, topic: str) -> RegisteredSchema | None:
    """What is registered for the values of a topic where the section says that schemas are; None for nothing.

    Raises `Refused`, or `SettingsError` for a password that cannot be read.
    """
    try:
        with closing(SchemaRegistry(section)) as registry:
            kind, schema = registry.newest(f"{topic}-value")
        form = _FORMATS[kind]
        return RegisteredSchema(form, _shape(form, schema))
    except NotRegistered:
        return None
    except (NoSchema, RegistryAway) as error:
        raise _refused(section, str(error)) from None
    except (ValueError, KeyError, RecursionError, UnusableSchema):
        raise _refused(section, "it gives something else than a schema") from None


def _shape(form: Format, schema: Schema) -> Shape:
    """What values of it are made of: of Protobuf its first message."""
    if form == "protobuf":
        with needs_extra('format = "protobuf"', "worker"):
            from stream_dp.events.mapping.proto_files import top_level_messages
        return shape_of_protobuf(top_level_messages(schema)[0])
    text = json.loads(schema.text)
    return shape_of_avro(text) if form == "avro" else shape_of_json_schema(text)


def _refused(section: EventsSection, why: str) -> Refused:
    return Refused(
        f"the schema registry at {section.schema_registry} does not say what is registered ({why}): check "
        "--schema-registry, --registry-username and --registry-password"
    )
