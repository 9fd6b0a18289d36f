"""Writing how counts grew into a topic that is only ever added to, a flat record for each label and moment: SQL over
time for whatever reads it into a database.

The key of a record is the position of its release, and its labels come in the order of the release.  So the last record
tells where a writer that died goes on.
"""

import logging
from collections.abc import Iterator, Sequence
from functools import partial
from threading import Event

import msgspec

from stream_dp.config.settings import Settings
from stream_dp.events.record import Record
from stream_dp.kafka import roles
from stream_dp.kafka.log import LogRefused
from stream_dp.releases.table_row import NoRows, decode_value, rows_of
from stream_dp.releases.topic import BadPosition, read_position
from stream_dp.releases.whole_release import WholeRelease
from stream_dp.workers.periodic_topic import PeriodicWriter, keep_writing

logger = logging.getLogger(__name__)


class HistoryWriter(PeriodicWriter):
    """Writes `<stream>.history`, the rows of one release in each period of `every` so many seconds."""

    _kind = "history_topic"
    _newest = 1

    def __init__(
        self, settings: Settings, table_format: str = "json", start: str = "earliest", every: float = 60.0
    ) -> None:
        self._format = table_format
        self._label = ""  # the last one that is written of the release that is begun
        super().__init__(settings, start, every)

    def _resume(self, newest: Sequence[Record]) -> str:
        last = newest[-1]
        position, row = (last.key or b"").decode(errors="replace"), decode_value(last.value or b"")
        try:
            read_position(position)
        except BadPosition:
            row = None
        if row is None:
            raise LogRefused(
                f"the topic {self._topic!r} holds a record that is not of a history: only `stream-dp history` may "
                "write there"
            )
        self._label = row.label
        return position

    def _records(self, release: WholeRelease, is_begun: bool) -> Iterator[tuple[bytes, bytes]]:
        try:
            alone = msgspec.structs.replace(release)  # without what this reader has seen before
            rows = rows_of(alone, self._format)
        except NoRows as error:
            logger.warning("round %d cannot be written as rows and is passed over: %s", release.round, error)
            return
        labels, key = release.labels, release.position.encode()
        first = labels.index(self._label) + 1 if is_begun and self._label in labels else 0
        for label in labels[first:]:
            row = rows.get(label.encode())
            if row is not None:
                yield row, key


def keep_history(
    settings: Settings,
    stopping: Event,
    table_format: str = "json",
    start: str = "earliest",
    every: float = 60.0,
) -> None:
    """Write `<stream>.history` until `stopping`: see `keep_writing`."""
    opened = partial(HistoryWriter, settings, table_format, start, every)
    keep_writing(settings, partial(roles.history_writer, settings), opened, stopping)
