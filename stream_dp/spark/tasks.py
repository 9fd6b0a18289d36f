"""What Spark's Python processes do: count partitions, and at a test find labels, bucket by bucket.

It is the code of the worker: bounding, digests and noise are functions of the noise key, the epoch and the log, so a
task that runs twice, elsewhere or in other company gives the same.  Tasks are dealt by number, and nothing is shuffled:
what they share are files in the engine's folder.

Spark need not be installed to import this.
"""

import gc
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, repeat
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from stream_dp.config.connections import redis_client
from stream_dp.config.settings import Settings
from stream_dp.counters.discovery import DiscoveryMechanism
from stream_dp.counters.discovery_noise import DiscoveryNoise
from stream_dp.engine.epoch import Epoch
from stream_dp.events.barrier_chain import Barrier
from stream_dp.events.bounding import Bound, EventBound
from stream_dp.events.counted_round import PartitionOfRound
from stream_dp.events.dead_letter import DeadLetter
from stream_dp.events.merged_log import taken_before
from stream_dp.events.schema_book import SchemaBook
from stream_dp.jobs.task_errors import TaskFailed, untold
from stream_dp.pipeline.counted_days import CountedDays
from stream_dp.privacy.keyed_noise import KeyedNoise
from stream_dp.spark.closed import FolderOpen, require_private
from stream_dp.spark.counted_partition import CountedPartition, RoundOfPartition, start_of
from stream_dp.spark.label_counts import LabelFiles, LabelRun, LabelsDamaged, in_buckets
from stream_dp.spark.partition_reader import PartitionReader
from stream_dp.store.noise_key import noise_key

ANSWER = "task bigint, answer binary"
"""What tasks hand back, as Spark names types: the number of the task, and an encoded `Counted` or `Found`."""

_REDIS_SECONDS = 30.0
_REFUSALS = LabelsDamaged, FolderOpen


class Counted(msgspec.Struct, array_like=True):
    """What a task has counted.

    `partitions` has what each partition brings to the rounds, and `shown` for each round which labels that are shown
    were admitted, and how often, as in `CountedRound`.  `labels` is the file that has all others, empty without any.
    `unsettled` are numbers of schemas that must be settled first; then there is nothing else.
    """

    partitions: dict[int, list[PartitionOfRound]] = {}
    shown: list[tuple[bytes, bytes]] = []
    labels: str = ""
    letters: list[DeadLetter] = []
    records: int = 0
    unsettled: list[int] = []


class Found(msgspec.Struct, array_like=True):
    """The labels of a bucket that a test has found, with what was measured."""

    labels: list[tuple[str, int]] = []


@dataclass(frozen=True)
class Work:
    """What all tasks of a turn know.  The noise key is not part of it: each process finds it as the worker does."""

    settings: Settings
    epoch: Epoch
    folder: Path

    def process(self) -> "Process":
        """What this process keeps from task to task."""
        return _process(self.settings, self.epoch.nonce, self.folder)


class Process:
    """The connections and the state of one Python process, for one epoch."""

    def __init__(self, settings: Settings, nonce: bytes, folder: Path) -> None:
        self.settings, self.nonce = settings, nonce
        redis = redis_client(settings.redis_address, socket_timeout=_REDIS_SECONDS)
        self.key = noise_key(settings.noise_key, redis, settings.stream, may_create=False)
        self.noise = KeyedNoise(self.key, settings.stream, nonce)
        require_private(folder)
        self.files = LabelFiles(folder, self.key)
        self._readers: dict[frozenset[int], PartitionReader] = {}
        self._shown: tuple[str, dict[str, int]] = "", {}

    def close(self) -> None:
        """Give its connections up."""
        for reader in self._readers.values():
            reader.close()

    def reader(self, topic: str, partitions: Iterable[int], headers: bool) -> PartitionReader:
        """One that is used for these partitions alone."""
        which = frozenset(partitions)
        if which not in self._readers:
            self._readers[which] = PartitionReader(self.settings.kafka_address, topic, headers)
        return self._readers[which]

    def places(self, file: str) -> Mapping[str, int]:
        """The labels that are shown, with their places in the order in which they were found."""
        if self._shown[0] != file:
            labels = self.files.texts(file) if file else []
            self._shown = file, dict(zip(labels, range(len(labels)), strict=True))
        return self._shown[1]


_ours: dict[tuple[bytes, Path], Process] = {}


def _process(settings: Settings, nonce: bytes, folder: Path) -> Process:
    """That of one epoch: another one begins when the last one is over."""
    if (nonce, folder) not in _ours:
        close_process()
        _ours[nonce, folder] = Process(settings, nonce, folder)
        gc.freeze()  # Spark collects garbage after each task, and looks at all that has been imported
    return _ours[nonce, folder]


def close_process() -> None:
    """Give up the connections that this process keeps from task to task."""
    for process in _ours.values():
        process.close()
    _ours.clear()


@dataclass(frozen=True)
class CountTasks:
    """Counts the rounds that `barriers` close, in tasks of some partitions each; `rounds` end with barrier `after`.

    `closed` is when the last of them was closed that counts: see `CountedDays`.  `shown` is the file of the labels that
    are shown, `name` what the files of this turn are called, and `schemas` what is settled.
    """

    work: Work
    tasks: Sequence[Sequence[int]]
    rounds: int
    after: Barrier
    closed: int
    barriers: Sequence[Barrier]
    shown: str
    name: str
    schemas: Sequence[bytes]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from answers(batches, lambda task: self.count(task, self.work.process()))

    def days(self) -> CountedDays:
        """The days that follow `after`."""
        return CountedDays(self.work.epoch, self.after, self.closed)

    def count(self, task: int, process: Process) -> Counted:
        """What one task counts."""
        tally = Tally(process, self.shown, len(self.barriers))
        bound = EventBound(self.work.epoch.mechanism.items_per_event)
        counted = self.read(task, process, bound, lambda number, step, closed: tally.add(step, closed.counts))
        if not counted.unsettled:
            tally.put_into(counted, f"{self.name}.{task}")
        return counted

    def read(
        self, task: int, process: Process, bound: Bound, take: Callable[[int, int, RoundOfPartition], None]
    ) -> Counted:
        """Read the partitions of a task, one after the other, and `take` each of their rounds by number and place.

        `bound` decides what is admitted.  The answer lacks what was counted; if schemas are not settled, all but those.
        """
        epoch, numbers = self.work.epoch, self.tasks[task]
        starts = {number: start_of(epoch, self.after, number) for number in numbers}
        ranges = {n: (start, max(start, self.barriers[-1].end_of(n))) for n, start in starts.items()}
        held = process.reader(epoch.topic, numbers, epoch.reads_headers).read(ranges)
        if epoch.mapping is not None and epoch.mapping.needs_schemas:
            values = chain.from_iterable(each.values for records in held.values() for each in records)
            if unsettled := SchemaBook(process.key, epoch.nonce, self.schemas).unsettled(values):
                return Counted(unsettled=unsettled)
        counted = Counted()
        for number in numbers:
            place, parts = (number, self.rounds, self.days()), list[PartitionOfRound]()
            partition = CountedPartition(epoch, process.key, *place, self.schemas, bound)
            for step, barrier in enumerate(self.barriers):
                closed = partition.close(barrier, [*taken_before(held[number], barrier.end_of(number))])
                take(number, step, closed)
                counted.letters += closed.letters
                counted.records += closed.part.records
                parts.append(closed.part)
            counted.partitions[number] = parts
        return counted


class Tally:
    """Counts of labels that are shown, those in the file `shown`, by round, and of all others together."""

    def __init__(self, process: Process, shown: str, steps: int) -> None:
        self.others = Counter[str]()
        self._process, self._places = process, process.places(shown)
        self._shown: list[list[tuple[NDArray[np.int64], NDArray[np.int64]]]] = [[] for _ in range(steps)]

    def add(self, step: int, counts: Mapping[str, int]) -> None:
        """What a partition brings to a round."""
        if not counts:
            return
        places = np.fromiter(map(self._places.get, counts, repeat(-1)), np.int64, len(counts))
        times = np.fromiter(counts.values(), np.int64, len(counts))
        seen = places >= 0
        if seen.any():
            self._shown[step].append((places[seen], times[seen]))
        if seen.all():
            return
        if seen.any():
            counts = {label: counts[label] for label in counts if label not in self._places}
        self.others.update(counts)

    def put_into(self, counted: Counted, name: str) -> None:
        """Let an answer have what is shown, and the file `name` all others."""
        counted.shown = [*map(packed_sum, self._shown)]
        if self.others:
            counted.labels = name
            self._process.files.write(name, in_buckets(LabelRun.of(self.others, self._process.noise)))


def packed_sum(columns: Sequence[tuple[NDArray[np.int64], NDArray[np.int64]]]) -> tuple[bytes, bytes]:
    """Places and counts that come several times, each place once, as int32."""
    if not any(len(each) for each, _ in columns):
        return b"", b""
    places, inverse = np.unique(np.concatenate([each for each, _ in columns]), return_inverse=True)
    sums = np.bincount(inverse, np.concatenate([times for _, times in columns]), len(places))
    return places.astype("<i4").tobytes(), sums.astype("<i4").tobytes()


@dataclass(frozen=True)
class FindTasks:
    """Finds labels at a test, in tasks of one bucket each.

    `tests` are the rounds of all tests up to this one, with the heads of the chain after them.  `files` hold all labels
    that are not shown; what is left of them is written as files that `name` begins.
    """

    work: Work
    tests: Sequence[tuple[int, bytes]]
    files: Sequence[Sequence[str]]
    name: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from answers(batches, lambda bucket: self.find(bucket, self.work.process()))

    def find(self, bucket: int, process: Process) -> Found:
        """What the test finds in one bucket."""
        mechanism = self.work.epoch.mechanism
        assert isinstance(mechanism, DiscoveryMechanism)
        labels = process.files.joined(self.files[bucket], bucket)
        noise = DiscoveryNoise(mechanism, process.noise)
        for round_number, head in self.tests[:-1]:
            noise.begin_test(round_number, head)
        noise.restore(noise.state())
        noise.begin_test(*self.tests[-1])
        tau = int(mechanism.test_taus[len(self.tests) - 1])
        rows = noise.could_reach(labels.ids, labels.counts, mechanism.at_least, tau)
        measured = labels.counts[rows] + noise.rounded(labels.ids[rows])
        rows, measured = rows[measured >= tau], measured[measured >= tau]
        left = np.ones(len(labels), bool)
        left[rows] = False
        process.files.write(f"{self.name}.{bucket}", [(bucket, labels.take(np.flatnonzero(left)))])
        return Found([*zip(labels.take(rows).labels(), measured.tolist(), strict=True)])


@dataclass(frozen=True)
class JoinTasks:
    """Adds up files of labels into fewer, in tasks of one bucket each."""

    work: Work
    files: Sequence[Sequence[str]]
    name: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from answers(batches, lambda bucket: self.join(bucket, self.work.process().files))

    def join(self, bucket: int, files: LabelFiles) -> Found:
        """Write the sum of one bucket."""
        files.write(f"{self.name}.{bucket}", [(bucket, files.joined(self.files[bucket], bucket))])
        return Found()


def answers(
    batches: Iterable[pa.RecordBatch], work: Callable[[int], Counted | Found]
) -> Iterator[pa.RecordBatch]:
    """What Spark asks for and is given: numbers of tasks, and the answers of `work` to them.

    Raises `TaskFailed`, which says nothing of the data.
    """
    with untold(*_REFUSALS):
        for task in chain.from_iterable(batch.column(0).to_pylist() for batch in batches):
            encoded = msgspec.msgpack.encode(work(task))
            columns = [pa.array([task], pa.int64()), pa.array([encoded], pa.binary())]
            yield pa.record_batch(columns, ["task", "answer"])


@contextmanager
def refusals_told() -> Iterator[None]:
    """Around what runs tasks.  Raises what a task refused, of which Spark has the text alone."""
    try:
        yield
    except Exception as failed:
        text = f"{type(failed).__name__}: {failed}"
        for kind in _REFUSALS:
            if found := re.search(rf"{TaskFailed.__name__}: {kind.__name__}: (.*)", text):
                raise kind(found[1]) from None
        raise
