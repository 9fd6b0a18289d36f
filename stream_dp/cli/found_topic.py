"""What `stream-dp connect` finds out about a topic: its configuration, its fields, and how its records are written."""

from dataclasses import asdict, dataclass, field
from typing import Any

from stream_dp.cli.connect_options import Records, Registry
from stream_dp.cli.mistakes import Mistake
from stream_dp.config.events_section import EventsSection
from stream_dp.config.settings import Settings
from stream_dp.events.mapping.csv_values import column_names
from stream_dp.planning.public_records import public_shape
from stream_dp.planning.record_fields import Field, fields_of, row_of
from stream_dp.planning.record_shapes import Shape
from stream_dp.planning.registered_schema import registered_schema
from stream_dp.planning.topic_survey import TopicSurvey, survey_topic

_MOST_LISTED = 40


@dataclass(frozen=True)
class Found:
    """What is known of the topic: `events` has what is known of `[events]`, and `fields` what may be chosen from.

    `shape` is what a record is made of by its registered schema, None where there is none.
    """

    survey: TopicSurvey
    events: dict[str, Any]
    fields: list[Field] = field(default_factory=list)
    shape: Shape = None

    @property
    def single(self) -> list[Field]:
        """What a record has one of, and so may be the user."""
        return [each for each in self.fields if not each.listed]


def look(base: Settings, topic: str, records: Records, registry: Registry, public: bool) -> Found:
    """Ask Kafka, the registry and, where they are public, the records."""
    if "@" in (registry.schema_registry or ""):
        raise Mistake(
            "the address of the registry holds a name or a password, which no file may hold: leave them out there, and "
            "give --registry-username and --registry-password env:NAME or file:PATH"
        )
    survey = survey_topic(base.kafka_address, topic)
    told = {"topic": topic, "format": "json"} | records.told
    if registry.schema_registry is not None:
        asked = EventsSection(format="json-schema", items="*", **asdict(registry))
        if registered := registered_schema(asked, topic):
            return _of_shape(
                survey, {**told, **asdict(registry), "format": registered.format}, registered.shape, True
            )
        if records.format not in ("json", "csv", "text"):
            raise Mistake(
                f"the registry at {registry.schema_registry} has no schema for {topic}-value: say how records are "
                "written with --format, and leave --schema-registry out if they name no schema"
            )
    if public and (seen := public_shape(base.kafka_address, topic, survey.partitions)):
        told = {"topic": topic, "format": seen.format} | records.told
        if seen.format == "csv" and "delimiter" not in told:
            told["delimiter"] = seen.delimiter
        if seen.format == told["format"] == "csv" and records.header is None:
            columns = [Field(f"columns[{number}]", "text", False) for number in range(seen.columns)]
            return Found(survey, told, columns)
        return _of_shape(survey, told, seen.shape, False)
    return _of_shape(survey, told, None, False)


def _of_shape(survey: TopicSurvey, told: dict[str, Any], shape: Shape, registered: bool) -> Found:
    """What there is to choose from in records of this shape; of changes of a table, in its rows."""
    if told["format"] == "text":
        return Found(survey, told, [Field("@", "text", False)])
    if told["format"] == "csv" and "header" in told:
        names = column_names(told["header"], told.get("delimiter", ","))
        return Found(survey, told, fields_of(dict.fromkeys(names, "text")))
    if (row := row_of(shape)) is not None:
        told, shape = {"change_data_capture": "inserts"} | told, row
    return Found(survey, told, fields_of(shape), shape if registered else None)


def listed(fields: list[Field]) -> str:
    more = f", and {len(fields) - _MOST_LISTED} more" if len(fields) > _MOST_LISTED else ""
    return ", ".join(f"{number}: {each}" for number, each in enumerate(fields[:_MOST_LISTED], 1)) + more
