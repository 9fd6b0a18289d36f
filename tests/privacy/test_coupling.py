"""What it costs that a program is not the mechanism of its proof, on mechanisms small enough to be counted out.

docs/guarantee.md, "Failures that show in the table": a failure costs its probability p, at every epsilon, where what
has been released decides it alone; and (1 + e^epsilon) * p where it may look at the data.
"""

from collections.abc import Callable
from itertools import product
from math import exp

import numpy as np
import pytest
from numpy.typing import NDArray

from stream_dp.counters.calibration import calibrate, coupling_delta, program_delta
from stream_dp.counters.discrete import DiscreteCounter
from stream_dp.privacy.accounting import gaussian_delta
from stream_dp.privacy.composition import Budget, Charge, refused
from stream_dp.privacy.thresholds import sum_tail_bounds

Floats = NDArray[np.float64]

EPSILONS = (0.1, 1.0, 3.0, 10.0, 20.0, 60.0)
REACH = 12  # of the tiny laws: values -REACH .. REACH


def divergence(first: Floats, second: Floats, epsilon: float) -> float:
    """The least delta with first <= e^epsilon second + delta."""
    return float(np.maximum(first - exp(epsilon) * second, 0).sum())


def times(law: Floats, runs: int) -> Floats:
    """The law of `runs` independent draws, flattened."""
    joint = law
    for _ in range(runs - 1):
        joint = np.outer(joint, law).reshape(-1)
    return joint


def gaussian(sigma_squared: float) -> Floats:
    """The discrete Gaussian on -REACH .. REACH, and no mass beyond."""
    values = np.arange(-REACH, REACH + 1)
    weights = np.exp(-(values**2) / (2 * sigma_squared))
    return np.asarray(weights / weights.sum())


def cut(law: Floats, largest: int) -> Floats:
    """The law of a table that ends at `largest`."""
    table = np.where(np.abs(np.arange(-REACH, REACH + 1)) <= largest, law, 0.0)
    return np.asarray(table / table.sum())


def coarse(law: Floats, bits: int) -> Floats:
    """The law of a table of so many bits, what is lost by rounding given to 0."""
    table = np.floor(law * 2**bits) / 2**bits
    table[REACH] += 1 - table.sum()
    return table


def shifted(law: Floats) -> Floats:
    return np.append(0.0, law[:-1])


def missing(ideal: Floats, real: Floats) -> float:
    """The mean of the larger deficit of both inputs' laws, under the input where that is larger."""
    deficits = [
        np.where(of > 0, np.maximum(0, 1 - by / np.where(of > 0, of, 1)), 0)
        for of, by in ((ideal, real), (shifted(ideal), shifted(real)))
    ]
    worst = np.maximum(*deficits)
    return float(max(worst @ ideal, worst @ shifted(ideal)))


@pytest.mark.parametrize(
    "table",
    [
        lambda law: cut(law, 4),
        lambda law: cut(law, 6),
        lambda law: coarse(law, 10),
        lambda law: coarse(law, 20),
    ],
)
@pytest.mark.parametrize("sigma_squared", [1.0, 4.0])
def test_a_wrong_table_costs_what_its_deficits_say_at_every_epsilon(
    table: Callable[[Floats], Floats], sigma_squared: float
) -> None:
    ideal = gaussian(sigma_squared)
    real = table(ideal)
    each = missing(ideal, real)
    for runs in (1, 3):
        for epsilon in EPSILONS:
            for first, second in ((ideal, shifted(ideal)), (shifted(ideal), ideal)):
                proved = divergence(times(first, runs), times(second, runs), epsilon) + runs * each
                true = divergence(
                    times(real if first is ideal else shifted(real), runs),
                    times(real if second is ideal else shifted(real), runs),
                    epsilon,
                )
                assert true <= proved * (1 + 1e-12)


def test_a_charge_at_the_epsilon_of_each_part_is_too_small_for_the_whole() -> None:
    """The formula of earlier versions, (1 + e^epsilon) * distance at each part's own epsilon, on a cut table."""
    ideal, runs, own = gaussian(1.0), 3, 2.0
    real = cut(ideal, 4)
    distance = float(np.abs(ideal - real).sum()) / 2
    before = runs * (1 + exp(own)) * distance
    now = runs * missing(ideal, real)
    true = divergence(times(real, runs), times(shifted(real), runs), 20.0)
    exact = divergence(times(ideal, runs), times(shifted(ideal), runs), 20.0)
    assert exact + before < true / 2 < true <= exact + now
    alone = divergence(real, shifted(real), own)
    assert alone <= divergence(ideal, shifted(ideal), own) + before / runs


BLOCKS = 64
TABLE = (4, 14, 28, 14, 4)  # of the 64 blocks, how many mean -2, -1, 0, 1, 2
OTHERS = 3


def outcomes() -> tuple[Floats, Floats]:
    """What a tiny keyed cell shows beside `OTHERS` cells whose blocks and inputs are known: its law for both inputs.

    Inputs are uniform, and outputs those of a random permutation.  Equal inputs give an equal, known output.
    """
    first, second = [], []
    for others in product(range(5), repeat=OTHERS):  # the values that their blocks mean
        left = list(TABLE)
        chance = 1.0
        for value in others:
            chance *= left[value] / sum(left)
            left[value] -= 1
        for hit in range(OTHERS):  # the cell's input is that of this other cell: its noise is known
            law = np.zeros(6)
            law[others[hit]] = chance / BLOCKS
            first.append(law)
            second.append(np.append(0.0, law[:-1]))
        law = np.append(left, 0.0) / sum(left) * chance * (1 - OTHERS / BLOCKS)
        first.append(law)
        second.append(np.append(0.0, law[:-1]))
    return np.concatenate(first), np.concatenate(second)


def test_cells_that_coincide_cost_their_chance_at_every_epsilon() -> None:
    """Once for equal inputs, and once for outputs that are never equal by the reading of either log."""
    table = np.append(TABLE, 0.0) / BLOCKS
    first, second = outcomes()
    assert first.sum() == pytest.approx(1) == second.sum()
    chance = OTHERS / BLOCKS
    for epsilon in EPSILONS:
        for one, other, ideal, moved in (
            (first, second, table, np.append(0.0, table[:-1])),
            (second, first, np.append(0.0, table[:-1]), table),
        ):
            alone, true = divergence(ideal, moved, epsilon), divergence(one, other, epsilon)
            assert alone + 0.5 * chance < true <= alone + 3 * chance
            twice = divergence(times(ideal, 2), times(moved, 2), epsilon)
            true = divergence(times(one, 2), times(other, 2), epsilon)
            assert twice + 0.5 * chance < true <= twice + 2 * 3 * chance


EPOCHS, ITEMS, HORIZON = 199, 50, 2**24
BEFORE = (
    2 * ITEMS * HORIZON * 2.0**-100 + 2 * ITEMS * HORIZON.bit_length() * 2.0**40 * HORIZON / 2.0**128
)  # the failures of an epoch whose rounds ticks end, as earlier versions counted them


def test_199_epochs_of_epsilon_1_cost_the_same_at_epsilon_20() -> None:
    """Charged at the epoch's epsilon, failures that looked at the data would need 1e8 times as much at the budget's."""
    assert EPOCHS * (1 + exp(1)) * BEFORE == pytest.approx(1.0e-13, rel=0.01)
    assert EPOCHS * (1 + exp(20)) * BEFORE == pytest.approx(1.3e-5, rel=0.01)
    mechanism, guarantee = calibrate(1.0, 1e-6, HORIZON, ITEMS, unit="user")
    charged = program_delta(1e-6, HORIZON, ITEMS, "user")
    assert charged == coupling_delta(HORIZON, ITEMS, "user") < (1 + exp(1)) * BEFORE
    epochs = [
        Charge(
            id=f"epoch {number}",
            what="",
            unit="user",
            rho=guarantee.rho,
            delta=guarantee.threshold_delta + charged,
            first_offset=number,
            end_offset=number + 1,
            digest="",
            loss=mechanism.loss,
        )
        for number in range(EPOCHS)
    ]
    budget = Budget(epsilon=20.0, delta=2.1e-4, unit="user")
    assert not refused(epochs, budget)
    assert sum(charge.delta for charge in epochs) - EPOCHS * guarantee.threshold_delta < 1.0e-13
    assert refused([*epochs, *epochs[:160]], budget)


def test_a_failure_that_looks_at_the_data_costs_what_the_proof_rules_out() -> None:
    """The same epochs, and one of the two logs fails exactly where the other's noise would show it.

    It avoids the largest sums of noise, which have the probability of all failures together; the other log keeps them.
    """
    mechanism, guarantee = calibrate(1.0, 1e-6, HORIZON, ITEMS)
    assert isinstance(mechanism, DiscreteCounter)
    shifts, scale = (
        ITEMS * HORIZON.bit_length(),
        1000,
    )  # in thousands, so that the table of the sum stays small
    sigma_squared = EPOCHS * shifts * mechanism.sigma_squared / scale**2
    moved = round(EPOCHS * shifts / scale)
    fails = EPOCHS * BEFORE
    edge = 0
    while sum_tail_bounds(sigma_squared, 1, edge)[1] > fails:
        edge += 1
    avoided, kept = (sum_tail_bounds(sigma_squared, 1, at)[0] for at in (edge, edge - moved))
    ideal = gaussian_delta(EPOCHS * guarantee.rho, 20.0)
    assert avoided <= fails < 1e-13
    assert 5 * (ideal + fails) < kept < ideal + (1 + exp(20)) * fails


def test_no_charge_grows_with_anything_but_what_is_drawn() -> None:
    assert coupling_delta(1023, 4) < coupling_delta(2047, 4) < coupling_delta(2047, 5)
    assert coupling_delta(1023, 4) < coupling_delta(1023, 4, "user")
    assert program_delta(1e-6, 1023, 4) == coupling_delta(1023, 4)
    assert program_delta(1e-6, 1023, 4, mechanism="blt") > 1e-9 > coupling_delta(1023, 4, mechanism="blt")
