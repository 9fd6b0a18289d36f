"""Is the table the discrete Gaussian, is the inversion exact, and is its work the same whatever it draws?"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom

from stream_dp.privacy.discrete_gaussian import DiscreteGaussian, pmf, variance
from tests import naive
from tests.shared import vectors
from tests.statistics import fits, law_of

SIGMAS_SQUARED = [0.05, 0.5, 4.0, 10.5, 3600.0, 2e4]
TOP = 1 << 128


def words(bits: Sequence[int]) -> NDArray[np.uint64]:
    """Integers below 2^128 as rows of (high word, low word)."""
    return np.array([divmod(value, 1 << 64) for value in bits], dtype=np.uint64).reshape(-1, 2)


def random_bits(seed: int, size: int) -> NDArray[np.uint64]:
    return np.random.default_rng(seed).integers(0, 1 << 64, (size, 2), dtype=np.uint64)


@lru_cache
def boundaries(sigma_squared: float) -> tuple[int, list[int]]:
    """The least value drawn, and for each value but the largest how many of the 2^128 bit strings give at most it.

    Found bit by bit through `invert` alone, all values at once, so it is the law of what is really drawn.
    """
    table = DiscreteGaussian(sigma_squared)
    least, most = table.invert(words([0, TOP - 1])).tolist()
    values = np.arange(least, most)
    last = np.zeros((len(values), 2), np.uint64)  # the largest bits that give at most the value
    for bit in reversed(range(128)):
        tried = last.copy()
        tried[:, int(bit < 64)] |= np.uint64(1 << bit % 64)
        last = np.where((table.invert(tried) <= values)[:, None], tried, last)
    return least, [(int(high) << 64 | int(low)) + 1 for high, low in last]


@pytest.mark.parametrize("expected", vectors()["discrete_gaussian"], ids=lambda case: case["sigma_squared"])
def test_pmf_cdf_and_variance_are_those_computed_independently(expected: dict[str, Any]) -> None:
    sigma_squared = float(expected["sigma_squared"])
    masses = pmf(sigma_squared)
    for k, mass in expected["pmf"].items():
        assert float(mass) == pytest.approx(masses[int(k)], rel=1e-15)
    for k, probability in expected["cdf"].items():
        below = masses[abs(int(k)) + (int(k) >= 0) :].sum()
        assert float(probability) == pytest.approx(1 - below if int(k) >= 0 else below, rel=1e-14)
    assert float(expected["variance"]) == pytest.approx(variance(sigma_squared), rel=1e-15)


@pytest.mark.parametrize("sigma_squared", SIGMAS_SQUARED)
def test_what_is_drawn_is_within_2_to_the_minus_100_of_the_discrete_gaussian(sigma_squared: float) -> None:
    half = naive.weights(sigma_squared)
    total = 2 * sum(half) - half[0]
    least, counts = boundaries(sigma_squared)
    drawn = {
        least + i: high - low for i, (low, high) in enumerate(zip([0, *counts], [*counts, TOP], strict=True))
    }
    twice_distance = sum(
        abs(drawn.get(k, 0) * total - half[abs(k)] * TOP) for k in range(1 - len(half), len(half))
    )
    assert max(-least, least + len(counts)) < len(half)  # nothing is drawn that was not compared
    assert twice_distance << 100 < 2 * total * TOP
    assert all(abs(share - drawn.get(-k, 0)) <= 4 for k, share in drawn.items())  # symmetric


def lacks_beside(sigma_squared: float) -> int:
    """The mean of what the table lacks one step beside its noise, relative to the law there, in units of 2^-192."""
    half = naive.weights(sigma_squared)
    total = 2 * sum(half) - half[0]
    least, counts = boundaries(sigma_squared)
    drawn = {
        least + i: high - low for i, (low, high) in enumerate(zip([0, *counts], [*counts, TOP], strict=True))
    }
    mean = 0
    for k in range(2 - len(half), len(half) - 1):
        lacking = half[abs(k)] * TOP - drawn.get(k, 0) * total
        if lacking > 0:
            beside = max(half[abs(k - 1)], half[abs(k + 1)])
            mean += (lacking * beside << 192) // (half[abs(k)] * TOP * total)
    return mean


@pytest.mark.parametrize("sigma_squared", [1.0, 1.5, 12.0, 3600.0])
def test_what_the_table_lacks_one_step_beside_is_below_what_is_charged(sigma_squared: float) -> None:
    assert 0 < lacks_beside(sigma_squared) < 1 << 192 - 102


def test_less_noise_than_the_least_lacks_too_much_beside() -> None:
    """Which is why no counter draws it: at a distance of 2^-126, a shift by 1 could lead out of the table."""
    assert lacks_beside(0.05) > 1 << 192 - 60


def test_a_distance_of_2_to_the_minus_100_would_be_seen() -> None:
    """The comparison above tells even the nearest representable sigma_squared apart."""
    _, ours = boundaries(4.0)
    _, neighbour = boundaries(float(np.nextafter(4.0, 5.0)))
    assert max(abs(a - b) for a, b in zip(ours, neighbour, strict=True)) > 1 << 70


@pytest.mark.parametrize("sigma_squared", SIGMAS_SQUARED)
def test_inversion_is_exact_at_every_guide_edge_and_every_entry(sigma_squared: float) -> None:
    table = DiscreteGaussian(sigma_squared)
    least, counts = boundaries(sigma_squared)
    edges = [bucket << 112 for bucket in range(1 << 16)]
    crafted = {
        0,
        TOP - 1,
        *edges,
        *(edge - 1 for edge in edges[1:]),
        *((edge | (1 << 64) - 1) for edge in edges),
    }
    for entry in counts:
        start = entry >> 64 << 64  # the same high word, with every kind of low word
        crafted |= {entry - 1, entry, entry + 1, start, start - 1, start + (1 << 64) - 1, start + (1 << 64)}
    bits = sorted(value for value in crafted if 0 <= value < TOP)
    expected = [least + bisect_right(counts, value) for value in bits]
    assert expected == table.invert(words(bits)).tolist()
    assert expected == table.invert(words(bits[::-1])).tolist()[::-1]


@pytest.mark.parametrize("sigma_squared", [0.5, 4.0, 10.5])
def test_every_entry_is_the_one_an_exact_table_gives(sigma_squared: float) -> None:
    """The tie rule itself: bits equal to P(X <= k) * 2^128 belong to k + 1."""
    least, counts = boundaries(sigma_squared)
    exact_least, exact = naive.cumulative(sigma_squared)
    differences = [count - exact[k - exact_least] for k, count in enumerate(counts, least)]
    assert set(differences) <= {-1, 0, 1}  # the two stop summing at different places


def test_inversion_accepts_no_draws_at_all() -> None:
    assert DiscreteGaussian(4.0).invert(words([])).tolist() == []


@pytest.mark.parametrize("sigma_squared", [5e-324, 1e-300, 0.003, 0.0055, 0.006])
def test_noise_too_small_to_be_seen_is_zero(sigma_squared: float) -> None:
    table = DiscreteGaussian(sigma_squared)
    assert table.invert(words([TOP // 1000, TOP // 2, TOP - TOP // 1000])).tolist() == [0, 0, 0]
    assert pmf(sigma_squared)[0] == 1


@pytest.mark.parametrize("sigma_squared", [0.5, 4.0, 3600.0])
def test_draws_fit_and_a_variance_three_percent_off_is_rejected(sigma_squared: float) -> None:
    bits = random_bits(1, 1_000_000)
    half = naive.weights(sigma_squared)
    total = 2 * sum(half) - half[0]
    law = law_of(lambda k: half[k] / total, len(half) - 1)
    assert fits(DiscreteGaussian(sigma_squared).invert(bits), law)
    assert not fits(DiscreteGaussian(sigma_squared * 1.03).invert(bits), law)
    assert not fits(DiscreteGaussian(sigma_squared / 1.03).invert(bits), law)


def searches(table: DiscreteGaussian, bits: NDArray[np.uint64], monkeypatch: pytest.MonkeyPatch) -> int:
    """How many draws of this block take the exact search."""
    counted = []
    search = table._search

    def counting(high: NDArray[np.uint64], low: NDArray[np.uint64]) -> NDArray[np.int64]:
        counted.append(len(high))
        return search(high, low)

    with monkeypatch.context() as patched:
        patched.setattr(table, "_search", counting)
        table.invert(bits)
    return sum(counted)


@pytest.mark.parametrize("sigma_squared", SIGMAS_SQUARED)
@pytest.mark.parametrize("size", [0, 1, 17, 1000, 1 << 14])
def test_the_number_of_exact_searches_depends_on_the_number_of_draws_alone(
    sigma_squared: float, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = DiscreteGaussian(sigma_squared)
    budget = table.slow_budget(size)
    _, counts = boundaries(sigma_squared)
    none_large = np.zeros((size, 2), np.uint64)
    none_large[:, 0] = clear_bucket(counts) << 48
    some_large, as_many_as_allowed = none_large.copy(), none_large.copy()
    some_large[: min(3, size)] = words([counts[-1]])
    as_many_as_allowed[size - budget :] = words([counts[-1]])
    for bits in (random_bits(2, size), none_large, some_large, as_many_as_allowed):
        assert budget == searches(table, bits, monkeypatch)


def test_draws_in_parts_are_those_of_the_whole_and_are_searched_for_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table, bits = DiscreteGaussian(1e4), random_bits(5, 3000)
    whole, counted = table.invert(bits), []
    search, buffer, draws = table._search, np.empty((1000, 2), np.uint64), np.empty(3000, np.int32)

    def counting(high: NDArray[np.uint64], low: NDArray[np.uint64]) -> NDArray[np.int64]:
        counted.append(len(high))
        return search(high, low)

    def parts() -> Iterator[tuple[NDArray[np.uint64], NDArray[np.int32]]]:
        for start, end in ((0, 1000), (1000, 1000), (1000, 1999), (1999, 2000), (2000, 3000)):
            part = buffer[: end - start]
            part[:] = bits[start:end]  # the buffer of the part before
            yield part, draws[start:end]

    monkeypatch.setattr(table, "_search", counting)
    table.invert_into(parts())
    assert draws.tolist() == whole.tolist()
    assert counted == [table.slow_budget(3000)]


def clear_bucket(counts: list[int]) -> int:
    """A bucket of the guide without an entry in it, so that none of its draws needs the exact search."""
    taken = {entry >> 112 for entry in counts}
    return next(bucket for bucket in range(1 << 15, 1 << 16) if bucket not in taken)


@pytest.mark.parametrize("sigma_squared", SIGMAS_SQUARED)
@pytest.mark.parametrize("size", [1, 100, 1000, 1 << 14])
def test_random_bits_never_need_more_searches_than_the_budget(sigma_squared: float, size: int) -> None:
    table = DiscreteGaussian(sigma_squared)
    _, counts = boundaries(sigma_squared)
    share = len({entry >> 112 for entry in counts}) / (1 << 16)
    assert binom.sf(table.slow_budget(size), size, share) < 1e-12


@pytest.mark.parametrize("sigma_squared", [0.0, -1.0, 1.1e10, float("nan"), float("inf"), float("-inf")])
def test_a_sigma_squared_out_of_range_is_refused(sigma_squared: float) -> None:
    for use in (DiscreteGaussian, pmf, variance):
        with pytest.raises(ValueError, match="sigma_squared must be above 0"):
            use(sigma_squared)


def test_equal_digests_mean_equal_tables() -> None:
    assert DiscreteGaussian(4.0).digest == DiscreteGaussian(4.0).digest
    assert DiscreteGaussian(4.0).digest != DiscreteGaussian(float(np.nextafter(4.0, 5.0))).digest
