"""Two shards on two cores beside one shard on one: whole rounds a second, with 100,000 labels that are all released.

A shard reads frames and encodes its releases, in a process of its own.  Sequencer, broker and merge are left out: they
are other processes, and would share these cores.
"""

import multiprocessing
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import Connection

import numpy as np
from msgspec.structs import replace as changed
from rich.console import Console
from rich.table import Table

from benchmarks.measure import take_turns
from stream_dp.config.settings import Settings
from stream_dp.counters.binary import BinaryMechanism
from stream_dp.engine.epoch import Epoch
from stream_dp.engine.histogram import HistogramState
from stream_dp.events.record import Record
from stream_dp.pipeline.frames import Frame, decode_frame, encode_frame, shards_of
from stream_dp.pipeline.sequencer import Sequencer
from stream_dp.pipeline.shard import Shard

LABELS = 100_000
ROUNDS = 60
TURNS = 5
KEY = bytes(32)
_PROCESSES = multiprocessing.get_context("spawn")


def main(console: Console) -> None:
    """Print rounds a second of one shard and of two, and their ratio."""
    contestants = {shards: _Shards(shards) for shards in (1, 2)}
    try:
        runs: dict[str, Callable[[], object]] = {str(shards): each for shards, each in contestants.items()}
        seconds = take_turns(runs, TURNS)
    finally:
        for each in contestants.values():
            each.stop()
    table = Table(
        "shards, a process each", "rounds/s", "beside one", title=f"Shards: {LABELS:,} visible labels"
    )
    for shards in seconds:
        table.add_row(shards, f"{ROUNDS / seconds[shards]:,.1f}", f"{seconds['1'] / seconds[shards]:.2f}")
    console.print(table)


class _Shards:
    """A process for each of so many shards; a call lets all of them do the next rounds, and waits for the last."""

    def __init__(self, shards: int) -> None:
        pairs = [_PROCESSES.Pipe() for _ in range(shards)]
        self._ends = [ours for ours, _ in pairs]
        self._processes = [
            _PROCESSES.Process(target=_work, args=(number, shards, theirs), daemon=True)
            for number, (_, theirs) in enumerate(pairs)
        ]
        for process in self._processes:
            process.start()
        for end in self._ends:
            end.recv()

    def __call__(self) -> None:
        for end in self._ends:
            end.send(True)
        for end in self._ends:
            end.recv()

    def stop(self) -> None:
        for end, process in zip(self._ends, self._processes, strict=True):
            end.send(False)
            process.join()


def _work(number: int, shards: int, end: Connection) -> None:
    """Prepare a shard and its frames, then count those of one turn whenever asked."""
    epoch = _epoch()
    names = [f"label {i}" for i in range(LABELS)]
    ids = epoch.noise(KEY).label_ids(name.encode() for name in names)
    own = np.array(names, object)[shards_of(ids, shards) == number].tolist()
    shard = Shard(epoch, KEY, number, shards, state=HistogramState.before_any_round(own))
    turns = iter(_frames(epoch, names, number, shards))
    end.send(None)
    while end.recv():
        for _ in shard.process(next(turns)):
            pass
        end.send(None)


def _epoch() -> Epoch:
    """An epoch that releases every label in every round."""
    epoch = Epoch.open(
        Settings(stream="bench", horizon=2**16 - 1, shown="each-round", mechanism="binary"), 1, 0
    )
    assert isinstance(epoch.mechanism, BinaryMechanism)
    thresholds = tuple(-(10**6) for _ in epoch.mechanism.thresholds)
    return replace(epoch, nonce=bytes(16), mechanism=changed(epoch.mechanism, thresholds=thresholds))


def _frames(epoch: Epoch, names: list[str], number: int, shards: int) -> list[list[tuple[int, Frame]]]:
    """The frames of each turn, of events with two items."""
    sequencer = Sequencer(epoch, KEY, "bench.events", shards)
    turns = []
    for turn in range(TURNS + 1):
        offsets = range(turn * ROUNDS, (turn + 1) * ROUNDS)
        records = [
            Record(
                i,
                0,
                None,
                b'{"items":["%b","%b"]}' % (names[7 * i % LABELS].encode(), names[13 * i].encode()),
            )
            for i in offsets
        ]
        frames = [frame for frame in sequencer.process(records).frames if frame.shard == number]
        turns.append([(turn, decode_frame(encode_frame(frame))) for frame in frames])
    return turns
