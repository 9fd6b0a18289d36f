"""What tasks do in between if users are protected: bring all events of a user into one place, and bound them there.

One worker takes events by round, in it by partition, and in it by offset.  What is admitted of an event depends on
the earlier events of its user alone.  So users may be dealt to buckets, as long as each bucket takes its events in
that order:

1. `ReadUserTasks` read partitions, and write which users bring which items, by bucket.
2. `BoundTasks`, one a bucket, put that in order, and write what counts, by the task that has read it.  They also write
   the pairs of users and items that are new, which later turns must know.
3. `CountUserTasks` count that.

All of it is arrays: a row is an item of an event.  Names of users are in no file: they are known by their keyed bits,
as in the state of one worker.  PRIVATE all the same.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from stream_dp.events.bounding import NO_USER, PAIR_BYTES, UserBits
from stream_dp.events.counted_round import PartitionOfRound
from stream_dp.events.event import BadRecord, Event
from stream_dp.spark.counted_partition import RoundOfPartition
from stream_dp.spark.label_counts import BUCKET_BITS, BUCKETS
from stream_dp.spark.tasks import Counted, CountTasks, Found, Process, Tally, answers

_COUNTS, _FIRST, _OVER = 1, 2, 4
"""What is decided of a row: whether it counts, and if cells are, is its user's first, or the first that is too many."""

_WORDS = PAIR_BYTES // 8
_NONE = np.empty((1 + _WORDS, 0), "<u8")
_ROWS = 1 << 20  # the block of a file that has what its task alone needs; those before it are of buckets


class _Rows(msgspec.Struct, array_like=True):
    """What a task has read, a row for each item of each event: `codes` says which of the `labels`, int32.

    `order`, int32, has the rows bucket by bucket, as they are in the file.  `ends` has partition, place of the round in
    the turn, and the row after the last one, in the order in which they were read.
    """

    labels: list[str]
    codes: bytes
    order: bytes
    ends: list[tuple[int, int, int]]


class _Collected:
    """A `Bound` that admits nothing yet, and keeps what there is to admit."""

    def __init__(self) -> None:
        self.pairs, self.units, self.over = bytearray(), 0, 0
        self.users, self.items = list[str](), list[list[str]]()

    def admit(self, event: Event) -> list[str]:
        """See `Bound.admit`."""
        return self.admit_all([event])

    def admit_all(self, events: Sequence[Event]) -> list[str]:
        """See `Bound.admit_all`."""
        users = [event.user for event in events if event.user is not None]
        if len(users) < len(events):
            raise BadRecord(NO_USER)
        self.users += users
        self.items += [event.items for event in events]
        return []

    def forget(self) -> None:
        """See `Bound.forget`."""


class ReadUserTasks(CountTasks):
    """Reads what `CountTasks` would count, into a file a task, if any event has a user; heads mean nothing yet."""

    def count(self, task: int, process: Process) -> Counted:
        """What one task reads."""
        collected, ends = _Collected(), list[tuple[int, int, int]]()

        def take(number: int, step: int, closed: RoundOfPartition) -> None:
            ends.append((number, step, len(collected.users)))

        counted = self.read(task, process, collected, take)
        if collected.users:
            counted.labels = self.file(task)
            self._write(counted.labels, process, collected, ends)
        return counted

    def file(self, task: int) -> str:
        """The file of a task."""
        return f"{self.name}.{task}"

    def _write(
        self, name: str, process: Process, collected: _Collected, ends: Sequence[tuple[int, int, int]]
    ) -> None:
        sizes = np.fromiter(map(len, collected.items), np.int64, len(collected.items))
        behind = np.concatenate([[0], np.cumsum(sizes)])
        rows = [(number, step, int(behind[events])) for number, step, events in ends]
        places = {
            label: place for place, label in enumerate(dict.fromkeys(chain.from_iterable(collected.items)))
        }
        codes = np.fromiter(
            map(places.__getitem__, chain.from_iterable(collected.items)), np.int32, int(behind[-1])
        )
        bits = UserBits(process.key, process.nonce)
        columns = np.empty((1 + _WORDS, len(codes)), "<u8")
        columns[0] = _turns(rows)
        columns[1:-1] = np.repeat(bits.of_users(collected.users), sizes, axis=0).T
        columns[-1] = bits.of_items(places)[codes]
        buckets = (columns[1] & 0xFF) >> (8 - BUCKET_BITS)  # of a user's first byte
        order = np.argsort(buckets, kind="stable").astype(np.int32)
        borders = buckets[order].searchsorted(np.arange(BUCKETS + 1)).tolist()
        blocks = [
            (bucket, columns[:, order[begin:end]].tobytes(), end - begin)
            for bucket, (begin, end) in enumerate(pairwise(borders))
            if end > begin
        ]
        mine = _Rows([*places], codes.tobytes(), order.tobytes(), rows)
        process.files.write_blocks(name, [*blocks, (_ROWS, msgspec.msgpack.encode(mine), len(codes))])


@dataclass(frozen=True)
class BoundTasks:
    """Bounds what users bring, in tasks of one bucket of users each; the tasks `files` of `reading` have files.

    `pairs` begin the names of files of earlier pairs, `admitted` those of what is decided, and `name` those of new
    pairs, or of all pairs if they are to be `joined`.
    """

    reading: ReadUserTasks
    files: Sequence[int]
    pairs: Sequence[str]
    admitted: str
    name: str
    joined: bool

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from answers(batches, lambda bucket: self.bound(bucket, self.reading.work.process()))

    def bound(self, bucket: int, process: Process) -> Found:
        """Bound the users of one bucket."""
        blocks = [process.files.read_block(self.reading.file(task), bucket) for task in self.files]
        rows = np.concatenate([_NONE, *(_words(content, size) for content, size in blocks)], axis=1)
        known = [process.files.read_block(f"{name}.{bucket}", bucket)[0] for name in self.pairs]
        mechanism = self.reading.work.epoch.mechanism
        order = in_order(rows[0])
        pairs = np.ascontiguousarray(rows[1:, order].T)
        decided, kept = decide(
            _of_users(b"".join(known), pairs), pairs, mechanism.items_per_event, mechanism.cap_share
        )
        of_rows = np.empty_like(decided)
        of_rows[order] = decided
        borders = np.cumsum([0, *(size for _, size in blocks)]).tolist()
        process.files.write_blocks(
            f"{self.admitted}.{bucket}",
            [
                (task, of_rows[begin:end].tobytes(), end - begin)
                for task, (begin, end) in zip(self.files, pairwise(borders), strict=True)
                if end > begin
            ],
        )
        new = pairs[kept].tobytes()
        held = b"".join([*known, new]) if self.joined else new
        process.files.write_blocks(f"{self.name}.{bucket}", [(bucket, held, len(held) // PAIR_BYTES)])
        return Found()


@dataclass(frozen=True)
class CountUserTasks:
    """Counts what is admitted of partitions, in as many tasks as have read them; see `BoundTasks`."""

    reading: ReadUserTasks
    files: Sequence[int]
    admitted: str
    name: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from answers(batches, lambda task: self.count(task, self.reading.work.process()))

    def count(self, task: int, process: Process) -> Counted:
        """What was admitted in one task: only heads, labels and what is shown."""
        reading, counted = self.reading, Counted()
        tally = Tally(process, reading.shown, len(reading.barriers))
        numbers = reading.days().numbers(reading.rounds, reading.barriers)
        brought = self._brought(task, process)
        for number in reading.tasks[task]:
            heads = list[PartitionOfRound]()
            for step, counted_round in enumerate(numbers):
                counts, units, over = brought.get((number, step), ({}, 0, 0))
                tally.add(step, counts)
                head = process.noise.part_digest(counted_round, number, counts) if counted_round else b""
                heads.append(PartitionOfRound(head, units=units, over=over))
            counted.partitions[number] = heads
        tally.put_into(counted, f"{self.name}.{task}")
        return counted

    def _brought(
        self, task: int, process: Process
    ) -> dict[tuple[int, int], tuple[Mapping[str, int], int, int]]:
        """What partitions bring to rounds: labels with their counts, and what that adds to the cells beside them."""
        if task not in self.files:
            return {}
        content, size = process.files.read_block(self.reading.file(task), _ROWS)
        rows = msgspec.msgpack.decode(content, type=_Rows)
        blocks = [process.files.read_block(f"{self.admitted}.{bucket}", task)[0] for bucket in range(BUCKETS)]
        decided = np.empty(size, np.uint8)
        decided[np.frombuffer(rows.order, np.int32)] = np.frombuffer(b"".join(blocks), np.uint8)
        codes, begin = np.frombuffer(rows.codes, np.int32), 0
        brought: dict[tuple[int, int], tuple[Mapping[str, int], int, int]] = {}
        for number, step, end in rows.ends:
            mine = decided[begin:end]
            places, times = np.unique(codes[begin:end][(mine & _COUNTS) > 0], return_counts=True)
            labels = map(rows.labels.__getitem__, places.tolist())
            counts = dict(zip(labels, times.tolist(), strict=True))
            firsts, overs = (int(np.count_nonzero(mine & flag)) for flag in (_FIRST, _OVER))
            brought[number, step] = counts, firsts, overs
            begin = end
        return brought


def decide(
    known: NDArray[np.uint64], pairs: NDArray[np.uint64], items_per_user: int, cap_share: bool
) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    """What `UserBound` decides of pairs of users and items that follow the `known` ones, in the order of events.

    Pairs are of shape (pairs, 3): the bits of a user in two words, and those of an item.  Returns flags for each pair,
    and which pairs have to be known from now on.
    """
    columns = np.concatenate([known, pairs]).T
    by_pair = np.lexsort(columns[::-1])  # of equal pairs, the first one stays first
    new_user, new_pair = _begins(columns[:2, by_pair]), _begins(columns[:, by_pair])
    users, firsts = np.cumsum(new_user)[new_pair], by_pair[new_pair]
    in_time = np.lexsort((firsts, users))
    users, firsts = users[in_time], firsts[in_time]
    begin = np.flatnonzero(_begins(users[None]))
    ranks = np.arange(len(users)) - np.repeat(begin, np.diff(begin, append=len(users)))
    most = items_per_user
    flags = (ranks < most) * _COUNTS
    if cap_share:
        flags += (ranks == 0) * _FIRST + (ranks == most) * _OVER
    decided, kept = np.zeros(columns.shape[1], np.uint8), np.zeros(columns.shape[1], np.bool_)
    decided[firsts], kept[firsts] = flags, ranks < most + cap_share
    return decided[len(known) :], kept[len(known) :]


def _words(content: bytes, size: int) -> NDArray[np.uint64]:
    return np.frombuffer(content, "<u8").reshape(-1, size) if size else _NONE


def in_order(turns: NDArray[np.uint64]) -> NDArray[np.int64]:
    """The order in which one worker takes rows: by round, in it by partition, and in it as they were read."""
    return np.argsort(turns, kind="stable")


def with_heads(read: Sequence[Counted], counted: Sequence[Counted]) -> list[Counted]:
    """What tasks have counted, with what they have read."""
    return [
        Counted(
            {
                number: [
                    msgspec.structs.replace(part, head=head.head, units=head.units, over=head.over)
                    for part, head in zip(parts, mine.partitions[number], strict=True)
                ]
                for number, parts in each.partitions.items()
            },
            mine.shown,
            mine.labels,
            each.letters,
            each.records,
        )
        for each, mine in zip(read, counted, strict=True)
    ]


def _turns(ends: Sequence[tuple[int, int, int]]) -> NDArray[np.uint64]:
    """When one worker takes each row: the place of its round in the turn, and in it the partition."""
    numbers, steps, behind = np.array(ends, np.int64).T
    return np.repeat((steps << 32 | numbers).astype("<u8"), np.diff(behind, prepend=0))


def _begins(columns: NDArray[np.generic]) -> NDArray[np.bool_]:
    """Whether each row, which these columns have, differs from the one before it."""
    return np.concatenate([[True], (columns[:, 1:] != columns[:, :-1]).any(0)])[: columns.shape[1]]


def _of_users(known: bytes, pairs: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The known pairs of the users of these pairs, in their order."""
    held = np.frombuffer(known, "<u8").reshape(-1, _WORDS)
    return held[np.isin(held[:, 0], pairs[:, 0])]  # and of others whose bits begin alike, who do not matter
