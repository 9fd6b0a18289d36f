"""From one batch of raw records to releases: decode, bound, count, add noise, encode.  Transport-free.

Every host drives this one pipeline: it reads and writes nothing, and its output is a function of the noise key,
the epoch and the records alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from stream_dp.bounding import EventBound
from stream_dp.epoch import Epoch
from stream_dp.histogram import HistogramState, RunningHistogram
from stream_dp.log_digest import NOTHING, LogDigest, LogDigester
from stream_dp.records import (
    BadRecord,
    DeadLetter,
    Record,
    ReleaseEncoder,
    decode_event,
)


class ReleasedPart(NamedTuple):
    """One message for the releases topic: part `part` of the release of `round`."""

    round: int
    part: int
    value: bytes


@dataclass
class Output:
    """What one batch gives: every record that was not skipped closed one round."""

    releases: list[ReleasedPart] = field(default_factory=list)
    dead_letters: list[DeadLetter] = field(default_factory=list)


@dataclass(frozen=True)
class Position:
    """How far the events topic has been applied: the next offset, and a commitment to all before it."""

    next_offset: int
    log: LogDigest = NOTHING


class Pipeline:
    """The running histogram of one events partition."""

    def __init__(
        self,
        epoch: Epoch,
        key: bytes,
        topic: str,
        position: Position | None = None,
        state: HistogramState | None = None,
    ) -> None:
        self.epoch = epoch
        self.position = position or Position(epoch.first_offset)
        self.histogram = RunningHistogram(epoch.mechanism, epoch.noise(key), state)
        self._bound = EventBound(epoch.mechanism.items_per_event)
        self._digester = LogDigester(key)
        self._topic = topic
        self._encoder = ReleaseEncoder(
            epoch.privacy["stream"], epoch.number, epoch.nonce, epoch.mechanism, epoch.guarantee
        )

    @property
    def round(self) -> int:
        """Rounds closed so far."""
        return self.histogram.round

    @property
    def finished(self) -> bool:
        """Whether the horizon is reached: the records that follow belong to another epoch."""
        return self.histogram.rounds_left == 0

    def process(self, records: Sequence[Record]) -> Output:
        """Close a round per record, in order.

        Records below `position` were counted before and are skipped; those beyond the horizon are left.
        """
        fresh = [record for record in records if record.offset >= self.position.next_offset]
        fresh = fresh[: self.histogram.rounds_left]
        output = Output()
        before = self.round
        for block in self.histogram.blocks([self._admitted(record, output) for record in fresh]):
            start = block.first - before - 1
            timestamps = [record.timestamp for record in fresh[start : start + len(block.sizes)]]
            for round_number, parts in enumerate(self._encoder.encode(block, timestamps), block.first):
                output.releases += [
                    ReleasedPart(round_number, part, value) for part, value in enumerate(parts, 1)
                ]
        if fresh:
            self.position = Position(fresh[-1].offset + 1, self._digester.extend(self.position.log, fresh))
        return output

    def _admitted(self, record: Record, output: Output) -> list[str]:
        """What is counted of the record; a bad record becomes a dead letter and closes its round as an empty event."""
        try:
            return self._bound.admit(decode_event(record.value))
        except BadRecord as reason:
            output.dead_letters.append(
                DeadLetter(str(reason), self._topic, 0, record.offset, record.key, record.value)
            )
            return []
