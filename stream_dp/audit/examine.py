"""One pair of neighbours, examined: sampled, bounded, judged."""

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b

from stream_dp.audit.bounds import ERROR, Bound, Views, lower_bound

SMALLER, LARGER = 0, 1
"""The two inputs of a pair: without and with what the neighbours differ in."""

Sample = Callable[[int, int, bytes], Views]
"""(which input, runs, 32-byte key) -> the views of that many independent runs, a function of its arguments."""


@dataclass(frozen=True)
class Pair:
    """Two neighbouring inputs of one mechanism, and the (epsilon, delta) that the mechanism claims for them.

    `runs`: how many of each input are enough to see a violation, a multiple of 4.  `control`: the mechanism is broken
    on purpose and must be flagged.
    """

    mechanism: str
    name: str
    epsilon: float
    delta: float
    sample: Sample
    runs: int
    control: bool = False


@dataclass(frozen=True)
class Finding:
    """What the examination of a pair found; `bound` is wrong with probability at most `ERROR`."""

    pair: Pair
    bound: Bound

    @property
    def flagged(self) -> bool:
        """The claim is refuted."""
        return self.bound.epsilon > self.pair.epsilon

    @property
    def as_expected(self) -> bool:
        """A correct mechanism passed, or a control was caught."""
        return self.flagged == self.pair.control

    @property
    def verdict(self) -> str:
        """In one word."""
        if self.pair.control:
            return "caught" if self.flagged else "missed"
        return "refuted" if self.flagged else "passed"

    def report(self) -> dict[str, object]:
        """For machines."""
        pair, bound = self.pair, self.bound
        return {
            "mechanism": pair.mechanism,
            "pair": pair.name,
            "control": pair.control,
            "claimed": {"epsilon": pair.epsilon, "delta": pair.delta},
            "measured": {
                "epsilon_lower_bound": bound.epsilon,
                "delta_lower_bound": bound.delta,
                "confidence": 1 - ERROR,
                "event": bound.event,
                "frequencies": [bound.p, bound.q],
            },
            "verdict": self.verdict,
        }


def examine(pair: Pair, seed: bytes, runs: int | None = None) -> Finding:
    """Run both inputs `runs` times each (default: the pair's own number), with keys derived from `seed`."""
    wanted = (pair.runs if runs is None else runs) // 4 * 4
    smaller, larger = (pair.sample(side, wanted, _key(seed, pair, side)) for side in (SMALLER, LARGER))
    return Finding(pair, lower_bound(larger, smaller, pair.epsilon, pair.delta))


def _key(seed: bytes, pair: Pair, side: int) -> bytes:
    place = f"{pair.mechanism}\n{pair.name}\n{pair.control}\n{side}".encode()
    return blake2b(place, key=seed, digest_size=32).digest()
