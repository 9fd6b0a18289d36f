"""The odometer against every analyst who may stop whenever what was seen makes it worth while."""

import math
from collections.abc import Callable

import pytest

from stream_dp.privacy.composition import Charge, odometer, spent
from tests.privacy.games import Move, coin, gaussian, ranged, worst

Told = Callable[[tuple[Charge, ...]], float]

GAMES: dict[str, tuple[float, list[Move], int]] = {
    "coins": (0.1, [coin(0.3), coin(0.8)], 6),
    "coins with deltas": (0.2, [coin(0.3, 0.05), coin(0.6)], 5),
    "mixed": (0.1, [gaussian(0.4), coin(0.3), ranged(0.6)], 4),
    "Gaussians": (0.3, [gaussian(0.8), gaussian(0.3)], 4),
}


def everything(made: tuple[Charge, ...]) -> bool:
    return True


def by_odometer(delta: float) -> Told:
    return lambda made: odometer(made, "user", delta)


def as_if_fixed(delta: float) -> Told:
    """Wrong: what would hold if all had been fixed in advance."""
    return lambda made: spent(made, "user", delta).epsilon


@pytest.mark.parametrize("game", GAMES)
def test_no_moment_to_stop_gains_more_than_delta(game: str) -> None:
    delta, moves, rounds = GAMES[game]
    assert worst(moves, everything, rounds, by_odometer(delta)) <= delta


def test_a_guarantee_for_charges_fixed_in_advance_is_caught() -> None:
    delta, moves, rounds = 0.01, [coin(0.05), coin(0.2)], 8
    assert worst(moves, everything, rounds, by_odometer(delta)) <= delta
    assert worst(moves, everything, rounds, as_if_fixed(delta)) > 1.2 * delta


def test_an_odometer_tells_pure_sums_where_these_are_less() -> None:
    few, many = [coin(0.25).charge], [coin(0.05).charge] * 200
    assert odometer([], "user", 1e-6) == 0
    assert odometer(few, "user", 1e-6) == 0.25
    assert (
        spent(many, "user", 1e-6).epsilon
        < odometer(many, "user", 1e-6)
        < 1.5 * spent(many, "user", 1e-6).epsilon
    )


def test_an_odometer_needs_half_of_delta_for_the_charges_own() -> None:
    made = [coin(0.1, 1e-7).charge] * 5
    assert odometer(made, "user", 1e-6) == pytest.approx(0.5)
    assert odometer(made, "user", 0.9e-6) == math.inf
