"""Where the charges of a source are written: one topic, whoever writes, and whatever is said about it later."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from stream_dp.cli import app
from stream_dp.epochs import registry as registry_file
from stream_dp.epochs.journal import append
from stream_dp.epochs.journaled_ledger import JournaledLedger, look
from stream_dp.epochs.registry import TOPIC, Registry, default_ledger
from stream_dp.kafka import log
from stream_dp.store.ledger import BudgetExceeded, LedgerRefused
from tests.system.test_lost_budgets import DELTA, Ledgers, charge, ledgers
from tests.system.waiting import GIVE_UP_SECONDS

__all__ = ["ledgers"]


@pytest.fixture
def place(ledgers: Ledgers) -> "Place":
    return Place(ledgers)


class Place:
    """A source, and the topic in which an operator wants its charges."""

    def __init__(self, ledgers: Ledgers) -> None:
        self.ledgers, self.source = ledgers, ledgers.source
        self.kafka, self.topic = ledgers.kafka, f"privacy.{ledgers.source}"

    def command(self, *words: str, source: str | None = None) -> Result:
        pool = self.ledgers.redis.connection_pool.connection_kwargs
        url = f"redis://{pool['host']}:{pool['port']}/{pool.get('db', 0)}"
        where = ["--source", source or self.source, "--kafka", self.kafka, "--redis", url]
        return CliRunner().invoke(app, [*words, *where])

    def budget_set(self, *more: str, epsilon: float = 2.0, source: str | None = None) -> Result:
        return self.command(
            "budget", "set", "--epsilon", str(epsilon), "--delta", "1e-6", *more, source=source
        )

    def charges_in(self, topic: str) -> int:
        return log.offsets(self.kafka, topic).end if log.existing(self.kafka, topic) else 0

    def forge(self, **changed: Any) -> None:
        """Append a record about the source to the registry, as somebody with the right to write there could."""
        record = {"v": 1, "kind": "topic", "name": self.source, "source": self.source, "unit": "event"}
        append(self.kafka, TOPIC, json.dumps(record | {"by": "x", "at": ""} | changed).encode(), 1)


def test_a_ledger_lives_where_the_first_command_about_its_source_says(place: Place) -> None:
    assert place.budget_set("--ledger", place.topic).exit_code == 0
    place.ledgers.open().charge(charge("one", 0.5))
    place.ledgers.put({})
    assert look(place.kafka, place.ledgers.redis, place.source).charges()
    assert (place.charges_in(place.topic), place.charges_in(default_ledger(place.source))) == (2, 0)
    assert place.budget_set(epsilon=3.0).exit_code == 0
    assert place.budget_set("--ledger", place.topic, epsilon=3.5).exit_code == 0
    with pytest.raises(BudgetExceeded):
        place.ledgers.open().charge(charge("much", 4.0))


def another_record(place: Place) -> None:
    """A record that was appended later names another topic."""
    place.forge(ledger=f"{place.source}.elsewhere")


def another_name(place: Place) -> None:
    """So does one about another topic of the source."""
    place.forge(name=f"{place.source}.copy", ledger=f"{place.source}.elsewhere")


def another_budget(place: Place) -> None:
    """And a second `budget set`, which is refused."""
    told = place.budget_set("--ledger", f"{place.source}.elsewhere", epsilon=500.0)
    assert told.exit_code == 2
    assert "a ledger never moves: leave --ledger out" in " ".join(told.stderr.split())


ATTACKS = another_record, another_name, another_budget


@pytest.mark.parametrize("attack", ATTACKS, ids=[each.__name__ for each in ATTACKS])
@pytest.mark.parametrize("words", [(), ("--ledger",)], ids=["default", "named"])
def test_a_ledger_never_moves(attack: Callable[[Place], None], words: tuple[str, ...], place: Place) -> None:
    named = (*words, place.topic) if words else ()
    assert place.budget_set(*named).exit_code == 0
    first, open_already = place.ledgers.open(), place.ledgers.open()
    first.charge(charge("one", 1.2))
    attack(place)
    place.ledgers.put({})
    anew = JournaledLedger(place.kafka, place.ledgers.redis, place.source, unmetered=True)
    for books in (anew, open_already):
        with pytest.raises(BudgetExceeded):
            books.charge(charge("two", 1.2))
    assert place.charges_in(f"{place.source}.elsewhere") == 0


def test_of_two_budgets_set_at_once_one_says_where_the_ledger_is(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = [f"{place.topic}.{number}" for number in range(2)]
    both = Barrier(2, timeout=GIVE_UP_SECONDS)

    def when_both_have_looked(kafka: Any, topic: str, value: bytes, at: int) -> int:
        both.wait()
        return append(kafka, topic, value, at)

    def budget_set(topic: str) -> str:
        """What the command does, which reads and writes the output of this whole process."""
        try:
            Registry(place.kafka).register("topic", place.source, place.source, "event", ledger=topic)
        except LedgerRefused as refused:
            return str(refused)
        place.ledgers.open().set_budget(2.0, DELTA, "event")
        return topic

    monkeypatch.setattr(registry_file, "append", when_both_have_looked)
    with ThreadPoolExecutor(2) as threads:
        settled, refused = sorted(threads.map(budget_set, places), key=lambda told: "never moves" in told)
    assert "never moves" in refused
    assert Registry(place.kafka).ledger_of(place.source) == settled
    assert {topic: place.charges_in(topic) for topic in places} == {
        topic: int(topic == settled) for topic in places
    }


def test_whoever_opened_the_ledger_before_its_place_was_settled_charges_there(place: Place) -> None:
    early, unmetered = (
        JournaledLedger(place.kafka, place.ledgers.redis, place.source, unmetered=each)
        for each in (False, True)
    )
    assert place.budget_set("--ledger", place.topic).exit_code == 0
    early.charge(charge("one", 1.2))
    with pytest.raises(BudgetExceeded):
        unmetered.charge(charge("two", 1.2))
    assert (place.charges_in(place.topic), place.charges_in(default_ledger(place.source))) == (2, 0)


def test_a_first_charge_settles_the_place(place: Place) -> None:
    books = JournaledLedger(place.kafka, place.ledgers.redis, place.source, unmetered=True)
    books.charge(charge("one", 1.2))
    another_budget(place)
    place.ledgers.put({})
    assert place.ledgers.open().current().charges()


@pytest.mark.apache("topics")
def test_a_topic_that_cannot_be_a_ledger_is_refused_and_nothing_is_settled(place: Place) -> None:
    other = f"{place.source}-2"
    assert place.budget_set("--ledger", f"{other}.charges", source=other).exit_code == 0
    log.create_topics(place.kafka, f"{other}.rows")
    append(place.kafka, f"{other}.rows", b"tea", 1)
    log.create_topics(place.kafka, f"{other}.wide", partitions=2)
    refusals = {
        place.source: "holds no charges: name a topic of its own",
        other: "holds no charges: name a topic of its own",
        TOPIC: "holds no charges: name a topic of its own",
        f"{other}.charges": f"has the charges of '{other}': name another one",
        f"{other}.rows": "is not a record of a ledger: name an empty topic",
        f"{other}.wide": "use a topic with one partition",
        "no/topic": "names no",
    }
    for topic, told in refusals.items():
        refused = place.budget_set("--ledger", topic)
        assert (refused.exit_code, told in " ".join(refused.stderr.split())) == (2, True), refused.stderr
    assert place.budget_set("--ledger", place.topic, epsilon=2000.0).exit_code == 2
    assert Registry(place.kafka).unit_of(place.source) is None
    with pytest.raises(LedgerRefused, match="is a ledger and holds no events"):
        Registry(place.kafka).register("topic", f"{other}.charges", place.source, "event")
    assert place.budget_set("--ledger", place.topic).exit_code == 0


def the_last(self: Registry, source: str) -> str:
    """Wrong: the record that was appended last says where the ledger is."""
    said = [
        json.loads(record.value or b"")
        for record in log.read(self._kafka, TOPIC, 0, log.offsets(self._kafka, TOPIC).end)
    ]
    named = [each.get("ledger") for each in said if each["source"] == source]
    return (named[-1] if named else None) or default_ledger(source)


@pytest.mark.parametrize("attack", [another_record, another_name])
def test_a_registry_that_believes_the_last_record_is_caught(
    attack: Callable[[Place], None], place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Registry, "ledger_of", the_last)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        test_a_ledger_never_moves(attack, ("--ledger",), place)
