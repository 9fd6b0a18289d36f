"""A mapping as an epoch freezes it: everything that decides which event a record is."""

from pathlib import Path

import msgspec

from stream_dp.config.events_section import ChangeDataCapture, EventsSection, Format
from stream_dp.config.secret import SettingsError
from stream_dp.events.mapping.schema import LARGEST_SCHEMA

MAPPING_VERSION = 1
"""Of what a mapping makes of a record; golden.py shows it.  It changes whenever one of those answers does."""


class Mapping(msgspec.Struct, frozen=True, kw_only=True):
    """What an event is in a record of `topic`, which is `<stream>.events` where it is empty.

    Without `items` and `families`, records are events of our own format.  `framed`: in front of each value stands the
    number of its schema in a registry.  `schema` is the text of the schema file: what the values are written by or,
    where they are framed, what they are read by.  `message` names a message of it.  `header` names the columns of CSV.
    With `change_data_capture`, records are changes of rows, and paths lead into the row.
    """

    version: int = MAPPING_VERSION
    topic: str = ""
    format: Format = "json"
    framed: bool = False
    items: str | None = None
    families: dict[str, str] | None = None
    user: str | None = None
    where: str | None = None
    change_data_capture: ChangeDataCapture | None = None
    delimiter: str = ","
    header: str | None = None
    schema: str = ""
    message: str | None = None

    @classmethod
    def of(cls, section: EventsSection | None) -> "Mapping | None":
        """What the settings ask for; None where they have no `[events]`.  Raises `SettingsError`."""
        if section is None:
            return None
        return cls(
            topic=section.topic or "",
            format=section.format,
            framed=section.schema_registry is not None,
            items=section.items,
            families=None if section.families is None else dict(sorted(section.families.items())),
            user=section.user,
            where=section.where,
            change_data_capture=section.change_data_capture,
            delimiter=section.delimiter,
            header=section.header,
            schema=_text_of(section.schema) if section.schema else "",
            message=section.message,
        )

    @property
    def maps(self) -> bool:
        """Whether records are mapped; if not, they are events of our own format."""
        return self.items is not None or self.families is not None

    @property
    def needs_schemas(self) -> bool:
        """Whether a record can only be read by the schema that it names."""
        return self.framed and (self.format == "avro" or (self.format == "protobuf" and not self.schema))

    @property
    def expressions(self) -> list[str]:
        """All that is read of a record."""
        labels = list(self.families.values()) if self.families else [self.items or ""]
        return [each for each in (*labels, self.user, self.where) if each]

    @property
    def reads_headers(self) -> bool:
        """Whether headers of a record decide about its event."""
        return self.maps and any(each.startswith("$headers.") for each in self.expressions)

    def changes_from(self, other: "Mapping | None") -> list[str]:
        """What is different, in words without the texts of schemas."""
        before = other or Mapping()
        return [
            f"{name} is different"
            if name == "schema"
            else f"{name} is {theirs} in the epoch and {ours} in the settings"
            for name in self.__struct_fields__
            if (ours := getattr(self, name)) != (theirs := getattr(before, name))
        ]


def _text_of(file: str) -> str:
    path = Path(file)
    try:
        if path.stat().st_size > LARGEST_SCHEMA:
            raise SettingsError(f"the schema {file} has more than {LARGEST_SCHEMA} bytes")
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise SettingsError(f"cannot read the schema {file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SettingsError(f"the schema {file} is not UTF-8 text") from None
