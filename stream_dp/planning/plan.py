"""What a stream of a given size needs: shards, memory, Redis and bandwidth, from what the work costs on this machine.

The model is `FORMULAS`, with S shards, P partitions, E events and R rounds a second, i items an event and k a round, N
labels of L bytes, V of them visible and A still brought by events, pruning blocks of B rounds, compression to the share
C, and the `Costs` by their names.

Visible labels are drawn for, sorted, encoded and compressed in every round; idle ones are looked at once a block, or
drawn for in every round where a group reads the events, because its rounds end by ticks and nothing can be pruned;
their noise is then kept, too.
Windows draw in every round for each label with an event in the block, and twice for each that is shown.  A
process may be busy for `UTILISATION` of the time at most, so that it catches up after a restart.
`benchmarks/scaling.py` and `benchmarks/cluster.py` hold the model against shards and members that do the work, and
`benchmarks/sizes.py` against what a live stream writes.
"""

from dataclasses import dataclass
from math import ceil

from stream_dp.engine.seen_labels import MOST_CHARACTERS, MOST_RECENT
from stream_dp.planning.costs import PRUNING_ROUNDS, Costs
from stream_dp.planning.release_sizes import DAY_SECONDS, REPLICAS, Growth, compressed_share

FORMULAS = {
    "sequencer": "E * decode + R * (sequence + S * frame)",
    "a shard": "R * (round + (V * (visible + compress * (release_per_label + L)) + N / B * idle + "
    "k * (item + U * unmet)) / S)",
    "a group": "E * decode + R * P * (sequence + S * frame)",
    "its shards": "R * (round + (V * (visible + compress * (release_per_label + L)) + N * drawn + "
    "k * (unpack + item + U * unmet)) / S)",
    "memory of a shard": "process_bytes + N / S * (memory_per_pruned + L)",
    "memory behind a group": "process_bytes + N / S * (memory_per_unpruned + L)",
    "Redis": "N * (redis_per_label + L)",
    "Kafka, events": "E * (i * (L + 3) + 80)",
    "Kafka, frames": "R * S * 48 + E * i * (L + 4)",
    "Kafka, frames of a group": "R * P * S * 72 + E * i * (L + 2) + R * P * 196",
    "Kafka, releases": "R * (S * release + V * (release_per_label + L))",
    "releases a day": "86400 * C * R * (release + V * (release_per_label + L))",
    "table a day": "86400 * min(R, 1) * V * (row + 2 * L)",
}
"""Processor seconds a second, bytes, bytes a second, and bytes a day of one replica.

U is 1 where a shard meets more labels than it keeps at hand, and 0 elsewhere (`labels_are_unmet`).  With one shard
there are no frames, and one worker is both.  A group (`intake = "group"`) reads in place of the sequencer; its members
divide what it needs, and its frames hold each label of a round at most once a partition.
Only the releases' line knows compression.
The table is as `stream-dp table` writes it once a second, before Kafka compacts it to V rows.
"""

WINDOW_FORMULAS = FORMULAS | {
    "a shard": "R * (round + (V * (visible + compress * (release_per_label + L)) + (N - V) * drawn + "
    "k * (item + U * unmet)) / S)",
    "its shards": "R * (round + (V * (visible + compress * (release_per_label + L)) + (N - V) * drawn + "
    "k * (unpack + item + U * unmet)) / S)",
    "memory of a shard": "process_bytes + (N * (memory_per_tested + L) + V * memory_per_shown + 2 * W * k * 72) / S",
    "memory behind a group": "process_bytes + (N * (memory_per_tested + L) + V * memory_per_shown + "
    "2 * W * k * 72) / S",
    "Redis": "N * (redis_per_label + L) + 2 * W * (k * 24 + S * 32)",
}
"""The same for windows of W rounds, whose N labels have an event in the last two blocks or are shown."""

UTILISATION = 0.8
MOST_SHARDS = 1_024

_HIT_BYTES, _STORED_HIT, _STORED_HEAD = 72, 24, 32
"""Of windows: a label of a round in memory and in Redis, and the head of a round's chain there."""


@dataclass(frozen=True)
class Workload:
    """What a stream is: `label_bytes` of the average label in UTF-8, `visible` labels above the threshold.

    `active`: how many labels events still bring, None for all.  `replicas`: how many brokers keep each release.
    `window`: the rounds that a release counts, for ever, or 0 for a running histogram.
    """

    labels: int
    visible: int
    events_per_second: float
    events_per_round: int = 1
    items_per_event: int = 4
    horizon: int = 65_535
    label_bytes: int = 16
    compression: str = "zstd"
    replicas: int = REPLICAS
    partitions: int = 12
    window: int = 0
    active: int | None = None

    @property
    def formulas(self) -> dict[str, str]:
        """The model, by what is computed."""
        return WINDOW_FORMULAS if self.window else FORMULAS

    @property
    def rounds_per_second(self) -> float:
        """How many rounds close every second."""
        return self.events_per_second / self.events_per_round


@dataclass(frozen=True)
class Plan:
    """What a workload needs.  Times are processor seconds a second, sizes bytes, bandwidths bytes a second.

    `compressed` is the share of the releases' bytes that their topic keeps.  `shards` is None where no number of shards
    is enough; `limits` says in sentences what stands in the way.
    """

    shards: int | None
    sequencer_busy: float
    shard_busy: float
    group_busy: float
    group_shard_busy: float
    shard_memory: float
    group_shard_memory: float
    redis: float
    events_bandwidth: float
    frames_bandwidth: float
    group_bandwidth: float
    releases_bandwidth: float
    compressed: float
    releases_a_day: Growth
    table_a_day: Growth
    epoch_seconds: float | None
    limits: list[str]


def sequencer_busy(work: Workload, costs: Costs, shards: int) -> float:
    """The share of one processor that the sequencer needs; one shard has none, and its worker decodes itself."""
    busy = work.events_per_second * costs.decode + work.rounds_per_second * costs.sequence
    return busy + (work.rounds_per_second * shards * costs.frame if shards > 1 else 0.0)


def labels_are_unmet(work: Workload, shards: int) -> bool:
    """Whether events bring a shard more labels than it keeps at hand: it looks for the label of each item then."""
    active = work.labels if work.active is None else work.active
    return active > shards * min(MOST_RECENT, MOST_CHARACTERS / work.label_bytes)


def group_busy(work: Workload, costs: Costs, shards: int) -> float:
    """How many processors all members of a group need together."""
    frames = work.rounds_per_second * work.partitions * (costs.sequence + shards * costs.frame)
    return work.events_per_second * costs.decode + frames


def members_needed(work: Workload, costs: Costs, shards: int) -> int:
    """How many members a group needs."""
    return ceil(group_busy(work, costs, shards) / UTILISATION)


def shard_busy(work: Workload, costs: Costs, shards: int) -> float:
    """The share of one processor that each shard needs."""
    items = work.items_per_event * work.events_per_round
    visible = costs.visible + costs.compress * (costs.release_per_label + work.label_bytes)
    unseen = work.labels / PRUNING_ROUNDS * costs.idle
    if work.window:
        unseen = (work.labels - work.visible) * costs.drawn
    item = costs.item + (costs.unmet if labels_are_unmet(work, shards) else 0.0)
    divided = work.visible * visible + unseen + items * item
    return work.rounds_per_second * (costs.round + divided / shards)


def shard_of_group_busy(work: Workload, costs: Costs, shards: int) -> float:
    """The share of one processor that each shard behind a group needs: rounds end by ticks, so nothing is pruned."""
    idle = 0.0 if work.window else work.labels * (costs.drawn - costs.idle / PRUNING_ROUNDS)
    unpacked = work.items_per_event * work.events_per_round * costs.unpack
    return shard_busy(work, costs, shards) + work.rounds_per_second * (idle + unpacked) / shards


def plan(work: Workload, costs: Costs) -> Plan:
    """The fewest shards that keep every process below `UTILISATION`, and what comes with them."""
    shards = next((n for n in range(1, MOST_SHARDS + 1) if _fits(work, costs, n)), None)
    counted = shards or MOST_SHARDS
    rounds, items = work.rounds_per_second, work.items_per_event * work.events_per_second
    items_per_round = work.items_per_event * work.events_per_round
    compressed = compressed_share(work.visible, work.label_bytes, rounds, work.compression)
    release = costs.release + work.visible * (costs.release_per_label + work.label_bytes)
    a_day = Growth(DAY_SECONDS * compressed * rounds * release, work.replicas)
    frames = rounds * counted * 48 + items * (work.label_bytes + 4) if counted > 1 else 0.0
    return Plan(
        shards=shards,
        sequencer_busy=sequencer_busy(work, costs, counted),
        shard_busy=shard_busy(work, costs, counted),
        group_busy=group_busy(work, costs, counted),
        group_shard_busy=shard_of_group_busy(work, costs, counted),
        shard_memory=costs.process_bytes + _memory_of_labels(work, costs, costs.memory_per_pruned) / counted,
        group_shard_memory=costs.process_bytes
        + _memory_of_labels(work, costs, costs.memory_per_unpruned) / counted,
        redis=work.labels * (costs.redis_per_label + work.label_bytes)
        + 2 * work.window * (items_per_round * _STORED_HIT + counted * _STORED_HEAD),
        events_bandwidth=items * (work.label_bytes + 3) + work.events_per_second * 80,
        frames_bandwidth=frames,
        group_bandwidth=rounds * work.partitions * (counted * 72 + 196) + items * (work.label_bytes + 2),
        releases_bandwidth=rounds
        * (counted * costs.release + work.visible * (work.label_bytes + costs.release_per_label)),
        compressed=compressed,
        releases_a_day=a_day,
        table_a_day=Growth(
            DAY_SECONDS * min(rounds, 1.0) * work.visible * (costs.row + 2 * work.label_bytes), work.replicas
        ),
        epoch_seconds=None if work.window else work.horizon / rounds,
        limits=_limits(work, costs, shards, a_day),
    )


def _memory_of_labels(work: Workload, costs: Costs, of_each: float) -> float:
    """Bytes of all labels: `of_each` beside its text, except in windows."""
    if not work.window:
        return work.labels * (of_each + work.label_bytes)
    hits = 2 * work.window * work.items_per_event * work.events_per_round
    tested = work.labels * (costs.memory_per_tested + work.label_bytes)
    return tested + work.visible * costs.memory_per_shown + hits * _HIT_BYTES


def _fits(work: Workload, costs: Costs, shards: int) -> bool:
    if shards == 1:  # one worker does both
        return sequencer_busy(work, costs, 1) + shard_busy(work, costs, 1) <= UTILISATION
    return max(sequencer_busy(work, costs, shards), shard_busy(work, costs, shards)) <= UTILISATION


def _limits(work: Workload, costs: Costs, shards: int | None, a_day: Growth) -> list[str]:
    found = []
    if shards is None:
        decoding = work.events_per_second * costs.decode
        if decoding > UTILISATION:
            found.append(
                f"One sequencer decodes {UTILISATION / costs.decode:,.0f} events a second here, and this is "
                f"{work.events_per_second:,.0f}: {_group_instead(work, costs)}divide the events among several streams."
            )
        else:
            found.append(
                f"{work.rounds_per_second:,.0f} rounds a second are too many for any number of shards: let a round "
                'hold more events (rounds = "every-N"), which makes releases rarer and counts more accurate.'
            )
    if not work.window and work.horizon / work.rounds_per_second < 3_600:
        found.append(
            f"The horizon of {work.horizon:,} rounds lasts {work.horizon / work.rounds_per_second:,.0f} seconds: "
            "raise it, or let a round hold more events."
        )
    if a_day.is_much:
        found.append(f"The releases grow by {a_day}: {a_day.advice(work.compression)}.")
    return found


def _group_instead(work: Workload, costs: Costs) -> str:
    """What a group would need; nothing where none would do."""
    fitting = (n for n in range(1, MOST_SHARDS + 1) if shard_of_group_busy(work, costs, n) <= UTILISATION)
    shards = next(fitting, None)
    if shards is None or (members := members_needed(work, costs, shards)) > work.partitions:
        return ""
    return (
        f'let a group of {members} read them (rounds = "ticks", intake = "group", shards = {shards}; '
        "docs/operations/intake.md), or "
    )
