"""Metrics that anybody may see, made of public facts and of nothing else.

`PublicFacts` and readiness are the whole input: nothing else can come out of the open port.  None of the fields
depends on the items of any event.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector


@dataclass(frozen=True)
class BudgetFacts:
    """A data source's ledger: the most it may spend (None where no budget was set), and what is spent.

    `left_rho` is the zCDP rho that one more charge may cost from the offset on that would be charged next, and
    `charged_rho` what each stream has been charged in all, and all jobs together.
    """

    epsilon: float | None
    spent_epsilon: float
    left_rho: float | None
    charged_rho: Mapping[str, float] = field(default_factory=dict)


@dataclass
class PublicFacts:
    """What subscribers know anyway: the guarantee, and how many events there were.

    Before the first session there is no epoch, and `round` means nothing.
    """

    stream: str
    epoch: int | None = None
    round: int = 0
    horizon: int = 0
    epsilon: float = 0.0
    delta: float = 0.0
    releases: int = 0
    budget: BudgetFacts | None = None


class _Facts(Collector):
    def __init__(self, facts: PublicFacts, ready: Callable[[], bool]) -> None:
        self._facts = facts
        self._ready = ready

    def collect(self) -> Iterator[Metric]:
        """The facts at this moment."""
        facts = self._facts
        yield self._gauge(
            "up", "1 while the worker holds its stream, has caught up and is connected.", self._ready()
        )
        if facts.epoch is not None:
            yield self._gauge("epoch", "Number of the epoch that is open.", facts.epoch)
            yield self._counter("rounds_closed", "Rounds closed in this epoch.", facts.round)
            if facts.horizon:
                yield self._gauge("horizon_rounds", "Rounds after which the epoch ends.", facts.horizon)
            yield self._counter(
                "releases_sent", "Rounds whose release this process has sent to the broker.", facts.releases
            )
            yield self._gauge("epsilon", "The epoch's guarantee: epsilon, for all its rounds.", facts.epsilon)
            yield self._gauge("delta", "The epoch's guarantee: delta, for all its rounds.", facts.delta)
        if facts.budget is not None:
            yield from self._budget(facts.budget)

    def _budget(self, budget: BudgetFacts) -> Iterator[Metric]:
        spent = "Epsilon that the charges on the data source add up to where they are most."
        yield self._gauge("budget_spent_epsilon", spent, budget.spent_epsilon)
        if budget.epsilon is not None and budget.left_rho is not None:
            yield self._gauge("budget_epsilon", "Epsilon that the data source may spend.", budget.epsilon)
            left = "What one more charge on new events may cost, as rho of zero-concentrated privacy."
            yield self._gauge("budget_left_rho", left, budget.left_rho)
        charged = (
            "What was charged in all, as rho of zero-concentrated privacy: to each stream, and to all jobs."
        )
        family = GaugeMetricFamily("stream_dp_budget_charged_rho", charged, labels=["stream", "by"])
        for by, rho in budget.charged_rho.items():
            family.add_metric([self._facts.stream, by], rho)
        yield family

    def _gauge(self, name: str, meaning: str, value: float) -> Metric:
        family = GaugeMetricFamily(f"stream_dp_{name}", meaning, labels=["stream"])
        family.add_metric([self._facts.stream], float(value))
        return family

    def _counter(self, name: str, meaning: str, value: float) -> Metric:
        family = CounterMetricFamily(f"stream_dp_{name}", meaning, labels=["stream"])
        family.add_metric([self._facts.stream], float(value))
        return family


def open_registry(facts: PublicFacts, ready: Callable[[], bool]) -> CollectorRegistry:
    """A registry that holds `facts` and readiness, and no collector about process, platform or garbage."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Facts(facts, ready))
    return registry
