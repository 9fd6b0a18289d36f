"""What a stream takes on Spark, which counts what is too much for one worker.

Names in the formulas are those of plan.py, and `SparkCosts`.  A test looks at every label, bucket by bucket, and rounds
wait for it; a core has one bucket in memory at a time.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import ceil

from stream_dp.planning.formula import value_of

BUCKETS = 64
"""Labels are dealt to so many buckets, and a test has a task for each."""

TEST_SECONDS = 60.0
"""How long a test may hold rounds up."""

SPARK_FORMULAS = {
    "Spark, counting": "E * (spark_event + i * (spark_item + U * spark_unmet))",
    "Spark, a test": "N * spark_test",
    "Spark, memory of a core": f"spark_process + N / {BUCKETS} * (spark_tested + 4 * L)",
    "Spark, folder": "N * (spark_kept + L)",
}
"""Processor seconds a second, processor seconds, bytes and bytes."""


@dataclass(frozen=True)
class SparkCosts:
    """Processor seconds, and bytes beside a label's text; `python -m benchmarks spark_stream` measures them."""

    spark_event: float = 3.3e-6
    spark_item: float = 4e-7
    spark_unmet: float = 2.7e-6
    spark_test: float = 1.4e-6
    spark_process: float = 250e6
    spark_tested: float = 300.0
    spark_kept: float = 18.0


@dataclass(frozen=True)
class SparkPlan:
    """So many cores count a stream: the value of each formula, and what stands in the way."""

    cores: int
    test_seconds: float
    needs: dict[str, float]
    limits: list[str]


def spark_plan(values: Mapping[str, float], costs: SparkCosts, utilisation: float) -> SparkPlan:
    """What Spark needs if its cores are busy for `utilisation` of the time at most; `values` by their names."""
    names = dict(values) | asdict(costs)
    needs = {name: value_of(formula, names) for name, formula in SPARK_FORMULAS.items()}
    counting, test = needs["Spark, counting"], needs["Spark, a test"]
    cores = max(2, ceil(counting / utilisation), ceil(test / TEST_SECONDS))
    seconds = test / min(cores, BUCKETS)
    limits = [f"The events topic needs at least {cores} partitions: each is read by one core at a time."]
    if seconds > TEST_SECONDS:
        limits.append(
            f"A test holds rounds up for {seconds:,.0f} seconds, and more than {BUCKETS} cores do not shorten it, as "
            f'labels stand in {BUCKETS} buckets: look for labels more rarely, such as discover = "every-1d".'
        )
    return SparkPlan(cores, seconds, needs, limits)
