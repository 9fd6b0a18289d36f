"""Does the honaker counter estimate every node from its whole subtree, exactly, for early and for late labels?"""

from collections.abc import Callable
from fractions import Fraction
from functools import cache
from math import floor
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import norm

from stream_dp.counters import honaker
from stream_dp.counters.binary import chain
from stream_dp.counters.honaker import HonakerCounter, HonakerMechanism, level_of
from stream_dp.counters.protocol import Column, CounterState, EpochParameters, Hits
from stream_dp.privacy.discrete_gaussian import DiscreteGaussian, pmf, variance
from stream_dp.privacy.keyed_noise import KeyedNoise
from stream_dp.privacy.wide_gaussian import square_factors
from tests.counters.blocks import Arrivals, arrivals, as_lists, copied, feed, histories, ids
from tests.statistics import fits, rate_at_most, uncorrelated

NOISE = KeyedNoise(bytes(range(32)), "honaker", bytes(16))
LEAST = DiscreteGaussian(12.0)
MANY = 40_000
MANY_IDS = ids(NOISE, MANY)
NONE = Hits(np.empty(0, np.int64), np.empty(0, np.int64))
NOBODY = np.empty(0, np.int64)


def subtree(node: int, level: int) -> list[tuple[int, int]]:
    """The nodes (end, level) in the subtree of the node of that level which ends at round `node`."""
    if not level:
        return [(node, 0)]
    half = 1 << (level - 1)
    return [(node, level), *subtree(node - half, level - 1), *subtree(node, level - 1)]


@cache
def best_weights(level: int) -> dict[tuple[int, int], float]:
    """By least squares: how much each noisy sum counts in the best unbiased estimate of the whole node's count."""
    rounds = 1 << level
    nodes = subtree(rounds, level)
    design = np.array([[float(end - (1 << k) < r <= end) for r in range(1, rounds + 1)] for end, k in nodes])
    return dict(zip(nodes, np.ones(rounds) @ np.linalg.pinv(design), strict=True))


@pytest.mark.parametrize("level", range(6))
def test_the_estimate_of_a_node_is_the_best_that_its_subtree_allows(level: int) -> None:
    """F gives a node of level k the weight 2^k / M; no other unbiased weights have a smaller sum of squares."""
    divisor = (2 << level) - 1
    weights = best_weights(level)
    assert weights == pytest.approx({(end, k): (1 << k) / divisor for end, k in weights})
    squares = sum(weight**2 for weight in weights.values())
    assert squares == pytest.approx((1 << level) / divisor)
    mechanism = HonakerMechanism.of(EpochParameters(63, 1, 1e-6), 1e4)
    assert mechanism.sd(1 << level) ** 2 == pytest.approx(squares * variance(1e4) + 1 / 12, rel=1e-5)


def noise_by_hand(noise: KeyedNoise, gaussian: DiscreteGaussian, label: int, rounds: int) -> list[int]:
    """A label known from the start: every node's own draw, the recurrence in fractions, and both roundings."""
    identity = ids(noise, label + 1)[label:]
    heads = histories(1, rounds)

    @cache
    def estimate(node: int, level: int) -> Fraction:
        own = int(noise.draw(gaussian, identity, [noise.tweak(node, level, heads[node - 1])])[0, 0])
        if not level:
            return Fraction(own)
        weight = Fraction(1 << level, (2 << level) - 1)
        halves = estimate(node - (1 << (level - 1)), level - 1) + estimate(node, level - 1)
        return weight * own + (1 - weight) * halves

    found = []
    for last in range(1, rounds + 1):
        parts = [floor(estimate(node, level_of(node)) * 4096 + Fraction(1, 2)) for node in chain(last)]
        found.append(floor(Fraction(sum(parts), 4096) + Fraction(1, 2)))
    return found


@pytest.mark.parametrize("sigma_squared", [12.0, 1e4])
def test_noise_is_the_weighted_sum_of_single_draws(sigma_squared: float) -> None:
    gaussian = DiscreteGaussian(sigma_squared)
    noise = feed(HonakerCounter(NOISE, gaussian), ids(NOISE, 3), [0, 0, 0], [5, 33])
    for label in range(3):
        assert noise_by_hand(NOISE, gaussian, label, 33) == noise[:, label].tolist()


@settings(max_examples=60)
@given(arrivals(), st.integers(1, 40))
def test_the_cuts_of_a_stream_do_not_matter_nor_does_a_restart(stream: Arrivals, more: int) -> None:
    """Bit for bit, late labels included; cells before a label is first seen mean nothing and are left out."""
    rounds, first_seen, cuts = stream
    identities = ids(NOISE, len(first_seen))
    whole = feed(HonakerCounter(NOISE, LEAST), identities, first_seen, [rounds + more])
    counter = HonakerCounter(NOISE, LEAST)
    assert whole[:rounds].tolist() == feed(counter, identities, first_seen, cuts).tolist()
    assert whole[rounds - 1].tolist() == counter.current().tolist()

    restored = HonakerCounter(NOISE, LEAST)
    restored.restore(copied(counter.state()), counter.labels)
    assert as_lists(counter.state()) == as_lists(restored.state())
    for some in (restored, counter):
        further = feed(some, identities, first_seen, [rounds + more])
        assert whole[rounds:].tolist() == further.tolist()
    assert as_lists(counter.state()) == as_lists(restored.state())


def test_a_column_keeps_its_version_exactly_as_long_as_its_cells() -> None:
    """One column of 8 bytes a label for each node of the chain, named by its level."""
    counter = HonakerCounter(NOISE, LEAST)
    seen: dict[tuple[str, int], list[int]] = {}
    for last in range(1, 40):
        feed(counter, ids(NOISE, 5), [1] * 5, [last])
        state = counter.state()
        assert {f"estimate:{level_of(node)}": node for node in chain(last)} == {
            column.name: column.version for column in state.columns
        }
        for column in state.columns:
            assert column.cells.dtype == np.int64
            assert (
                seen.setdefault((column.name, column.version), column.cells.tolist()) == column.cells.tolist()
            )


def test_labels_may_start_at_the_round_where_the_counter_stands_also_after_a_restart() -> None:
    def end(restart: bool, first_seen: int) -> list[int]:
        counter = HonakerCounter(NOISE, LEAST)
        feed(counter, ids(NOISE, 2), [1, 2], [6])
        if restart:
            stopped, counter = counter, HonakerCounter(NOISE, LEAST)
            counter.restore(copied(stopped.state()), 2)
        noise = counter.advance(ids(NOISE, 4), histories(7, 9), NONE, np.array([first_seen, 8]))
        return noise[-1].tolist()

    assert end(False, 6) == end(True, 6)
    assert end(False, 6) != end(False, 7)


def test_no_lane_of_a_round_is_used_for_two_purposes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every tweak that is drawn with, and for which labels: no label meets one twice."""
    noise = KeyedNoise(bytes(32), "lanes", bytes(16))
    used: list[tuple[bytes, bytes]] = []
    draw = KeyedNoise.draw

    def recording(self: KeyedNoise, gaussian: Any, identities: NDArray[Any], tweaks: list[bytes]) -> Any:
        used.extend((row.tobytes(), tweak) for row in identities for tweak in tweaks)
        return draw(self, gaussian, identities, tweaks)

    monkeypatch.setattr(KeyedNoise, "draw", recording)
    counter, identities = HonakerCounter(noise, LEAST), ids(noise, 6)
    feed(counter, identities, [1, 8, 31, 32, 40], [30, 63])
    ahead = counter.subset(np.array([1]))
    ahead.advance(identities[1:2], histories(64, 96), NONE, NOBODY)
    counter.follow(ahead, np.array([1]), identities[:5], histories(96, 96)[0])
    counter.advance(identities, histories(97, 100), NONE, np.array([96]))
    assert len(used) == len(set(used)) > 5 * 2 * 23


@cache
def law(last: int, sigma_squared: float) -> tuple[int, NDArray[np.float64]]:
    """The exact law of the noise of round `last`, from its least value on; nodes have the law of one wide draw."""
    values, probabilities = np.zeros(1, np.int64), np.ones(1)
    for node in chain(last):
        level = level_of(node)
        half = pmf(sigma_squared * (1 << level) * ((2 << level) - 1))
        half = half[half > 1e-30]
        scaled = np.arange(1 - len(half), len(half))
        divisor = (2 << level) - 1
        fixed = (2 * 4096 * scaled + divisor) // (2 * divisor)
        values = (values[:, None] + fixed).ravel()
        probabilities = (probabilities[:, None] * np.concatenate([half[:0:-1], half])).ravel()
    rounded = (values + 2048) >> 12
    least = int(rounded.min())
    return least, np.bincount(rounded - least, probabilities).astype(float)


def as_mapping(last: int, sigma_squared: float) -> dict[int, float]:
    least, probabilities = law(last, sigma_squared)
    return dict(enumerate(probabilities.tolist(), least))


SMALL = [1, 2, 3, 4, 5, 6, 8, 10, 12]


@pytest.mark.parametrize("last", SMALL)
@pytest.mark.parametrize("sigma_squared", [12.0, 50.0])
def test_the_standard_deviation_is_that_of_the_exact_law(last: int, sigma_squared: float) -> None:
    found = as_mapping(last, sigma_squared)
    mean = sum(k * probability for k, probability in found.items())
    second = sum(k * k * probability for k, probability in found.items())
    assert HonakerMechanism.of(EpochParameters(15, 1, 1e-6), sigma_squared).sd(last) == pytest.approx(
        second**0.5, rel=1e-4
    )
    assert abs(mean) < 1e-3


def starting(first_seen: int) -> NDArray[np.int64]:
    """The noise of many labels that start in the same round, 12 rounds."""
    counter = HonakerCounter(NOISE, LEAST)
    return feed(counter, MANY_IDS, [first_seen] * MANY, [12]).astype(np.int64)


def follows_the_law(noise: NDArray[np.int64], first: int) -> bool:
    """Each round's law from `first` on, and how a round goes with later ones: regressed on the earlier, a rest is left.

    The covariance of two rounds follows from the exact weights of the nodes that they share.
    """
    single = variance(12.0)
    for last in (last for last in SMALL if last >= first):
        if not fits(noise[last - 1], as_mapping(last, 12.0)):
            return False
    for early, late in ((6, 7), (6, 8), (7, 8), (8, 12), (6, 12), (7, 12)):
        share = covariance(early, late) / covariance(early, early)
        rest = noise[late - 1] - share * noise[early - 1]
        scale = (covariance(early, early) * covariance(late, late)) ** 0.5 * single
        if early >= first and not uncorrelated(rest, noise[early - 1], scale):
            return False
    return True


def covariance(early: int, late: int) -> float:
    """Of the sums of estimates, for draws of variance 1."""
    weights: list[dict[tuple[int, int], float]] = []
    for last in (early, late):
        total: dict[tuple[int, int], float] = {}
        for node in chain(last):
            level = level_of(node)
            for end, k in subtree(node, level):
                total[end, k] = (1 << k) / ((2 << level) - 1)
        weights.append(total)
    return sum(weight * weights[1].get(node, 0) for node, weight in weights[0].items())


@pytest.mark.parametrize("first_seen", [0, 1, 2, 4, 6, 7])
def test_late_labels_have_the_same_joint_law_as_early_ones(first_seen: int) -> None:
    assert follows_the_law(starting(first_seen), max(1, first_seen))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda total, _: (1,) * round(total**0.5),
        lambda total, sigma_squared: square_factors(2 * total, sigma_squared),
        lambda total, sigma_squared: square_factors(max(1, total - total // 4), sigma_squared),
    ],
    ids=["the deviation for the variance", "twice the variance", "a quarter of the variance missing"],
)
def test_a_start_of_another_variance_is_noticed(
    monkeypatch: pytest.MonkeyPatch, wrong: Callable[[int, float], tuple[int, ...]]
) -> None:
    monkeypatch.setattr(honaker, "square_factors", wrong)
    assert not follows_the_law(starting(6), 6)


def test_a_start_whose_nodes_share_their_draws_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    tweak = KeyedNoise.tweak
    monkeypatch.setattr(
        KeyedNoise,
        "tweak",
        lambda self, r, lane, head: tweak(self, r, 64 + (lane & 1) if lane > 63 else lane, head),
    )
    assert not follows_the_law(starting(6), 6)


def test_a_start_far_out_has_the_variance_of_all_the_rounds_before() -> None:
    """The last round of the largest horizon but one: 24 nodes, up to 8 million rounds each."""
    last = 2**24 - 1
    mechanism = HonakerMechanism.of(EpochParameters(last, 1, 1e-6), 60.0)
    counter = mechanism.counter(NOISE)
    columns = [Column(f"estimate:{level_of(a)}", a, np.zeros(0, np.int64)) for a in chain(last - 1)]
    counter.restore(CounterState(last - 1, columns, {last - 1: bytes(32)}), 0)
    labels = 20_000
    noise = counter.advance(MANY_IDS[:labels], histories(last, last), NONE, np.full(labels, last))
    ratio = noise[0].astype(float).var() / mechanism.sd(last) ** 2
    assert abs(ratio - 1) < 5 * (2 / labels) ** 0.5
    assert abs(ratio - 0.9) > 5 * (2 / labels) ** 0.5


def test_the_noise_of_a_label_that_skips_rounds_has_the_law_of_one_that_did_not() -> None:
    """And the labels that went ahead keep what they got there."""

    def skipping(start: int, end: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        counter = HonakerCounter(NOISE, LEAST)
        feed(counter, MANY_IDS, [0] * MANY, [start])
        before, rows = counter.current().astype(np.int64), np.arange(0, MANY, 50)
        ahead = counter.subset(rows)
        whole = HonakerCounter(NOISE, LEAST)
        whole.restore(copied(counter.state()), MANY)
        heads = histories(start + 1, end)
        went = ahead.advance(MANY_IDS[rows], heads, NONE, NOBODY)
        assert went.tolist() == whole.advance(MANY_IDS, heads, NONE, NOBODY)[:, rows].tolist()
        counter.follow(ahead, rows, MANY_IDS, heads[-1])
        assert counter.round == end
        assert [column.name for column in counter.state().columns] == [c.name for c in ahead.state().columns]
        assert ahead.current().tolist() == counter.current()[rows].tolist()
        rest = np.delete(np.arange(MANY), rows)
        different = counter.current() != whole.current()
        assert not different[rows].any()
        assert different[rest].any()
        return before[rest], counter.current()[rest].astype(np.int64), rest

    for start, end in ((0, 8), (4, 8), (8, 12), (3, 6), (5, 12)):
        before, after, _ = skipping(start, end)
        assert fits(after, as_mapping(end, 12.0))
        assert not fits(after * 10 // 11, as_mapping(end, 12.0))
        if start:
            share = covariance(start, end) / covariance(start, start)
            scale = (covariance(start, start) * covariance(end, end)) ** 0.5 * variance(12.0)
            assert uncorrelated(after - share * before, before, scale)
            assert not uncorrelated(after - (share + 0.1) * before, before, scale)


def test_counters_at_one_round_can_be_joined() -> None:
    """As if they had been one from the start."""
    heads, identities = histories(1, 13), ids(NOISE, 7)
    parts = [HonakerCounter(NOISE, LEAST) for _ in range(2)]
    whole = HonakerCounter(NOISE, LEAST)
    for counter, rows in ((parts[0], slice(3)), (parts[1], slice(3, 7)), (whole, slice(7))):
        counter.advance(identities[rows], heads, NONE, np.zeros(len(identities[rows]), np.int64))
    parts[0].join(parts[1])
    assert as_lists(whole.state()) == as_lists(parts[0].state())
    further = [counter.advance(identities, heads, NONE, NOBODY).tolist() for counter in (whole, parts[0])]
    assert further[0] == further[1]


@pytest.mark.parametrize(
    ("horizon", "largest", "mean"),
    [(2**10, 5.65, 3.94), (2**16, 8.65, 6.06), (2**20, 10.65, 7.48)],
    ids=str,
)
def test_the_deviations_are_those_of_the_design_table(horizon: int, largest: float, mean: float) -> None:
    """At rho = 1 and D0 = 1; scaled from more items, so that the variance is large enough for the mechanism."""
    items = 1_000_000
    mechanism = HonakerMechanism.of(EpochParameters(horizon, items, 1e-6), items * horizon.bit_length() / 2)
    assert mechanism.rho == 1
    sds = mechanism.sds(np.arange(1, horizon + 1)) / items**0.5
    assert sds.max() == pytest.approx(largest, rel=0.002)
    assert sds.mean() == pytest.approx(mean, rel=0.002)


def test_a_drift_is_the_deviation_of_the_difference() -> None:
    """By the weights of all draws in the two sums."""
    mechanism = HonakerMechanism.of(EpochParameters(64, 1, 1e-6), 30.0)
    for start in (0, 1, 6, 8, 13, 24, 32, 40):
        rounds = np.arange(start + 1, 65)
        expected = [
            covariance(last, last) + covariance(start, start) - 2 * covariance(start, last)
            for last in rounds.tolist()
        ]
        found = mechanism.drifts(start, rounds) ** 2 / variance(30.0)
        assert found.tolist() == pytest.approx(expected, rel=1e-6)


def tail_of(last: int, sigma_squared: float, x: int) -> float:
    least, probabilities = law(last, sigma_squared)
    return float(probabilities[max(0, x - least) :][::-1].sum())


@pytest.mark.parametrize("sigma_squared", [12.0, 50.0, 200.0])
@pytest.mark.parametrize("delta", [1e-10, 1e-6, 1e-3, 0.1, 0.9])
def test_an_escape_is_as_rare_as_its_budget_by_the_exact_law(sigma_squared: float, delta: float) -> None:
    """And a threshold lower by 4, or by 3% where that is more, breaks the budget in every round: it is tight."""
    mechanism = HonakerMechanism.of(EpochParameters(15, 2, delta), sigma_squared)
    rounds = np.array(SMALL)
    budget = delta / 2 / 15
    for last, tau in zip(SMALL, mechanism.taus(rounds).tolist(), strict=True):
        assert tail_of(last, sigma_squared, tau - 1) <= budget
        assert tail_of(last, sigma_squared, tau - 1 - max(4, round(0.03 * tau))) > budget


def test_escapes_of_late_labels_keep_to_a_budget_that_a_bare_quantile_exceeds() -> None:
    """A label of true count 1 in the rounds from its first on, at a budget large enough to be spent in front of us."""
    mechanism = HonakerMechanism.of(EpochParameters(12, 1, 0.2), 12.0)
    budget = 0.2 / 12
    noise = starting(4)[3:]
    rounds = np.arange(4, 13)
    bare = np.ceil(norm.isf(budget) * mechanism.sds(rounds))
    broken = []
    for counts, tau, quantile in zip(noise + 1, mechanism.taus(rounds).tolist(), bare.tolist(), strict=True):
        assert rate_at_most(budget, int((counts >= tau).sum()), MANY)
        broken.append(not rate_at_most(budget, int((counts >= quantile).sum()), MANY))
    assert any(broken)


def test_thresholds_and_deviations_far_out() -> None:
    """All rounds at once are as one by one, and above the quantile of a continuous Gaussian by little."""
    mechanism = HonakerMechanism.of(EpochParameters(2**24, 4, 5e-7), 1000.0)
    rounds = np.array([1, 2, 3, 1000, 65_535, 65_536, 2**24 - 1, 2**24])
    taus, sds = mechanism.taus(rounds), mechanism.sds(rounds)
    assert taus.dtype == np.int32
    assert [mechanism.tau(last) for last in rounds.tolist()] == taus.tolist()
    assert [mechanism.sd(last) for last in rounds.tolist()] == sds.tolist()
    quantiles = norm.isf(5e-7 / 4 / 2**24) * sds
    assert (taus >= quantiles + 1.5).all()
    assert (taus <= quantiles + 5).all()


def test_the_largest_values_there_can_be_fit_into_64_and_32_bits() -> None:
    """Level 24 at the largest variance, every draw as large as its table lets it be, and all of one sign."""
    largest_draw = int(14 * 1e5) + 2  # exp(-14^2 / 2) < 2^-130, where the table ends
    assert np.exp(-(14**2) / 2) < 2.0**-130
    total = 0
    for level in range(25):
        scaled = (level + 1 << level) * largest_draw
        expected = (2 * 4096 * scaled + (2 << level) - 1) // (2 * ((2 << level) - 1))
        assert scaled << 12 < 2**62
        assert honaker._fixed_point(np.array([scaled]), level).tolist() == [expected]
        total += expected
    assert total >> 12 < 2**28


def test_a_guarantee_that_needs_too_little_noise_is_refused_in_a_sentence() -> None:
    with pytest.raises(ValueError, match=r"variance at least 12, not 11\.5: raise sigma_squared"):
        HonakerMechanism.of(EpochParameters(15, 1, 1e-6), 11.5)
