"""Hundreds of attempts to spend more than a budget, and an account of its own of what was really spent on each event.

Whoever attacks may ask for jobs under any name, in a topic and on the command line, draw on pay-what-you-get budgets,
lose Redis, restore any backup of it, be slow between a look at the journal and a charge, ask for the same again, ask
from two threads at once, and set their clock.  Only the operator sets budgets.
"""

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from kafka import KafkaProducer
from redis import Redis
from typer.testing import CliRunner

from stream_dp.cli import app
from stream_dp.epochs.journaled_ledger import JournaledLedger
from stream_dp.epochs.registry import Registry
from stream_dp.jobs import steps
from stream_dp.jobs.books import ServedBooks
from stream_dp.jobs.request import BadRequest, JobRequest, request_from
from stream_dp.jobs.result import JobResult
from stream_dp.jobs.steps import Site, pay, prepare, settle
from stream_dp.kafka import log
from stream_dp.kafka.clients import kept_clients
from stream_dp.privacy.composition import Charge
from stream_dp.privacy.loss import pure
from stream_dp.store import any_ledger, journal_fold
from stream_dp.store.journal_fold import JournalFold
from stream_dp.store.ledger import LedgerRefused
from tests import redis_contents
from tests.system.accounts import DELTA, Account, Drawn, Overspent
from tests.system.broken_ledgers import believed, of_redis, overtaken, unread

SEEDS, ATTEMPTS = (22, 14, 24, 19, 3), 100
"""Each broken ledger below is caught in at least two of these runs."""
EVENTS, BLOCK = 16, 4
EPSILONS = (0.25, 0.5, 1.0)
BUDGETS = (1.0, 1.5, 2.0, 3.0)
KEY = bytes(32)
PAID_BY_MARKS = {
    "job": "top-k",
    "mechanism": "pay-what-you-get",
    "epsilon": 0.5,
    "delta": 1e-7,
    "kbar": 4,
    "marks": 8,
    "queries": 5,
}


class Attack:
    """One run: a master topic with a copy of it, a scratch source with a large budget, and many ledgers."""

    def __init__(self, kafka: str, redis: Redis, name: str, seed: int) -> None:
        self.kafka, self.redis, self.random = kafka, redis, random.Random(seed)
        place = redis.connection_pool.connection_kwargs
        self.url = f"redis://{place['host']}:{place['port']}/{place.get('db', 0)}"
        self.master, self.copy, self.foreign = (
            f"{name}-{each}.events" for each in ("master", "copy", "foreign")
        )
        self.scratch, self.account = f"{name}-scratch", Account(2.0)
        log.create_topics(kafka, self.master, self.copy, self.foreign)
        with_events(kafka, self.master, self.copy, self.foreign)
        registry = Registry(kafka)
        registry.register("topic", self.master, self.master, "event")
        registry.register("topic", self.copy, self.master, "event")
        self.open(self.scratch).set_budget(500.0, 1e-2, "event")
        self.open(self.master).set_budget(2 * self.account.budget, DELTA, "event")
        self.backups = [self.keys()]  # of before the operator has lowered it
        self.open(self.master).set_budget(self.account.budget, DELTA, "event")
        self.ledgers = [self.open(self.master) for _ in range(2)] + [overtaken(self.open(self.master))]
        self.asked: list[tuple[str, float, range]] = []
        self.at_once = 2
        self.drawn: dict[str, Drawn] = {}
        self.queries: list[JobRequest] = []

    def open(self, source: str) -> JournaledLedger:
        return JournaledLedger(self.kafka, self.redis, source)

    def keys(self) -> dict[bytes, bytes]:
        return redis_contents.dumps(self.redis, f"stream_dp:{{{self.master}}}:*")

    def run(self, attempts: int) -> Counter[str]:
        """How many attempts were let through, by their way.  Raises `Overspent`."""
        ways: list[tuple[int, Callable[[], int]]] = [
            (50, self.charge),
            (10, self.charge_again),
            (6, self.charge_at_once),
            (5, self.request),
            (3, self.command),
            (15, self.draw),
            (8, self.restore),
            (6, self.lose),
            (3, self.back_up),
            (6, self.open_anew),
            (6, self.set_budget),
        ]
        weights = [weight for weight, _ in ways]
        through = Counter[str]()
        for _ in range(attempts):
            [(_, way)] = self.random.choices(ways, weights)
            through[way.__name__] += way()
        return through

    def charge(self) -> int:
        events = self.some_events()
        return self.charge_as(f"job-{len(self.asked)}", self.random.choice(EPSILONS), events)

    def charge_again(self) -> int:
        """The same job once more, perhaps of one that was refused; it is the same release."""
        return self.charge_as(*self.random.choice(self.asked)) if self.asked else 0

    def charge_as(self, id_: str, epsilon: float, events: range, books: JournaledLedger | None = None) -> int:
        self.asked.append((id_, epsilon, events))
        try:
            (books or self.random.choice(self.ledgers)).charge(job(id_, epsilon, events))
        except LedgerRefused:
            return 0
        self.account.release(id_, epsilon, events)
        return 1

    def charge_at_once(self) -> int:
        """Two that each fit alone; what both got through is on the account of both."""
        events = self.some_events()
        jobs = [(f"pair-{len(self.asked)}-{each}", 1.0, events) for each in "ab"]
        self.asked += jobs

        def one(number: int) -> bool:
            try:
                self.ledgers[number].charge(job(*jobs[number]))
            except LedgerRefused:
                return False
            return True

        with ThreadPoolExecutor(self.at_once) as threads:
            passed = list(threads.map(one, range(2)))
        for each, through in zip(jobs, passed, strict=True):
            if through:
                self.account.release(*each)
        return sum(passed)

    def request(self) -> int:
        """What somebody who may only write `<stream>.jobs`, or call the command, can ask for."""
        topic, name, events, epsilon = self.something()
        asked: dict[str, Any] = {"topic": topic, "from": events.start, "to": events.stop}
        if name is not None:
            asked["name"] = name
        id_ = f"request-{len(self.asked)}"
        request = request_from(
            {"id": id_, "job": "top-k", "mechanism": "gap", "k": 2, "epsilon": epsilon, "source": asked}
        )
        assert isinstance(request, JobRequest)
        books = ServedBooks(self.kafka, self.redis)
        try:
            prepared = prepare(request, Site(self.kafka), books)
            pay(prepared, id_, KEY, books.ledger(prepared.name))
        except (BadRequest, LedgerRefused):
            return 0
        self.passed(id_, topic, epsilon, events)
        return 1

    def command(self) -> int:
        """The same on the command line."""
        topic, name, events, epsilon = self.something()
        place = ["--kafka", self.kafka, "--redis", self.url, "--topic", topic, "--json"]
        what = ["--mechanism", "gap", "-k", "2", "--epsilon", str(epsilon)]
        where = ["--from", str(events.start), "--to", str(events.stop), *(["--source", name] if name else [])]
        result = CliRunner().invoke(app, ["top-k", *place, *what, *where])
        assert result.exit_code in (0, 2), result.output
        if result.exit_code:
            return 0
        self.passed(json.loads(result.stdout)["id"], topic, epsilon, events)
        return 1

    def something(self) -> tuple[str, str | None, range, float]:
        """A topic, the source that is named, events and an epsilon."""
        topic = self.random.choice([self.master, self.copy, self.foreign])
        name = self.random.choice([None, self.master, self.copy, self.scratch])
        return topic, name, self.some_events(), self.random.choice(EPSILONS)

    def passed(self, id_: str, topic: str, epsilon: float, events: range) -> None:
        self.account.release(id_, epsilon, events)
        if topic == self.foreign:
            raise Overspent("a topic that nobody registered was read")

    def draw(self) -> int:
        """A query of a pay-what-you-get budget, perhaps one that was asked before; some are settled."""
        asked = {
            "id": f"query-{len(self.queries)}",
            "k": self.random.randint(1, 4),
            "budget": self.random.choice(["anna", "ben"]),
            "source": {"topic": self.master, "from": 0, "to": EVENTS},
        }
        request = request_from(PAID_BY_MARKS | asked)
        assert isinstance(request, JobRequest)
        self.queries.append(request)
        if self.random.random() < 0.2:
            request = self.random.choice(self.queries)
        name, k = str(request.budget), int(request.k or 0)
        books = self.random.choice(self.ledgers)
        prepared = prepare(request, Site(self.kafka), ServedBooks(self.kafka, self.redis))
        try:
            pay(prepared, request.id, KEY, books)
        except LedgerRefused:
            return 0
        assert prepared.calibrated.shared is not None
        drawn = self.drawn.setdefault(name, Drawn(prepared.calibrated.shared.opened))
        self.account.spend(f"budget {name}", drawn.spending, range(EVENTS))
        if request.id not in drawn.marks:
            drawn.take(request.id, k)
            self.settle(request, drawn, self.random.randint(0, k), books)
        return 1

    def settle(self, request: JobRequest, drawn: Drawn, marks: int, books: JournaledLedger) -> None:
        """What the query did not return goes back to its budget."""
        if self.random.random() < 0.5:
            result = JobResult(id=request.id, status="done", labels=["tea"] * marks)
            try:
                settle(request, request.id, KEY, result, books)
            except LedgerRefused:
                return
            drawn.take(request.id, marks)

    def restore(self) -> int:
        self.lose()
        for key, value in self.random.choice(self.backups).items():
            self.redis.restore(key, 0, value)
        return 0

    def lose(self) -> int:
        self.redis.delete(*self.redis.keys(f"stream_dp:{{{self.master}}}:*"), "none")
        return 0

    def back_up(self) -> int:
        self.backups.append(self.keys())
        return 0

    def open_anew(self) -> int:
        opened = self.open(self.master)
        self.ledgers[self.random.randrange(len(self.ledgers))] = self.random.choice(
            [opened, overtaken(opened)]
        )
        return 0

    def set_budget(self) -> int:
        """The operator's: a budget that covers what is spent holds from then on."""
        epsilon = self.random.choice(BUDGETS)
        try:
            self.open(self.master).set_budget(epsilon, DELTA, "event", "operator")
        except LedgerRefused:
            return 0
        self.account.budget = epsilon
        return 0

    def some_events(self) -> range:
        start = self.random.randrange(0, EVENTS, BLOCK)
        return range(start, start + BLOCK) if self.random.random() < 0.9 else range(EVENTS)


def job(id_: str, epsilon: float, events: range) -> Charge:
    return Charge(
        id=id_,
        what=id_,
        unit="event",
        rho=epsilon**2 / 2,
        delta=0.0,
        first_offset=events.start,
        end_offset=events.stop,
        digest=id_,
        exact=(epsilon, 0.0),
        loss=pure(epsilon),
    )


def with_events(kafka: str, *topics: str) -> None:
    producer = KafkaProducer(bootstrap_servers=kafka)
    try:
        for topic in topics:
            for sent in [producer.send(topic, b'{"items": ["tea"]}') for _ in range(EVENTS)]:
                sent.get(60)
    finally:
        producer.close()


@pytest.fixture
def attack(
    kafka: str, redis_url: str, topic_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[int], Attack]]:
    """Makes an attack of a seed; the clocks of those who charge differ by decades."""
    clock = random.Random(7)
    monkeypatch.setattr(any_ledger, "clock", lambda: clock.randrange(2**42))
    with Redis.from_url(redis_url) as redis, kept_clients():
        yield lambda seed: Attack(kafka, redis, f"{topic_prefix}-{seed}", seed)


def test_hundreds_of_attempts_spend_no_more_than_the_budget(attack: Callable[[int], Attack]) -> None:
    through = attempts(attack)
    assert through.total() > 50
    assert {"charge", "charge_again", "request", "command", "draw"} <= set(+through)


def attempts(attack: Callable[[int], Attack], at_once: int = 2) -> Counter[str]:
    """All of them, with so many threads; how many were let through.  With one thread each run is the same."""
    through = Counter[str]()
    for seed in SEEDS:
        running = attack(seed)
        running.at_once = at_once
        through += running.run(ATTEMPTS)
    return through


@pytest.mark.parametrize(
    ("owner", "name", "wrong"),
    [
        (steps, "owner_of", believed),
        (JournalFold, "completed", unread),
        (journal_fold, "lower", of_redis),
        (JournaledLedger, "_require_its_place", lambda *_: None),
        (JournaledLedger, "note_query", lambda *_: None),
    ],
    ids=["registry-ignored", "journal-ignored", "lower-ignored", "last-word-ignored", "queries-forgotten"],
)
def test_a_broken_ledger_is_caught(
    attack: Callable[[int], Attack], monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, wrong: Any
) -> None:
    monkeypatch.setattr(owner, name, wrong)
    with pytest.raises(Overspent):
        attempts(attack, at_once=1)
