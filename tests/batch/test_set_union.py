"""Set union in one round and in three: thresholds, chances of release, and exact privacy of small inputs."""

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from dp_accounting.dp_event import GaussianDpEvent
from dp_accounting.pld import PLDAccountant
from numpy.typing import NDArray
from scipy.stats import norm

from stream_dp.batch import laplace_tails
from stream_dp.batch.baskets import spread_weights
from stream_dp.batch.cost import Cost, pure
from stream_dp.batch.set_union import (
    UNIT,
    GaussianSetUnion,
    LaplaceCount,
    LaplaceSetUnion,
    gaussian_count,
    gaussian_weighted,
    laplace_count,
    laplace_weighted,
    square_root_share,
)
from stream_dp.batch.set_union_thresholds import (
    analytic_gaussian_sigma,
    novel_chance,
    shared_budget_gaussian,
    shared_budget_tau,
)
from stream_dp.batch.sips import Sips, sips
from stream_dp.privacy.accounting import gaussian_delta, gaussian_rho, zcdp_rho
from stream_dp.privacy.loss import Loss
from stream_dp.privacy.one_shot_noise import OneShotNoise
from tests.batch import real_valued
from tests.batch.evidence import Run, hockey_stick_of_coins, noise, share_agrees
from tests.batch.plain_set_union import Rows, grouped
from tests.shared import vectors


@pytest.mark.parametrize("case", vectors()["set_union_policy_laplace"])
def test_the_continuous_threshold_is_that_of_the_vectors(case: dict[str, Any]) -> None:
    settings = (float(case["eps"]), float(case["delta"]), case["l0"])
    assert float(case["threshold"]) == pytest.approx(real_valued.policy_laplace(*settings), rel=1e-9)
    assert shared_budget_tau(*settings, UNIT) / UNIT == pytest.approx(float(case["threshold"]), rel=1e-5)


@pytest.mark.parametrize(("epsilon", "delta", "limit"), [(1.0, 1e-6, 10), (3.0, 1e-3, 100), (0.1, 0.01, 3)])
def test_no_split_of_a_users_budget_gets_a_novel_label_past_the_threshold(
    epsilon: float, delta: float, limit: int
) -> None:
    def worst(tau: int) -> float:
        return max(
            -np.expm1(t * np.log1p(-laplace_tails.tail(UNIT / epsilon, tau - math.ceil(UNIT / t))))
            for t in range(1, limit + 1)
        )

    tau = shared_budget_tau(epsilon, delta, limit, UNIT)
    assert worst(tau) <= delta < worst(tau - 2)
    sigma = analytic_gaussian_sigma(epsilon, delta / 2)
    threshold = shared_budget_gaussian(sigma, delta / 2, limit)
    passing = [-np.expm1(t * norm.logcdf((threshold - t**-0.5) / sigma)) for t in range(1, limit + 1)]
    assert max(passing) == pytest.approx(delta / 2, rel=1e-8)
    assert max(passing) <= delta / 2


def test_the_analytic_sigma_is_the_least() -> None:
    for epsilon, delta in ((0.1, 1e-6), (1.0, 1e-6), (8.0, 1e-3), (50.0, 1e-9)):
        sigma = analytic_gaussian_sigma(epsilon, delta)
        assert gaussian_delta(1 / (2 * sigma**2), epsilon) <= delta
        assert gaussian_delta(1 / (2 * (sigma * 0.999999) ** 2), epsilon) > delta


def test_weights_are_exact_sums_that_one_user_moves_by_at_most_one() -> None:
    rows = [(user, item) for user in range(1, 30) for item in range(user)]
    kept = grouped(rows, 30)
    for size in range(1, 30):
        assert size * (UNIT // size) <= UNIT
        assert size * int(np.floor(UNIT / np.sqrt(size))) ** 2 <= UNIT**2
    expected = sum(np.floor(UNIT / np.sqrt(user)) for user in range(1, 30)) / UNIT
    assert (spread_weights(kept, square_root_share) / UNIT)[0] == expected
    assert spread_weights(kept, lambda sizes: UNIT // sizes)[0] == sum(UNIT // u for u in range(1, 30))


def lone_holders(copies: int, items: int) -> list[tuple[int, int]]:
    """`items` items, each held by `copies` users who hold nothing else."""
    return [(item * copies + copy, item) for item in range(items) for copy in range(copies)]


ITEMS = 6_000
EPSILON, DELTA, LIMIT = 2.0, 0.05, 3


def laplace_count_chance(copies: int, epsilon: float) -> float:
    scale = LIMIT / epsilon
    tau = 1 + laplace_tails.tail_point(scale, novel_chance(DELTA, LIMIT))
    return laplace_tails.tail(scale, tau - copies)


def gaussian_count_chance(copies: int, epsilon: float) -> float:
    each = GaussianSetUnion(epsilon, DELTA, LIMIT).each_delta
    sigma = analytic_gaussian_sigma(epsilon, each) * LIMIT**0.5
    return float(norm.sf(1 - copies + sigma * norm.isf(novel_chance(each, LIMIT)), scale=sigma))


def laplace_weighted_chance(copies: int, epsilon: float) -> float:
    tau = shared_budget_tau(epsilon, DELTA, LIMIT, UNIT)
    return laplace_tails.tail(UNIT / epsilon, tau - copies * UNIT)


def gaussian_weighted_chance(copies: int, epsilon: float) -> float:
    each = GaussianSetUnion(epsilon, DELTA, LIMIT).each_delta
    sigma = analytic_gaussian_sigma(epsilon, each)
    return float(norm.sf(shared_budget_gaussian(sigma, each, LIMIT) - copies, scale=sigma))


LAWS = [
    (laplace_count, LaplaceCount, laplace_count_chance),
    (gaussian_count, GaussianSetUnion, gaussian_count_chance),
    (laplace_weighted, LaplaceSetUnion, laplace_weighted_chance),
    (gaussian_weighted, GaussianSetUnion, gaussian_weighted_chance),
]


@pytest.mark.parametrize(("run", "kind", "law"), LAWS)
@pytest.mark.parametrize("copies", [1, 3])
def test_an_item_is_released_with_the_chance_of_its_weight(
    run: Run, kind: type, law: Callable[[int, float], float], copies: int
) -> None:
    rows = grouped(lone_holders(copies, ITEMS), ITEMS)
    released = len(run(rows, kind(EPSILON, DELTA, LIMIT), noise(copies)).items)
    assert share_agrees(released, ITEMS, law(copies, EPSILON))
    wrong = len(run(rows, kind(EPSILON * 2, DELTA, LIMIT), noise(copies)).items)  # half the noise is seen
    assert copies == 1 or not share_agrees(wrong, ITEMS, law(copies, EPSILON))


def test_sips_releases_with_the_chances_of_its_three_rounds() -> None:
    parameters, copies = Sips(1.0, 0.05, 2), 3
    rows = grouped(lone_holders(copies, ITEMS), ITEMS)

    def chance(rho: float) -> float:
        missed = 1.0
        for sigma, threshold in Sips(rho, 0.05, 2).rounds:
            missed *= float(norm.cdf((threshold - copies) / sigma))
        return 1 - missed

    released = len(sips(rows, parameters, noise(5)).items)
    assert share_agrees(released, ITEMS, chance(1.0))
    assert not share_agrees(released, ITEMS, chance(1.3))
    assert parameters.cost.rho == pytest.approx(sum(1 / (2 * s**2) for s, _ in parameters.rounds))
    ratios = [parameters.rounds[0][0] ** 2 / sigma**2 for sigma, _ in parameters.rounds]
    assert ratios == pytest.approx([1, 3, 9])


@pytest.mark.parametrize(("epsilon", "delta"), [(0.3, 1e-9), (1.0, 1e-6), (4.0, 1e-3)])
def test_the_three_rounds_of_sips_cost_what_an_accountant_of_their_own_finds(
    epsilon: float, delta: float
) -> None:
    """That is a tenth to a fifth more rho than the formula for all of zCDP allows, and no hundredth more."""

    def found(rho: float) -> float:
        accountant = PLDAccountant()
        for sigma, _ in Sips(rho, delta / 2, 3).rounds:
            accountant.compose(GaussianDpEvent(sigma))
        return float(accountant.get_epsilon(delta / 2))

    rho = gaussian_rho(epsilon, delta / 2)
    cost = Sips(rho, delta / 2, 3).cost
    assert cost.epsilon_at(delta) == pytest.approx(epsilon)
    assert found(rho) == pytest.approx(epsilon, rel=2e-3)
    assert rho > 1.1 * zcdp_rho(epsilon, delta / 2)
    assert found(rho * 1.01) > epsilon * 1.002


def test_sips_gives_later_rounds_to_what_is_left() -> None:
    """Users sample 1 of 11 items; with the 10 frequent ones gone, they all vote for their rare one."""
    rows = [(user, item) for user in range(600) for item in [*range(10), 10 + user % 100]]
    released = sips(grouped(rows, 110), Sips(20.0, 1e-6, 1), noise(6)).items
    assert set(range(10)) <= set(released.tolist())
    assert len(released) > 100  # 6 users each: all of them votes at last, half a vote on average before


def test_sips_samples_anew_in_every_round(monkeypatch: pytest.MonkeyPatch) -> None:
    stages, original = [], OneShotNoise.sample_marks

    def recorded(self: OneShotNoise, stage: int, users: np.ndarray, items: np.ndarray) -> np.ndarray:
        stages.append(stage)
        return original(self, stage, users, items)

    monkeypatch.setattr(OneShotNoise, "sample_marks", recorded)
    sips(grouped([(user, item) for user in range(5) for item in range(9)], 9), Sips(0.1, 1e-6, 2), noise(7))
    assert stages == [0, 1, 2]


def exact_delta(chances: Callable[[Rows], NDArray[np.float64]], rows: Rows, epsilon: float) -> float:
    """The worst exact delta over removals of one user, of independent coins with `chances`."""
    worst = 0.0
    for gone in {user for user, _ in rows}:
        one, other = chances(rows), chances([row for row in rows if row[0] != gone])
        for left, right in ((one, other), (other, one)):
            worst = max(worst, hockey_stick_of_coins(left, right, epsilon))
    return worst


SMALL: list[Rows] = [
    [(0, 0), (0, 1), (0, 2)],
    [(0, 0), (0, 1), (1, 0), (2, 2)],
    [(user, item) for user in range(4) for item in range(user, 4)],
    list(itertools.product(range(3), range(3))),
]


@pytest.mark.parametrize("rows", SMALL)
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 3.0])
def test_weighted_release_is_exactly_private_and_a_lower_threshold_is_not(rows: Rows, epsilon: float) -> None:
    delta, limit = 0.01, 4
    tau = shared_budget_tau(epsilon, delta, limit, UNIT)

    def chances(rows: Rows, lowered: int = 0) -> NDArray[np.float64]:
        weights = spread_weights(grouped(rows, 4), lambda sizes: UNIT // sizes)
        reached, _ = laplace_tails.chance_to_reach(weights, tau - lowered, UNIT / epsilon)
        return np.where(weights > 0, reached, 0.0)

    assert exact_delta(chances, rows, epsilon) <= delta
    lowered = int(2 * UNIT / epsilon)
    if rows is SMALL[0]:
        assert exact_delta(lambda rows: chances(rows, lowered), rows, epsilon) > delta


@pytest.mark.parametrize("rows", SMALL)
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 3.0])
def test_gaussian_weighted_release_is_exactly_private_and_half_the_noise_is_not(
    rows: Rows, epsilon: float
) -> None:
    delta, limit = 0.01, 4
    parameters = GaussianSetUnion(epsilon, delta, limit)
    sigma = parameters.sigma

    def chances(rows: Rows, sigma: float = sigma) -> NDArray[np.float64]:
        weights = spread_weights(grouped(rows, 4), square_root_share) / UNIT
        threshold = shared_budget_gaussian(sigma, parameters.each_delta, limit)
        return np.where(weights > 0, norm.sf((threshold - weights) / sigma), 0.0)

    assert exact_delta(chances, rows, epsilon) <= delta
    frequent = [(user, 0) for user in range(40)]
    broken = [exact_delta(lambda rows: chances(rows, sigma / 2), frequent[:n], epsilon) for n in range(1, 30)]
    assert max(broken) > delta


RUNS = [
    (laplace_count, LaplaceCount(2.0, 1e-6, 2)),
    (gaussian_count, GaussianSetUnion(2.0, 1e-6, 2)),
    (laplace_weighted, LaplaceSetUnion(2.0, 1e-6, 2)),
    (gaussian_weighted, GaussianSetUnion(2.0, 1e-6, 2)),
    (sips, Sips(1.0, 1e-6, 2)),
]


@pytest.mark.parametrize(("run", "parameters"), RUNS)
def test_items_that_nobody_holds_get_no_noise(run: Run, parameters: Any) -> None:
    generous = replace(parameters, delta=0.1)  # a threshold that one item of weight 0 in hundreds would pass
    held = {0, 7}
    result = run(grouped([(1, 0), (1, 7)], 20_000), generous, noise(8))
    assert set(result.items.tolist()) <= held


@pytest.mark.parametrize(("run", "parameters"), RUNS)
def test_edges_of_the_input(run: Run, parameters: Any) -> None:
    assert not len(run(grouped([], 5), parameters, noise()).items)
    assert not len(run(grouped([], 0), parameters, noise()).items)
    crowd = [(user, item) for user in range(4000) for item in (0, 2)] + [(7, 1), (7, 3)]
    result = run(grouped(crowd, 5), parameters, noise(1))  # user 7 is over the cap of 2 items
    assert result.items.tolist() == [0, 2]
    assert result.counts is None


def test_costs_are_what_the_thresholds_and_scales_spend() -> None:
    assert LaplaceSetUnion(2.0, 1e-6, 2).cost == pure(2.0, 1e-6)
    assert LaplaceCount(2.0, 1e-6, 8).cost == Cost(8 * 0.25**2 / 2, 1e-6, (2.0, 1e-6), loss=Loss())
    gaussian = GaussianSetUnion(2.0, 1e-6, 2).cost
    assert gaussian.alone == (2.0, 1e-6)
    assert gaussian.delta == pytest.approx(1e-6, rel=1e-8)
    assert gaussian_delta(gaussian.rho, 2.0) == pytest.approx(1e-6, rel=1e-6)


def test_impossible_parameters_are_refused() -> None:
    with pytest.raises(ValueError, match=r"epsilon must lie between 0.0001 and 50, not 60"):
        LaplaceSetUnion(60.0, 1e-6, 2)
    with pytest.raises(ValueError, match="items_per_user must be at most 1048576"):
        GaussianSetUnion(1.0, 1e-6, UNIT + 1)
    with pytest.raises(ValueError, match="rho must be a number above 0"):
        Sips(0.0, 1e-6, 2)
