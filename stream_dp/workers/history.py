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
from stream_dp.workers.derived_topic import keep
from stream_dp.workers.periodic_topic import PeriodicWriter

logger = logging.getLogger(__name__)


class HistoryWriter(PeriodicWriter):
    """Writes `<stream>.history`, the rows of one release in each period of `every` so many seconds."""

    _kind = "history_topic"
    _newest = 1

    def __init__(
        self, settings: Settings, table_format: str = "json", start: str = "earliest", every: float = 60.0
    ) -> None:
        self._format = table_format
        self._behind: tuple[str, bytes] | None = None  # a release, and the last label of it that is written
        super().__init__(settings, start, every)

    def _resume(self, newest: Sequence[Record]) -> tuple[str, bool]:
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
        self._behind = position, row.label.encode()
        return position, False  # the release says whether that was its last label

    def _records(self, release: WholeRelease) -> Iterator[tuple[bytes, bytes]]:
        behind, self._behind = self._behind, None
        position = release.position
        try:
            alone = msgspec.structs.replace(release)  # without what this reader has seen before
            rows = rows_of(alone, self._format)
        except NoRows as error:
            logger.warning("round %d cannot be written as rows and is passed over: %s", release.round, error)
            return
        labels = list(rows)
        first = labels.index(behind[1]) + 1 if behind is not None and behind[0] == position else 0
        for label in labels[first:]:
            yield rows[label], position.encode()


def keep_history(
    settings: Settings,
    stopping: Event,
    table_format: str = "json",
    start: str = "earliest",
    every: float = 60.0,
) -> None:
    """Write `<stream>.history` until `stopping`, from where it stands.

    What is not there yet, or no more, is waited for.  Raises `LogRefused` where the topic cannot serve, and
    `Refused`.
    """

    def follow() -> None:
        with HistoryWriter(settings, table_format, start, every) as writer:
            writer.follow(stopping)

    keep(settings, partial(roles.history_writer, settings), follow, stopping)
