"""The ledger on a real server: charged once, never overspent, and a refusal says what would fit."""

import logging
import re
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis

from stream_dp.counters.calibration import calibrate
from stream_dp.operations.watch import Watch
from stream_dp.privacy.accounting import gaussian_epsilon
from stream_dp.privacy.composition import Room
from stream_dp.privacy.loss import Loss, gaussian, pure
from stream_dp.store.ledger import (
    Budget,
    BudgetExceeded,
    ChargeConflict,
    Ledger,
    LedgerRefused,
    UnitMismatch,
)
from tests.store.charges import SOURCE, charge, total


def test_a_ledger_begins_empty_and_unlimited(redis: Redis, caplog: pytest.LogCaptureFixture) -> None:
    ledger = Ledger(redis, SOURCE)
    assert (ledger.budget(), ledger.charges(), ledger.room()) == (None, [], None)
    assert ledger.spent().epsilon == 0
    with caplog.at_level(logging.WARNING):
        ledger.charge(charge("a", 1e6))
        ledger.charge(charge("b"))
    assert [record.message for record in caplog.records].count(
        "the source 'shop.events' has no budget, so charges are recorded and nothing is refused: set one with "
        "`stream-dp budget set`"
    ) == 1
    assert ledger.charges() == [charge("a", 1e6), charge("b")]


def test_charges_are_kept_in_order_and_spent_by_offset(ledger: Ledger, redis: Redis) -> None:
    made = [charge(name, first_offset=first) for name, first in (("z", 0), ("a", 50), ("m", 100))]
    made[2] = msgspec.structs.replace(made[2], end_offset=None)
    for each in made:
        assert ledger.charge(each) == each
    assert Ledger(redis, SOURCE).charges() == made
    found = ledger.spent()
    assert (found.rho, found.first_offset, found.end_offset, found.delta) == (0.002, 50, 100, 1e-6)


def test_a_repeated_charge_is_charged_once(ledger: Ledger, redis: Redis) -> None:
    everything = total(redis)
    for _ in range(3):  # a crash between the charge and its use: a new process asks again
        assert Ledger(redis, SOURCE).charge(everything) == everything
    reworded = msgspec.structs.replace(everything, what="other words")
    assert ledger.charge(reworded) == everything
    assert ledger.charges() == [everything]


@pytest.mark.parametrize(
    "changed",
    [
        {"digest": "e"},
        {"rho": 0.0005},
        {"delta": 1e-9},
        {"first_offset": 1},
        {"end_offset": 101},
        {"exact": (1, 0)},
        {"loss": pure(0.05)},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_the_same_id_with_other_parameters_is_refused(ledger: Ledger, changed: dict[str, Any]) -> None:
    ledger.charge(charge())
    with pytest.raises(ChargeConflict, match="charged before with other parameters"):
        ledger.charge(msgspec.structs.replace(charge(), **changed))
    assert ledger.charges() == [charge()]


def test_a_charge_that_does_not_fit_is_refused_with_what_would(ledger: Ledger) -> None:
    ledger.charge(charge("a", 0.01, delta=2e-7))
    with pytest.raises(BudgetExceeded) as refused:
        ledger.charge(charge("b", 0.02, first_offset=99, end_offset=None))
    assert [each.id for each in ledger.charges()] == ["a"]
    told = str(refused.value)
    assert (
        "'b' (rho 0.02, delta 0) does not fit the budget of 'shop.events' (epsilon 1, delta 1e-06 per event)"
        in told
    )
    assert "on offsets 99 on, epsilon up to " in told
    rho = float(told.split("rho up to ")[1].split(")")[0])
    delta = float(re.split("[; ]", told.rsplit("delta up to ", 1)[1])[0])
    more = int(told.partition("like the last, ")[2].split()[0])
    room = ledger.room(99)
    assert room is not None
    assert rho == pytest.approx(room.rho, rel=1e-4)
    assert delta == pytest.approx(3e-7, rel=1e-4)
    ledger.charge(charge("b", rho, delta=delta, first_offset=99, end_offset=None))
    assert more == 1, "0.01 and 2e-7 fit once more beside themselves"
    with pytest.raises(
        BudgetExceeded, match=r"on offsets 99 to 100, epsilon up to \S+ fits \(.* rho up to \S+e-"
    ):
        ledger.charge(charge("c", 0.02, first_offset=99))
    ledger.charge(charge("d", 0.01, delta=2e-7, first_offset=50, end_offset=60))


def test_where_nothing_is_spent_a_single_charge_may_take_the_budget_itself(ledger: Ledger) -> None:
    with pytest.raises(BudgetExceeded, match="a single charge that guarantees the budget by itself, or rho"):
        ledger.charge(charge("a", 0.2))
    mechanism, guarantee = calibrate(1.0, 1e-6, 65_535, 4)
    exact = (guarantee.epsilon, guarantee.delta)
    loss = mechanism.loss
    epoch = charge("epoch", mechanism.rho, delta=5.0001e-7, end_offset=None, exact=exact, loss=loss)
    ledger.charge(epoch)
    assert ledger.spent().epsilon == 1.0
    assert ledger.room() == Room(0.0, 0.0, False)
    with pytest.raises(BudgetExceeded, match="nothing is left"):
        ledger.charge(charge("b", 1e-9, first_offset=10**9, end_offset=None))


def test_an_epoch_that_ended_makes_room_after_its_end(ledger: Ledger, redis: Redis) -> None:
    first = msgspec.structs.replace(total(redis), end_offset=None)
    second = msgspec.structs.replace(first, id="second", first_offset=500)
    ledger.charge(first)
    with pytest.raises(BudgetExceeded):
        ledger.charge(second)
    assert ledger.close("all", 500).end_offset == 500
    assert ledger.close("all", 500).end_offset == 500
    ledger.charge(second)
    for end in (400, 600):
        with pytest.raises(ChargeConflict, match="ends at offset 500 already"):
            ledger.close("all", end)
    with pytest.raises(ChargeConflict, match="cannot end at 499"):
        ledger.close("second", 499)
    with pytest.raises(ChargeConflict, match="no charge 'third'"):
        ledger.close("third", 5)
    assert ledger.charge(first) == msgspec.structs.replace(first, end_offset=500)
    assert [each.end_offset for each in ledger.charges()] == [500, None]


def test_a_ledger_has_one_unit(redis: Redis) -> None:
    ledger = Ledger(redis, SOURCE)
    ledger.charge(charge(unit="user"))
    for attempt in (lambda: ledger.charge(charge("b")), lambda: ledger.set_budget(1, 1e-6, "event")):
        with pytest.raises(UnitMismatch, match="use the unit user instead of event"):
            attempt()
    ledger.set_budget(1, 1e-6, "user")
    ledger.charge(charge("c", 0.01, unit="user", first_offset=100, end_offset=None))
    with pytest.raises(BudgetExceeded, match="for users, epsilon up to"):
        ledger.charge(charge("d", 0.02, unit="user", first_offset=900, end_offset=901))


def test_days_of_two_zones_are_never_in_one_ledger_and_the_metric_tells_what_every_day_has_left(
    redis: Redis,
) -> None:
    ledger = Ledger(redis, SOURCE)
    ledger.set_budget(1.0, 1e-6, "user-day")
    for name, first, end in (("a", 0, 10), ("b", 10, 20)):  # days that no two charges share
        of_days = {"unit": "user-day", "zone": "Europe/Berlin", "first_offset": first, "end_offset": end}
        ledger.charge(charge(name, 0.01, **of_days))
    for unit, zone, told in (
        ("user-day", "UTC", 'set time_zone = "Europe/Berlin" instead of "UTC"'),
        ("event", "", "use the unit user-day instead of event"),
    ):
        with pytest.raises(UnitMismatch, match=told):
            ledger.charge(charge("c", unit=unit, zone=zone))
    watch = Watch("shop", SOURCE)
    watch.read_budget(redis, (10**6,))  # offsets, which are no days
    assert watch.facts.budget is not None
    left = ledger.room()
    assert left is not None
    assert watch.facts.budget.left_rho == left.rho
    alone = gaussian_epsilon(0.01, 1e-6)
    assert watch.facts.budget.spent_epsilon <= alone * 1.2, "of one day, not of both"


def test_a_budget_is_never_set_below_what_is_spent(ledger: Ledger, redis: Redis) -> None:
    ledger.charge(charge("a", 0.01, delta=1e-7))
    with pytest.raises(BudgetExceeded) as refused:
        ledger.set_budget(0.1, 1e-6, "event")
    least = float(str(refused.value).split("set epsilon to ")[1].split()[0])
    assert ledger.budget() == Budget(epsilon=1.0, delta=1e-6, unit="event")
    ledger.set_budget(least, 1e-6, "event")
    assert ledger.spent().epsilon <= least
    with pytest.raises(BudgetExceeded, match="set epsilon to"):
        ledger.set_budget(least * 0.999, 1e-6, "event")
    with pytest.raises(BudgetExceeded, match=r"set delta to [0-9.]+e-07$"):
        ledger.set_budget(50.0, 1e-7, "event")
    with pytest.raises(ValueError, match="epsilon of a budget"):
        ledger.set_budget(0.0, 1e-7, "event")


@pytest.mark.parametrize("loss", [gaussian(0.002), pure(0.1)])
@pytest.mark.parametrize("delta", [1e-9, 2e-8, 1e-7])
def test_a_delta_that_is_told_is_enough_by_whatever_rule_the_first_charge_settled(
    ledger: Ledger, loss: Loss, delta: float
) -> None:
    ledger.charge(charge("a", 0.001, delta=delta, loss=loss))
    with pytest.raises(BudgetExceeded, match="no epsilon is enough") as refused:
        ledger.set_budget(50.0, delta / 2, "event")
    least = float(str(refused.value).rpartition(" ")[2])
    ledger.set_budget(1000.0, least, "event")
    with pytest.raises(BudgetExceeded):
        ledger.set_budget(1000.0, least * 0.999, "event")


def test_no_delta_is_told_where_none_is_enough(ledger: Ledger) -> None:
    free = Ledger(ledger._redis, "free.events")
    free.charge(charge("a", delta=0.9))
    with pytest.raises(BudgetExceeded, match="no budget covers it"):
        free.set_budget(50.0, 0.5, "event")


def test_sources_do_not_share_budgets(ledger: Ledger, redis: Redis) -> None:
    ledger.charge(total(redis))
    other = Ledger(redis, "other.events")
    assert (other.budget(), other.charges()) == (None, [])


@pytest.mark.parametrize("source", ["", "a b", "a{b}", "ü", "x" * 250])
def test_what_names_no_source_is_refused(redis: Redis, source: str) -> None:
    with pytest.raises(LedgerRefused, match="names no data source"):
        Ledger(redis, source)


@given(
    st.lists(
        st.tuples(st.integers(0, 8), st.none() | st.integers(0, 8), st.sampled_from([1e-3, 4e-3, 9e-3])),
        max_size=12,
    )
)
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_no_offset_is_ever_overspent(redis: Redis, asked: list[tuple[int, int | None, float]]) -> None:
    redis.flushall()
    ledger = Ledger(redis, SOURCE)
    limit = ledger.set_budget(1.0, 1e-6, "event", 0.5).rule(None).gaussian_rho
    spent = [0.0] * 18
    for number, (first, length, rho) in enumerate(asked):
        end = None if length is None else first + length
        covered = range(first, len(spent) if end is None else end)
        fits = all(spent[offset] + rho <= limit for offset in covered)
        if fits:
            ledger.charge(charge(str(number), rho, first_offset=first, end_offset=end))
            for offset in covered:
                spent[offset] += rho
        else:
            with pytest.raises(BudgetExceeded):
                ledger.charge(charge(str(number), rho, first_offset=first, end_offset=end))
    assert ledger.spent().rho == pytest.approx(max(spent), rel=1e-12)
