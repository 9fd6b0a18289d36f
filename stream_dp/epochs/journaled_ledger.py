"""The ledger of a data source with its journal, a topic that registry.py names: what everything that charges uses.

Redis orders charges while it is whole.  The journal is a log that nobody rewrites, so it has the last word: a charge
may be used once it stands there and fits beside all that stands before it.  So neither a lost Redis, nor one restored
from a backup at any moment, nor two processes that look at different times let more be spent than the budget.
"""

from redis import Redis

from stream_dp.config.connections import Kafka
from stream_dp.config.times import clock
from stream_dp.epochs.journal import append, check_journal
from stream_dp.epochs.people import whoever
from stream_dp.epochs.registry import Registry
from stream_dp.kafka import log
from stream_dp.privacy import composition
from stream_dp.privacy.composition import Budget, Charge, Unit
from stream_dp.privacy.vector import Vector
from stream_dp.store.ledger import BudgetExceeded, ChargeConflict, Ledger, LedgerDamaged, LedgerRefused
from stream_dp.store.ledger_records import Marks, Query, check_same
from stream_dp.store.pay_what_you_get import is_overdrawn


def look(kafka: Kafka, redis: Redis, source: str, registry: Registry | None = None) -> Ledger:
    """The ledger of a source completed by its journal, where there is one; nothing is made or put back.

    `registry`: as it was read just now, if it was.  Raises `LedgerRefused`.
    """
    ledger = Ledger(redis, source)
    topic = (registry or Registry(kafka)).ledger_of(source)
    if log.existing(kafka, topic):
        _read(kafka, topic, ledger, 0)
    return ledger


class JournaledLedger:
    """The ledger of a source, with every charge and every budget in its journal before anything is released.

    Opening it puts back what a Redis that was lost or rolled back has forgotten.  A new charge needs a budget, unless
    it is `unmetered`.  The first charge or budget registers a source that nobody has registered, so that nobody can
    name another journal for it afterwards.

    `at` is the time that the records tell, in milliseconds; None is that of the clock, for an operator's acts alone.
    Whoever has read data gives one that does not depend on how long that took.
    """

    def __init__(
        self,
        kafka: Kafka,
        redis: Redis,
        source: str,
        create_topics: bool = True,
        unmetered: bool = False,
        registry: Registry | None = None,
    ) -> None:
        """Raises `LedgerRefused`, also where the journal's topic cannot serve; made only where `create_topics`.

        `registry`: as it was read a while ago, if it was.  What it says of a source never changes, and what it does not
        say is read before anything is written.
        """
        self._ledger = Ledger(redis, source)
        self._kafka, self._create_topics, self._unmetered = kafka, create_topics, unmetered
        self._registry = registry or Registry(kafka)
        self._open()
        self.current().put_back()

    def _open(self) -> None:
        """Find the journal, and make it unless nobody has settled yet which topic it is."""
        source, registry = self._ledger.source, self._registry
        self._topic, self._read = registry.ledger_of(source), 0
        self._is_settled = registry.unit_of(source) is not None
        if self._is_settled and self._create_topics:
            log.create_topics(self._kafka, self._topic)
        if self._is_settled or not self._create_topics:
            try:
                check_journal(self._kafka, self._topic)
            except log.LogRefused as refused:
                raise LedgerRefused(str(refused)) from None

    def _settle(self, unit: Unit, at: int | None) -> None:
        """Register the source, if nobody has meanwhile, before anything is written: see registry.py."""
        registry, source = self._registry, self._ledger.source
        registry.read_on()
        if registry.unit_of(source) is None:
            registry.register("topic", source, source, unit, create_topics=self._create_topics, at=at)
        self._open()
        self._read_on()

    def current(self) -> Ledger:
        """The ledger, completed by all that its journal holds now: others may have charged and closed meanwhile."""
        self._read_on()
        return self._ledger

    def set_budget(
        self,
        epsilon: float,
        delta: float,
        unit: Unit,
        by: str | None = None,
        own_deltas: float | None = None,
    ) -> Budget:
        """Set or change the budget: first in the journal, then in Redis, so that a lower one counts at once.

        `by`: who sets it, else this user on this machine.  `own_deltas`: see `Budget`.  Raises ValueError for
        numbers out of range, `LedgerRefused`, and KafkaError with nothing set in Redis.
        """
        ledger = self.current()
        budget = ledger.wanted_budget(epsilon, delta, unit, own_deltas)
        ledger.check_budget(ledger.state(), budget)
        self._append(ledger.budget_record(budget, by or whoever()), unit)
        return ledger.set_budget(epsilon, delta, unit, budget.own_deltas)

    def charge(self, charge: Charge, marks: Marks | None = None, at: int | None = None) -> Charge:
        """Charge once; returns the charge as it stands.  Raises `LedgerRefused`.

        `marks` belongs to pay_what_you_get.py.
        """
        ledger = self.current()
        made = ledger.charge(charge, marks, metered=not self._unmetered, at=at)
        self._append(ledger.journal_record(made, marks), made.unit, at)
        self._require_its_place(charge)
        return made

    def close(
        self, charge_id: str, end_offset: int, at: int | None = None, further_ends: Vector = ()
    ) -> Charge:
        """Record that a charge read nothing from `end_offset` on, and of other partitions from `further_ends` on."""
        ledger = self.current()
        closed = ledger.close(charge_id, end_offset, further_ends)
        self._append(ledger.journal_record(closed), closed.unit, at)
        return closed

    def note_query(self, budget_id: str, query_id: str, query: Query, at: int | None = None) -> None:
        """Record a query of a pay-what-you-get budget.  Raises `BudgetExceeded` where it has no place."""
        ledger = self._ledger
        stored = ledger.state().stored[budget_id]
        if stored.marks is None:
            return
        marks = Marks(stored.marks.opened, {query_id: query})
        self._append(ledger.journal_record(stored.now, marks), stored.now.unit, at)
        if is_overdrawn(ledger.state(), budget_id):
            raise BudgetExceeded(
                f"the pay-what-you-get budget {budget_id!r} has given more marks than it holds, because Redis was lost "
                "or restored while it was drawn from: nothing is released; open one of another name"
            )

    def _require_its_place(self, charge: Charge) -> None:
        """Refuse a charge that the journal has otherwise, or that does not fit beside those before it there.

        Redis had forgotten those.  A charge that does not fit stays spent.  One that fitted stays good, whatever came
        after it.
        """
        made = self._ledger.journal.made(charge.id)
        if made is None:
            raise ChargeConflict(
                f"the journal of {self._ledger.source!r} does not take the charge {charge.id!r}, because it counts "
                "per another unit or time zone: nothing is released for it"
            )
        check_same(made, charge)
        state = self._ledger.state()
        if state.budget is None or not composition.refused(state.charges(), state.budget):
            return
        first, budget = self._ledger.journal.up_to(charge.id, state)
        if budget is not None and composition.refused(first, budget):
            raise BudgetExceeded(
                f"the charge {charge.id!r} was made on a Redis that had forgotten others, and beside them it does not "
                f"fit the budget of {self._ledger.source!r} (epsilon {budget.epsilon:g}, delta {budget.delta:g} per "
                f"{budget.unit}): it stays spent, and nothing is released for it"
            )

    def _append(self, record: bytes, unit: Unit, at: int | None = None) -> None:
        """Put a record into the journal, and take note of all that stands there up to it."""
        if not self._is_settled:
            self._settle(unit, at)
        offset = append(self._kafka, self._topic, record, clock() if at is None else at)
        if offset == self._read:
            self._ledger.journal.take(record, offset)
            self._read += 1
        else:
            self._read_on()

    def _read_on(self) -> None:
        if self._is_settled or log.existing(self._kafka, self._topic):
            self._read = _read(self._kafka, self._topic, self._ledger, self._read)


def _read(kafka: Kafka, topic: str, ledger: Ledger, start: int) -> int:
    """Have a ledger take the records of its journal from an offset on; returns the offset that follows them."""
    ledger.journal.topic = topic
    held = log.offsets(kafka, topic)
    if held.first:
        raise LedgerDamaged(
            f"the topic {topic!r} has lost its first {held.first} records, so nobody knows what was spent: restore it "
            "from a backup"
        )
    for record in log.read(kafka, topic, start, held.end):
        ledger.journal.take(record.value or b"", record.offset)
    return held.end
