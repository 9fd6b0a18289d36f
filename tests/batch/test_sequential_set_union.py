"""Policy and greedy: compiled loops against plain ones, contraction, exact privacy, and the chained-users attack."""

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from stream_dp.batch import laplace_tails, policy_set_union
from stream_dp.batch.greedy_set_union import Greedy, greedy, greedy_transfer, preferred_first
from stream_dp.batch.policy_set_union import (
    GaussianPolicy,
    LaplacePolicy,
    gaussian_policy,
    laplace_policy,
)
from stream_dp.batch.set_union import UNIT
from stream_dp.batch.set_union_thresholds import (
    analytic_gaussian_sigma,
    greedy_tau,
    novel_chance,
    shared_budget_gaussian,
    shared_budget_tau,
    tokens_at_no_cost,
)
from stream_dp.loops import fill_evenly, fill_greedily, move_towards
from tests.batch import real_valued
from tests.batch.evidence import Run, hockey_stick_of_coins, noise, share_agrees
from tests.batch.plain_set_union import (
    chained_users,
    even_tokens,
    greedy_tokens,
    grouped,
    held,
    posters_greedy,
    posters_threshold,
    straight_moves,
)
from tests.shared import vectors

ITEMS = 6
LISTS = st.lists(
    st.permutations(range(ITEMS)).flatmap(lambda p: st.integers(0, ITEMS).map(lambda n: p[:n])), max_size=9
)


def flat(lists: list[list[int]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Order, starts and items of users in the given sequence."""
    starts = np.cumsum([0, *map(len, lists)])
    return np.arange(len(lists)), starts, np.array([i for items in lists for i in items], np.int64)


def compiled(
    loop: Callable[..., object], lists: list[list[int]], *settings_: float, items: int = ITEMS
) -> list[float]:
    weights = np.zeros(items, np.float64 if loop is move_towards else np.int64)
    loop(*flat(lists), *settings_, weights)
    return weights.tolist()


@given(LISTS, st.integers(1, 9), st.integers(1, 12))
@settings(max_examples=150)
def test_the_compiled_loops_are_the_plain_ones(lists: list[list[int]], tokens: int, cap: int) -> None:
    assert greedy_tokens(lists, tokens, cap, ITEMS) == compiled(fill_greedily, lists, tokens, cap)
    ascending = [sorted(items) for items in lists]
    assert even_tokens(ascending, tokens, cap, ITEMS) == compiled(fill_evenly, ascending, tokens, cap)
    plain = straight_moves(lists, cap / 2, ITEMS)
    assert plain == pytest.approx(compiled(move_towards, lists, cap / 2), abs=1e-12)


@given(LISTS.filter(bool), st.data(), st.integers(1, 9), st.integers(1, 12))
@settings(max_examples=150)
def test_one_user_moves_the_weights_by_one_budget_whoever_follows(
    lists: list[list[int]], data: st.DataObject, tokens: int, cap: int
) -> None:
    gone = data.draw(st.integers(0, len(lists) - 1))
    fewer = lists[:gone] + lists[gone + 1 :]
    for loop, norm_order, budget in ((fill_greedily, 1, tokens), (fill_evenly, 1, tokens)):
        change = np.subtract(compiled(loop, lists, tokens, cap), compiled(loop, fewer, tokens, cap))
        assert np.linalg.norm(change, norm_order) <= budget
    moved = np.subtract(compiled(move_towards, lists, cap / 2), compiled(move_towards, fewer, cap / 2))
    assert np.linalg.norm(moved) <= 1 + 1e-12


@pytest.mark.parametrize(
    ("case", "discrete"),
    list(
        zip(vectors()["set_union_greedy_tokens"], vectors()["set_union_greedy_tokens_discrete"], strict=True)
    ),
)
def test_greedy_thresholds_are_those_of_the_vectors(case: dict[str, Any], discrete: dict[str, Any]) -> None:
    settings_ = (float(case["eps"]), float(case["delta"]), case["tokens"])
    assert float(case["threshold"]) == pytest.approx(real_valued.greedy(*settings_), rel=1e-9)
    assert float(case["paper_threshold"]) == pytest.approx(posters_threshold(*settings_[:2]), rel=1e-9)
    assert discrete["tau_in_tokens"] == greedy_tau(*settings_)


@pytest.mark.parametrize(("epsilon", "tokens"), [(1.0, 6), (2.0, 5), (0.5, 7)])
def test_tau_covers_every_way_to_split_the_tokens_over_novel_labels(epsilon: float, tokens: int) -> None:
    delta = 0.01

    def splits(left: int, largest: int) -> list[list[int]]:
        if not left:
            return [[]]
        return [
            [part, *rest] for part in range(min(left, largest), 0, -1) for rest in splits(left - part, part)
        ]

    def worst(tau: int) -> float:
        scale = tokens / epsilon
        chance = [[laplace_tails.tail(scale, tau - w) for w in split] for split in splits(tokens, tokens)]
        return max(1 - math.prod(1 - p for p in split) for split in chance)

    tau = greedy_tau(epsilon, delta, tokens)
    assert worst(tau) <= delta < worst(tau - 1)


def test_tokens_up_to_the_limit_leave_the_posters_threshold_as_it_is() -> None:
    assert [tokens_at_no_cost(epsilon) for epsilon in (1.0, 2.0, 3.0, 4.0)] == [1, 4, 16, 50]
    for epsilon in (2.0, 3.0, 4.0):
        tokens = tokens_at_no_cost(epsilon)
        single = posters_threshold(epsilon, 1e-6)
        assert real_valued.greedy(epsilon, 1e-6, tokens) == pytest.approx(single, rel=1e-5)
        assert real_valued.greedy(epsilon, 1e-6, 2 * tokens) > single * 1.005


def novel_delta(
    with_user: Mapping[int, Fraction], without_user: Mapping[int, Fraction], epsilon: float, threshold: float
) -> float:
    """The chance that the poster releases a label that only the larger input gives any weight."""
    novel = [weight for label, weight in with_user.items() if label not in without_user]
    chances = [math.exp(-epsilon * (threshold - float(weight))) / 2 for weight in novel]
    return -math.expm1(sum(math.log1p(-chance) for chance in chances))


def test_chained_users_break_the_posters_greedy_and_not_the_tokens() -> None:
    epsilon, delta, labels = 3.0, math.exp(-10), 10_000
    chain, differing, cap = chained_users(labels, 5)
    assert max(map(len, chain)) == 2
    larger, smaller = posters_greedy([differing, *chain], cap), posters_greedy(chain, cap)
    novel = {label: weight for label, weight in larger.items() if label not in smaller}
    assert novel == {labels + 1 + place: Fraction(1, labels) for place in range(labels)}
    threshold = posters_threshold(epsilon, delta)
    assert threshold < cap
    attacked = novel_delta(larger, smaller, epsilon, threshold)
    assert attacked == pytest.approx(0.0224, abs=5e-5)
    assert attacked > 490 * delta

    tokens = 16
    parameters = Greedy(epsilon, delta, tokens)
    for whole_cap in (parameters.cap, round(float(cap) * tokens), 7 * tokens - 1):
        settings_ = (tokens, whole_cap)
        one = np.array(compiled(fill_greedily, [differing, *chain], *settings_, items=2 * labels + 1))
        other = np.array(compiled(fill_greedily, chain, *settings_, items=2 * labels + 1))
        weights = one[(one > 0) & (other == 0)]
        assert weights.sum() <= tokens
        chances = laplace_tails.chance_to_reach(weights, parameters.tau, parameters.scale)[0]
        assert 1 - np.prod(1 - chances) <= delta


def test_a_cascade_can_make_as_many_labels_novel_as_there_are_tokens() -> None:
    """The differing user puts one token on each of two items; two others then spill one each on labels of their own."""
    tokens, cap = 2, 3
    before = [[0], [1], [2], [3]]  # two tokens on each of the items 0 to 3: one short of the cap
    after = [[0, 2, 4], [1, 3, 5]]
    with_user = compiled(fill_greedily, [*before, [0, 1], *after], tokens, cap)
    without_user = compiled(fill_greedily, [*before, *after], tokens, cap)
    assert with_user == [3, 3, 3, 3, 1, 1]
    assert without_user == [3, 3, 3, 3, 0, 0]


TINY = [
    [[0, 1], [0, 2], [1, 3]],
    [[0, 1, 2, 3], [0], [1], [2]],
    [[0, 1], [1, 2], [2, 3], [3, 0]],
    [[0], [0, 1], [0, 1, 2], [3]],
]


def worst_exact_delta(
    chances: Callable[[list[list[int]]], np.ndarray], users: list[list[int]], epsilon: float
) -> float:
    """Over every order of the users and every removal: the exact hockey-stick divergence of the released sets."""
    worst = 0.0
    for order in itertools.permutations(users):
        for gone in range(len(order)):
            one, other = chances(list(order)), chances([*order[:gone], *order[gone + 1 :]])
            for left, right in ((one, other), (other, one)):
                worst = max(worst, hockey_stick_of_coins(left, right, epsilon))
    return worst


@pytest.mark.parametrize("users", TINY)
@pytest.mark.parametrize(("epsilon", "tokens"), [(1.0, 3), (3.0, 8)])
def test_greedy_is_exactly_private_and_a_lower_threshold_is_not(
    users: list[list[int]], epsilon: float, tokens: int
) -> None:
    delta = 0.01
    tau, scale = greedy_tau(epsilon, delta, tokens), tokens / epsilon

    def chances(users: list[list[int]], tau: int = tau) -> np.ndarray:
        weights = np.array(compiled(fill_greedily, users, tokens, tokens + tokens // 2, items=4))
        return np.where(weights > 0, laplace_tails.chance_to_reach(weights, tau, scale)[0], 0.0)

    assert worst_exact_delta(chances, users, epsilon) <= delta
    assert worst_exact_delta(lambda users: chances(users, tau - tokens), users, epsilon) > delta


@pytest.mark.parametrize("users", TINY)
@pytest.mark.parametrize("epsilon", [1.0, 3.0])
def test_policy_is_exactly_private_and_a_lower_threshold_is_not(
    users: list[list[int]], epsilon: float
) -> None:
    delta, limit, unit = 0.01, 4, 64
    tau = shared_budget_tau(epsilon, delta, limit, unit)

    def chances(users: list[list[int]], tau: int = tau) -> np.ndarray:
        weights = np.array(compiled(fill_evenly, users, unit, unit + unit // 2, items=4))
        return np.where(weights > 0, laplace_tails.chance_to_reach(weights, tau, unit / epsilon)[0], 0.0)

    assert worst_exact_delta(chances, users, epsilon) <= delta
    alone = [[0, 1, 2, 3]]
    assert worst_exact_delta(chances, alone, epsilon) <= delta
    assert worst_exact_delta(lambda users: chances(users, tau - 2 * unit), alone, epsilon) > delta


@pytest.mark.parametrize("users", TINY)
def test_gaussian_policy_is_exactly_private_and_a_third_of_the_noise_is_not(users: list[list[int]]) -> None:
    parameters = GaussianPolicy(1.0, 0.01, 4)

    def chances(users: list[list[int]], sigma: float = parameters.sigma) -> np.ndarray:
        threshold = shared_budget_gaussian(parameters.sigma, 0.005, 4)
        weights = np.array(compiled(move_towards, users, threshold, items=4))
        return np.where(weights > 0, norm.sf((threshold - weights) / sigma), 0.0)

    assert worst_exact_delta(chances, users, 1.0) <= 0.01
    crowd = np.arange(1.0, 12)
    threshold = shared_budget_gaussian(parameters.sigma, 0.005, 4)
    curve = norm.sf((threshold - crowd) / (parameters.sigma / 3))[:, None]
    broken = [hockey_stick_of_coins(curve[i + 1], curve[i], 1.0) for i in range(10)]
    assert max(broken) > 0.01


def lone_holders(copies: int, items: int) -> list[tuple[int, int]]:
    return [(item * copies + copy, item) for item in range(items) for copy in range(copies)]


@pytest.mark.parametrize(
    ("run", "kind", "chance"),
    [
        (
            laplace_policy,
            lambda epsilon: LaplacePolicy(epsilon, 0.05, 3),
            lambda n, eps: laplace_tails.tail(UNIT / eps, shared_budget_tau(eps, 0.05, 3, UNIT) - n * UNIT),
        ),
        (
            gaussian_policy,
            lambda epsilon: GaussianPolicy(epsilon, 0.05, 3),
            lambda n, eps: float(
                norm.sf(
                    shared_budget_gaussian(
                        GaussianPolicy(eps, 0.05, 3).sigma, GaussianPolicy(eps, 0.05, 3).each_delta, 3
                    )
                    - n,
                    scale=GaussianPolicy(eps, 0.05, 3).sigma,
                )
            ),
        ),
        (
            greedy,
            lambda epsilon: Greedy(epsilon, 0.05, 4),
            lambda n, eps: laplace_tails.tail(4 / eps, greedy_tau(eps, 0.05, 4) - 4 * n),
        ),
    ],
)
def test_an_item_is_released_with_the_chance_of_its_weight(
    run: Run, kind: Callable[[float], Any], chance: Callable[[int, float], float]
) -> None:
    items, copies = 6_000, 3
    rows = grouped(lone_holders(copies, items), items)
    assert share_agrees(len(run(rows, kind(1.0), noise(1)).items), items, chance(copies, 1.0))
    assert not share_agrees(len(run(rows, kind(1.6), noise(1)).items), items, chance(copies, 1.0))


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 7)), max_size=80))
@settings(max_examples=150)
def test_favourites_come_first_whichever_way_they_are_sorted(rows: list[tuple[int, int]]) -> None:
    expected = [
        item
        for _, items in sorted(held(rows).items())
        for _, item in sorted((-times, item) for item, times in items.items())
    ]
    short, long = grouped(rows, 8), grouped(rows, 2**50)  # the second does not fit one key
    assert expected == preferred_first(short, short.repeats).tolist()
    assert expected == preferred_first(long, long.repeats).tolist()


def test_the_own_favourite_and_the_public_one_get_the_tokens() -> None:
    rows = [(user, item) for user in range(20) for item in (0, 0, 1)]  # everybody names item 0 twice
    own = greedy(grouped(rows, 2), Greedy(5.0, 1e-6, 1, 100.0), noise(1))
    assert own.items.tolist() == [0]
    public = greedy_transfer(grouped(rows, 2), np.array([1, 9]), Greedy(5.0, 1e-6, 1, 100.0), noise(1))
    assert public.items.tolist() == [1]
    with pytest.raises(ValueError, match="one number for each of the 2 items"):
        greedy_transfer(grouped(rows, 2), np.array([1, 9, 3]), Greedy(5.0, 1e-6, 1), noise())


RUNS: list[tuple[Run, Any]] = [
    (laplace_policy, LaplacePolicy(2.0, 1e-6, 2)),
    (gaussian_policy, GaussianPolicy(2.0, 1e-6, 2)),
    (greedy, Greedy(2.0, 1e-6, 4)),
]


@pytest.mark.parametrize(("run", "parameters"), RUNS)
def test_items_that_nobody_holds_get_no_noise(run: Run, parameters: Any) -> None:
    generous = replace(parameters, delta=0.1)  # a threshold that one item of weight 0 in hundreds would pass
    result = run(grouped([(1, 0), (1, 7)], 20_000), generous, noise(8))
    assert set(result.items.tolist()) <= {0, 7}


@pytest.mark.parametrize(
    ("run", "parameters", "loop"),
    [
        (*RUNS[0], "policy_set_union.fill_evenly"),
        (*RUNS[1], "policy_set_union.move_towards"),
        (*RUNS[2], "greedy_set_union.fill_greedily"),
    ],
)
def test_users_come_in_the_order_of_their_keyed_hash(
    run: Run, parameters: Any, loop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders: list[list[int]] = []
    monkeypatch.setattr(f"stream_dp.batch.{loop}", lambda order, *rest: orders.append(order.tolist()))
    rows = grouped([(user * 17, 0) for user in range(50)], 1)
    run(rows, parameters, noise(3))
    assert orders == [noise(3).order(rows.users).tolist()]
    assert orders != [sorted(orders[0])]


def test_the_gaussian_policy_pays_for_the_rounding_of_its_weights() -> None:
    parameters = GaussianPolicy(1.0, 1e-6, 100)
    assert 1 + 1e-6 < parameters.sensitivity < 1 + 1e-3
    exact = analytic_gaussian_sigma(1.0, parameters.each_delta)
    assert parameters.sigma == exact * parameters.sensitivity
    assert parameters.cost.rho == pytest.approx(1 / (2 * exact**2), rel=1e-12)


@pytest.mark.parametrize(("run", "parameters"), RUNS)
def test_edges_of_the_input(run: Run, parameters: Any) -> None:
    assert not len(run(grouped([], 5), parameters, noise()).items)
    assert not len(run(grouped([], 0), parameters, noise()).items)
    crowd = [(user, item) for user in range(4000) for item in (0, 2)] + [(7, 1), (7, 3)]
    result = run(grouped(crowd, 5), parameters, noise(1))  # user 7 is over the cap of 2 items
    assert result.items.tolist() == [0, 2]


def test_users_in_another_sequence_of_rows_change_nothing() -> None:
    rows = [(user, (user * 7 + item) % 11) for user in range(300) for item in range(4)]
    for run, parameters in RUNS:
        assert run(grouped(rows, 11), parameters, noise(2)).items.tolist() == (
            run(grouped(rows[::-1], 11), parameters, noise(2)).items.tolist()
        )


def test_impossible_parameters_are_refused() -> None:
    with pytest.raises(ValueError, match="tokens must be at most 100000"):
        Greedy(1.0, 1e-6, 10**6)
    with pytest.raises(ValueError, match="alpha must be a number above 0"):
        LaplacePolicy(1.0, 1e-6, 3, alpha=0.0)
    for kind in (LaplacePolicy, GaussianPolicy, Greedy):
        with pytest.raises(ValueError, match="alpha must be at most 100"):
            kind(1.0, 1e-6, 3, alpha=101.0)


def test_gaps_of_the_most_items_to_the_highest_cap_fit_64_bits() -> None:
    """Beyond, a sum of gaps turns negative, and one user alone lifts all items to the cap and so past the threshold."""
    most, scale = UNIT, UNIT / 1e-4
    tau = UNIT + laplace_tails.tail_point(scale, novel_chance(1e-15, most))  # at least that of any share
    assert most * (tau + round(100 * scale)) < 2**63
    items = 100_000
    for cap, lifted in ((2**63 // items - 1, UNIT), (2**63 // items + 1, None)):
        weights = np.zeros(items, np.int64)
        fill_evenly(np.array([0]), np.array([0, items]), np.arange(items), UNIT, cap, weights)
        assert lifted is None or weights.sum() == lifted
        assert (lifted is None) == (weights == cap).all()


def test_more_users_than_the_rounding_is_bounded_for_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy_set_union, "MOST_USERS", 3)
    parameters = GaussianPolicy(1.0, 1e-6, 2)
    assert (
        gaussian_policy(grouped([(user, 0) for user in range(3)], 1), parameters, noise()).items.tolist()
        == []
    )
    with pytest.raises(ValueError, match="bounds its rounding for 3 users"):
        gaussian_policy(grouped([(user, 0) for user in range(4)], 1), parameters, noise())
