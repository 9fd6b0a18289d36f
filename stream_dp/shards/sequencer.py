"""The sequencer's work without its topics: records in, frames out.  All that one worker does before it counts.

It decodes, bounds, closes rounds and extends the hash chain.  It keeps no label beyond the batch that holds it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from stream_dp.bounding import EventBound
from stream_dp.counters.protocol import CounterState
from stream_dp.epoch import Epoch
from stream_dp.histogram import HistogramState, chain_heads
from stream_dp.log_digest import LogDigester
from stream_dp.pipeline import Position
from stream_dp.privacy.keyed_noise import EMPTY_HISTORY
from stream_dp.records import BadRecord, DeadLetter, Record, decode_event
from stream_dp.shards.frames import ClosedRounds, Frame, FrameWriter


@dataclass
class SequencerOutput:
    """What one batch gives: every record that was not skipped closed one round."""

    frames: list[Frame] = field(default_factory=list)
    dead_letters: list[DeadLetter] = field(default_factory=list)


class Sequencer:
    """Closes the rounds of one events partition for `shards` shards."""

    def __init__(
        self,
        epoch: Epoch,
        key: bytes,
        topic: str,
        shards: int,
        position: Position | None = None,
        state: HistogramState | None = None,
    ) -> None:
        self.epoch = epoch
        self.position = position or Position(epoch.first_offset)
        self.round = state.round if state else 0
        self._history = state.history if state else EMPTY_HISTORY
        self._noise = epoch.noise(key)
        self._bound = EventBound(epoch.mechanism.items_per_event)
        self._digester = LogDigester(key)
        self._writer = FrameWriter(epoch.number, epoch.nonce, shards, self._noise)
        self._topic = topic

    @property
    def rounds_left(self) -> int:
        """Rounds that the epoch still has room for."""
        return self.epoch.mechanism.horizon - self.round

    @property
    def finished(self) -> bool:
        """Whether the horizon is reached: the records that follow belong to another epoch."""
        return self.rounds_left == 0

    def process(self, records: Sequence[Record]) -> SequencerOutput:
        """Close a round per record, in order.

        Records below `position` were counted before and are skipped; those beyond the horizon are left.
        """
        fresh = [record for record in records if record.offset >= self.position.next_offset]
        fresh = fresh[: self.rounds_left]
        output = SequencerOutput()
        if not fresh:
            return output
        admitted = [self._admitted(record, output) for record in fresh]
        heads = chain_heads(self._noise, self._history, self.round + 1, admitted)
        timestamps = [record.timestamp for record in fresh]
        closed = ClosedRounds(self.round + 1, self._history, admitted, heads, timestamps)
        output.frames += self._writer.frames(closed)
        self.round += len(fresh)
        self._history = heads[-1]
        self.position = Position(fresh[-1].offset + 1, self._digester.extend(self.position.log, fresh))
        return output

    def state(self) -> HistogramState:
        """What a checkpoint keeps: how far the rounds are, and no label."""
        return HistogramState(self._history, [], np.empty(0, np.int32), CounterState(self.round))

    def _admitted(self, record: Record, output: SequencerOutput) -> list[str]:
        """What is counted of the record; a bad record becomes a dead letter and closes its round as an empty event."""
        try:
            return self._bound.admit(decode_event(record.value))
        except BadRecord as reason:
            output.dead_letters.append(
                DeadLetter(str(reason), self._topic, 0, record.offset, record.key, record.value)
            )
            return []
