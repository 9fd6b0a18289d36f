"""Are the draws standard normal, to the precision that is paid for, and the same bits everywhere?"""

from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from itertools import product
from math import factorial, fsum

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import norm

from stream_dp.loops import draw_middles, draw_normals
from stream_dp.privacy import gaussian_noise
from stream_dp.privacy.gaussian_cells import (
    DRAW_DISTANCE,
    DRAW_ERROR,
    LARGEST_DRAW,
    alias_table,
    cell_masses,
    missing_chance,
    series,
)
from stream_dp.privacy.gaussian_noise import LANES, GaussianNoise, check_golden_gaussian
from stream_dp.privacy.keyed_noise import EMPTY_HISTORY, KeyedNoise, WrongNoise
from tests.statistics import fits, uncorrelated

NOISE = KeyedNoise(bytes(range(32)), "gaussian", bytes(16))
WIDTH = Fraction(1, 1 << 12)
LAST_CELL = len(cell_masses()) - 1

Series = dict[tuple[int, int, int], Fraction]
"""Coefficients of a^i b^j v^m by (i, j, m); the order of a term is i + 2 j."""


def times(x: Series, y: Series, order: int) -> Series:
    found: Series = {}
    for ((i, j, m), p), ((k, l, n), q) in product(x.items(), y.items()):  # noqa: E741
        if i + k + 2 * (j + l) <= order:
            key = (i + k, j + l, m + n)
            found[key] = found.get(key, Fraction(0)) + p * q
    return found


def plus(x: Series, y: Series, factor: Fraction | int = 1) -> Series:
    found = dict(x)
    for key, value in y.items():
        found[key] = found.get(key, Fraction(0)) + factor * value
    return {key: value for key, value in found.items() if value}


def mass_below(place: Series, order: int) -> Series:
    """The integral from 0 to `place` of exp(-a y - b y^2 / 2), as a series in a and b."""
    total: Series = {}
    power = place
    for n in range(order + 1):
        term = {
            (i, j, 0): Fraction((-1) ** (i + j), factorial(i) * factorial(j) * 2**j * (n + 1))
            for j in range(n // 2 + 1)
            for i in [n - 2 * j]
        }
        total = plus(total, times(term, power, order))
        power = times(power, place, order)
    return total


def series_misses(q: Series, order: int) -> Series:
    """How far, as a series, T(v) is from leaving the share v + 1/2 of the cell's mass below it."""
    one_half = Fraction(1, 2)
    place = plus(
        {(0, 0, 1): Fraction(1)}, times({(0, 0, 0): Fraction(1, 4), (0, 0, 2): Fraction(-1)}, q, order), -1
    )
    lower, upper = (mass_below({(0, 0, 0): edge}, order) for edge in (-one_half, one_half))
    share = times({(0, 0, 0): one_half, (0, 0, 1): Fraction(1)}, plus(upper, lower, -1), order)
    return plus(plus(mass_below(place, order), lower, -1), share, -1)


def test_the_series_leaves_the_right_mass_below_every_place() -> None:
    assert series_misses(series(7), 7) == {}
    missed = series_misses(series(7), 8)
    assert {i + 2 * j for i, j, _ in missed} == {8}


@pytest.mark.parametrize("key", [(1, 0, 0), (0, 1, 1), (3, 1, 2), (7, 0, 6)])
def test_a_wrong_coefficient_would_be_seen(key: tuple[int, int, int]) -> None:
    wrong = series(7)
    wrong[key] *= Fraction(1001, 1000)
    assert series_misses(wrong, 7)


def test_the_distance_by_the_series_is_below_what_is_charged() -> None:
    """The bound of the module's text, with its numbers."""
    a, b = 1.3, 0.7
    size = fsum(abs(c) * a**i * b**j * 0.5**m for (i, j, m), c in series(7).items())
    slope = fsum(abs(c) * a**i * b**j * m * 0.5 ** (m - 1) for (i, j, m), c in series(7).items() if m)
    y = np.linspace(0, 0.5, 4001)
    exponent = a * y + b * y * y / 2
    least_mass = 1 - 2 * float(np.trapezoid(np.exp(exponent) - 1 - a * y, y))
    reach = 0.5 + size / 4
    largest = np.exp(a * reach + b * reach**2 / 2) * (1 + size + slope / 4) / least_mass
    assert largest < 28
    masses = np.array(cell_masses(), float) * 2.0**-127
    width = 2.0**-12
    ratio = np.maximum(np.arange(len(masses)) * width**2 / a, width / np.sqrt(b))
    assert float(np.sum(masses * 28 * ratio**8 / (1 - ratio))) / 2 + 2.0**-110 < DRAW_DISTANCE


@pytest.mark.parametrize("shift", [0.0, 0.1, 0.5, 1.0, 2.0, 3.0, 5.0, 8.0])
def test_what_a_draw_lacks_at_another_logs_value_is_bounded(shift: float) -> None:
    """By the series, the rounding of the masses and the end of the table, as `missing_chance` says."""
    masses = np.array(cell_masses(), float) * 2.0**-127
    x = np.arange(len(masses)) * 2.0**-12
    ratio = np.maximum(x * 2.0**-12 / 1.3, 2.0**-12 / np.sqrt(0.7))
    weights = (
        (np.exp(-((x - shift) ** 2) / 2) + np.exp(-((x + shift) ** 2) / 2)) * 2.0**-12 / np.sqrt(2 * np.pi)
    )
    of_series = float(weights @ (28 * ratio**8 / (1 - ratio)))
    of_masses = float(np.sum(2.0**-127 * weights / masses)) + len(masses) * 2.0**-127 * float(
        weights[0] / masses[0]
    )
    beyond = 2 * float(norm.sf(x[-1] - shift))
    lacks = of_series + of_masses + beyond
    assert lacks < missing_chance(1, shift)
    if shift > 4:
        assert lacks > DRAW_DISTANCE * (1 + shift) ** 8  # where the series alone would not do
    many = missing_chance(1000, shift)
    assert missing_chance(999, 0.0) + lacks < many < 1001 * missing_chance(1, shift)
    assert 1000 * DRAW_DISTANCE * (1 + shift / np.sqrt(1000)) ** 8 < many


@lru_cache
def upper_tail(x: Fraction) -> Fraction:
    """Phibar by its power series in 120 digits."""
    with localcontext() as context:
        context.prec = 120
        z = Decimal(x.numerator) / Decimal(x.denominator)
        term, total, n = z, z, 0
        while abs(term) > Decimal(10) ** -110:
            n += 1
            term *= -z * z / (2 * n)
            total += term / (2 * n + 1)
        pi = Decimal(
            "3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803482534211706798"
        )
        return Fraction(1, 2) - Fraction(total / (2 * pi).sqrt())


def test_the_cells_have_the_masses_of_the_normal_distribution() -> None:
    masses = cell_masses()
    assert sum(masses) == 1 << 127
    assert all(masses)
    below = np.cumsum(np.array(masses, object))
    for last in (0, 1, 2, 1000, 4096, 12_345, 30_000, 45_000, LAST_CELL):
        rest = (1 << 127) - below[last]
        expected = 2 * upper_tail((last + Fraction(1, 2)) * WIDTH) * (1 << 127)
        assert abs(expected - rest) < 2 * len(masses)
    assert LAST_CELL * float(WIDTH) < LARGEST_DRAW


def test_the_bins_hold_exactly_the_masses() -> None:
    bins, low = alias_table()
    full = 1 << 111
    found = [0] * len(bins)
    for k, (entry, rest) in enumerate(zip(bins.tolist(), low.tolist(), strict=True)):
        threshold = entry >> 16 << 63 | rest
        found[k] += threshold
        found[entry & 0xFFFF] += full - threshold
    assert found[: LAST_CELL + 1] == cell_masses()
    assert not any(found[LAST_CELL + 1 :])


def chosen(words: list[tuple[int, int]]) -> list[int]:
    """The numbers of the cells that these bits choose."""
    found = np.empty((1, len(words)))
    draw_middles(np.array([words], np.uint64), *alias_table(), found)
    return (found[0] / float(WIDTH)).astype(int).tolist()


def test_bits_choose_the_cell_that_the_table_says() -> None:
    """Every kind of low word at the thresholds themselves, and both signs."""
    bins, low = alias_table()
    crafted, expected = [], []
    for own in (0, 1, 77, 4096, 20_000, 40_000, 51_000, LAST_CELL, 60_000, 65_535):
        threshold = int(bins[own]) >> 16 << 63 | int(low[own])
        alias = int(bins[own]) & 0xFFFF
        around = (-(1 << 63), -2, -1, 0, 1, 1 << 62, 1 << 63)
        for choice in {0, (1 << 111) - 1, *(threshold + step for step in around)}:
            if 0 <= choice < 1 << 111:
                for sign in (0, 1):
                    bits = sign << 127 | own << 111 | choice
                    crafted.append(divmod(bits, 1 << 64))
                    expected.append((own if choice < threshold else alias) * (-1 if sign else 1))
    assert expected == chosen(crafted)


def placed(cell: int, words: list[tuple[int, int]]) -> list[Fraction]:
    """What is drawn in that cell with these bits for the place, exactly."""
    bins = np.full(1 << 16, abs(cell), np.uint64)  # all of them have this cell alone
    sign = (int(cell < 0) << 63, 0)
    bits, found = np.array([[sign] * len(words), words], np.uint64), np.empty((2, 1, len(words)))
    series, sixths = gaussian_noise._SERIES, (gaussian_noise._SIXTH, gaussian_noise._SIXTH_REST)
    draw_normals(bits, bins, np.zeros_like(bins), series, *sixths, *found)
    assert np.array_equal(found[0] + found[1], found[0])
    return [Fraction(x) + Fraction(y) for x, y in zip(*found[:, 0].tolist(), strict=True)]


def exact_draw(cell: int, first: int, second: int) -> Fraction:
    """w (k + T(v)) for the bits (first, second) of v, 128 of them."""
    v = Fraction(first << 64 | second, 1 << 128)
    v = v - 1 if v >= Fraction(1, 2) else v
    a, b = cell * WIDTH**2, WIDTH**2
    q = sum(c * a**i * b**j * v**m for (i, j, m), c in series(7).items())
    return WIDTH * (cell + v - (Fraction(1, 4) - v * v) * q)


def test_draws_are_as_near_to_the_exact_map_as_is_charged() -> None:
    rng = np.random.default_rng(1)
    edges = [0, 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, 1 << 61, 3 << 62, 1 << 10, 1 << 40]
    words = [(x, y) for x in edges for y in (0, (1 << 64) - 1)]
    words += [tuple(pair) for pair in rng.integers(0, 1 << 64, (30, 2), dtype=np.uint64).tolist()]
    worst = Fraction(0)
    for size in (0, 1, 2, 100, 4096, 33_333, LAST_CELL):
        for cell in {size, -size}:
            for drawn, (x, y) in zip(placed(cell, words), words, strict=True):
                worst = max(worst, abs(drawn - exact_draw(cell, x, y)))
    assert 2.0**-104 < worst < DRAW_ERROR / 4


def draws(labels: int, rounds: int, lanes: tuple[int, int] = (0, 1)) -> NDArray[np.float64]:
    tweaks = NOISE.tweaks((r, lane, EMPTY_HISTORY) for r in range(rounds) for lane in lanes)
    high, low = GaussianNoise(NOISE).draw_all(NOISE.label_ids(b"%d" % i for i in range(labels)), tweaks)
    assert np.all(high + low == high)
    return high


def normal_law(sd: float, step: float) -> dict[int, float]:
    """The law of a normal draw in units of `step`, rounded down."""
    edges = np.arange(-1200, 1201)
    masses = np.diff(norm.cdf(edges * step / sd))
    return dict(zip(edges[:-1].tolist(), masses.tolist(), strict=True))


def test_draws_are_normal_and_a_standard_deviation_two_percent_off_is_rejected() -> None:
    sample = draws(3000, 200)
    for step in (0.01, 0.1):
        counted = np.floor(sample / step).astype(int)
        assert fits(counted, normal_law(1.0, step))
        assert not fits(counted, normal_law(1.02, step))
        assert not fits(counted, normal_law(0.98, step))


def places(sample: NDArray[np.float64]) -> NDArray[np.int64]:
    """In which 64th of its cell a draw is, and on which side of 0."""
    return np.floor((sample * 4096 + 0.5) % 1 * 64).astype(int) + 64 * (sample > 0)


def test_places_in_cells_are_uniform_and_the_bits_of_the_cell_used_again_are_rejected() -> None:
    law = dict.fromkeys(range(128), 1 / 128)
    assert fits(places(draws(1000, 200)), law)
    assert not fits(places(draws(1000, 200, (0, 0))), law)


def test_draws_are_independent_and_a_lane_used_twice_is_rejected() -> None:
    sample = draws(1000, 200)
    for first, second in ((sample[1:], sample[:-1]), (sample[:, 1:], sample[:, :-1])):
        assert uncorrelated(first, second, 1.0)
        assert uncorrelated(first**2 - 1, second**2 - 1, 2.0)
    assert uncorrelated(sample, draws(1000, 200, (2, 3)), 1.0)
    assert not uncorrelated(sample, draws(1000, 200, (0, 3)), 1.0)


def test_the_same_bits_come_out_whatever_is_drawn_at_once() -> None:
    ids = NOISE.label_ids(b"%d" % i for i in range(9000))
    tweaks = NOISE.tweaks((r, lane, EMPTY_HISTORY) for r in range(5) for lane in range(LANES))
    high, low = GaussianNoise(NOISE).draw_all(ids, tweaks)
    pieces = GaussianNoise(NOISE)
    for row in range(5):
        for left in (0, 1, 77, 8999):
            some = pieces.draw_all(ids[left : left + 130], tweaks[2 * row : 2 * row + 2])
            assert high[row, left : left + 130].tolist() == some[0][0].tolist()
            assert low[row, left : left + 130].tolist() == some[1][0].tolist()


def test_the_golden_draw_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    check_golden_gaussian()
    check_golden_gaussian.cache_clear()
    monkeypatch.setattr(gaussian_noise, "_SIXTH_REST", 2 * gaussian_noise._SIXTH_REST)
    with pytest.raises(WrongNoise, match="differs from the golden draw"):
        check_golden_gaussian()
