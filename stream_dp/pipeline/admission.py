"""What is counted of a log's records: they are decoded and bounded, and those that are none become dead letters."""

from collections.abc import Sequence

from stream_dp.engine.epoch import Epoch
from stream_dp.events.barrier_chain import Barrier
from stream_dp.events.bounding import Bound, EventBound, UserBound
from stream_dp.events.dead_letter import DeadLetter
from stream_dp.events.event import BadRecord
from stream_dp.events.mapping.decoder import decoder_of
from stream_dp.events.record import Record
from stream_dp.events.records import Records
from stream_dp.events.schema_book import SchemaBook
from stream_dp.pipeline.counted_days import CountedDays


class Admission:
    """Decides what is admitted of the records of `topic`, round by round, in order.

    `days` are those that follow the last round, and `pairs` what the bound remembered then.  Where records are read
    by schemas that they name, `schemas` must know those before any such record comes.
    """

    def __init__(
        self,
        epoch: Epoch,
        key: bytes,
        topic: str,
        days: CountedDays,
        pairs: bytes | bytearray,
        schemas: SchemaBook | None,
    ) -> None:
        self._bound = _bound(epoch, key, pairs)
        self.schemas = schemas if schemas is not None else SchemaBook(key, epoch.nonce)
        self._decode = decoder_of(epoch.mapping, self.schemas.schema)
        if epoch.user_partitions is not None:
            self._decode = epoch.user_partitions.checked(self._decode)
        self._topic = topic
        self._check_value, self._check_values = epoch.check_value, epoch.check_values
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

    def admitted(self, records: Sequence[Record], letters: list[DeadLetter]) -> list[str]:
        """What is counted of records of one partition that follow each other: labels, one as often as events held it.

        Dead letters of bad records, which count as events without items, are added to `letters`.
        """
        if records and not self._days.counts_part(records[0].partition):
            return []
        if isinstance(records, Records):
            self._check_values(records)
            try:
                return self._bound.admit_all(self._decode.all(records))
            except BadRecord:
                pass  # at least one is none: those are found one by one
        return [label for record in records for label in self._of_one(record, letters)]

    def _of_one(self, record: Record, letters: list[DeadLetter]) -> list[str]:
        self._check_value(record)
        try:
            return self._bound.admit(self._decode(record))
        except BadRecord as reason:
            place = self._topic, record.partition, record.offset
            letters.append(DeadLetter(str(reason), *place, record.key, record.value))
            return []


def _bound(epoch: Epoch, key: bytes, pairs: bytes | bytearray) -> Bound:
    items = epoch.mechanism.items_per_event
    return EventBound(items) if epoch.guarantee.unit == "event" else UserBound(items, key, epoch.nonce, pairs)
