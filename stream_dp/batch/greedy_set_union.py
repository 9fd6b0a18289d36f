"""Set union by greedy tokens, with the repair that makes it private; users keep all their items.

Users come one after the other. Each has K tokens of weight 1/K and spends them on one item after the other, in an order
of the user's own, each item up to a cap:

- `greedy`: the items the user names most often first (GW of the poster);
- `greedy_transfer`: the items that are most frequent in PUBLIC data first (GW-KT).

Items of POSITIVE weight get discrete Laplace noise; those of noisy weight >= tau are released.

Guarantee, for adding or removing one user: (epsilon, delta)-DP. Users who come later never enlarge the difference of
K tokens that one user made (loops/baskets.c). They may pass it on, though, so that labels become novel which
the differing user does not even hold; but at most K of them, of at least one token each and K in sum. `greedy_tau`
covers every such case.

Source: poster "Incorporating Item Frequency for Differentially Private Set Union" (Carvalho, Wang, Gondara).
CORRECTED: the poster spends a real-valued budget, so one user can make any number of labels novel through a chain of
other users, and its threshold 1 - ln(2 d) / epsilon lets delta grow with their number (492 times the claim at epsilon 3
and 10,000 users of 2 items). Tokens bound that number; where K e^(epsilon/K) <= e^epsilon (`tokens_at_no_cost`) the
threshold stays the poster's. Noise on items of zero weight, as in the authors' code, would be as bad.

The order of users is drawn without looking at the data; what a user who leaves does to it: `OneShotNoise.order`. The
order of a user's items (frequency, then label) depends neither on the weights nor on who else is present.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stream_dp.batch.baskets import Baskets
from stream_dp.batch.cost import Cost, pure, require_cap, require_count, require_delta, require_positive
from stream_dp.batch.result import Outcome
from stream_dp.batch.set_union import released_by_laplace
from stream_dp.batch.set_union_thresholds import greedy_tau
from stream_dp.loops import fill_greedily
from stream_dp.privacy.one_shot_noise import OneShotNoise

_MOST_TOKENS = 100_000
_FREQUENCY_BITS = 16
_KEY_BITS = 63


@dataclass(frozen=True, slots=True)
class Greedy:
    """`tokens`: K; `alpha`: how many noise scales the cap of a weight lies above the threshold."""

    epsilon: float
    delta: float
    tokens: int
    alpha: float = 3.0

    def __post_init__(self) -> None:
        require_positive("epsilon", self.epsilon)
        if not 1e-4 <= self.epsilon <= 50:
            raise ValueError(f"epsilon must lie between 0.0001 and 50, not {self.epsilon}.")
        require_delta("delta", self.delta)
        require_count("tokens", self.tokens)
        if self.tokens > _MOST_TOKENS:
            raise ValueError(f"tokens must be at most {_MOST_TOKENS}, not {self.tokens}.")
        require_cap(self.alpha)

    @property
    def cost(self) -> Cost:
        return pure(self.epsilon, self.delta)

    @property
    def scale(self) -> float:
        """Of the noise, in tokens."""
        return self.tokens / self.epsilon

    @property
    def tau(self) -> int:
        """The least noisy weight that is released, in tokens."""
        return greedy_tau(self.epsilon, self.delta, self.tokens)

    @property
    def needed(self) -> float:
        """How many users who hold nothing else a label needs to be released in 95% of cases."""
        return self.tau / self.tokens + math.log(10) / self.epsilon

    @property
    def cap(self) -> int:
        """The most tokens an item takes."""
        return self.tau + round(self.alpha * self.scale)


def greedy(all_baskets: Baskets, parameters: Greedy, noise: OneShotNoise) -> Outcome:
    """Labels, each user's own favourites first; items by rising number."""
    return _by_preference(all_baskets, all_baskets.repeats, parameters, noise)


def greedy_transfer(
    all_baskets: Baskets, public_frequencies: NDArray[np.int64], parameters: Greedy, noise: OneShotNoise
) -> Outcome:
    """Labels, publicly frequent items first; `public_frequencies` is int64 of shape (item_count,), from PUBLIC data."""
    if public_frequencies.shape != (all_baskets.item_count,):
        raise ValueError(
            f"public_frequencies must hold one number for each of the {all_baskets.item_count} items."
        )
    return _by_preference(all_baskets, public_frequencies[all_baskets.items], parameters, noise)


def _by_preference(
    all_baskets: Baskets, frequencies: NDArray[np.int64], parameters: Greedy, noise: OneShotNoise
) -> Outcome:
    items = preferred_first(all_baskets, frequencies)
    weights = np.zeros(all_baskets.item_count, np.int64)
    order = noise.order(all_baskets.users)
    fill_greedily(order, all_baskets.starts, items, parameters.tokens, parameters.cap, weights)
    return Outcome(released_by_laplace(weights, parameters.tau, parameters.scale, noise))


def preferred_first(all_baskets: Baskets, frequencies: NDArray[np.int64]) -> NDArray[np.int64]:
    """The items of every basket by falling frequency, ties by rising number; int64 of shape (pairs,).

    Frequencies from 65,535 on count as equal: a fixed limit, so that nobody's order depends on other users.
    """
    most = (1 << _FREQUENCY_BITS) - 1
    rarity = most - np.minimum(frequencies, most)
    if not len(rarity) or rarity.min() == rarity.max():
        return all_baskets.items
    shift = max(1, all_baskets.item_count - 1).bit_length()
    owners = all_baskets.owners
    if len(all_baskets.users).bit_length() + _FREQUENCY_BITS + shift > _KEY_BITS:
        return all_baskets.items[np.lexsort((all_baskets.items, rarity, owners))]
    keys = owners << (_FREQUENCY_BITS + shift) | rarity << shift | all_baskets.items
    keys.sort()
    return keys & ((1 << shift) - 1)
