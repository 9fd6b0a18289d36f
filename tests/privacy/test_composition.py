"""Charges over offset ranges: the sweep against every offset, the filter's limits, and dp-accounting as the oracle."""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import msgspec
import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, LaplaceDpEvent
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from hypothesis import given
from hypothesis import strategies as st

from stream_dp.counters.calibration import calibrate
from stream_dp.privacy.accounting import zcdp_epsilon
from stream_dp.privacy.composition import (
    Budget,
    Charge,
    Load,
    Spent,
    Unit,
    loads,
    more_like,
    refused,
    room,
    spent,
)
from stream_dp.privacy.loss import Loss, gaussian, pure

DELTA = 1e-6
ORDERS = [float(order) for order in np.geomspace(1.01, 2000, 400)]
BUDGET = Budget(epsilon=1.0, delta=DELTA, unit="event", own_deltas=0.5)
LIMITS = BUDGET.rule(None)
BY_RHO = Loss(steps=((1e6, 1),))
"""No Gaussian stands for it, so that rho alone can be converted."""


def charge(rho: float, delta: float = 0.0, first: int = 0, end: int | None = None, **more: Any) -> Charge:
    named: dict[str, Any] = {"id": "c", "what": "test", "unit": "event", "digest": "d", "loss": BY_RHO} | more
    return Charge(rho=rho, delta=delta, first_offset=first, end_offset=end, **named)


def covers(each: Charge, offset: int) -> bool:
    return each.first_offset <= offset and (each.end_offset is None or offset < each.end_offset)


def noise(rho: float, delta: float = 0.0, first: int = 0, end: int | None = None, **more: Any) -> Charge:
    """A charge of Gaussian noise."""
    return charge(rho, delta, first, end, **{"loss": gaussian(2 * rho)} | more)


@st.composite
def charges(draw: st.DrawFn, largest_rho: float = 1e9) -> Charge:
    first = draw(st.integers(0, 12))
    end = draw(st.none() | st.integers(first, 14))
    rho = draw(st.sampled_from([0.0, 1e-250, 1e-9, 0.1, 0.1, 0.3, largest_rho]) | st.floats(1e-6, 2))
    delta = draw(st.sampled_from([0.0, 1e-12, 1e-7, 3e-7]))
    exact = draw(st.none() | st.tuples(st.floats(0, 3), st.sampled_from([0.0, 1e-7, 2e-6])))
    return charge(rho, delta, first, end, exact=exact)


@st.composite
def charges_with_losses(draw: st.DrawFn) -> Charge:
    found = draw(charges(largest_rho=2.0))
    losses = [gaussian(2 * found.rho), pure(math.sqrt(2 * found.rho)), BY_RHO]
    return msgspec.structs.replace(found, loss=draw(st.sampled_from(losses)))


def at_every_offset(found: list[Load], chosen: list[Charge]) -> bool:
    """Whether `found` is the least double not below the exact sum, at every offset that is covered, and only there."""
    for offset in range(17):
        here = [each for each in chosen if covers(each, offset)]
        told = [load for load in found if covers(charge(0, 0, load.first_offset, load.end_offset), offset)]
        if len(told) != bool(here):
            return False
        if here and not (
            is_rounded_up(told[0].rho, sum(Fraction(each.rho) for each in here))
            and is_rounded_up(told[0].delta, sum(Fraction(each.delta) for each in here))
            and told[0].alone == (here[0] if len(here) == 1 else None)
        ):
            return False
    return True


def is_rounded_up(value: float, exact: Fraction | int) -> bool:
    return value >= exact and (value == exact or math.nextafter(value, 0) < exact)


@given(st.lists(charges(), max_size=6))
def test_the_sweep_is_the_exact_sum_at_every_offset(chosen: list[Charge]) -> None:
    assert at_every_offset(loads(chosen, "event"), chosen)


def largest_charge(chosen: list[Charge]) -> list[Load]:
    """Wrong: the largest of the charges covering an offset in the place of their sum."""
    found = []
    for load in loads(chosen, "event"):
        here = [each for each in chosen if covers(each, load.first_offset)]
        found.append(
            Load(
                load.first_offset,
                load.end_offset,
                max(each.rho for each in here),
                max(each.delta for each in here),
                load.alone,
            )
        )
    return found


def everything(chosen: list[Charge]) -> list[Load]:
    """Wrong in the event unit: all charges, wherever they are."""
    return loads(chosen, "user")


def closed_ranges(chosen: list[Charge]) -> list[Load]:
    """Wrong: the end offset read as well."""
    wider = [
        msgspec.structs.replace(each, end_offset=None if each.end_offset is None else each.end_offset + 1)
        for each in chosen
    ]
    return loads(wider, "event")


@pytest.mark.parametrize("broken", [largest_charge, everything, closed_ranges])
def test_wrong_sums_are_noticed(broken: Callable[[list[Charge]], list[Load]]) -> None:
    chosen = [charge(0.1, 1e-7, 0, 5), charge(0.2, 1e-7, 3, 8), charge(0.3, 0, 8, None)]
    assert at_every_offset(loads(chosen, "event"), chosen)
    assert not at_every_offset(broken(chosen), chosen)


@given(st.lists(charges(), max_size=6), st.sampled_from([1e-9, 1e-6, 1e-3]))
def test_spent_is_the_costliest_offset(chosen: list[Charge], delta: float) -> None:
    expected = 0.0
    for offset in range(17):
        here = [each for each in chosen if covers(each, offset)]
        rho, charged = (
            loads(here, "user")[0].rho if here else 0.0,
            sum(Fraction(each.delta) for each in here),
        )
        epsilon = math.inf
        if charged < delta:
            epsilon = zcdp_epsilon(rho, float(delta - charged))
        exact = [each.exact for each in here if each.exact is not None]
        if len(exact) == len(here) and sum(Fraction(each[1]) for each in exact) <= delta:
            epsilon = min(epsilon, math.fsum(each[0] for each in exact))
        expected = max(expected, epsilon)
    assert spent(chosen, "event", delta).epsilon == pytest.approx(expected, rel=1e-9)


@st.composite
def charges_of_partitions(draw: st.DrawFn) -> Charge:
    firsts = draw(st.lists(st.integers(0, 4), min_size=1, max_size=3))
    ends: list[int] | None = None
    if draw(st.booleans()):
        more = draw(st.integers(0, 2))
        ends = [first + draw(st.integers(0, 3)) for first in firsts] + [draw(st.integers(0, 4))] * more
    return charge(
        draw(st.sampled_from([0.1, 0.3])),
        first=firsts[0],
        end=None if ends is None else ends[0],
        further_offsets=tuple(firsts[1:]),
        further_ends=() if ends is None else tuple(ends[1:]),
    )


@given(st.lists(charges_of_partitions(), max_size=5))
def test_every_offset_of_every_partition_is_looked_at(chosen: list[Charge]) -> None:
    """By the rule in words: a charge without an end covers all partitions, any other those whose end it names."""

    def covers_by_words(each: Charge, partition: int, offset: int) -> bool:
        firsts = dict(enumerate([each.first_offset, *each.further_offsets]))
        if each.end_offset is None:
            return offset >= firsts.get(partition, 0)
        ends = dict(enumerate([each.end_offset, *each.further_ends]))
        return firsts.get(partition, 0) <= offset < ends.get(partition, -1)

    found, worst = loads(chosen, "event"), Fraction(0)
    for partition in range(6):
        for offset in range(10):
            expected = sum(
                (Fraction(each.rho) for each in chosen if covers_by_words(each, partition, offset)),
                Fraction(0),
            )
            worst = max(worst, expected)
            here = [
                load
                for load in found
                if load.partition == partition
                and load.first_offset <= offset
                and (load.end_offset is None or offset < load.end_offset)
            ]
            if partition < max((each.partitions for each in chosen), default=1):
                assert sum((Fraction(load.rho) for load in here), Fraction(0)) >= expected
                assert len(here) == bool(expected)
    assert max((Fraction(load.rho) for load in found), default=Fraction(0)) >= worst
    assert spent(chosen, "event", DELTA).rho == pytest.approx(float(worst))


def test_room_is_that_of_the_costliest_partition_that_is_touched() -> None:
    chosen = [noise(0.001, end=10, further_ends=(0, 5)), noise(0.002, end=0, further_ends=(0, 5))]
    free = room([], BUDGET, 0, 1).rho
    assert room(chosen, BUDGET, 0, 10).rho == pytest.approx(free - 0.001)
    assert room(chosen, BUDGET, 0, 0, (0,), (9,)).untouched
    assert room(chosen, BUDGET, 0, 10, (), (9, 9)).rho == pytest.approx(free - 0.003)
    assert room(chosen, BUDGET, 10, None, (0, 5)).untouched
    assert room(chosen, BUDGET, 10, None, (0, 4)).rho == pytest.approx(free - 0.003)
    assert not refused(chosen, BUDGET)
    assert charge(0.1, further_offsets=(3, 7)).ended(4, (5,)).ends == (4, 5, 7)


def test_as_many_more_fit_as_are_let_in_one_after_the_other() -> None:
    each = noise(1e-9, DELTA / 18)
    copies = [msgspec.structs.replace(each, id=f"{number}") for number in range(12)]
    fit = next(count for count in range(12) if refused(copies[: count + 1], BUDGET))
    assert fit >= 8
    for there in range(fit + 1):
        for most in (1, 2, 3, 4, 7, 8, 1_000):
            assert more_like(each, copies[:there], BUDGET, most) == min(fit - there, most)


def test_in_the_user_unit_everything_adds() -> None:
    chosen = [charge(0.25, 1e-7, 0, 5), charge(0.5, 2e-7, 5, 9)]
    [load] = loads(chosen, "user")
    assert load == Load(0, None, 0.75, load.delta, None)
    assert load.delta == pytest.approx(3e-7)
    assert (spent(chosen, "event", DELTA).rho, spent(chosen, "user", DELTA).rho) == (0.5, 0.75)
    only = charge(0.25, 0.0, 7, 7)
    assert loads([only], "event") == []
    assert loads([only], "user")[0].alone == only


def test_nothing_is_spent_where_nothing_was_charged() -> None:
    for unit in ("event", "user"):
        assert loads([], unit) == []
        assert spent([], unit) == Spent(0.0, 1e-6, 0.0, 0.0, 0, None)


@pytest.mark.parametrize("noise_count", [1, 3, 30])
@pytest.mark.parametrize("sigma", [3.0, 20.0])
def test_gaussians_cost_at_least_what_the_oracle_says_and_little_more(noise_count: int, sigma: float) -> None:
    ours = spent([charge(1 / (2 * sigma**2))] * noise_count, "event", DELTA).epsilon
    exact = PLDAccountant().compose(GaussianDpEvent(sigma), noise_count).get_epsilon(DELTA)
    renyi = RdpAccountant(ORDERS).compose(GaussianDpEvent(sigma), noise_count).get_epsilon(DELTA)
    assert exact <= ours <= 1.12 * exact
    assert ours <= renyi * (1 + 1e-9) <= 1.001 * ours  # the same bound, at a list of orders only
    largest = spent([charge(1 / (2 * sigma**2))], "event", DELTA).epsilon
    assert (largest < exact) == (noise_count > 1)  # the largest charge alone is no bound


@pytest.mark.parametrize(("epsilon", "count"), [(0.1, 5), (0.5, 8), (0.02, 100)])
def test_pure_mechanisms_cost_at_least_what_the_oracle_says(epsilon: float, count: int) -> None:
    ours = spent([charge(epsilon**2 / 2)] * count, "event", DELTA).epsilon
    exact = PLDAccountant().compose(LaplaceDpEvent(1 / epsilon), count).get_epsilon(DELTA)
    assert exact <= ours
    wrong = spent([charge(epsilon**2 / 8)] * count, "event", DELTA).epsilon
    assert wrong < exact


def test_mixed_mechanisms_on_overlapping_ranges_cost_at_least_what_the_oracle_says() -> None:
    chosen = [charge(0.02, 1e-7, 0, 100), charge(0.005, 2e-7, 50, None), charge(0.03, 0.0, 100, 300)]
    overlap = PLDAccountant().compose(GaussianDpEvent(1 / math.sqrt(0.04)))
    overlap.compose(GaussianDpEvent(1 / math.sqrt(0.01)))
    later = PLDAccountant().compose(GaussianDpEvent(1 / math.sqrt(0.06)))
    later.compose(GaussianDpEvent(1 / math.sqrt(0.01)))
    exact = max(overlap.get_epsilon(DELTA - 3e-7), later.get_epsilon(DELTA - 2e-7))
    found = spent(chosen, "event", DELTA)
    assert exact <= found.epsilon <= 1.12 * exact
    assert (found.first_offset, found.end_offset) == (100, 300)


def test_the_running_histogram_fits_a_budget_of_its_own_promise_and_then_nothing_else() -> None:
    mechanism, guarantee = calibrate(1.0, DELTA, 65_535, 4)
    exact = guarantee.epsilon, guarantee.delta
    epoch = charge(mechanism.rho, DELTA / 2 + 1e-15, exact=exact, loss=mechanism.loss)
    assert refused([epoch], BUDGET) == []
    assert spent([epoch], "event", DELTA).epsilon == 1.0
    without = msgspec.structs.replace(epoch, exact=None)
    assert refused([without], BUDGET)
    for second in (noise(1e-6), noise(0.0, 1e-15), epoch):
        assert refused([epoch, second], BUDGET)
        assert refused([epoch, msgspec.structs.replace(second, unit="user")], USER_BUDGET)
    beside = msgspec.structs.replace(epoch, first_offset=500)
    assert refused([msgspec.structs.replace(epoch, end_offset=500), beside], BUDGET) == []


USER_BUDGET = Budget(epsilon=1.0, delta=DELTA, unit="user", own_deltas=0.5)


def test_two_exact_guarantees_are_not_added_but_converted_together() -> None:
    mechanism, guarantee = calibrate(0.5, DELTA / 4, 65_535, 4)
    epoch = charge(mechanism.rho, DELTA / 8, exact=(guarantee.epsilon, guarantee.delta))
    found = spent([epoch, epoch], "event", DELTA)
    assert found.epsilon == zcdp_epsilon(2 * mechanism.rho, DELTA - DELTA / 4)
    assert guarantee.epsilon < found.epsilon < 2 * guarantee.epsilon


@given(
    st.lists(charges_with_losses(), max_size=5),
    st.floats(1e-3, 20),
    st.sampled_from([1e-9, 1e-6, 1e-2]),
    st.sampled_from(["event", "user"]),
)
def test_what_is_allowed_converts_to_at_most_the_budget(
    chosen: list[Charge], epsilon: float, delta: float, unit: Unit
) -> None:
    budget = Budget(epsilon=epsilon, delta=delta, unit=unit)
    if not refused(chosen, budget):
        assert spent(chosen, unit, delta).epsilon <= epsilon * (1 + 1e-9)


@given(
    st.lists(charges(largest_rho=2.0), max_size=5),
    st.integers(0, 14),
    st.none() | st.integers(1, 6),
    st.sampled_from(["event", "user"]),
)
def test_what_room_says_fits_and_more_does_not(
    chosen: list[Charge], first: int, length: int | None, unit: Unit
) -> None:
    budget = Budget(epsilon=2.0, delta=1e-6, unit=unit, own_deltas=0.5)
    chosen = [msgspec.structs.replace(each, loss=gaussian(2 * each.rho)) for each in chosen]
    end = None if length is None else first + length
    if refused(chosen, budget):
        return
    found = room(chosen, budget, first, end)
    if any(load.alone and not _within(load, budget) for load in loads(chosen, unit)):
        return  # accepted by its exact guarantee: beside it nothing fits, which the test above shows
    if found.rho >= 1e-250:
        assert refused([*chosen, noise(found.rho, found.delta, first, end)], budget) == []
    assert refused([*chosen, noise(found.rho + 1e-7, 0.0, first, end)], budget)
    assert refused([*chosen, noise(0.0, found.delta + 1e-12, first, end)], budget)


def _within(load: Load, budget: Budget) -> bool:
    limits = budget.rule(None)
    return load.gaussian <= limits.mu_squared and load.delta <= limits.charged_delta


@pytest.mark.parametrize("shares", [3, 7, 10, 100])
def test_equal_shares_of_a_budget_fit_in_spite_of_rounding(shares: int) -> None:
    share = noise(LIMITS.gaussian_rho / shares, LIMITS.charged_delta / shares)
    assert refused([share] * shares, BUDGET) == []
    assert refused([share] * (shares + 1), BUDGET)


def test_what_was_taken_back_leaves_no_rounding_behind() -> None:
    chosen = [charge(1e9, 0, 0, 5), charge(1e-9, 0, 0, None)]
    assert [load.rho for load in loads(chosen, "event")] == [math.nextafter(1e9, math.inf), 1e-9]


@given(charges_with_losses(), st.sampled_from([1e-9, 1e-6, 1e-2]))
def test_the_least_epsilon_is_enough_and_less_is_not(each: Charge, delta: float) -> None:
    for load in loads([each], "event"):
        least = Budget(epsilon=1.0, delta=delta, unit="event", own_deltas=0.5).least_epsilon(load)
        if 1e-5 < least < 900:
            assert Budget(epsilon=least, delta=delta, unit="event", own_deltas=0.5).allows(load)
            assert not Budget(epsilon=least * (1 - 1e-5), delta=delta, unit="event", own_deltas=0.5).allows(
                load
            )


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"rho": math.nan}, "rho"),
        ({"rho": -0.1}, "rho"),
        ({"rho": math.inf}, "rho"),
        ({"delta": 1.0}, "delta"),
        ({"delta": math.nan}, "delta"),
        ({"id": ""}, "id"),
        ({"unit": "week"}, "unit"),
        ({"first": -1}, "offsets"),
        ({"first": 5, "end": 4}, "offsets"),
        ({"exact": (math.nan, 0.0)}, "exact"),
        ({"exact": (1.0, 1.0)}, "exact"),
    ],
)
def test_a_charge_out_of_range_is_refused(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        charge(**({"rho": 0.1} | change))


@pytest.mark.parametrize(
    ("epsilon", "delta"),
    [(0.0, 1e-6), (math.nan, 1e-6), (math.inf, 1e-6), (1.0, 0.0), (1.0, 0.6), (1.0, math.nan)],
)
def test_a_budget_out_of_range_is_refused(epsilon: float, delta: float) -> None:
    with pytest.raises(ValueError, match="of a budget must lie between"):
        Budget(epsilon=epsilon, delta=delta, unit="event", own_deltas=0.5)
