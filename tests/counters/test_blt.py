"""Has the noise of the blt counter the law of the design, exactly enough, for early, late and skipping labels?"""

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from numpy.typing import NDArray
from scipy.stats import norm

from stream_dp.counters.blt import NUMERICAL_SHARE, BltMechanism
from stream_dp.counters.blt_counter import BltCounter
from stream_dp.counters.blt_exact import Doubles, LawOfState
from stream_dp.counters.blt_parameters import Gaps, best_gaps, output_weights
from stream_dp.counters.calibration import calibrate, coupling_delta
from stream_dp.counters.protocol import EpochParameters, Hits
from stream_dp.loops import blt_add_up
from stream_dp.privacy.accounting import gaussian_delta
from stream_dp.privacy.gaussian_noise import LANES, GaussianNoise
from stream_dp.privacy.keyed_noise import KeyedNoise
from tests.counters.blocks import Arrivals, arrivals, as_lists, copied, feed, histories, ids
from tests.statistics import NORMAL_CRITICAL, rate_at_most

NOISE = KeyedNoise(bytes(range(32)), "blt", bytes(16))
SMALL = BltMechanism.of(EpochParameters(60, 1, 1e-6), 0.005)
MANY = 40_001
MANY_IDS = ids(NOISE, MANY)
NONE = Hits(np.empty(0, np.int64), np.empty(0, np.int64))
NOBODY = np.empty(0, np.int64)


def exact(parts: Doubles) -> NDArray[Any]:
    """hi + lo as fractions."""
    return np.vectorize(lambda high, low: Fraction(high) + Fraction(low), otypes=[object])(*parts)


def state_of(counter: BltCounter) -> NDArray[Any]:
    """V as fractions, shape (poles, labels)."""
    columns = {column.name: column.cells for column in counter.state().columns}
    poles = len(columns) // 2
    high, low = (np.array([columns[f"{part}:{a}"] for a in range(poles)]) for part in ("high", "low"))
    return exact((high, low))


def draws(round_number: int, lanes: Sequence[int], identities: NDArray[np.uint64]) -> NDArray[Any]:
    """The normals of those lanes, two for each, as fractions of shape (normals, labels)."""
    history = histories(round_number, round_number)[0]
    tweaks = NOISE.tweaks((round_number, lane, history) for lane in lanes)
    return exact(GaussianNoise(NOISE).draw_all(identities, tweaks))


def nearest(value: Fraction) -> int:
    return round(value)


def test_noise_is_that_of_exact_arithmetic_for_early_and_for_late_labels() -> None:
    """The recurrence in fractions, from the very draws; the last label starts at round 25."""
    mechanism, rounds, late = BltMechanism.of(EpochParameters(1000, 1, 1e-6), 0.01), 60, 25
    counter, identities = mechanism.counter(NOISE), ids(NOISE, 3)
    noise = feed(counter, identities, [0, 0, late], [7, 30, rounds])
    scales = [Fraction(mechanism.draw_sd) * weight for weight in output_weights(mechanism.gaps)]
    poles = [1 - Fraction(gap) for gap in mechanism.gaps.poles]
    law = LawOfState(mechanism.gaps, scales, 1000)
    value = np.full((len(poles), 3), Fraction(0))
    for last in range(1, rounds + 1):
        z = draws(last, [0, 1], identities)[0]
        value = np.array([p * v + s * z for p, v, s in zip(poles, value, scales, strict=True)])
        value = np.vectorize(lambda x: Fraction(int(x * 2**300), 2**300), otypes=[object])(value)
        if last == late:
            lanes = range(2, 2 + LANES * len(poles))
            value[:, 2] = exact(law.factor(late)) @ draws(late, lanes, identities)[:, 2]
        expected = [nearest(x) for x in value.sum(axis=0)]
        seen = 3 if last >= late else 2
        assert expected[:seen] == noise[last - 1, :seen].tolist()
    error = abs(value - state_of(counter)).sum(axis=0).max()
    assert (
        0 < error < mechanism.noise_error / 100
    )  # all but the error of the draws, which are taken as they are


def test_doubles_alone_would_be_far_beyond_the_error_that_is_charged() -> None:
    mechanism = BltMechanism.of(EpochParameters(1000, 1, 1e-6), 0.01)
    assert mechanism.noise_error < 2.0**-78 * mechanism.draw_sd
    assert 1e7 * mechanism.noise_error < 2.0**-53


@pytest.mark.parametrize(
    ("high", "low"),
    [
        (h + f, low)
        for h in (-7.0, -2.0, 0.0, 1.0, 2.0, 5.0)
        for f in (-0.5, -0.25, 0.0, 0.5)
        for low in (-1e-20, 0.0, 1e-20)
    ],
)
def test_halves_are_decided_by_the_low_part(high: float, low: float) -> None:
    noise = np.empty(1, np.int32)
    blt_add_up(np.array([[high]]), np.array([[low]]), noise)
    value = Fraction(high) + Fraction(low)
    assert abs(value - int(noise[0])) <= Fraction(1, 2)
    if low or high % 1 != 0.5:
        assert nearest(value) == noise[0]


def test_a_sum_is_rounded_once() -> None:
    """Parts that cancel, and a rest that only their low parts hold."""
    high = np.array([[2.0**40 + 0.5], [-(2.0**40)], [2.0**-70]])
    noise = np.empty(1, np.int32)
    for rest, expected in ((1e-30, 1), (-2e-21, 0)):
        blt_add_up(high, np.array([[0.0], [rest], [0.0]]), noise)
        assert expected == noise[0]


@settings(max_examples=60)
@given(arrivals(60), st.integers(1, 40))
def test_the_cuts_of_a_stream_do_not_matter_nor_does_a_restart(stream: Arrivals, more: int) -> None:
    """Bit for bit, late labels included; cells before a label is first seen mean nothing and are left out."""
    rounds, first_seen, cuts = stream
    identities, mechanism = ids(NOISE, len(first_seen)), BltMechanism.of(EpochParameters(100, 1, 1e-6), 0.01)
    whole = feed(mechanism.counter(NOISE), identities, first_seen, [rounds + more])
    counter = mechanism.counter(NOISE)
    assert whole[:rounds].tolist() == feed(counter, identities, first_seen, cuts).tolist()
    assert whole[rounds - 1].tolist() == counter.current().tolist()

    restored = mechanism.counter(NOISE)
    restored.restore(copied(counter.state()), counter.labels)
    for some in (restored, counter):
        assert whole[rounds:].tolist() == feed(some, identities, first_seen, [rounds + more]).tolist()
    assert as_lists(counter.state()) == as_lists(restored.state())


def test_many_labels_at_once_are_as_each_alone() -> None:
    """More than fit into a buffer, so that blocks are cut in both directions, and each thread draws half of them."""
    heads, some = histories(1, 5), [0, 1, 8191, 8192, 16_383, 16_384, MANY // 2 - 1, MANY // 2, MANY - 1]
    everyone = SMALL.counter(NOISE).advance(MANY_IDS, heads, NONE, np.zeros(MANY, np.int64))
    alone = SMALL.counter(NOISE).advance(MANY_IDS[some], heads, NONE, np.zeros(len(some), np.int64))
    assert everyone[:, some].tolist() == alone.tolist()


def test_labels_may_start_at_the_round_where_the_counter_stands_also_after_a_restart() -> None:
    def end(restart: bool, first_seen: int, block: int = 3) -> list[int]:
        counter = SMALL.counter(NOISE)
        feed(counter, ids(NOISE, 2), [1, 2], [6])
        if restart:
            stopped, counter = counter, SMALL.counter(NOISE)
            counter.restore(copied(stopped.state()), 2)
        heads = histories(7, 9)
        if not block:
            counter.advance(ids(NOISE, 4), [], NONE, np.array([first_seen, first_seen]))
            return counter.advance(ids(NOISE, 4), heads, NONE, NOBODY)[-1].tolist()
        return counter.advance(ids(NOISE, 4), heads, NONE, np.array([first_seen, first_seen]))[-1].tolist()

    assert end(False, 6) == end(True, 6) == end(True, 6, block=0)
    assert end(False, 6) != end(False, 7)


def test_no_lane_of_a_round_is_used_for_two_purposes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every tweak that is drawn with, and for which labels: no label meets one twice."""
    noise = KeyedNoise(bytes(32), "lanes", bytes(16))
    used: list[tuple[bytes, bytes]] = []
    bits = KeyedNoise.bits

    def recording(self: KeyedNoise, identities: NDArray[Any], tweaks: list[bytes], together: int) -> Any:
        used.extend((row.tobytes(), tweak) for row in identities for tweak in tweaks)
        return bits(self, identities, tweaks, together)

    monkeypatch.setattr(KeyedNoise, "bits", recording)
    counter, identities = BltMechanism.of(EpochParameters(1000, 1, 1e-6), 0.01).counter(noise), ids(noise, 6)
    feed(counter, identities, [1, 8, 31, 32, 40], [30, 63])
    counter.advance(identities, histories(64, 100), NONE, np.array([96]))
    assert len(used) == len(set(used)) > 5 * 2 * 60


@pytest.mark.parametrize("horizon", [1, 2, 30, 1000, 1 << 24])
def test_a_start_has_the_covariance_of_all_the_rounds_before(horizon: int) -> None:
    """In fractions: far beyond doubles, although the matrix is all but singular."""
    gaps = best_gaps(horizon)
    scales = [2 * weight for weight in output_weights(gaps)]
    law = LawOfState(gaps, scales, horizon)
    poles = [1 - Fraction(gap) for gap in gaps.poles]
    for rounds in {
        1,
        min(2, horizon),
        min(len(poles), horizon),
        min(len(poles) + 1, horizon),
        min(300, horizon),
    }:
        factor = exact(law.factor(rounds))
        assert factor.shape[1] == min(rounds, len(poles))
        found = factor @ factor.T
        for a, p in enumerate(poles):
            for b, q in enumerate(poles):
                covariance = Fraction(rounds) if p * q == 1 else (1 - (p * q) ** rounds) / (1 - p * q)
                expected = scales[a] * scales[b] * covariance
                assert abs(found[a, b] - expected) < expected / 2**98


def response(mechanism: BltMechanism, rounds: int) -> NDArray[np.float64]:
    """The matrix s B of the noise of rounds 1.. as a function of the draws."""
    weights = np.array([float(weight) for weight in output_weights(mechanism.gaps)])
    powers = (1 - np.array(mechanism.gaps.poles)) ** np.arange(rounds)[:, None]
    b = mechanism.draw_sd * powers @ weights
    lag = np.subtract.outer(np.arange(rounds), np.arange(rounds))
    return np.where(lag >= 0, b[np.maximum(lag, 0)], 0.0)


def has_law(noise: NDArray[np.integer], mechanism: BltMechanism, rounds: Sequence[int]) -> bool:
    """May the noise of many labels after `rounds`, shape (rounds, labels), have the joint law of the design?

    Made independent and of variance 1 by the exact covariance, rounding included; then every variance and every
    covariance is compared.
    """
    matrix = response(mechanism, max(rounds))[np.array(rounds) - 1]
    covariance = matrix @ matrix.T + np.eye(len(rounds)) / 12
    white = np.linalg.solve(np.linalg.cholesky(covariance), noise.astype(float))
    size = white.shape[1]
    excess = white @ white.T / size - np.eye(len(rounds))
    bound = NORMAL_CRITICAL * np.sqrt((1 + np.eye(len(rounds))) / size)
    return bool(
        np.all(np.abs(excess) <= bound) and np.all(np.abs(white.mean(axis=1)) <= NORMAL_CRITICAL / size**0.5)
    )


def starting(first_seen: int, mechanism: BltMechanism = SMALL, last: int = 14) -> NDArray[np.int32]:
    """The noise of many labels from `first_seen` to `last`."""
    counter = mechanism.counter(NOISE)
    return feed(counter, MANY_IDS, [first_seen] * MANY, [last])[max(0, first_seen - 1) :]


@pytest.mark.parametrize("first_seen", [0, 1, 2, 3, 4, 9])
def test_late_labels_have_the_same_joint_law_as_early_ones(first_seen: int) -> None:
    """From the very first round on, with fewer rounds than poles and with more."""
    assert has_law(starting(first_seen), SMALL, range(max(1, first_seen), 15))


@pytest.mark.parametrize(("pole", "factor"), [(0, 0.97), (1, 0.85)])
def test_a_pole_off_by_little_is_noticed(pole: int, factor: float) -> None:
    """By 3% the large one, by 15% the small one, which matters for a round or two."""
    hats = list(SMALL.hat_gaps)
    hats[pole] = 1 - factor * (1 - hats[pole])
    wrong = structs.replace(SMALL, hat_gaps=tuple(hats))
    assert not has_law(starting(0, wrong), SMALL, range(1, 15))


def test_a_noise_two_percent_off_is_noticed() -> None:
    wrong = structs.replace(SMALL, draw_sd=1.02 * SMALL.draw_sd)
    assert not has_law(starting(0, wrong), SMALL, range(1, 15))


def own_component_each(factor: Callable[..., Doubles]) -> Callable[..., Doubles]:
    """A start with the right variances, whose parts are independent."""

    def broken(self: LawOfState, rounds: int) -> Doubles:
        high, _ = factor(self, rounds)
        return np.diag(np.sqrt((high**2).sum(axis=1))), np.zeros((len(high), len(high)))

    return broken


def one_round_less(factor: Callable[..., Doubles]) -> Callable[..., Doubles]:
    return lambda self, rounds: factor(self, rounds - 1)


@pytest.mark.parametrize(("first_seen", "breaking"), [(9, own_component_each), (3, one_round_less)])
def test_a_start_with_another_law_is_noticed(
    first_seen: int, breaking: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LawOfState, "factor", breaking(LawOfState.factor))
    assert not has_law(starting(first_seen), SMALL, range(first_seen, 15))


def test_counters_at_one_round_can_be_joined() -> None:
    """As if they had been one from the start."""
    heads, identities = histories(1, 13), ids(NOISE, 7)
    parts = [SMALL.counter(NOISE) for _ in range(2)]
    whole = SMALL.counter(NOISE)
    for counter, rows in ((parts[0], slice(3)), (parts[1], slice(3, 7)), (whole, slice(7))):
        counter.advance(identities[rows], heads, NONE, np.zeros(len(identities[rows]), np.int64))
    parts[0].join(parts[1])
    assert as_lists(whole.state()) == as_lists(parts[0].state())
    further = [counter.advance(identities, heads, NONE, NOBODY).tolist() for counter in (whole, parts[0])]
    assert further[0] == further[1]


def test_escapes_of_late_labels_keep_to_a_budget_that_forgetting_to_round_exceeds() -> None:
    """A label of true count 1 in the rounds from its first on, at a budget large enough to be spent in front of us."""
    mechanism = BltMechanism.of(EpochParameters(14, 1, 0.3), 1.0)
    budget = 0.3 / 14
    rounds = np.arange(4, 15)
    noise = starting(4, mechanism)
    exact_sds = np.sqrt((response(mechanism, 14) ** 2).sum(axis=1))[rounds - 1]
    without_the_half = 1 + np.ceil(norm.isf(budget) * exact_sds)
    broken = []
    for counts, tau, bare in zip(
        noise + 1, mechanism.taus(rounds).tolist(), without_the_half.tolist(), strict=True
    ):
        assert rate_at_most(budget, int((counts >= tau).sum()), MANY)
        broken.append(not rate_at_most(budget, int((counts >= bare).sum()), MANY))
    assert sum(broken) > len(broken) / 3


@pytest.mark.parametrize(
    ("horizon", "rho", "delta"), [(15, 0.5, 0.2), (100, 20.0, 1e-3), (65_535, 0.05, 5e-7)]
)
def test_an_escape_is_as_rare_as_its_budget_and_no_rarer_than_integers_make_it(
    horizon: int, rho: float, delta: float
) -> None:
    mechanism = BltMechanism.of(EpochParameters(horizon, 3, delta), rho)
    rounds = np.unique(np.geomspace(1, horizon, 40).astype(np.int64))
    exact_sds = np.sqrt(mechanism.sds(rounds) ** 2 - 1 / 12)
    taus = mechanism.taus(rounds)
    assert taus.dtype == np.int32
    budget = delta / (3 * horizon)
    assert np.all(norm.sf((taus - 1.5) / exact_sds) <= budget)
    assert np.all(norm.sf((taus - 2.5) / exact_sds) >= budget * (1 - 1e-6))
    assert [mechanism.tau(last) for last in rounds.tolist()] == taus.tolist()


def test_the_standard_deviation_is_that_of_the_matrix_and_of_rounding() -> None:
    squares = np.cumsum(response(SMALL, 60)[-1, ::-1] ** 2)
    assert np.sqrt(squares + 1 / 12) == pytest.approx(SMALL.sds(np.arange(1, 61)), rel=1e-12)


def test_rho_is_that_of_one_gaussian_on_the_largest_column() -> None:
    """C is the inverse of B times the matrix of running sums; an event moves D0 labels by a column of it."""
    mechanism = BltMechanism.of(EpochParameters(60, 4, 1e-6), 0.05)
    matrix = np.linalg.solve(response(mechanism, 60) / mechanism.draw_sd, np.tril(np.ones((60, 60))))
    columns = np.linalg.norm(matrix, axis=0)
    assert columns.max() == pytest.approx(columns[0], rel=1e-12)
    assert mechanism.rho == pytest.approx(4 * columns[0] ** 2 / (2 * mechanism.draw_sd**2), rel=1e-10)
    assert mechanism.rho <= 0.05


@pytest.mark.parametrize(
    ("horizon", "largest", "mean"), [(2**10, 2.31, 2.20), (2**16, 3.27, 3.14), (2**20, 3.94, 3.80)]
)
def test_the_deviations_are_at_most_those_of_the_design_table(
    horizon: int, largest: float, mean: float
) -> None:
    """At rho = 1 and D0 = 1; scaled from more noise, so that rounding does not show."""
    mechanism = BltMechanism.of(EpochParameters(horizon, 1, 1e-6), 1e-8)
    sds = 1e-4 * mechanism.sds(np.arange(1, horizon + 1))
    assert sds.max() <= largest + 0.008
    assert sds.mean() <= mean + 0.008


def test_what_computing_costs_is_small_and_grows_with_what_is_computed() -> None:
    def costs(horizon: int, items: int = 4, rho: float = 0.04) -> float:
        return BltMechanism.of(EpochParameters(horizon, items, 5e-7), rho).failure_probability

    assert costs(65_535) < 1e-17
    assert costs(1 << 20) < 1e-15
    assert costs(1 << 24) < 1e-13
    assert costs(1000) < costs(65_535) < costs(65_535, 16) < costs(65_535, 16, 0.01)


def test_gaps_are_read_back_in_their_order() -> None:
    assert SMALL.gaps == best_gaps(60) == Gaps(SMALL.theta_gaps, SMALL.hat_gaps)


@pytest.mark.parametrize(
    ("epsilon", "delta", "horizon", "items"),
    [(1.0, 1e-6, 65_535, 4), (0.5, 1e-9, 100, 1), (8.0, 1e-3, 511, 3)],
)
def test_the_noise_is_the_least_that_keeps_the_promise(
    epsilon: float, delta: float, horizon: int, items: int
) -> None:
    """By the exact conversion of one Gaussian, at what the threshold, computing and collisions leave of delta."""
    mechanism, guarantee = calibrate(epsilon, delta, horizon, items, "blt")
    assert isinstance(mechanism, BltMechanism)
    charged = coupling_delta(horizon, items, mechanism="blt")
    left = delta / 2 - charged - NUMERICAL_SHARE * delta
    assert gaussian_delta(mechanism.rho, epsilon) <= left < gaussian_delta(mechanism.rho * 1.0001, epsilon)
    assert mechanism.failure_probability < NUMERICAL_SHARE * delta
    assert 6 * items * 2 * horizon * 2.0**54 / 2.0**128 <= charged < 1e-15
    assert (guarantee.rho, guarantee.threshold_delta, guarantee.conversion) == (
        mechanism.rho,
        delta / 2,
        "exact",
    )


def test_a_delta_that_computing_could_exceed_is_refused_in_a_sentence() -> None:
    with pytest.raises(
        ValueError, match=r"exactly enough for a delta of at least .* here, not 1e-12: raise delta, lower"
    ):
        calibrate(1.0, 1e-12, 1 << 20, 16, "blt")
    calibrate(1.0, 1e-12, 1 << 18, 4, "blt")
