"""What was really spent on each event of a source, worked out without the program's own arithmetic."""

from collections import defaultdict
from dataclasses import dataclass, field
from math import exp

from stream_dp.batch.gumbel_top_k import PayWhatYouGet

DELTA = 1e-6
"""The delta of every budget here."""


class Overspent(AssertionError):
    """More was spent on one event than the budget that held."""


@dataclass
class Spending:
    """Coins of these epsilons, and a delta."""

    coins: list[float]
    delta: float = 0.0


@dataclass
class Account:
    """What was really spent on each event of the source, worked out without the program's own arithmetic.

    The worst mechanism that is pure epsilon-DP is a biased coin, whose privacy loss is epsilon or -epsilon.
    """

    budget: float
    paid: dict[str, tuple[Spending, range]] = field(default_factory=dict)

    def release(self, id_: str, epsilon: float, events: range) -> None:
        """A job that reads these events was let through.  Raises `Overspent`."""
        self.spend(id_, Spending([epsilon]), events)

    def spend(self, id_: str, spending: Spending, events: range) -> None:
        """Raises `Overspent`."""
        self.paid[id_] = spending, events
        for event in events:
            found = [each for each, covered in self.paid.values() if event in covered]
            coins, delta = [coin for each in found for coin in each.coins], sum(each.delta for each in found)
            if delta_of(coins, self.budget) + delta > DELTA * (1 + 1e-6):
                raise Overspent(f"event {event}: {found} is more than {self.budget}")


@dataclass
class Drawn:
    """A pay-what-you-get budget: what was let through of it, by query.  Each mark may be a coin of half its epsilon."""

    opened: PayWhatYouGet
    marks: dict[str, int] = field(default_factory=dict)

    def take(self, id_: str, marks: int) -> None:
        """A query took so many.  Raises `Overspent`."""
        self.marks[id_] = marks
        if sum(self.marks.values()) > self.opened.marks or len(self.marks) > self.opened.queries:
            raise Overspent(f"{self.marks} is more than {self.opened}")

    @property
    def spending(self) -> Spending:
        """All of it: it is charged when it is opened."""
        coins = [self.opened.epsilon / 2] * self.opened.marks
        return Spending(coins, self.opened.queries * self.opened.threshold_delta)


def delta_of(epsilons: list[float], epsilon: float) -> float:
    """The least delta for which coins of these epsilons together are (epsilon, delta)-DP, over all outcomes."""
    losses = {0.0: 1.0}
    for each in epsilons:
        likely = 1 / (1 + exp(-each))
        following: defaultdict[float, float] = defaultdict(float)
        for loss, chance in losses.items():
            following[round(loss + each, 9)] += chance * likely
            following[round(loss - each, 9)] += chance * (1 - likely)
        losses = following
    return sum(chance * (1 - exp(epsilon - loss)) for loss, chance in losses.items() if loss > epsilon)
