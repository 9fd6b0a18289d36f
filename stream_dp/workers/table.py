"""Keeping a table equal to the newest release.

What is to be written follows from two public topics alone: it is the difference between what the table holds and what
the newest release shows.  So a writer that died, in the middle of a snapshot too, needs no memory, and two writers do
no harm: both end with the same table, and neither writes what is there already.
"""

import logging
import time
from collections.abc import Mapping
from contextlib import ExitStack, closing
from functools import partial
from threading import Event

from stream_dp.config.settings import Settings
from stream_dp.config.times import milliseconds, parse_time
from stream_dp.kafka import roles
from stream_dp.kafka.clients import producer_client
from stream_dp.kafka.log import LogRefused
from stream_dp.kafka.time_limits import time_warnings
from stream_dp.releases.table_row import NoRows, is_foreign, removal, rows_of
from stream_dp.releases.table_rows import NewestRelease
from stream_dp.releases.table_topic import Table, prepare_table
from stream_dp.releases.whole_release import WholeRelease
from stream_dp.workers.derived_topic import keep
from stream_dp.workers.topic_watch import TopicWatch

logger = logging.getLogger(__name__)

_ANSWER_SECONDS = 30


def corrections(held: Mapping[bytes, bytes], wanted: Mapping[bytes, bytes]) -> dict[bytes, bytes | None]:
    """The records that turn one table into another: rows that are new or differ, and None for those to be removed.

    >>> corrections({b"tea": b"1", b"milk": b"2"}, {b"tea": b"1", b"salt": b"3"})
    {b'milk': None, b'salt': b'3'}
    """
    gone: dict[bytes, bytes | None] = {key: None for key in held if key not in wanted}
    return gone | {key: value for key, value in wanted.items() if held.get(key) != value}


class TableWriter(ExitStack):
    """One connection to Kafka that writes `<stream>.table`.  It is a context; close it at the end."""

    def __init__(self, settings: Settings, table_format: str = "json") -> None:
        """Makes the topic where it may.  Raises `LogRefused` unless the topic can hold this table, or KafkaError."""
        super().__init__()
        self._settings, self._format = settings, table_format
        self._release: WholeRelease | None = None
        self._wanted: dict[bytes, bytes] = {}
        self._left_out = 0
        self._moment: int | None = None  # of the release in `_wanted`; None before there is one
        with ExitStack() as opened:  # what is open when the next step fails is closed
            self._open(opened)
            self._refuse_others()
            self.push(opened.pop_all())

    def _open(self, opened: ExitStack) -> None:
        settings, kafka = self._settings, self._settings.kafka_address
        prepare_table(kafka, settings.table, settings.create_topics)
        for warning in time_warnings(settings, settings.table):
            logger.warning(warning)
        self._watch = TopicWatch(settings, "releases", "table")
        self._watch.for_readers(settings.releases)
        opened.callback(self._watch.close)
        self._watch.look()
        self._table = opened.enter_context(Table(kafka, settings.table))
        self._releases = opened.enter_context(closing(NewestRelease(kafka, settings.releases)))
        compression = None if settings.compression == "none" else settings.compression
        self._producer = producer_client(kafka, linger_ms=5, compression_type=compression)
        opened.callback(self._producer.close, timeout=0)

    def _refuse_others(self) -> None:
        """Raise `LogRefused` where the topic holds something, and no row: it is not ours to empty."""
        held = self._table.held
        if held and all(is_foreign(key, value) for key, value in held.items()):
            raise LogRefused(
                f"the topic {self._settings.table!r} holds {len(held)} records and none is a row of a "
                "table: another program uses it, or wrote to it first; delete it, or give the stream another name"
            )

    def write(self) -> int:
        """Make the table equal to the newest release; returns how many records that took, all of them stored.

        Where there is no release, the table stays.  Raises `TopicChanged` or KafkaError.
        """
        self._watch.look()
        release = self._releases.look()
        self._table.catch_up()
        if release is not None and release is not self._release:
            self._show(release)
        if self._moment is None:
            return 0
        records = corrections(self._table.held, self._wanted)
        self._say_what_was_foreign(records)
        removed = removal(self._format)
        sent = [
            self._producer.send(self._settings.table, each, key, timestamp_ms=self._moment, partition=0)
            for key, value in records.items()
            for each in (removed if value is None else (value,))
        ]
        for each in sent:
            each.get(timeout=_ANSWER_SECONDS)
        return len(sent)

    def _show(self, release: WholeRelease) -> None:
        """Let the table be this release, unless it is one that no worker writes."""
        self._release = release
        try:
            rows = rows_of(release, self._format)
            self._moment = max(0, milliseconds(parse_time(release.ts)))
            self._wanted = rows
            self._say_what_is_left_out(len(release.labels) - len(rows))
        except (NoRows, ValueError) as error:
            logger.warning(
                "the release of round %d cannot be shown as a table and is passed over: %s",
                release.round,
                error,
            )

    def _say_what_is_left_out(self, labels: int) -> None:
        if labels not in (0, self._left_out):
            logger.warning(
                "%d labels are left out of the table, because they hold a NUL or are too long for a database's key",
                labels,
            )
        self._left_out = labels

    def _say_what_was_foreign(self, records: Mapping[bytes, bytes | None]) -> None:
        removed = [key for key, value in records.items() if value is None]
        foreign = sum(is_foreign(key, self._table.held[key]) for key in removed)
        if foreign:
            logger.warning(
                "the topic %r held %d records that are not rows, and they are removed: let only `stream-dp table` "
                "write there",
                self._settings.table,
                foreign,
            )


def keep_table(settings: Settings, stopping: Event, every: float = 1.0, table_format: str = "json") -> None:
    """Keep `<stream>.table` equal to the newest release, at most `every` so many seconds, until `stopping`.

    What is not there yet, or no more, is waited for.  Raises `LogRefused` where the table's topic cannot serve, and
    `Refused`.
    """

    def follow() -> None:
        with TableWriter(settings, table_format) as writer:
            _follow(writer, every, stopping)

    keep(settings, partial(roles.table_writer, settings), follow, stopping)


def _follow(writer: TableWriter, seconds: float, stopping: Event) -> None:
    while not stopping.is_set():
        began = time.monotonic()
        writer.write()
        stopping.wait(max(0.0, began + seconds - time.monotonic()))
