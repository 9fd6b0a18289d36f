"""The sequencer's work without its topics: records in, frames out.  All that a worker does before anything is counted.

It cuts the log into rounds, decodes, bounds what a privacy unit may bring, and extends the hash chain.  It keeps no
label beyond the batch that holds it.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from stream_dp.counters.protocol import CounterState
from stream_dp.engine.epoch import Epoch
from stream_dp.engine.histogram import HistogramState
from stream_dp.engine.round_chain import RoundChain
from stream_dp.events.merged_log import LogPart
from stream_dp.pipeline.frames import FrameWriter
from stream_dp.pipeline.intake import Intake, Position
from stream_dp.pipeline.pipeline import Output
from stream_dp.privacy.keyed_noise import EMPTY_HISTORY


class Sequencer:
    """Closes the rounds of an events topic for `shards` shards.

    `position`, `state` and `pairs` are what an earlier one had at the end of a round: all of them, or none.
    """

    def __init__(
        self,
        epoch: Epoch,
        key: bytes,
        topic: str,
        shards: int,
        position: Position | None = None,
        state: HistogramState | None = None,
        pairs: bytes | bytearray = b"",
    ) -> None:
        self.epoch = epoch
        self.intake = Intake(epoch, key, topic, position, pairs)
        self.round = state.round if state else 0
        self._released = self.intake.position.released
        history, noise = state.history if state else EMPTY_HISTORY, epoch.noise(key)
        self._chain = RoundChain(noise, epoch.mechanism.chain_rounds, history)
        self._writer = FrameWriter(epoch.number, epoch.nonce, shards, noise)

    @property
    def position(self) -> Position:
        """How far the events topic has been applied, at the end of a round.

        Its `released` is the last round that the shards are to release of those.
        """
        return replace(self.intake.position, released=self._released)

    @property
    def finished(self) -> bool:
        """Whether the horizon is reached: the records that follow belong to another epoch."""
        return self.round == self.epoch.mechanism.horizon

    def process(self, log: Sequence[LogPart]) -> Output:
        """Take what comes next in the log and frame the rounds that it closes.

        What was taken before is skipped; what lies beyond the horizon is left.
        """
        closed_before, horizon = self.intake.position.closed, self.epoch.mechanism.horizon
        closed = self.intake.process(log, horizon - self.round, self.round)
        schedule = self.epoch.release_schedule
        wanted = schedule.wanted(self.round + 1, closed.timestamps, closed_before, horizon)
        if wanted.any():
            self._released = self.round + 1 + int(np.flatnonzero(wanted)[-1])
        before = self._chain.history
        heads = self._chain.extend(self.round + 1, closed.parts)
        frames = list(self._writer.frames(self.round + 1, before, heads, closed))
        self.round += len(heads)
        return Output(dead_letters=closed.dead_letters, frames=frames, records=closed.records)

    def state(self) -> HistogramState:
        """What a checkpoint keeps: how far the rounds are, and no label."""
        return HistogramState(self._chain.history, [], np.empty(0, np.int32), CounterState(self.round))
