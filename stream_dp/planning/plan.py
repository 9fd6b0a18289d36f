"""What a stream of a given size needs: a processor, memory, Redis and bandwidth, from what the work costs.

The model is `FORMULAS`: what is printed is what is computed.  In them are E events and R rounds a second, i items an
event and k a round, N labels of L bytes, V of them visible and A still brought by events, windows of W rounds,
compression to the share C, and the `Costs` by their names.

Visible labels are drawn for, sorted, encoded and compressed in every round.  Other labels take nothing if labels are
found at tests; else they are drawn for in every round, too, and their noise is kept.
Windows draw in every round for each label with an event in the block, and twice for each that is shown.  A
worker may be busy for `UTILISATION` of the time at most, so that it catches up after a restart.
`benchmarks/sizes.py` holds the model against what a live stream writes.
"""

from dataclasses import asdict, dataclass

from stream_dp.engine.seen_labels import MOST_CHARACTERS, MOST_RECENT
from stream_dp.planning.costs import Costs
from stream_dp.planning.formula import value_of
from stream_dp.planning.release_sizes import REPLICAS, Growth, compressed_share
from stream_dp.planning.spark_plan import SparkCosts, SparkPlan, spark_plan

FORMULAS = {
    "reading": "E * decode + R * sequence",
    "counting": "R * (round + V * (visible + compress * (release_per_label + L)) + N * drawn + k * (item + U * unmet))",
    "memory": "process_bytes + N * (memory_per_drawn + L)",
    "Redis": "N * (redis_per_label + L)",
    "Kafka, events": "E * (i * (L + 3) + 80)",
    "Kafka, releases": "R * (release + V * (release_per_label + L))",
    "releases a day": "86400 * C * R * (release + V * (release_per_label + L))",
    "table a day": "86400 * min(R, 1) * V * (row + 2 * L)",
}
"""Processor seconds a second, bytes, bytes a second, and bytes a day of one replica.

U is 1 if events bring more labels than are kept at hand, and 0 if not.  Only the line of the releases a day knows
compression.  The table is as `stream-dp table` writes it once a second, before Kafka compacts it to V rows.
"""

WINDOW_FORMULAS = FORMULAS | {
    "counting": "R * (round + V * (visible + compress * (release_per_label + L)) + (N - V) * drawn + "
    "k * (item + U * unmet))",
    "memory": "process_bytes + N * (memory_per_tested + L) + V * memory_per_shown + 2 * W * k * 72",
    "Redis": "N * (redis_per_label + L) + 2 * W * (k * 24 + 32)",
}
"""The same for windows of W rounds, whose N labels have an event in the last two blocks or are shown."""

_SHOWN = "round + V * (visible + compress * (release_per_label + L))"

TEST_FORMULAS = FORMULAS | {
    "counting": f"R * ({_SHOWN} + k * (item + U * unmet))",
    "memory": "process_bytes + N * (memory_per_hidden + L) + V * memory_per_shown",
}
"""The same if labels are found at tests: those that are not shown take nothing between tests."""

UTILISATION = 0.8

MOST_LABELS = (512 << 20) // 4
"""Labels of one worker: a checkpoint has their counts, 4 bytes each, in one value of Redis, which takes 512 MB."""


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
    def rounds_per_second(self) -> float:
        """How many rounds close every second."""
        return self.events_per_second / self.events_per_round


@dataclass(frozen=True)
class Plan:
    """What a workload needs: the value of each formula.

    `compressed` is the share of the releases' bytes that their topic keeps; `limits` says in sentences what stands in
    the way.  `spark` is there if one worker is too few and Spark can count the stream.
    """

    needs: dict[str, float]
    compressed: float
    releases_a_day: Growth
    table_a_day: Growth
    epoch_seconds: float | None
    limits: list[str]
    spark: SparkPlan | None

    @property
    def answer(self) -> str:
        """How many machines it takes."""
        return "one worker" if self.spark is None else f"one worker, and Spark with {self.spark.cores} cores"


def needs(work: Workload, costs: Costs, compressed: float = 1.0) -> dict[str, float]:
    """What the formulas say."""
    values = asdict(costs) | _values(work) | {"C": compressed}
    return {name: value_of(formula, values) for name, formula in work.formulas.items()}


def _values(work: Workload) -> dict[str, float]:
    rounds, items = work.rounds_per_second, work.items_per_event
    active = work.labels if work.active is None else work.active
    unmet = active > min(MOST_RECENT, MOST_CHARACTERS / work.label_bytes)
    return {
        **{"E": work.events_per_second, "R": rounds, "i": items, "k": items * work.events_per_round},
        **{"N": work.labels, "V": work.visible, "L": work.label_bytes, "W": work.window, "U": int(unmet)},
    }


def plan(work: Workload, costs: Costs) -> Plan:
    """What a worker needs for this, and what stands in its way."""
    rounds = work.rounds_per_second
    compressed = compressed_share(work.visible, work.label_bytes, rounds, work.compression)
    found = needs(work, costs, compressed)
    a_day = Growth(found["releases a day"], work.replicas)
    spark = _on_spark(work, costs, found)
    return Plan(
        needs=found,
        compressed=compressed,
        releases_a_day=a_day,
        table_a_day=Growth(found["table a day"], work.replicas),
        epoch_seconds=None if work.window else work.horizon / rounds,
        limits=_limits(work, costs, found, a_day, spark),
        spark=spark,
    )


def _on_spark(work: Workload, costs: Costs, found: dict[str, float]) -> SparkPlan | None:
    """What Spark needs if one worker is too few; None too if Spark cannot help.

    Then the worker has what is shown alone: it neither reads events nor keeps other labels.
    """
    if not work.at_tests or (_keeps_up(found) and work.labels <= MOST_LABELS):
        return None
    values = _values(work)
    if value_of(f"R * ({_SHOWN})", asdict(costs) | values) > UTILISATION:
        return None
    return spark_plan(values, SparkCosts(), UTILISATION)


def _keeps_up(found: dict[str, float]) -> bool:
    return found["reading"] + found["counting"] <= UTILISATION


def _limits(
    work: Workload, costs: Costs, found: dict[str, float], a_day: Growth, spark: SparkPlan | None
) -> list[str]:
    told = []
    if spark is not None:
        told += spark.limits
    elif work.labels > MOST_LABELS and work.at_tests:
        told.append(f"One worker holds {MOST_LABELS:,} labels: divide the events among several streams.")
    elif work.events_per_second * costs.decode > UTILISATION:
        told.append(
            f"One worker decodes {UTILISATION / costs.decode:,.0f} events a second here, and this is "
            f"{work.events_per_second:,.0f}: divide the events among several streams, or take blt with tests for "
            "labels, which Spark can count."
        )
    elif not _keeps_up(found):
        told.append(
            f"{work.rounds_per_second:,.0f} rounds a second are too many for one worker: let a round "
            'hold more events (rounds = "every-N"), which makes releases rarer and counts more accurate.'
        )
    if not work.window and work.horizon / work.rounds_per_second < 3_600:
        told.append(
            f"The horizon of {work.horizon:,} rounds lasts {work.horizon / work.rounds_per_second:,.0f} seconds: "
            "raise it, or let a round hold more events."
        )
    if a_day.is_much:
        told.append(f"The releases grow by {a_day}: {a_day.advice(work.compression)}.")
    return told
