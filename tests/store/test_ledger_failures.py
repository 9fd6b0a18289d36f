"""The ledger when many charge at once, when its server fails, and when it is damaged, rolled back or restored."""

import logging
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError

from stream_dp.batch.gumbel_top_k import PayWhatYouGet
from stream_dp.dev import redis_server
from stream_dp.privacy.composition import Room
from stream_dp.privacy.loss import pure
from stream_dp.store import ledger as ledger_module
from stream_dp.store.journal_fold import JournalFold
from stream_dp.store.ledger import (
    Budget,
    BudgetExceeded,
    Charge,
    Ledger,
    LedgerDamaged,
    NotDurable,
)
from stream_dp.store.ledger_records import Change, Marks, Query, State
from stream_dp.store.pay_what_you_get import spend
from tests import redis_contents
from tests.store.charges import SOURCE, charge, total
from tests.system.waiting import GIVE_UP_SECONDS, wait_until
from tests.system.worker_process import PROCESSES

CHARGES = f"stream_dp:{{{SOURCE}}}:charges"
BUDGET = f"stream_dp:{{{SOURCE}}}:budget"
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


def whole_room(ledger: Ledger) -> Room:
    """What is left of the budget, which is set."""
    room = ledger.room()
    assert room is not None
    return room


def test_processes_that_charge_at_once_never_overspend(
    ledger: Ledger, server: redis_server.RedisServer
) -> None:
    rho = whole_room(ledger).rho / SHARES
    with PROCESSES.Pool(3) as pool:
        accepted = pool.starmap(charge_until_refused, [(server.url, name, rho) for name in "abc"])
    assert sum(accepted) == SHARES == len(ledger.charges())


def test_threads_that_charge_at_once_never_overspend_and_look_then_write_does(
    ledger: Ledger, redis: Redis, server: redis_server.RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    rho = whole_room(ledger).rho / SHARES

    def accepted_of(names: str) -> int:
        with ThreadPoolExecutor(len(names)) as threads:
            return sum(threads.map(lambda name: charge_until_refused(server.url, name, rho, 8), names))

    assert accepted_of("abcd") == SHARES == len(ledger.charges())
    redis.flushall()
    ledger.set_budget(1.0, 1e-6, "event")
    together = threading.Barrier(4, timeout=GIVE_UP_SECONDS)

    def look_then_write(
        self: Ledger, change: Any
    ) -> Any:  # wrong: nothing holds between the look and the write
        state, key = self._look()
        if not state.stored:
            together.wait()
        with self._redis.pipeline(transaction=True) as transaction:
            self._write(transaction, key, state, change(state).applied(state))
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
    rho = whole_room(ledger).rho * 0.9

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


def test_a_charge_outlives_a_killed_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_module, "_DURABLE_MILLISECONDS", int(1000 * GIVE_UP_SECONDS))
    with redis_server.running(tmp_path, appendfsync="everysec") as first:
        with Redis.from_url(first.url, socket_timeout=GIVE_UP_SECONDS) as client:
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
    redis.config_set("appendfsync", "no")
    try:
        with monkeypatch.context() as patch:
            patch.setattr(ledger_module, "_DURABLE_MILLISECONDS", 50)
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
        wait_until(lambda: _has_its_file(redis), lambda: "the file is not written anew")
    assert [message for name, _, message in caplog.record_tuples if name.startswith("stream_dp")] == [
        "charges may be lost when Redis is lost: turn appendonly on"
    ]


def _has_its_file(redis: Redis) -> bool:
    """A server that begins to keep its file writes it first, and until then nothing is on its disk."""
    told = redis.info("persistence")
    return not (told["aof_rewrite_in_progress"] or told["aof_rewrite_scheduled"])


def test_a_server_without_waitaof_is_warned_about(
    ledger: Ledger, redis: Redis, server: redis_server.RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline = type(redis.pipeline())
    original: Callable[..., Any] = pipeline.execute_command

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
        lambda redis: redis.delete(CHARGES) and redis.set(CHARGES, b"x"),
        lambda redis: redis.delete(BUDGET) and redis.lpush(BUDGET, b"x"),
        lambda redis: redis.hset(CHARGES, b"\xff", redis.hget(CHARGES, "a")),
        lambda redis: redis.hdel(CHARGES, "a") and redis.hset(CHARGES, "x", redis.hget(CHARGES, "b")),
        lambda redis: redis.hset(CHARGES, "a", redis.hget(CHARGES, "a").replace(b"job a", b"job \xff")),
    ],
    ids=[
        *("no-header", "lost-header", "bad-charge", "lost-charge", "lost-charges", "charges-of-another-type"),
        *("header-of-another-type", "undecodable-name", "charge-of-another-name", "undecodable-text"),
    ],
)
def test_a_damaged_ledger_refuses_everything_and_is_no_outage(
    ledger: Ledger, redis: Redis, damage: Any
) -> None:
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


def with_journal(redis: Redis, records: Iterable[bytes]) -> Ledger:
    """The ledger of the source, opened with this journal."""
    ledger = Ledger(redis, SOURCE)
    ledger.journal = JournalFold(SOURCE, records)
    ledger.put_back()
    return ledger


def test_a_ledger_behind_its_journal_is_completed(ledger: Ledger, redis: Redis) -> None:
    journal = [ledger.budget_record(Budget(epsilon=1.0, delta=1e-6, unit="event"), "ops@host")]
    for name in "abc":
        journal.append(ledger.journal_record(ledger.charge(charge(name, end_offset=None))))
    saved = redis_contents.dumps(redis)
    journal.append(ledger.journal_record(ledger.close("b", 70)))
    journal.append(ledger.journal_record(ledger.charge(total(redis))))
    whole = ledger.held()
    for backup in (saved, {}):  # rolled back: the close and the last charge are gone; then lost
        redis.flushall()
        for key, value in backup.items():
            redis.restore(key, 0, value)
        assert with_journal(redis, journal).held() == whole
        with pytest.raises(BudgetExceeded):
            with_journal(redis, journal).charge(charge("z", 0.01))


MARKS = PayWhatYouGet(epsilon=0.02, threshold_delta=1e-8, marks=20, queries=5)
LIES: dict[str, Callable[[Ledger], object]] = {
    "an end": lambda ledger: ledger.close("a", 50),
    "other words": lambda ledger: ledger.update(lambda state: changed(state, made={"what": "nothing"})),
    "less loss": lambda ledger: ledger.update(lambda state: changed(state, made={"loss": pure(1e-9)})),
    "less rho": lambda ledger: ledger.update(lambda state: changed(state, made={"rho": 1e-9})),
    "fewer marks": lambda ledger: spend(ledger, "a", "q", 1),
    "another budget of marks": lambda ledger: ledger.update(
        lambda state: changed(state, marks=Marks(replace(MARKS, marks=9), {}))
    ),
    "another time and place": lambda ledger: ledger.update(lambda state: changed(state, at=None, number=7)),
}


def changed(state: State, made: dict[str, Any] | None = None, **fields: Any) -> Change:
    stored = msgspec.structs.replace(state.stored["a"], **fields)
    return Change(
        stored=(msgspec.structs.replace(stored, made=msgspec.structs.replace(stored.made, **(made or {}))),)
    )


@pytest.mark.parametrize("lie", LIES)
def test_the_journal_has_the_last_word_on_every_field_of_a_charge(
    redis: Redis, ledger: Ledger, lie: str
) -> None:
    """What Redis says may be well written, by whoever can write there, and is not believed."""
    marks = Marks(MARKS, {"q": Query(8)})
    first = ledger.charge(charge("a", end_offset=None, loss=pure(0.01)), marks)
    journal = [ledger.journal_record(first, marks)]
    whole = ledger.held()
    LIES[lie](ledger)
    assert ledger.held() != whole
    assert with_journal(redis, journal).held() == whole


def test_what_redis_alone_has_takes_room(ledger: Ledger, redis: Redis) -> None:
    """It may be on its way into the journal."""
    journal = [ledger.journal_record(ledger.charge(charge("a", end_offset=None)))]
    ledger.charge(charge("b"))
    ledger.set_budget(2.0, 1e-6, "event")
    completed = with_journal(redis, journal)
    assert [each.id for each in completed.charges()] == ["a", "b"]
    assert completed.budget() == Budget(epsilon=2.0, delta=1e-6, unit="event")


def test_what_was_accepted_once_is_restored_beyond_the_budget(ledger: Ledger, redis: Redis) -> None:
    records = [ledger.journal_record(charge(name, 0.015)) for name in "ab"]
    completed = with_journal(redis, records)
    assert [each.id for each in completed.charges()] == ["a", "b"]
    assert completed.spent().epsilon > 1
    with pytest.raises(BudgetExceeded, match="nothing is left"):
        completed.charge(charge("c", 1e-6))


def test_what_does_not_belong_in_a_journal_is_passed_over_and_reported(
    ledger: Ledger, redis: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    first = ledger.charge(charge("a", end_offset=None))
    good, closed = ledger.journal_record(first), ledger.journal_record(first.ended(70))
    foreign = {
        b"": "is not a record of a ledger",
        b"\xff": "is not a record of a ledger",
        b"{}": "is not a record of a ledger",
        b"[" * 5_000: "is not a record of a ledger",
        good.replace(b'"rho":0.001', b'"rho":-1'): "is not a record of a ledger",
        good.replace(
            b'"rho":0.001', b'"rho":1e-9'
        ): "other parameters than the first record of the charge 'a'",
        good.replace(
            b'"end_offset":null', b'"end_offset":9'
        ): "elsewhere than the first record that ended it",
        Ledger(redis, "other.events").journal_record(charge("b")): "belongs to the ledger of 'other.events'",
        ledger.journal_record(charge("b", unit="user")): "per event for a charge per user",
        ledger.journal_record(charge("b")).replace(
            b'"event"', b'"user"'
        ): "counts per user, and the ledger per event",
        ledger.budget_record(Budget(epsilon=9.0, delta=1e-6, unit="user"), "x"): "counts per user",
    }
    found = with_journal(redis, [good, closed, *foreign])
    assert [(each.id, each.rho, each.end_offset) for each in found.charges()] == [("a", 0.001, 70)]
    assert sorted(found.journal.foreign) == list(range(2, 2 + len(foreign)))
    for why, expected in zip(found.journal.foreign.values(), foreign.values(), strict=True):
        assert expected in why
    assert f"the record at offset 2 of the topic '{SOURCE}.ledger' is not a record of a ledger" in caplog.text


def test_a_record_of_another_format_is_refused_with_the_way_out(ledger: Ledger) -> None:
    good = ledger.journal_record(charge("a"))
    told = r"offset 1 of .* format 2.* install the version .* copy the topic without it"
    with pytest.raises(LedgerDamaged, match=told):
        JournalFold(SOURCE, [good, good.replace(b'"v":1', b'"v":2')])


def test_a_redis_that_counts_in_another_unit_than_the_journal_is_damaged(
    ledger: Ledger, redis: Redis
) -> None:
    record = ledger.journal_record(charge("a")).replace(b'"event"', b'"user"')
    with pytest.raises(LedgerDamaged, match="delete the keys of this ledger"):
        with_journal(redis, [record])
