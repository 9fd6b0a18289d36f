"""What the engine goes on from: one small file, replaced after each turn, that names all the others.  PRIVATE."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from stream_dp.engine.epoch import Epoch
from stream_dp.engine.release_schedule import NEVER
from stream_dp.events.barrier_chain import Barrier
from stream_dp.privacy.keyed_noise import EMPTY_HISTORY
from stream_dp.spark.label_counts import BUCKETS, LabelFiles

KNOWN = "known"
"""The file of the labels that the epoch shows from its first round on."""

_NAME = "state"


class EngineState(msgspec.Struct, frozen=True):
    """Everything after round `round`, which `barrier` closed.

    `closed` is when the last round was closed that counts: see `CountedDays`.  `history` is the head of the chain.
    `tests` are the rounds of the tests so far, with the heads after them.  Labels that are shown stand in the file
    `shown`, empty for none.  All others are in the files `turns`, and in those that each of `joined` begins, one for
    each bucket.  So are `pairs` of users and items, by buckets of users.
    """

    barrier: Barrier
    round: int
    closed: int
    history: bytes
    tests: list[tuple[int, bytes]] = []
    shown: str = ""
    turns: list[str] = []
    joined: list[str] = []
    pairs: list[str] = []
    v: Literal[1] = 1

    @classmethod
    def at_start_of(cls, epoch: Epoch) -> "EngineState":
        """Before the first round."""
        assert epoch.after_barrier is not None, "only barriers cut all partitions alike"
        return cls(epoch.after_barrier, 0, NEVER, EMPTY_HISTORY, shown=KNOWN if epoch.known else "")

    def files_of_buckets(self) -> Sequence[Sequence[str]]:
        """The files of labels that are not shown, by bucket."""
        return [[f"{name}.{bucket}" for name in self.joined] + self.turns for bucket in range(BUCKETS)]

    def files(self) -> Iterator[str]:
        """All files that it names."""
        yield from (_NAME, KNOWN, self.shown, *self.turns)
        for name in (*self.joined, *self.pairs):
            yield from (f"{name}.{bucket}" for bucket in range(BUCKETS))


class StateFile:
    """The file of the state in one folder, which one engine writes at a time."""

    def __init__(self, folder: Path, key: bytes) -> None:
        self._folder, self._files = folder, LabelFiles(folder, key)

    def read(self) -> EngineState | None:
        """None before the first turn.  Raises `LabelsDamaged`."""
        content = self._files.read_sealed(_NAME)
        return None if content is None else msgspec.msgpack.decode(content, type=EngineState)

    def write(self, state: EngineState) -> None:
        """Go on from `state` from now on."""
        self._files.write_sealed(_NAME, msgspec.msgpack.encode(state))

    def remove_others(self, state: EngineState) -> None:
        """Remove all files that `state`, which was written, does not name."""
        named = set(state.files())
        for path in self._folder.iterdir():
            if path.name not in named:
                path.unlink(missing_ok=True)
