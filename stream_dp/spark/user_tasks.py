"""What tasks do in between if users are protected: bring all events of a user into one place, and bound them there.

One worker takes events by round, in it by partition, and in it by offset.  What is admitted of an event depends on
the earlier events of its user alone.  So users may be dealt to buckets, as long as each bucket takes its events in
that order:

1. `ReadUserTasks` read partitions, and write what users bring, by bucket.
2. `BoundTasks`, one a bucket, put that in order, and write what is admitted, by partition.  They also write the pairs
   of users and items that are admitted now, which later turns must know.
3. `CountUserTasks` count what is admitted of partitions.

Names of users are in no file: they are known by their keyed bits, as in the state of one worker.  PRIVATE all the same.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from stream_dp.counters.protocol import CAP_CELLS
from stream_dp.events.bounding import PAIR_BYTES, USER_BYTES, UserBound
from stream_dp.events.counted_round import PartitionOfRound
from stream_dp.events.event import Event
from stream_dp.spark.counted_partition import RoundOfPartition
from stream_dp.spark.label_counts import BUCKET_BITS, BUCKETS
from stream_dp.spark.tasks import Counted, CountTasks, Found, Process, Tally, Work, answers

_Row = tuple[int, int, list[tuple[bytes, list[str]]]]
"""Place of a round in the turn, partition, and the events in order: bits of their user, and their items."""

_Admitted = list[tuple[int, dict[str, int], tuple[int, int]]]
"""Place of a round in the turn, how often which labels were admitted, and what that adds to the cells beside them."""


class _Collected(UserBound):
    """Admits nothing yet, and keeps what there is to admit."""

    def __init__(self, process: Process, items_per_user: int) -> None:
        super().__init__(items_per_user, process.key, process.nonce)
        self.events = list[tuple[bytes, list[str]]]()

    def admit(self, event: Event) -> list[str]:
        """See `Bound.admit`."""
        self.events.append((self.bits_of_user(event), [*dict.fromkeys(event.items)]))
        return []


class ReadUserTasks(CountTasks):
    """Reads what `CountTasks` would count; the answers name files of what users bring, and their heads mean nothing."""

    def count(self, task: int, process: Process) -> Counted:
        """What one task reads."""
        collected = _Collected(process, self.work.epoch.mechanism.items_per_event)
        buckets = defaultdict[int, list[_Row]](list)

        def take(number: int, step: int, closed: RoundOfPartition) -> None:
            by_bucket = defaultdict[int, list[tuple[bytes, list[str]]]](list)
            for user, items in collected.events:
                by_bucket[user[0] >> (8 - BUCKET_BITS)].append((user, items))
            collected.events = []
            for bucket, events in by_bucket.items():
                buckets[bucket].append((step, number, events))

        counted = self.read(task, process, collected, take)
        if buckets:
            counted.labels = f"{self.name}.{task}"
            encoded = (
                (bucket, msgspec.msgpack.encode(rows), len(rows)) for bucket, rows in sorted(buckets.items())
            )
            process.files.write_blocks(counted.labels, encoded)
        return counted


@dataclass(frozen=True)
class BoundTasks:
    """Bounds what users bring in `files`, in tasks of one bucket of users each.

    `pairs` begin the names of files of earlier pairs, `admitted` those of what is admitted, and `name` those of new
    pairs, or of all pairs if they are to be `joined`.
    """

    work: Work
    files: Sequence[str]
    pairs: Sequence[str]
    admitted: str
    name: str
    joined: bool

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from answers(batches, lambda bucket: self.bound(bucket, self.work.process()))

    def bound(self, bucket: int, process: Process) -> Found:
        """Bound the users of one bucket."""
        rows = in_order(
            chain.from_iterable(_decoded(process, name, bucket, list[_Row]) for name in self.files)
        )
        known = [process.files.read_block(f"{name}.{bucket}", bucket)[0] for name in self.pairs]
        users = {user for _, _, events in rows for user, _ in events}
        held = _of_users(b"".join(known), users)
        mechanism = self.work.epoch.mechanism
        bound = UserBound(mechanism.items_per_event, process.key, process.nonce, held, mechanism.cap_share)
        admitted = defaultdict[int, _Admitted](list)
        for step, partition, events in rows:
            units, over = bound.units, bound.over
            counts = Counter(chain.from_iterable(bound.admit_items(*event) for event in events))
            cells = (bound.units - units, bound.over - over) if mechanism.cap_share else (0, 0)
            if counts or any(cells):
                admitted[partition].append((step, counts, cells))
        blocks = (
            (each, msgspec.msgpack.encode(rounds), len(rounds)) for each, rounds in sorted(admitted.items())
        )
        process.files.write_blocks(f"{self.admitted}.{bucket}", blocks)
        new = bytes(bound.pairs[len(held) :])
        pairs = b"".join([*known, new]) if self.joined else new
        process.files.write_blocks(f"{self.name}.{bucket}", [(bucket, pairs, len(pairs) // PAIR_BYTES)])
        return Found()


@dataclass(frozen=True)
class CountUserTasks:
    """Counts what is admitted of partitions, in as many tasks as have read them."""

    reading: ReadUserTasks
    admitted: str
    name: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from answers(batches, lambda task: self.count(task, self.reading.work.process()))

    def count(self, task: int, process: Process) -> Counted:
        """What was admitted in one task: only heads, labels and what is shown."""
        reading, counted = self.reading, Counted()
        tally = Tally(process, reading.shown, len(reading.barriers))
        numbers = reading.days().numbers(reading.rounds, reading.barriers)
        for number in reading.tasks[task]:
            rounds = [Counter[str]() for _ in reading.barriers]
            cells = np.zeros((len(rounds), CAP_CELLS), np.int64)
            for bucket in range(BUCKETS):
                for step, counts, more in _decoded(process, f"{self.admitted}.{bucket}", number, _Admitted):
                    rounds[step].update(counts)
                    cells[step] += more
            heads = list[PartitionOfRound]()
            for step, (counts, counted_round) in enumerate(zip(rounds, numbers, strict=True)):
                tally.add(step, counts)
                head = process.noise.part_digest(counted_round, number, counts) if counted_round else b""
                units, over = cells[step].tolist()
                heads.append(PartitionOfRound(head, units=units, over=over))
            counted.partitions[number] = heads
        tally.put_into(counted, f"{self.name}.{task}")
        return counted


def in_order(rows: Iterable[_Row]) -> list[_Row]:
    """As one worker takes them: by round, and in it by partition, each of which has one row."""
    return sorted(rows)


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


def _decoded(process: Process, name: str, number: int, kind: Any) -> Any:
    content, size = process.files.read_block(name, number)
    return msgspec.msgpack.decode(content, type=kind) if size else []


def _of_users(pairs: bytes, users: set[bytes]) -> bytes:
    """The pairs of these users, in their order."""
    if not pairs or not users:
        return b""
    rows = np.frombuffer(pairs, np.uint8).reshape(-1, PAIR_BYTES)
    wanted = np.frombuffer(b"".join(sorted(users)), f"V{USER_BYTES}")
    mine = np.ascontiguousarray(rows[:, :USER_BYTES]).view(f"V{USER_BYTES}")[:, 0]
    first = np.isin(mine.view("<u8").reshape(-1, 2)[:, 0], wanted.view("<u8").reshape(-1, 2)[:, 0])
    return rows[first].tobytes()
