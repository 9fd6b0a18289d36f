"""What a program calls to read the releases of a stream: `stream_dp.subscribe` and `stream_dp.read_table`."""

from datetime import datetime

from stream_dp.config.connections import Kafka
from stream_dp.releases.subscription import Subscription
from stream_dp.releases.table_topic import Table


def subscribe(
    kafka: Kafka,
    stream: str,
    start: str | int | datetime = "latest",
    *,
    epoch: int | None = None,
    position: str | None = None,
    until: str | datetime | None = None,
) -> Subscription:
    """The releases of `stream`, whole, in order and each once, from the brokers `kafka`: "host:port,host:port",
    or a `stream_dp.config.connections.KafkaAddress` for TLS and credentials.

    `start`: the "latest" release there is, the "earliest" that is kept, a round of the newest epoch (or of `epoch`) or
    the first one released after it, or what was newest at a moment (a datetime; without a zone, UTC).  `epoch` leaves
    out all others.
    `position`, of a release that was handled, goes on after it instead.
    `until` ends the iteration: with the "latest" release that there is now, or with what was newest at a moment.

        for release in stream_dp.subscribe("localhost:9092", "shop"):
            print(release.round, release.histogram)

    Raises `BadPosition`, `LogRefused` for a topic that is not there, ValueError or KafkaError.  Records that are no
    releases of the stream are passed over with a warning.
    """
    return Subscription(kafka, f"{stream}.releases", start, epoch, position, until)


def read_table(kafka: Kafka, stream: str) -> Table:
    """What `stream` shows now, for those who need no history: `rows()` by label, and `catch_up()` for what is newer.

        with stream_dp.read_table("localhost:9092", "shop") as table:
            print(table.rows())

    `stream-dp table` writes it.  Raises `LogRefused` for a topic that is not there, or KafkaError.
    """
    return Table(kafka, f"{stream}.table")
