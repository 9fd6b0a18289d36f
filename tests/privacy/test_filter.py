"""The filter against every analyst: small games in which each mechanism may be chosen after all that was seen.

Mechanisms have a few outputs, so the worst of all strategies, over all that the filter accepts, is computed exactly, by
going through the game from its end.  What it gains, the hockey-stick divergence of all outputs together, must not be
above delta.  Filters that look as good and are wrong must be caught by the same game.
"""

import math
from collections.abc import Callable

import msgspec
import pytest
from dp_accounting import GaussianDpEvent
from dp_accounting.pld import PLDAccountant

from stream_dp.batch.policy_set_union import LaplacePolicy
from stream_dp.privacy.budget_rule import CONVERTED, Rule, gaussian_rule
from stream_dp.privacy.composition import Budget, Charge, Load, loads, refused
from tests.privacy.games import Accepts, Move, coin, gaussian, ranged, worst

GAMES = {
    "coins at a small epsilon": (Budget(epsilon=0.001, delta=0.1, unit="user"), [coin(0.24), coin(0.1)], 5),
    "coins": (Budget(epsilon=0.5, delta=0.05, unit="user"), [coin(0.25), coin(0.4), coin(0.13)], 6),
    "coins with deltas": (
        Budget(epsilon=0.6, delta=0.1, unit="user"),
        [coin(0.15, 0.012), coin(0.3), coin(0.15)],
        6,
    ),
    "ranges": (Budget(epsilon=0.001, delta=0.12, unit="user"), [ranged(0.4), ranged(0.2)], 4),
    "mixed": (
        Budget(epsilon=0.3, delta=0.1, unit="user"),
        [gaussian(0.3), coin(0.2), ranged(0.4)],
        4,
    ),
    "mixed with deltas": (
        Budget(epsilon=0.3, delta=0.2, unit="user"),
        [gaussian(0.25, 0.004), coin(0.1, 0.06), gaussian(0.4)],
        5,
    ),
    "a share that was told": (
        Budget(epsilon=0.1, delta=0.003, unit="user", own_deltas=0.9),
        [coin(0.03), coin(0.01, 0.0013), gaussian(0.04)],
        5,
    ),
}


@pytest.mark.parametrize("game", GAMES)
def test_no_strategy_gains_more_than_delta(game: str) -> None:
    budget, moves, rounds = GAMES[game]
    gained = worst(moves, lambda made: not refused(made, budget), rounds, lambda made: budget.epsilon)
    assert 0.3 * budget.delta < gained <= budget.delta


def total(made: tuple[Charge, ...]) -> Load:
    return loads(made, "user")[0]


def own_shares(budget: Budget) -> Accepts:
    """Wrong: two filters side by side, each with a share of delta of its own."""
    other = gaussian_rule(budget, 0.75)

    def accepts(made: tuple[Charge, ...]) -> bool:
        load = total(made)
        return (load.pure <= budget.epsilon and load.delta <= budget.delta) or (
            load.gaussian <= other.mu_squared and load.delta <= other.charged_delta
        )

    return accepts


def whichever_rule(budget: Budget) -> Accepts:
    """Wrong: the rule is chosen when it is needed, by what was asked until then."""
    rules = [*(gaussian_rule(budget, share) for share in CONVERTED), Rule("basic", budget, budget.delta)]
    return lambda made: any(rule.allows(total(made)) for rule in rules)


def rule_of_the_last(budget: Budget) -> Accepts:
    """Wrong: the rule of the newest charge."""
    return lambda made: budget.rule(made[-1]).allows(total(made))


def share_told_later(budget: Budget) -> Accepts:
    """Wrong: the share of delta for own deltas is told anew before the last charge, by what was seen until then."""
    told = [msgspec.structs.replace(budget, own_deltas=share) for share in (0.05, 0.91)]
    return lambda made: any(not refused(made, each) for each in told)


def nothing_kept(budget: Budget) -> Accepts:
    """Wrong: a coin costs as a step beside an endless reserve, and nothing is kept in reserve."""
    rule = gaussian_rule(budget, 0.875)
    return lambda made: 2 * total(made).rho <= rule.mu_squared


DELTAS = (Budget(epsilon=0.1, delta=0.003, unit="user"), [coin(0.03), coin(0.01, 0.0027), gaussian(0.04)], 4)
TOTAL_VARIATION = (Budget(epsilon=0.001, delta=0.2, unit="user"), [coin(0.08), coin(0.44)], 4)


@pytest.mark.parametrize(
    ("broken", "game"),
    [
        (own_shares, DELTAS),
        (whichever_rule, DELTAS),
        (rule_of_the_last, DELTAS),
        (share_told_later, DELTAS),
        (nothing_kept, TOTAL_VARIATION),
    ],
)
def test_filters_that_only_look_as_good_are_caught(
    broken: Callable[[Budget], Accepts], game: tuple[Budget, list[Move], int]
) -> None:
    budget, moves, rounds = game
    assert (
        worst(moves, lambda made: not refused(made, budget), rounds, lambda made: budget.epsilon)
        <= budget.delta
    )
    assert worst(moves, broken(budget), rounds, lambda made: budget.epsilon) > 1.05 * budget.delta


def accepted_copies(of: Charge, budget: Budget, most: int = 200) -> int:
    return next(number for number in range(most) if refused([of] * (number + 1), budget))


def test_small_jobs_fill_a_budget() -> None:
    budget = Budget(epsilon=1.0, delta=1e-6, unit="user")
    assert accepted_copies(coin(0.1, 1e-7).charge, budget) == 10
    assert accepted_copies(coin(0.1).charge, budget) == 10
    assert accepted_copies(coin(0.25, 2.4e-7).charge, budget) == 4
    assert accepted_copies(coin(0.25, 2.5e-7).charge, budget) == 4
    assert accepted_copies(coin(0.02, 1e-9).charge, budget) > 110


def test_policy_unions_of_a_job_fill_a_budget() -> None:
    parameters = LaplacePolicy(0.25, 2.4e-7, 4)
    cost = parameters.cost
    union = msgspec.structs.replace(
        coin(0.25).charge, rho=cost.rho, delta=cost.delta, exact=cost.alone, loss=cost.loss
    )
    assert accepted_copies(union, Budget(epsilon=1.0, delta=1e-6, unit="user")) == 4


def test_gaussians_add_up_exactly() -> None:
    budget = Budget(epsilon=1.0, delta=1e-6, unit="user")
    number = accepted_copies(gaussian(0.02).charge, budget)
    sigma = 1 / 0.02
    assert PLDAccountant().compose(GaussianDpEvent(sigma), number).get_epsilon(1e-6) <= 1
    assert PLDAccountant().compose(GaussianDpEvent(sigma), math.ceil(1.05 * number)).get_epsilon(1e-6) > 1


def test_the_first_charge_settles_the_rule_and_closing_it_does_not_change_that() -> None:
    budget = Budget(epsilon=1.0, delta=1e-6, unit="event")
    first = msgspec.structs.replace(coin(0.1, 1e-7).charge, unit="event", first_offset=0, end_offset=0)
    others = [msgspec.structs.replace(coin(0.25, 2.5e-7).charge, unit="event")] * 4
    assert budget.rule(first).name == "basic"
    assert not refused([first, *others], budget)
    gaussians = msgspec.structs.replace(gaussian(0.01).charge, unit="event")
    assert refused([first, gaussians, gaussians], budget)  # nothing but own guarantees count
    assert not refused([gaussians, gaussians, first], budget)
    assert refused([gaussians, *others], budget)
