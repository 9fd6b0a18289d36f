"""What is counted of a log's records: they are decoded and bounded, and those that are none become dead letters."""

from collections.abc import Sequence
from itertools import chain, groupby, islice
from operator import itemgetter

from stream_dp.engine.epoch import Epoch
from stream_dp.events.barrier_chain import Barrier
from stream_dp.events.bounding import Bound, EventBound, UserBound
from stream_dp.events.dead_letter import DeadLetter
from stream_dp.events.event import BadRecord, Event
from stream_dp.events.mapping.decoder import decoder_of
from stream_dp.events.record import Record
from stream_dp.events.records import Records
from stream_dp.events.schema_book import SchemaBook
from stream_dp.pipeline.counted_days import CountedDays

PartsOfRound = Sequence[tuple[int, Sequence[Record]]]
"""Records by partition, in order: those of a round, or of several that follow each other."""


class Admission:
    """Decides what is admitted of the records of `topic`, round by round, in order.

    `days` are those that follow the last round, and `bound` decides what of each event is admitted.  If records are
    read by schemas that they name, `schemas` must know those before any such record comes.
    """

    def __init__(
        self,
        epoch: Epoch,
        key: bytes,
        topic: str,
        days: CountedDays,
        bound: Bound,
    ) -> None:
        self._bound = bound
        self.schemas = SchemaBook(key, epoch.nonce)
        self._decode = decoder_of(epoch.mapping, self.schemas.schema)
        self._topic = topic
        self._days = days

    @property
    def pairs(self) -> bytearray:
        """What the bound remembers: bytes that only grow on one day.  Live ones: copy what is kept."""
        return self._bound.pairs

    @property
    def counts_all(self) -> bool:
        """Whether every round is counted."""
        return self._days.count_all

    def counts(self, barrier: Barrier | None) -> bool:
        """Whether the next round is counted, which `barrier` closes if barriers close rounds.

        With the first one of a day every user may bring as much again.
        """
        day = self._days.day
        counts = self._days.counts(barrier)
        if self._days.day != day:
            self._bound.forget()
        return counts

    def admitted(
        self, parts: PartsOfRound, letters: list[DeadLetter], cells: list[tuple[int, int]] | None = None
    ) -> list[list[str]]:
        """What is counted of each part, in order: labels, one as often as events held it.

        `cells`, if given, gets what each part adds to the cells beside the labels.

        Where days count, these are parts of the last round.
        Dead letters of bad records, which count as events without items, are added to `letters`.
        """
        admitted: list[list[str]] = []
        for partition, alike in groupby(parts, itemgetter(0)):
            counts = self._days.counts_part(partition)
            mine = [records if counts else () for _, records in alike]
            events = iter(self._decoded([records for records in mine if records]))
            for records in mine:
                units, over = self._bound.units, self._bound.over
                admitted.append(self._of_part(records, [*islice(events, len(records))], letters))
                if cells is not None:
                    cells.append((self._bound.units - units, self._bound.over - over))
        return admitted

    def _decoded(self, parts: Sequence[Sequence[Record]]) -> list[Event | BadRecord]:
        """What each record of parts of one partition is, all of them at once if all are events."""
        if not parts:
            return []
        if isinstance(parts[0], Records):
            records = Records.joined([*map(Records.of, parts)])
        else:
            records = Records.of([*chain.from_iterable(parts)])
        try:
            return [*self._decode.all(records)]
        except BadRecord:
            return [*map(self._event, records)]  # at least one is none

    def _event(self, record: Record) -> Event | BadRecord:
        try:
            return self._decode(record)
        except BadRecord as reason:
            return reason

    def _of_part(
        self, records: Sequence[Record], found: list[Event | BadRecord], letters: list[DeadLetter]
    ) -> list[str]:
        events = [each for each in found if not isinstance(each, BadRecord)]
        try:
            if len(events) == len(found):
                return self._bound.admit_all(events)
        except BadRecord:
            pass  # of at least one nothing may be counted
        admitted: list[str] = []
        for record, event in zip(records, found, strict=True):
            try:
                if isinstance(event, BadRecord):
                    raise event
                admitted += self._bound.admit(event)
            except BadRecord as reason:
                place = self._topic, record.partition, record.offset
                letters.append(DeadLetter(str(reason), *place, record.key, record.value))
        return admitted


def bound_of(epoch: Epoch, key: bytes, pairs: bytes | bytearray) -> Bound:
    """What bounds the events of an epoch, and has remembered `pairs`."""
    items = epoch.mechanism.items_per_event
    if epoch.guarantee.unit == "event":
        return EventBound(items)
    return UserBound(items, key, epoch.nonce, pairs, epoch.mechanism.cap_share)
