"""What `stream-dp connect` may be told on the command line, in groups."""

from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer

_WHERE_SECRETS_ARE = "env:NAME|file:PATH"


@dataclass(frozen=True)
class Wishes:
    """What the user has said of the stream; None for what is to be proposed."""

    items: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="Where the items of a record are, such as lines[*].sku, or the number of a field.",
        ),
    ] = None
    user: Annotated[
        str | None, typer.Option(metavar="PATH", help="Where the user of a record is, or $key.")
    ] = None
    where: Annotated[str | None, typer.Option(metavar="PATH", help="Which records count.")] = None
    unit: Annotated[str | None, typer.Option(help="Who is protected: event, or user.")] = None
    epsilon: Annotated[float, typer.Option(help="Epsilon of the guarantee.")] = 1.0
    delta: Annotated[float, typer.Option(help="Delta of the guarantee.")] = 1e-6
    discover: Annotated[
        str | None,
        typer.Option(
            metavar="every-1h|every-2048|default|every-round",
            help="How long a new label may stay unseen, in time of ticks or in rounds.",
        ),
    ] = None
    items_per_unit: Annotated[
        int | None, typer.Option(min=1, help="How many items of an event, or of a user, are counted.")
    ] = None
    tick_seconds: Annotated[
        float | None, typer.Option(min=0.1, help="Seconds from the end of one round to the next.")
    ] = None


@dataclass(frozen=True)
class Records:
    """How records are written, as far as the user says it."""

    format: Annotated[str | None, typer.Option(help="json, avro, protobuf, json-schema, csv or text.")] = None
    delimiter: Annotated[str | None, typer.Option(help="What stands between columns of CSV.")] = None
    header: Annotated[
        str | None, typer.Option(metavar="LINE", help="The names of the columns of CSV, as a line of it.")
    ] = None
    change_data_capture: Annotated[
        str | None, typer.Option(help="inserts: records are changes of a table, as Debezium writes them.")
    ] = None
    schema: Annotated[
        str | None, typer.Option(metavar="FILE", help="The schema of Avro or Protobuf, without a registry.")
    ] = None
    message: Annotated[
        str | None, typer.Option(help="The message of Protobuf, if the schema has several.")
    ] = None

    @property
    def told(self) -> dict[str, Any]:
        """What was said, by the name of the setting in `[events]`; a tab may be written as \\t."""
        said = {name: each for name, each in asdict(self).items() if each is not None}
        return said | ({"delimiter": "\t"} if self.delimiter == "\\t" else {})


@dataclass(frozen=True)
class Registry:
    """Where schemas are registered."""

    schema_registry: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Where schemas are registered, with its path if it has one."),
    ] = None
    registry_username: Annotated[str | None, typer.Option(help="User name for the registry.")] = None
    registry_password: Annotated[
        str | None, typer.Option(metavar=_WHERE_SECRETS_ARE, help="Where the password is.")
    ] = None


@dataclass(frozen=True)
class Access:
    """Authentication, as the settings of the same names."""

    kafka_security: Annotated[
        str | None, typer.Option(help="PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.")
    ] = None
    kafka_ca_file: Annotated[
        str | None, typer.Option(metavar="FILE", help="The CA of Kafka's certificates.")
    ] = None
    kafka_sasl_mechanism: Annotated[
        str | None, typer.Option(help="SCRAM-SHA-512, SCRAM-SHA-256 or PLAIN.")
    ] = None
    kafka_username: Annotated[str | None, typer.Option(help="User name for Kafka.")] = None
    kafka_password: Annotated[
        str | None, typer.Option(metavar=_WHERE_SECRETS_ARE, help="Where the password for Kafka is.")
    ] = None
    redis_ca_file: Annotated[
        str | None, typer.Option(metavar="FILE", help="The CA of Redis' certificate.")
    ] = None
    redis_password: Annotated[
        str | None, typer.Option(metavar=_WHERE_SECRETS_ARE, help="Where the password for Redis is.")
    ] = None
