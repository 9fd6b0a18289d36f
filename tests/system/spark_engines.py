"""Engines that count a stream turn by turn; their tasks run in this process."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from stream_dp.epochs.journal import EpochJournal
from stream_dp.events.dead_letter import DeadLetter
from stream_dp.spark.engine import EngineEpoch, RunsTasks
from stream_dp.spark.tasks import refusals_told
from tests.system.streams import Stream


def in_this_process(tasks: Any, number: int) -> Iterator[bytes]:
    """See `RunsTasks`; the tasks that finish first are the last ones."""
    answers: dict[int, bytes] = {}
    for task in reversed(range(number)):
        with refusals_told():
            [batch] = tasks([pa.record_batch({"id": pa.array([task], pa.int64())})])
        answers[batch.column(0)[0].as_py()] = batch.column(1)[0].as_py()
    yield from (answers[task] for task in range(number))


class Engines:
    """Engines of one stream that follow each other, in one folder.

    `run` runs their tasks, and `cores` are how many there are.
    """

    run: RunsTasks = staticmethod(in_this_process)
    cores = 2

    def __init__(self, stream: Stream, folder: Path) -> None:
        self.stream, self.folder = stream, folder
        self.letters: list[DeadLetter] = []
        self._epoch: EngineEpoch | None = None

    def work(self) -> None:
        """Count all that barriers have closed, in the epoch that is open."""
        journal = EpochJournal(self.stream.settings, self.stream.key)
        opened = journal.last
        assert opened is not None
        if self._epoch is None or self._epoch.epoch.nonce != opened.epoch.nonce:
            place = self.stream.key(), self.folder, self.run, lambda: self.cores, self.hand_on
            self._epoch = EngineEpoch(self.stream.settings, opened, journal, *place)
        self._epoch.read_barriers()
        while self._epoch.turn() is not None:
            pass

    def hand_on(self, letters: Sequence[DeadLetter]) -> None:
        """Write copies of broken records."""
        self.letters += letters

    def begin_again(self) -> None:
        """What the next one knows is in the folder alone."""
        self._epoch = None

    @property
    def files(self) -> list[Path]:
        """What is in the folder."""
        return sorted(path for path in self.folder.rglob("*") if path.is_file())
