"""The ledger on a real server: charged once, never overspent, durable, told apart from a damaged one, restored."""

import logging
import multiprocessing
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError

from stream_dp.calibration import calibrate
from stream_dp.dev import redis_server
from stream_dp.privacy.composition import Room
from stream_dp.store import ledger as ledger_module
from stream_dp.store.ledger import (
    Budget,
    BudgetExceeded,
    Charge,
    ChargeConflict,
    Ledger,
    LedgerDamaged,
    LedgerRefused,
    NotDurable,
    UnitMismatch,
)

SOURCE = "shop.events"
CHARGES = f"stream_dp:{{{SOURCE}}}:charges"
BUDGET = f"stream_dp:{{{SOURCE}}}:budget"


@pytest.fixture
def ledger(redis: Redis) -> Ledger:
    """A ledger with a budget of epsilon 1 and delta 1e-6 per event."""
    ledger = Ledger(redis, SOURCE)
    ledger.set_budget(1.0, 1e-6, "event")
    return ledger


def charge(id_: str = "a", rho: float = 0.001, **more: Any) -> Charge:
    named: dict[str, Any] = {
        "what": f"job {id_}",
        "unit": "event",
        "delta": 0.0,
        "first_offset": 0,
        "end_offset": 100,
        "digest": "d",
    }
    return Charge(id=id_, rho=rho, **(named | more))


def total(redis: Redis) -> Charge:
    """A charge of all that is left."""
    left = Ledger(redis, SOURCE).room()
    assert left is not None
    return charge("all", left.rho, delta=left.delta)


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
    assert "on offsets 99 on there is left rho " in told
    rho = float(told.split("is left rho ")[1].split()[0])
    delta = float(told.rsplit("delta ", 1)[1])
    assert (rho, delta) == (pytest.approx(ledger.room(99).rho, rel=1e-4), pytest.approx(3e-7, rel=1e-4))
    ledger.charge(charge("b", rho, delta=delta, first_offset=99, end_offset=None))
    with pytest.raises(BudgetExceeded, match=r"on offsets 99 to 100 there is left rho \S+e-"):
        ledger.charge(charge("c", 0.02, first_offset=99))
    ledger.charge(charge("d", 0.01, delta=2e-7, first_offset=50, end_offset=60))


def test_where_nothing_is_spent_a_single_charge_may_take_the_budget_itself(ledger: Ledger) -> None:
    with pytest.raises(BudgetExceeded, match="a single charge that guarantees the budget by itself, or rho"):
        ledger.charge(charge("a", 0.2))
    mechanism, guarantee = calibrate(1.0, 1e-6, 65_535, 4)
    exact = (guarantee.epsilon, guarantee.delta)
    epoch = charge("epoch", mechanism.rho, delta=5.0001e-7, end_offset=None, exact=exact)
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
    with pytest.raises(BudgetExceeded, match="for users there is left rho"):
        ledger.charge(charge("d", 0.02, unit="user", first_offset=900, end_offset=901))


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
    with pytest.raises(BudgetExceeded, match=r"set delta to 2\.0000\d*e-07 or more"):
        ledger.set_budget(50.0, 1e-7, "event")
    with pytest.raises(ValueError, match="epsilon of a budget"):
        ledger.set_budget(0.0, 1e-7, "event")


def test_sources_do_not_share_budgets(ledger: Ledger, redis: Redis) -> None:
    ledger.charge(total(redis))
    other = Ledger(redis, "other.events")
    assert (other.budget(), other.charges()) == (None, [])


@pytest.mark.parametrize("source", ["", "a b", "a{b}", "ü", "x" * 250])
def test_what_names_no_source_is_refused(redis: Redis, source: str) -> None:
    with pytest.raises(LedgerRefused, match="names no data source"):
        Ledger(redis, source)


SHARES = 12


def charge_until_refused(url: str, name: str, rho: float, tries: int = 12) -> int:
    """How many charges of `rho` one process gets accepted."""
    accepted = 0
    with Redis.from_url(url) as client:
        ledger = Ledger(client, SOURCE)
        for number in range(tries):
            try:
                ledger.charge(charge(f"{name}-{number}", rho))
                accepted += 1
            except BudgetExceeded:
                continue
    return accepted


def test_processes_that_charge_at_once_never_overspend(
    ledger: Ledger, server: redis_server.RedisServer
) -> None:
    rho = ledger.room().rho / SHARES
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        accepted = pool.starmap(charge_until_refused, [(server.url, name, rho) for name in "abc"])
    assert sum(accepted) == SHARES == len(ledger.charges())


def test_threads_that_charge_at_once_never_overspend_and_look_then_write_does(
    ledger: Ledger, redis: Redis, server: redis_server.RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    rho = ledger.room().rho / SHARES

    def accepted_of(names: str) -> int:
        with ThreadPoolExecutor(len(names)) as threads:
            return sum(threads.map(lambda name: charge_until_refused(server.url, name, rho, 8), names))

    assert accepted_of("abcd") == SHARES == len(ledger.charges())
    redis.flushall()
    ledger.set_budget(1.0, 1e-6, "event")
    together = threading.Barrier(4, timeout=30)

    def look_then_write(
        self: Ledger, change: Any
    ) -> Any:  # wrong: nothing holds between the look and the write
        state = self.state()
        if not state.stored:
            together.wait()
        with self._redis.pipeline(transaction=True) as transaction:
            self._write(transaction, state, change(state))
        return state

    monkeypatch.setattr(Ledger, "update", look_then_write)
    with ThreadPoolExecutor(4) as threads:
        assert (
            sum(threads.map(lambda name: charge_until_refused(server.url, name, rho * SHARES, 1), "abcd"))
            == 4
        )


def test_threads_that_make_the_same_charge_make_it_once(
    ledger: Ledger, server: redis_server.RedisServer
) -> None:
    rho = ledger.room().rho * 0.9

    def same(_: int) -> Charge:
        with Redis.from_url(server.url) as client:
            return Ledger(client, SOURCE).charge(charge("same", rho))

    with ThreadPoolExecutor(6) as threads:
        assert list(threads.map(same, range(12))) == [charge("same", rho)] * 12
    assert len(ledger.charges()) == 1


def test_a_charge_whose_answer_was_lost_is_repeated_and_waits_for_the_disk(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[int] = []
    make_durable = Ledger._make_durable

    def lost_once(self: Ledger) -> None:
        waits.append(len(self.charges()))
        if len(waits) == 1:
            raise RedisConnectionError("gone")
        make_durable(self)

    monkeypatch.setattr(Ledger, "_make_durable", lost_once)
    with pytest.raises(RedisConnectionError):
        ledger.charge(charge())
    ledger.charge(charge())
    assert waits == [
        1,
        1,
    ]  # the repeated call changed nothing and still did not return before the disk had it


def test_a_charge_outlives_a_killed_server(tmp_path: Path) -> None:
    with redis_server.running(tmp_path, appendfsync="everysec") as first:
        with Redis.from_url(first.url) as client:
            Ledger(client, SOURCE).set_budget(1.0, 1e-6, "event")
            everything = total(client)
            Ledger(client, SOURCE).charge(everything)
        first.process.kill()
        first.process.wait()
    with redis_server.running(tmp_path) as second, Redis.from_url(second.url) as client:
        ledger = Ledger(client, SOURCE)
        assert ledger.charges() == [everything]
        with pytest.raises(BudgetExceeded):
            ledger.charge(charge("b", 0.001))


def test_what_does_not_reach_the_disk_must_not_be_used(
    ledger: Ledger, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_module, "_DURABLE_MILLISECONDS", 50)
    redis.config_set("appendfsync", "no")
    try:
        with pytest.raises(NotDurable, match="nothing may be released"):
            ledger.charge(charge())
    finally:
        redis.config_set("appendfsync", "always")
    assert ledger.charge(charge()) == charge()
    assert ledger.charges() == [charge()]


def test_a_server_that_keeps_no_file_is_warned_about_once(
    ledger: Ledger, redis: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    redis.config_set("appendonly", "no")
    try:
        with caplog.at_level(logging.WARNING):
            ledger.charge(charge("a"))
            ledger.charge(charge("b"))
    finally:
        redis.config_set("appendonly", "yes")
    assert [record.message for record in caplog.records] == [
        "charges may be lost when Redis is lost: turn appendonly on"
    ]


def test_a_server_without_waitaof_is_warned_about(
    ledger: Ledger, redis: Redis, server: redis_server.RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline = type(redis.pipeline())
    original = pipeline.execute_command

    def older(self: Any, *words: Any, **more: Any) -> Any:
        return original(self, *("NOSUCHCOMMAND" if word == "WAITAOF" else word for word in words), **more)

    with caplog.at_level(logging.WARNING), pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline, "execute_command", older)
        ledger.charge(charge())
    assert "cannot tell when a charge is on its disk" in caplog.text
    assert ledger.charges() == [charge()]


@pytest.mark.parametrize(
    "damage",
    [
        lambda redis: redis.set(BUDGET, b"\xff"),
        lambda redis: redis.delete(BUDGET),
        lambda redis: redis.hset(CHARGES, "a", b"\x00"),
        lambda redis: redis.hdel(CHARGES, "a"),
        lambda redis: redis.delete(CHARGES),
    ],
    ids=["no-header", "lost-header", "bad-charge", "lost-charge", "lost-charges"],
)
def test_a_damaged_ledger_refuses_everything(ledger: Ledger, redis: Redis, damage: Any) -> None:
    ledger.charge(charge("a"))
    ledger.charge(charge("b"))
    damage(redis)
    for attempt in (
        ledger.charges,
        lambda: ledger.charge(charge("c")),
        lambda: ledger.set_budget(9, 1e-6, "event"),
    ):
        with pytest.raises(LedgerDamaged, match="no whole ledger of"):
            attempt()


def test_a_ledger_behind_its_journal_is_noticed_and_restored(ledger: Ledger, redis: Redis) -> None:
    journal = []
    for name in "abc":
        journal.append(ledger.journal_record(ledger.charge(charge(name, end_offset=None))))
    saved = {key: redis.dump(key) for key in redis.keys("*")}
    journal.append(ledger.journal_record(ledger.close("b", 70)))
    journal.append(ledger.journal_record(ledger.charge(total(redis))))
    whole, budget = ledger.charges(), ledger.budget()
    assert ledger.behind(journal) == []
    assert ledger.restore(journal) == []

    redis.flushall()  # rolled back: the close and the last charge are gone
    for key, value in saved.items():
        redis.restore(key, 0, value)
    assert [(each.id, each.end_offset) for each in ledger.behind(journal)] == [("b", 70), ("all", 100)]
    assert len(ledger.restore(journal)) == 2
    assert (ledger.charges(), ledger.behind(journal)) == (whole, [])

    redis.flushall()  # lost
    assert len(ledger.restore(journal)) == 4
    assert (ledger.charges(), ledger.budget()) == (whole, budget)
    with pytest.raises(BudgetExceeded):
        ledger.charge(charge("z", 0.01))


def test_the_journal_adds_and_never_takes_away(ledger: Ledger) -> None:
    old = ledger.journal_record(ledger.charge(charge("a", end_offset=None)))
    ledger.close("a", 50)
    ledger.charge(charge("b"))
    ledger.set_budget(2.0, 1e-6, "event")
    assert ledger.restore([old, old]) == []
    assert [(each.id, each.end_offset) for each in ledger.charges()] == [("a", 50), ("b", 100)]
    assert ledger.budget() == Budget(epsilon=2.0, delta=1e-6, unit="event")


def test_what_was_accepted_once_is_restored_beyond_the_budget(ledger: Ledger, redis: Redis) -> None:
    records = [ledger.journal_record(charge(name, 0.015)) for name in "ab"]
    assert [each.id for each in ledger.restore(records)] == ["a", "b"]
    assert ledger.spent().epsilon > 1
    with pytest.raises(BudgetExceeded, match="nothing is left"):
        ledger.charge(charge("c", 1e-6))


def test_another_journal_is_refused(ledger: Ledger, redis: Redis) -> None:
    good = ledger.journal_record(charge("a"))
    other = Ledger(redis, "other.events").journal_record(charge("a"))
    for records, sentence in (
        ([other], "is not its journal"),
        ([b"{}"], "no ledger wrote"),
        ([b"\xff"], "no ledger wrote"),
        ([good.replace(b'"v":1', b'"v":2')], "format 2"),
    ):
        with pytest.raises(LedgerDamaged, match=sentence):
            ledger.restore(records)
    with pytest.raises(UnitMismatch):
        ledger.restore([ledger.journal_record(charge("a", unit="user"))])
    with pytest.raises(ChargeConflict):
        ledger.restore([good, ledger.journal_record(charge("a", 0.5))])
    assert ledger.charges() == []


@given(
    st.lists(
        st.tuples(st.integers(0, 8), st.none() | st.integers(0, 8), st.sampled_from([1e-3, 4e-3, 9e-3])),
        max_size=12,
    )
)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_offset_is_ever_overspent(redis: Redis, asked: list[tuple[int, int | None, float]]) -> None:
    redis.flushall()
    ledger = Ledger(redis, SOURCE)
    limit = ledger.set_budget(1.0, 1e-6, "event").rho
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
