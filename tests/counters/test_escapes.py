"""Do the rounds together never spend more of delta than there is, in exact arithmetic?"""

from fractions import Fraction

import pytest

from stream_dp.counters.binary import BinaryMechanism
from stream_dp.counters.escapes import equal_share, level_shares
from stream_dp.counters.protocol import EpochParameters
from stream_dp.privacy.thresholds import sum_tail, sum_tail_bounds

SIZES = [(1, 1), (2, 3), (3, 1), (7, 16), (1000, 4), (32_767, 16), (65_535, 1), (65_536, 4), (2**24, 100_000)]


def spent(horizon: int, shares: list[float]) -> Fraction:
    """What all rounds of a horizon spend on one label."""
    numbers = [(horizon >> level) - (horizon >> level + 1) for level in range(len(shares))]
    assert sum(numbers) == horizon
    return sum((number * Fraction(share) for number, share in zip(numbers, shares, strict=True)), Fraction(0))


@pytest.mark.parametrize("threshold_delta", [5e-7, 1e-12, 0.1, 0.25])
@pytest.mark.parametrize(("horizon", "items"), SIZES)
def test_all_rounds_and_items_together_spend_at_most_delta(
    horizon: int, items: int, threshold_delta: float
) -> None:
    shares = level_shares(EpochParameters(horizon, items, threshold_delta))
    assert shares == sorted(shares), "a round of a higher level spends more"
    whole = Fraction(threshold_delta)
    assert Fraction(999_999, 1_000_000) * whole < items * spent(horizon, shares) <= whole
    assert items * spent(horizon, [2 * share for share in shares]) > whole


def test_equal_shares_are_those_of_every_round() -> None:
    assert equal_share(EpochParameters(1000, 4, 0.02)) == pytest.approx(0.02 / 4000, rel=1e-15)


def test_each_threshold_spends_the_share_of_its_level() -> None:
    """Every round of a horizon, against the exact tail of its noise; one less would spend more."""
    horizon, items, sigma_squared, threshold_delta = 63, 2, 30.0, 1e-4
    mechanism = BinaryMechanism.of(EpochParameters(horizon, items, threshold_delta, "kept"), sigma_squared)
    shares = level_shares(EpochParameters(horizon, items, threshold_delta))
    for number in range(1, horizon + 1):
        share, nodes = shares[(number & -number).bit_length() - 1], number.bit_count()
        tau = mechanism.tau(number)
        assert sum_tail(sigma_squared, nodes, tau - 1) <= share
        assert sum_tail_bounds(sigma_squared, nodes, tau - 2)[0] > share
