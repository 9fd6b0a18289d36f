"""A million events a second and 10^8 labels: 64 members, 256 partitions and 64 shards, one after the other.

Two cores cannot run a cluster, so each process does its work of one round in turn, from bytes in to bytes out, and what
counts is processor time; the brokers are left out.  All members and the worker do all of their work, and two of the
shards do theirs, each with its share of the labels; the other shards do the same work on other labels.  Beside it
stands what `stream-dp plan` says of the same workload.
"""

import random
from collections.abc import Sequence
from dataclasses import replace
from time import process_time

from rich.console import Console
from rich.table import Table

from benchmarks.costs import measure_costs
from stream_dp.config.settings import Settings
from stream_dp.engine.epoch import Epoch
from stream_dp.engine.histogram import HistogramState
from stream_dp.events.barrier_chain import Barrier, BarrierChain, beginning, named
from stream_dp.events.record import Record
from stream_dp.events.records import Records
from stream_dp.pipeline.coordinator import Coordinator
from stream_dp.pipeline.frames import encode_frame, shards_of
from stream_dp.pipeline.intake import Position
from stream_dp.pipeline.partition_frames import decode_of_shard, encode
from stream_dp.pipeline.partition_intake import PartitionIntake
from stream_dp.pipeline.shard import Shard
from stream_dp.planning.plan import Workload, needs
from stream_dp.planning.release_sizes import far_along, stored_bytes
from stream_dp.privacy.keyed_noise import KEY_BYTES

MEMBERS, PARTITIONS, SHARDS, SHARDS_RUN = 64, 256, 64, 2
EVENTS, ROUNDS = 1_000_000, 3  # a round is a second; the first warms up, and brings all that are known
KNOWN = EVENTS  # labels that events bring; all others are idle
WORK = Workload(
    labels=100_000_000,
    visible=64_000,
    events_per_second=EVENTS,
    events_per_round=EVENTS,
    items_per_event=2,
    horizon=2**24 - 1,
    partitions=PARTITIONS,
    active=KNOWN,
)
_KEY = bytes(KEY_BYTES)
_SETTINGS = Settings(
    stream="cluster",
    horizon=WORK.horizon,
    items_per_event=WORK.items_per_event,
    rounds="ticks",
    intake="group",
    shards=SHARDS,
    mechanism="binary",
)


def main(console: Console) -> None:
    """Print what a second of the stream takes of each kind of process, as the model says and as it is."""
    starts = (0,) * PARTITIONS
    first = beginning("cluster", 0, *starts)
    epoch = Epoch.open(_SETTINGS, 1, 0, further_offsets=starts[1:])
    epoch = replace(epoch, after_barrier=first)
    noise = epoch.noise(_KEY)
    names = [f"label {number:010d}" for number in range(KNOWN)]
    owners = shards_of(noise.label_ids(name.encode() for name in names), SHARDS).tolist()
    state = far_along(epoch.mechanism, noise, [], 0)
    before = Barrier("cluster", 0, state.round, 0, 0, named(starts), {}, first.digest)
    rounds = _Rounds(epoch, state, before)
    frames: list[list[list[bytes]]] = []
    members, worker = [], []
    rng = random.Random(1)
    for _ in range(ROUNDS):
        taken_by_members, taken_by_worker, of_shards = rounds.close(names, rng)
        members.append(taken_by_members)
        worker.append(taken_by_worker)
        frames.append(of_shards)
    shards = [_shard_seconds(epoch, number, names, owners, frames) for number in range(SHARDS_RUN)]
    said = needs(WORK, measure_costs(), SHARDS)
    table = Table("process", "model", "measured", "ratio", title="Processor seconds a second of the stream")
    rows = (
        (f"all {MEMBERS} members", said["a group"], min(members[1:])),
        ("a member", said["a group"] / MEMBERS, min(members[1:]) / MEMBERS),
        ("a shard", said["its shards"], sum(shards) / SHARDS_RUN),
    )
    for name, predicted, measured in rows:
        table.add_row(name, f"{predicted:.3f}", f"{measured:.3f}", f"{measured / predicted:.2f}")
    table.add_row("the worker, which seals rounds", "", f"{min(worker[1:]):.3f}", "")
    console.print(table)


class _Rounds:
    """The members and the worker, from round `before` on, and where the partitions end."""

    def __init__(self, epoch: Epoch, state: HistogramState, before: Barrier) -> None:
        position = Position(0, barrier=before, further=epoch.further_offsets)
        self._chain = BarrierChain(_KEY, "cluster", before)
        self._partitions = [
            PartitionIntake(epoch, _KEY, "cluster.events", number, SHARDS, position, state)
            for number in range(PARTITIONS)
        ]
        self._worker = Coordinator(epoch, _KEY, SHARDS, position, state)
        self._end = 0

    def close(self, names: Sequence[str], rng: random.Random) -> tuple[float, float, list[list[bytes]]]:
        """A round of `EVENTS` events: processor seconds of all members and of the worker, and frames by shard."""
        share = EVENTS // PARTITIONS
        self._end += share
        last = self._chain.last
        value = self._chain.encode(last.due + 1_000, named([self._end] * PARTITIONS))
        barrier = self._chain.take(last.next_offset, value)
        assert barrier is not None
        frames: list[list[bytes]] = [[] for _ in range(SHARDS)]
        heads, by_members = list[Record](), 0.0
        for number, partition in enumerate(self._partitions):
            records = Records.of([_record(self._end - share + i, number, names, rng) for i in range(share)])
            started = process_time()
            part = partition.close(barrier, [records])
            assert part is not None
            encoded = [(frame.shard, encode(frame)) for frame in part.frames]
            head = encode(part.head)
            by_members += process_time() - started
            for shard, frame in encoded:
                frames[shard].append(frame)
            heads.append(Record(len(heads), 0, None, head))
        started = process_time()
        for seal in self._worker.process([*heads, barrier]).frames:
            frames[seal.shard].append(encode_frame(seal))
        return by_members, process_time() - started, frames


def _record(offset: int, partition: int, names: Sequence[str], rng: random.Random) -> Record:
    """An order of a label that everybody sees and of another known one: first of each in turn, then of any."""
    turn = offset * PARTITIONS + partition
    items = (
        names[int(rng.random() * WORK.visible)],
        names[turn if turn < KNOWN else int(rng.random() * KNOWN)],
    )
    return Record(offset, 1, None, b'{"items":["%b","%b"]}' % tuple(map(str.encode, items)), partition)


def _shard_seconds(
    epoch: Epoch, number: int, names: Sequence[str], owners: Sequence[int], frames: list[list[list[bytes]]]
) -> float:
    """Processor seconds of a round in one shard, from its frames to its compressed releases."""
    mine = [name for name, owner in zip(names, owners, strict=True) if owner == number]
    visible = sum(owner == number for owner in owners[: WORK.visible])
    idle = [f"idle {i:011d}" for i in range(WORK.labels // SHARDS - len(mine))]
    state = far_along(epoch.mechanism, epoch.noise(_KEY), mine + idle, visible)
    shard = Shard(epoch, _KEY, number, SHARDS, Position(0), state)
    taken, offset = [], 0
    for of_shards in frames:
        started = process_time()
        decoded = [decode_of_shard(value) for value in of_shards[number]]
        released = [part.value for parts in shard.process(list(enumerate(decoded, offset))) for part in parts]
        stored_bytes(released, _SETTINGS.compression, len(released))
        taken.append(process_time() - started)
        offset += len(decoded)
        assert released
    return min(taken[1:])
