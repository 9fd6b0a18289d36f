"""The section `[events]` of a stream's settings: which topic is read, and what an event is in it."""

from typing import Annotated, Literal

import msgspec

from stream_dp.config.secret import SecretPlace, SettingsError
from stream_dp.config.wrong_values import Form

Format = Literal["json", "avro", "protobuf", "json-schema", "csv", "text"]

ChangeDataCapture = Literal["inserts"]
"""Which changes of a table are events, where records are changes as Debezium writes them."""

_Topic = Annotated[
    str,
    msgspec.Meta(pattern=r"^[A-Za-z0-9._-]{1,249}\Z"),
    Form("at most 249 letters, digits, dots, dashes and underscores"),
]
_Family = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_.-]{1,100}\Z")]
_Expression = Annotated[str, msgspec.Meta(min_length=1, max_length=1000)]
_Delimiter = Annotated[str, msgspec.Meta(pattern=r"^[^\r\n\"]\Z"), Form("one character such as a semicolon")]
_Url = Annotated[
    str,
    msgspec.Meta(pattern=r"^https?://[^@\s]+\Z"),
    Form("http://HOST:PORT or https://HOST:PORT, with a path if it has one, and without a password"),
]
_Header = Annotated[str, msgspec.Meta(min_length=1, max_length=10_000)]


class EventsSection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What stands in `[events]`; docs/mapping.md explains each name.

    Without `items` and `families`, records are events of our own format (docs/schemas/event.json).
    """

    topic: _Topic | None = None
    format: Format = "json"
    items: _Expression | None = None
    families: Annotated[dict[_Family, _Expression], msgspec.Meta(min_length=1, max_length=100)] | None = None
    user: _Expression | None = None
    where: _Expression | None = None
    change_data_capture: ChangeDataCapture | None = None
    delimiter: _Delimiter = ","
    header: _Header | None = None
    schema: str | None = None
    message: str | None = None
    schema_registry: _Url | None = None
    registry_username: str | None = None
    registry_password: SecretPlace | None = None
    registry_ca_file: str | None = None
    registry_client_cert: str | None = None
    registry_client_key: str | None = None

    def __post_init__(self) -> None:
        """Raises `SettingsError` for names that contradict each other."""
        if self.items is not None and self.families is not None:
            raise SettingsError("[events] has both items and families: keep one of them")
        if not self.maps and (
            self.format != "json" or self.user or self.where or self.schema or self.change_data_capture
        ):
            raise SettingsError(
                '[events] does not say what the items of a record are: set items, such as items = "lines[*].sku", or '
                "families"
            )
        if self.format in ("avro", "protobuf") and not (self.schema or self.schema_registry):
            raise SettingsError(
                f'[events] has format = "{self.format}" and nothing to read it by: set schema_registry to the '
                "address of the registry, or schema to a file"
            )
        if self.format != "csv" and (self.delimiter != "," or self.header is not None):
            raise SettingsError(
                f'[events] has format = "{self.format}", which has no columns: leave delimiter and header out, or set '
                'format = "csv"'
            )
        if self.format in ("csv", "text") and self.change_data_capture is not None:
            raise SettingsError(
                f'[events] has format = "{self.format}", which Debezium does not write: leave change_data_capture out, '
                'or set format to "json", "avro", "protobuf" or "json-schema"'
            )
        if self.format in ("json", "csv", "text") and (self.schema or self.schema_registry or self.message):
            raise SettingsError(
                f'[events] has format = "{self.format}", which needs no schema: leave schema, schema_registry and '
                'message out, or set format to "avro", "protobuf" or "json-schema"'
            )
        if self.format == "json-schema" and (self.schema or not self.schema_registry):
            raise SettingsError(
                '[events] has format = "json-schema", which is JSON behind a schema id of a registry: set '
                'schema_registry and leave schema out; without a registry, set format = "json"'
            )
        if self.message and self.format != "protobuf":
            raise SettingsError('[events] names a message, which only format = "protobuf" has: leave it out')

    @property
    def maps(self) -> bool:
        """Whether records are mapped; if not, they are events of our own format."""
        return self.items is not None or self.families is not None

    @property
    def names_schemas(self) -> bool:
        """Whether a record can only be read by the schema that it names."""
        by_file = (
            self.format == "protobuf" and self.schema is not None
        )  # its fields have numbers, which suffice
        return self.schema_registry is not None and self.format in ("avro", "protobuf") and not by_file
