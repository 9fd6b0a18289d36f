"""Costs: composition, conversion by the tightest route that holds, and refusals."""

import math

import pytest

from stream_dp.batch.cost import Cost, epsilon_per_item, epsilon_per_pick, pure
from stream_dp.privacy.accounting import zcdp_epsilon
from stream_dp.privacy.loss import Loss


def test_costs_add_rho_and_delta_and_forget_what_holds_alone_only() -> None:
    nothing = Cost(0.0, 0.0, loss=Loss())
    total = pure(1.0, 1e-6) + Cost(0.25, 2e-6, (0.1, 1e-3), loss=Loss())
    assert (total.rho, total.alone) == (0.75, None)
    assert total.delta == pytest.approx(3e-6)
    assert nothing + nothing == nothing


def test_epsilon_takes_the_better_of_both_routes() -> None:
    cost = pure(1.0, 1e-6)
    assert cost.epsilon_at(1e-6) == 1.0  # nothing is left for a conversion of rho
    assert cost.epsilon_at(2e-6) == 1.0  # better than the conversion
    assert cost.epsilon_at(1e-7) == math.inf
    by_rho = Cost(0.1, 1e-6, loss=Loss())
    assert by_rho.epsilon_at(2e-6) == zcdp_epsilon(0.1, 1e-6)
    assert by_rho.epsilon_at(1e-6) == math.inf
    assert Cost(0.01, 0.0, (5.0, 0.0), loss=Loss()).epsilon_at(1e-6) == zcdp_epsilon(0.01, 1e-6) < 5.0


def test_affordable_epsilons_spend_rho_and_not_more() -> None:
    for rho, number in ((0.1, 1), (0.37, 7), (2.0, 100)):
        assert epsilon_per_item(rho, number) ** 2 / 2 * number == pytest.approx(rho, rel=1e-9)
        assert epsilon_per_item(rho, number) ** 2 / 2 * number <= rho
        assert epsilon_per_pick(rho, number) ** 2 / 8 * number == pytest.approx(rho, rel=1e-9)
        assert epsilon_per_pick(rho, number) ** 2 / 8 * number <= rho
