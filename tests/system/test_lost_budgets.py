"""Budgets and charges when Redis is lost, or restored from a backup, between any two steps of anybody."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from redis import Redis

from stream_dp.epochs.journaled_ledger import JournaledLedger, look
from stream_dp.privacy.composition import Budget, Charge
from stream_dp.privacy.loss import pure
from stream_dp.store import any_ledger, journal_fold
from stream_dp.store.journal_fold import JournalFold
from stream_dp.store.ledger import BudgetExceeded, NoBudget
from tests import redis_contents
from tests.system.broken_ledgers import boundless, of_redis, overtaken, unread

DELTA = 1e-6


class Ledgers:
    """Ledgers of one source that open when they are asked for, and a Redis that can be lost and restored."""

    def __init__(self, kafka: str, redis: Redis, source: str) -> None:
        self.kafka, self.redis, self.source = kafka, redis, source

    def open(self) -> JournaledLedger:
        return JournaledLedger(self.kafka, self.redis, self.source)

    def keys(self) -> dict[bytes, bytes]:
        """A backup of all that Redis has of the source."""
        return redis_contents.dumps(self.redis, f"stream_dp:{{{self.source}}}:*")

    def put(self, backup: dict[bytes, bytes]) -> None:
        """Restore a backup; an empty one loses everything."""
        self.redis.delete(*self.keys())
        for key, value in backup.items():
            self.redis.restore(key, 0, value)


@pytest.fixture
def ledgers(kafka: str, redis_url: str, topic_prefix: str) -> Iterator[Ledgers]:
    with Redis.from_url(redis_url) as redis:
        yield Ledgers(kafka, redis, f"{topic_prefix}.events")


def budget_of(books: JournaledLedger) -> Budget:
    """The budget that is set."""
    budget = books.current().budget()
    assert budget is not None
    return budget


def charge(id_: str, epsilon: float) -> Charge:
    """A pure epsilon-DP job on all offsets."""
    return Charge(
        id=id_,
        what=f"job {id_}",
        unit="event",
        rho=epsilon**2 / 2,
        delta=0.0,
        first_offset=0,
        end_offset=None,
        digest=id_,
        exact=(epsilon, 0.0),
        loss=pure(epsilon),
    )


def test_a_lowered_budget_stays_low_when_redis_is_lost_or_restored(ledgers: Ledgers) -> None:
    ledgers.open().set_budget(10.0, DELTA, "event", "ops")
    before = ledgers.keys()
    ledgers.open().set_budget(1.2, DELTA, "event", "ops")
    for backup in (before, {}):
        ledgers.put(backup)
        books = ledgers.open()
        assert budget_of(books).epsilon == 1.2
        with pytest.raises(BudgetExceeded):
            books.charge(charge("much", 5.0))
    assert [each.by for each in look(ledgers.kafka, ledgers.redis, ledgers.source).journal.budgets] == [
        "ops",
        "ops",
    ]


def test_a_budget_is_raised_where_both_have_it(ledgers: Ledgers) -> None:
    ledgers.open().set_budget(1.2, DELTA, "event")
    before = ledgers.keys()
    ledgers.open().set_budget(10.0, DELTA, "event")
    ledgers.put(before)
    assert budget_of(ledgers.open()).epsilon == 1.2
    ledgers.open().set_budget(10.0, DELTA, "event")
    ledgers.open().charge(charge("much", 5.0))


def test_of_two_budgets_the_lesser_epsilon_and_the_lesser_delta_count(ledgers: Ledgers) -> None:
    ledgers.open().set_budget(2.0, 1e-7, "event")
    before = ledgers.keys()
    ledgers.open().set_budget(1.0, 1e-5, "event")
    ledgers.put(before)
    found = budget_of(ledgers.open())
    assert (found.epsilon, found.delta) == (1.0, 1e-7)


def test_without_a_budget_nothing_new_is_charged(ledgers: Ledgers) -> None:
    with pytest.raises(NoBudget, match=f"budget set --source {ledgers.source}"):
        ledgers.open().charge(charge("sixty", 60.0))
    assert ledgers.open().current().charges() == []
    unmetered = JournaledLedger(ledgers.kafka, ledgers.redis, ledgers.source, unmetered=True)
    unmetered.charge(charge("sixty", 60.0))
    ledgers.put({})
    ledgers.open().charge(charge("sixty", 60.0))  # made already, and asked for again
    with pytest.raises(BudgetExceeded):
        ledgers.open().set_budget(1.0, DELTA, "event")


@pytest.mark.parametrize(
    ("bypass", "owner", "name", "wrong"),
    [
        (
            test_a_lowered_budget_stays_low_when_redis_is_lost_or_restored,
            journal_fold,
            "lower",
            of_redis,
        ),
        (test_a_lowered_budget_stays_low_when_redis_is_lost_or_restored, JournalFold, "completed", unread),
        (test_without_a_budget_nothing_new_is_charged, any_ledger, "require_room", boundless),
    ],
    ids=["lower-ignored", "journal-ignored", "no-budget-ignored"],
)
def test_a_ledger_that_forgets_a_budget_or_does_without_is_caught(
    bypass: Callable[[Ledgers], None],
    owner: Any,
    name: str,
    wrong: Any,
    ledgers: Ledgers,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(owner, name, wrong)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        bypass(ledgers)


@pytest.mark.parametrize("kept", ["nothing", "the budget"])
def test_two_that_are_open_while_redis_is_lost_do_not_spend_twice(ledgers: Ledgers, kept: str) -> None:
    ledgers.open().set_budget(1.2, DELTA, "event")
    before = ledgers.keys() if kept == "the budget" else {}
    first, second, third = ledgers.open(), overtaken(ledgers.open()), overtaken(ledgers.open())
    first.charge(charge("first", 1.2))
    for late, backup in ((second, before), (third, {})):
        ledgers.put(backup)
        for _ in range(2):  # asked for again, it is as little
            with pytest.raises(BudgetExceeded, match="had forgotten others"):
                late.charge(charge("late", 1.2))
    first.charge(charge("first", 1.2))
    ledgers.open().charge(charge("first", 1.2))


def test_a_budget_that_is_lowered_elsewhere_counts_for_those_that_are_open(ledgers: Ledgers) -> None:
    ledgers.open().set_budget(10.0, DELTA, "event")
    before, open_since = ledgers.keys(), ledgers.open()
    ledgers.open().set_budget(1.2, DELTA, "event")
    ledgers.put(before)
    with pytest.raises(BudgetExceeded):
        open_since.charge(charge("much", 5.0))


def test_times_of_charges_outlive_redis(ledgers: Ledgers) -> None:
    ledgers.open().set_budget(10.0, DELTA, "event")
    ledgers.open().charge(charge("a", 1.0))
    [made] = ledgers.open().current().state().in_order()
    assert made.at is not None
    ledgers.put({})
    assert ledgers.open().current().state().in_order() == [made]


@pytest.mark.parametrize("first", ["a", "b"])
def test_charges_stay_in_the_order_in_which_they_were_made(ledgers: Ledgers, first: str) -> None:
    """What the first one settles stays settled, also where another took its place on a Redis that was lost."""
    ledgers.open().set_budget(10.0, DELTA, "event")
    before, one, other = ledgers.keys(), ledgers.open(), overtaken(ledgers.open())
    one.charge(charge(first, 0.5))
    one.charge(charge("c", 0.5))
    ledgers.put(before)
    other.charge(charge("z", 0.5))
    ledgers.put({})
    made = ledgers.open().current().state().in_order()
    assert [each.made.id for each in made] == [first, "z", "c"]
    assert len({each.number for each in made}) == 3
