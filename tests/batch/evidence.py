"""Statistics for tests of noise and privacy; every verdict is wrong with probability about 1e-6."""

from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta, binomtest, chisquare

from stream_dp.batch.result import Outcome
from stream_dp.privacy.one_shot_noise import OneShotNoise

FALSE_ALARM = 1e-6


def noise(number: int = 0) -> OneShotNoise:
    """A noise source with a fixed key."""
    return OneShotNoise(number.to_bytes(32, "little"))


def share_agrees(hits: int, trials: int, chance: float) -> bool:
    """Whether `hits` of `trials` may come from coins of probability `chance`."""
    return bool(binomtest(hits, trials, chance).pvalue > FALSE_ALARM)


Key = TypeVar("Key", bound=Hashable)
Run = Callable[..., Outcome]
"""A mechanism: of its input, its parameters and a source of noise."""


def counts_agree(observed: Mapping[Key, int], chances: Mapping[Key, float]) -> bool:
    """Whether outcomes may come from `chances`; what is expected fewer than 10 times, or not listed, is one group."""
    trials = sum(observed.values())
    listed = [key for key, chance in chances.items() if chance * trials >= 10]
    seen = [observed.get(key, 0) for key in listed]
    expected = [chances[key] * trials for key in listed]
    rest = trials - sum(expected)
    if rest > 1e-3:
        seen.append(trials - sum(seen))
        expected.append(rest)
    elif sum(seen) < trials:
        return False
    scale = trials / sum(expected)
    return bool(chisquare(seen, np.array(expected) * scale).pvalue > FALSE_ALARM)


def outcomes(run: Callable[[], Key], trials: int) -> Counter[Key]:
    """How often `run` returned what."""
    return Counter(run() for _ in range(trials))


def outcomes_of_both(
    run: Callable[[NDArray[np.int64]], Key], one: NDArray[np.int64], other: NDArray[np.int64], trials: int
) -> tuple[Counter[Key], Counter[Key]]:
    """How often `run` returned what for each of two neighbours."""
    return outcomes(lambda: run(one), trials), outcomes(lambda: run(other), trials)


def lower_bound(hits: int, trials: int) -> float:
    """Clopper-Pearson: a probability below this is refuted."""
    return float(beta.ppf(FALSE_ALARM, hits, trials - hits + 1)) if hits else 0.0


def upper_bound(hits: int, trials: int) -> float:
    """Clopper-Pearson: a probability above this is refuted."""
    return float(beta.isf(FALSE_ALARM, hits + 1, trials - hits)) if hits < trials else 1.0


def breaks_privacy(one: Counter[Key], other: Counter[Key], epsilon: float, delta: float) -> bool:
    """Whether the outcomes of two neighbours refute (epsilon, delta)-DP, on any outcome or on all improbable ones."""
    for left, right in ((one, other), (other, one)):
        trials, against = left.total(), right.total()
        exclusive = sum(hits for key, hits in left.items() if key not in right)
        events = [(hits, right[key]) for key, hits in left.items()] + [(exclusive, 0)]
        for hits, same in events:
            if lower_bound(hits, trials) > np.exp(epsilon) * upper_bound(same, against) + delta:
                return True
    return False


def hockey_stick_of_coins(ones: NDArray[np.float64], others: NDArray[np.float64], epsilon: float) -> float:
    """Exact delta at `epsilon` between two products of coins, over all 2^n outcomes."""
    left, right = np.ones(1), np.ones(1)
    for one, other in zip(ones, others, strict=True):
        left = np.concatenate([left * one, left * (1 - one)])
        right = np.concatenate([right * other, right * (1 - other)])
    return float(np.maximum(left - np.exp(epsilon) * right, 0).sum())
