"""How `threshold_delta` is divided among the rounds in which a label can escape through the threshold.

A label escapes where its noise alone lifts it to the threshold before anybody may know of it.  Any probabilities p(l)
are allowed whose sum over the rounds 1..L is at most d / D0: the union bound of docs/guarantee.md adds them up.

Where every round stands for itself, equal shares are best.  Where a label that was shown once stays shown, rounds that
end in many binary zeros are worth more in a dyadic tree: their counts carry few noise terms, so a little more of d
lowers their threshold most, and one such round is enough.  Level j holds the rounds l with lowbit(l) = 2^j.  It gets a
share proportional to 2^(j/2), divided equally among its rounds.  Shares per level that grow like 2^(aj) show the most
labels of a steady stream for a near 1/2 (`python -m benchmarks.accuracy` compares the rules).
"""

from fractions import Fraction
from math import isqrt, nextafter

from stream_dp.counters.protocol import EpochParameters

_SCALE = 2**20


def equal_share(parameters: EpochParameters) -> float:
    """What each round may spend where all spend the same: d / (D0 L)."""
    return parameters.threshold_delta / (parameters.items_per_event * parameters.horizon)


def level_shares(parameters: EpochParameters) -> list[float]:
    """What a round of each level may spend, from level 0 up: never more in sum than d / D0, in exact arithmetic.

    >>> shares = level_shares(EpochParameters(7, 1, 0.07))
    >>> [round(share, 4) for share in shares], 4 * shares[0] + 2 * shares[1] + shares[2] <= 0.07
    ([0.004, 0.0112, 0.0317], True)
    """
    levels = range(parameters.horizon.bit_length())
    weights = [isqrt(_SCALE**2 << j) for j in levels]  # 2^(j/2), rounded down
    rounds = [(parameters.horizon >> j) - (parameters.horizon >> j + 1) for j in levels]
    budget = Fraction(parameters.threshold_delta) / (parameters.items_per_event * sum(weights))
    return [_rounded_down(budget * weight / number) for weight, number in zip(weights, rounds, strict=True)]


def _rounded_down(exact: Fraction) -> float:
    """The largest float that is not above `exact`."""
    nearest = float(exact)
    return nearest if Fraction(nearest) <= exact else nextafter(nearest, 0.0)
