"""What a stream of a given size needs: shards, memory, Redis and bandwidth, from what the work costs.

The model is `FORMULAS`: what is printed is what is computed.  In them are S shards, P partitions, E events and R rounds
a second, i items an event and k a round, N labels of L bytes, V of them visible and A still brought by events, windows
of W rounds, compression to the share C, and the `Costs` by their names.

Visible labels are drawn for, sorted, encoded and compressed in every round.  Other labels take nothing if labels are
found at tests; else they are drawn for in every round, too, and their noise is kept.
Windows draw in every round for each label with an event in the block, and twice for each that is shown.  A
process may be busy for `UTILISATION` of the time at most, so that it catches up after a restart.
`benchmarks/scaling.py` and `benchmarks/cluster.py` hold the model against shards and members that do the work, and
`benchmarks/sizes.py` against what a live stream writes.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from math import ceil

from stream_dp.engine.seen_labels import MOST_CHARACTERS, MOST_RECENT
from stream_dp.planning.costs import Costs
from stream_dp.planning.formula import value_of
from stream_dp.planning.release_sizes import REPLICAS, Growth, compressed_share

FORMULAS = {
    "sequencer": "E * decode + R * (sequence + (S > 1) * S * frame)",
    "a shard": "R * (round + (V * (visible + compress * (release_per_label + L)) + N * drawn + "
    "k * (item + U * unmet)) / S)",
    "a group": "E * decode + R * P * (sequence + S * frame)",
    "its shards": "R * (round + (V * (visible + compress * (release_per_label + L)) + N * drawn + "
    "k * (unpack + item + U * unmet)) / S)",
    "memory of a shard": "process_bytes + N / S * (memory_per_drawn + L)",
    "Redis": "N * (redis_per_label + L)",
    "Kafka, events": "E * (i * (L + 3) + 80)",
    "Kafka, frames": "(S > 1) * (R * S * 48 + E * i * (L + 4))",
    "Kafka, frames of a group": "R * P * S * 72 + E * i * (L + 2) + R * P * 196",
    "Kafka, releases": "R * (S * release + V * (release_per_label + L))",
    "releases a day": "86400 * C * R * (release + V * (release_per_label + L))",
    "table a day": "86400 * min(R, 1) * V * (row + 2 * L)",
}
"""Processor seconds a second, bytes, bytes a second, and bytes a day of one replica.

U is 1 where a shard meets more labels than it keeps at hand, and 0 elsewhere.  One worker is sequencer and shard.
A group (`intake = "group"`) reads in place of the sequencer; its members divide what it needs, and its frames hold each
label of a round at most once a partition.  Only the releases' line knows compression.
The table is as `stream-dp table` writes it once a second, before Kafka compacts it to V rows.
"""

WINDOW_FORMULAS = FORMULAS | {
    "a shard": "R * (round + (V * (visible + compress * (release_per_label + L)) + (N - V) * drawn + "
    "k * (item + U * unmet)) / S)",
    "its shards": "R * (round + (V * (visible + compress * (release_per_label + L)) + (N - V) * drawn + "
    "k * (unpack + item + U * unmet)) / S)",
    "memory of a shard": "process_bytes + (N * (memory_per_tested + L) + V * memory_per_shown + 2 * W * k * 72) / S",
    "Redis": "N * (redis_per_label + L) + 2 * W * (k * 24 + S * 32)",
}
"""The same for windows of W rounds, whose N labels have an event in the last two blocks or are shown."""

TEST_FORMULAS = {
    name: formula for name, formula in FORMULAS.items() if "group" not in name and "its" not in name
} | {
    "a shard": "R * (round + V * (visible + compress * (release_per_label + L)) + k * (item + U * unmet))",
    "memory of a shard": "process_bytes + N * (memory_per_hidden + L) + V * memory_per_shown",
}
"""The same if labels are found at tests, by one worker: those that are not shown take nothing between tests."""

UTILISATION = 0.8
MOST_SHARDS = 1_024


@dataclass(frozen=True)
class Workload:
    """What a stream is: `label_bytes` of the average label in UTF-8, `visible` labels above the threshold.

    `active`: how many labels events still bring, None for all.  `replicas`: how many brokers keep each release.
    `window`: the rounds that a release counts, for ever, or 0 for a running histogram.  `at_tests`: labels are found at
    tests.
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
    at_tests: bool = False

    @property
    def formulas(self) -> dict[str, str]:
        """The model, by what is computed."""
        if self.window:
            return WINDOW_FORMULAS
        return TEST_FORMULAS if self.at_tests else FORMULAS

    @property
    def most_shards(self) -> int:
        """How many shards may count it: where labels are found at tests, one worker does."""
        return 1 if self.at_tests else MOST_SHARDS

    @property
    def rounds_per_second(self) -> float:
        """How many rounds close every second."""
        return self.events_per_second / self.events_per_round


@dataclass(frozen=True)
class Plan:
    """What a workload needs: the value of each formula.

    `compressed` is the share of the releases' bytes that their topic keeps.  `shards` is None where no number of shards
    is enough; `limits` says in sentences what stands in the way.
    """

    shards: int | None
    needs: dict[str, float]
    compressed: float
    releases_a_day: Growth
    table_a_day: Growth
    epoch_seconds: float | None
    limits: list[str]


def needs(
    work: Workload, costs: Costs, shards: int, names: Sequence[str] = (), compressed: float = 1.0
) -> dict[str, float]:
    """What the formulas, or those of these names, say of so many shards."""
    rounds = work.rounds_per_second
    items = work.items_per_event
    active = work.labels if work.active is None else work.active
    unmet = active > shards * min(MOST_RECENT, MOST_CHARACTERS / work.label_bytes)
    values = asdict(costs) | {
        **{"S": shards, "P": work.partitions, "E": work.events_per_second, "R": rounds},
        **{"i": items, "k": items * work.events_per_round, "N": work.labels, "V": work.visible},
        **{"L": work.label_bytes, "W": work.window, "U": int(unmet), "C": compressed},
    }
    return {name: value_of(work.formulas[name], values) for name in names or work.formulas}


def plan(work: Workload, costs: Costs) -> Plan:
    """The fewest shards that keep every process below `UTILISATION`, and what comes with them."""
    shards = next((n for n in range(1, work.most_shards + 1) if _fits(work, costs, n)), None)
    rounds = work.rounds_per_second
    compressed = compressed_share(work.visible, work.label_bytes, rounds, work.compression)
    found = needs(work, costs, shards or work.most_shards, compressed=compressed)
    a_day = Growth(found["releases a day"], work.replicas)
    return Plan(
        shards=shards,
        needs=found,
        compressed=compressed,
        releases_a_day=a_day,
        table_a_day=Growth(found["table a day"], work.replicas),
        epoch_seconds=None if work.window else work.horizon / rounds,
        limits=_limits(work, costs, shards, a_day),
    )


def members_needed(work: Workload, costs: Costs, shards: int) -> int:
    """How many members a group needs."""
    return ceil(needs(work, costs, shards, ["a group"])["a group"] / UTILISATION)


def _fits(work: Workload, costs: Costs, shards: int) -> bool:
    busy = needs(work, costs, shards, ["sequencer", "a shard"]).values()
    return (sum(busy) if shards == 1 else max(busy)) <= UTILISATION  # one worker does both


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
                f"{work.rounds_per_second:,.0f} rounds a second are too many for {_whoever(work)}: let a round "
                'hold more events (rounds = "every-N"), which makes releases rarer and counts more accurate'
                f"{_divided(work)}."
            )
    if not work.window and work.horizon / work.rounds_per_second < 3_600:
        found.append(
            f"The horizon of {work.horizon:,} rounds lasts {work.horizon / work.rounds_per_second:,.0f} seconds: "
            "raise it, or let a round hold more events."
        )
    if a_day.is_much:
        found.append(f"The releases grow by {a_day}: {a_day.advice(work.compression)}.")
    return found


def _whoever(work: Workload) -> str:
    return "one worker" if work.at_tests else "any number of shards"


def _divided(work: Workload) -> str:
    return ', or divide the labels (discover = "every-round", shards = N)' if work.at_tests else ""


def _group_instead(work: Workload, costs: Costs) -> str:
    """What a group would need; nothing where none would do."""
    discover, work = 'discover = "every-round", ' * work.at_tests, replace(work, at_tests=False)
    each = ((n, needs(work, costs, n, ["its shards"])["its shards"]) for n in range(1, MOST_SHARDS + 1))
    shards = next((n for n, busy in each if busy <= UTILISATION), None)
    if shards is None or (members := members_needed(work, costs, shards)) > work.partitions:
        return ""
    return (
        f'let a group of {members} read them ({discover}rounds = "ticks", intake = "group", shards = {shards}; '
        "docs/operations/intake.md), or "
    )
