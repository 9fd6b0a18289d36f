"""The privacy ledger of a data source in Redis: its budget, and every charge that was ever made on it.

A source is an events topic, or a file that names the topic it was exported from or itself.  Everything that reads the
source charges its one ledger BEFORE anything is released.  Keys, which a cluster keeps together:

    stream_dp:{<source>}:budget          the unit, the budget where one was set, and the number of charges
    stream_dp:{<source>}:charges         hash: charge id -> the charge and what has become of it
    stream_dp:{<source>}:durability      written only to wait for it

Every change is one WATCH ... MULTI ... EXEC, and is on the disk of Redis before the call returns.
What the sums mean, and why the rule by which a charge fits is a valid one: docs/budget.md.
"""

import logging
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from redis import Redis
from redis.client import Pipeline as Transaction
from redis.exceptions import ResponseError, WatchError

from stream_dp.privacy import composition
from stream_dp.privacy.composition import Budget, Charge, Room, Spent, Unit
from stream_dp.store.ledger_records import (
    FORMAT,
    BudgetExceeded,
    Change,
    ChargeConflict,
    Entry,
    LedgerDamaged,
    LedgerRefused,
    Marks,
    NotDurable,
    State,
    Stored,
    UnitMismatch,
    check_same,
    does_not_fit,
    merged,
    read_journal,
    too_small,
    unpack,
)

__all__ = [
    "Budget",
    "BudgetExceeded",
    "Charge",
    "ChargeConflict",
    "Ledger",
    "LedgerDamaged",
    "LedgerRefused",
    "NotDurable",
    "UnitMismatch",
]

_SOURCE_CHARACTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")
_DURABLE_MILLISECONDS = 4_000  # below the five seconds after which a client stops waiting for an answer

logger = logging.getLogger(__name__)


class Ledger:
    """The ledger of one source.  Any number of processes may use it at once.

    Every method raises `LedgerRefused` (one of its kinds) or `redis.exceptions.RedisError`.
    """

    def __init__(self, redis: Redis, source: str) -> None:
        if not 0 < len(source) <= 249 or not _SOURCE_CHARACTERS.issuperset(source):
            raise LedgerRefused(
                f"{source!r} names no data source: give the events topic that the data come from, or for a file of "
                "its own a name of at most 249 letters, digits, '.', '_' and '-'"
            )
        self.source = source
        self._redis = redis
        self._prefix = f"stream_dp:{{{source}}}:"
        self._warned: set[str] = set()

    def state(self) -> State:
        """Unit, budget and charges of one moment."""
        with self._redis.pipeline(transaction=True) as transaction:
            transaction.get(self._prefix + "budget")
            transaction.hgetall(self._prefix + "charges")
            return unpack(self.source, *transaction.execute())

    def budget(self) -> Budget | None:
        """The budget, or None where none was set: then charges are recorded and nothing is refused."""
        return self.state().budget

    def charges(self) -> list[Charge]:
        """All charges in the order in which they were made; a closed one with the end it was closed at."""
        return self.state().charges()

    def spent(self) -> Spent:
        """What the charges add up to at the worst offset, at the budget's delta.

        Without a budget, at twice the sum of the charges' deltas, and at least at 1e-6.
        """
        state = self.state()
        delta = state.budget.delta if state.budget is not None else None
        return composition.spent(state.charges(), state.unit or "event", delta)

    def room(self, first_offset: int = 0, end_offset: int | None = None) -> Room | None:
        """What one more charge on these offsets may cost; None where no budget was set."""
        state = self.state()
        if state.budget is None:
            return None
        return composition.room(state.charges(), state.budget, first_offset, end_offset)

    def set_budget(self, epsilon: float, delta: float, unit: Unit) -> Budget:
        """Set or change the budget; refused below what is spent already.  ValueError for numbers out of range."""
        budget = Budget(epsilon=epsilon, delta=delta, unit=unit)

        def change(state: State) -> Change:
            self._check_unit(state, unit)
            exceeded = composition.refused(state.charges(), budget)
            if exceeded:
                raise BudgetExceeded(too_small(self.source, budget, exceeded))
            return Change(budget)

        self.update(change)
        return budget

    def charge(self, charge: Charge, marks: Marks | None = None) -> Charge:
        """Charge once, however often it is called with the same charge; returns the charge as it stands now.

        The one returned has another `end_offset` if it was closed since: nothing past that end is paid for.
        `marks` belongs to pay_what_you_get.py.
        """

        def change(state: State) -> Change:
            self._check_unit(state, charge.unit)
            known = state.stored.get(charge.id)
            if known is not None:
                check_same(known.made, charge)
                return Change()
            charges = state.charges()
            if state.budget is not None and composition.refused([*charges, charge], state.budget):
                left = composition.room(charges, state.budget, charge.first_offset, charge.end_offset)
                raise BudgetExceeded(does_not_fit(self.source, state.budget, charge, left))
            return Change(stored=(Stored(len(state.stored) + 1, charge, marks=marks),))

        before = self.update(change)
        if before.budget is None:
            self._warn_once(
                f"the source {self.source!r} has no budget, so charges are recorded and nothing is refused: set one "
                "with `stream-dp budget set`"
            )
        known = before.stored.get(charge.id)
        return charge if known is None else known.now

    def close(self, charge_id: str, end_offset: int) -> Charge:
        """Record that an open-ended charge read nothing from `end_offset` on, and never will.

        Only the first close counts: one with another end is refused.
        """

        def change(state: State) -> Change:
            known = state.stored.get(charge_id)
            if known is None:
                raise ChargeConflict(f"the ledger of {self.source!r} has no charge {charge_id!r} to close")
            if known.now.end_offset == end_offset:
                return Change()
            if known.now.end_offset is not None:
                raise ChargeConflict(
                    f"the charge {charge_id!r} ends at offset {known.now.end_offset} already, not at {end_offset}: "
                    "charge anew for what is read beyond"
                )
            if end_offset < known.made.first_offset:
                raise ChargeConflict(
                    f"the charge {charge_id!r} begins at offset {known.made.first_offset}: it cannot end at "
                    f"{end_offset}"
                )
            return Change(stored=(msgspec.structs.replace(known, closed_at=end_offset),))

        before = self.update(change)
        return msgspec.structs.replace(before.stored[charge_id].made, end_offset=end_offset)

    def journal_record(self, charge: Charge, marks: Marks | None = None) -> bytes:
        """What to append to the source's journal for whatever `charge` and `close` return; holds the budget too.

        `marks`: a pay-what-you-get budget, with those of its queries that have changed.
        """
        return msgspec.json.encode(Entry(FORMAT, self.source, charge, self.budget(), marks))

    def behind(self, records: Iterable[bytes]) -> list[Charge]:
        """The charges of the journal that Redis lacks, or still has open: not empty if Redis was rolled back."""
        return [stored.now for stored in self._missing(self.state(), records)[1]]

    def restore(self, records: Iterable[bytes]) -> list[Charge]:
        """Put back what the journal holds and Redis lacks, also beyond the budget; returns the charges put back.

        They were accepted once and stay spent.  A budget is taken from the journal only where Redis has none.
        """
        kept = list(records)
        back: list[Charge] = []

        def change(state: State) -> Change:
            budget, missing = self._missing(state, kept)
            back[:] = [stored.now for stored in missing]
            return Change(None if state.budget else budget, tuple(missing))

        self.update(change)
        return back

    def _missing(self, state: State, records: Iterable[bytes]) -> tuple[Budget | None, list[Stored]]:
        """The last budget of the journal, and what to store so that Redis holds every charge of the journal."""
        budget: Budget | None = None
        unit = state.unit
        found: dict[str, Stored] = {}
        new = len(state.stored)
        for entry in (read_journal(self.source, record) for record in records):
            charge, budget = entry.charge, entry.budget or budget
            unit = unit or charge.unit
            self._check_unit(State(unit, None, {}), charge.unit)
            known = found.get(charge.id) or state.stored.get(charge.id)
            new += known is None
            found[charge.id] = merged(known, entry, new)
        return budget, [stored for stored in found.values() if state.stored.get(stored.made.id) != stored]

    def _check_unit(self, state: State, unit: Unit) -> None:
        if state.unit not in (None, unit):
            raise UnitMismatch(
                f"the ledger of {self.source!r} counts per {state.unit}, and the two units cannot be added: use "
                f"the unit {state.unit} instead of {unit}"
            )

    def update(self, change: Callable[[State], Change]) -> State:
        """Apply `change` to what Redis holds, atomically and durably; returns what Redis held before.

        `change` may run several times.  Where it changes nothing, an earlier call may have ended before it knew
        that its change is durable: so this one waits for it all the same.
        """
        while True:
            try:
                with self._redis.pipeline(transaction=True) as transaction:
                    transaction.watch(self._prefix + "budget", self._prefix + "charges")
                    state = self.state()  # both keys at one moment, which two reads here would not be
                    self._write(transaction, state, change(state))
                break
            except WatchError:  # another process was faster, or the answer was lost: look again
                continue
        self._make_durable()
        return state

    def _write(self, transaction: Transaction, state: State, change: Change) -> None:
        if change.budget is None and not change.stored:
            return
        transaction.multi()
        transaction.set(self._prefix + "budget", msgspec.msgpack.encode(change.header(state)))
        for stored in change.stored:
            packed: Any = msgspec.msgpack.encode(stored)
            transaction.hset(self._prefix + "charges", stored.made.id, packed)
        transaction.execute()

    def _make_durable(self) -> None:
        """Wait until all that was written before is on the disk of Redis.

        The file is written in order, so it is enough to wait for one more write on the connection that waits.
        """
        with self._redis.pipeline(transaction=False) as pipeline:
            pipeline.set(self._prefix + "durability", b"")
            pipeline.execute_command("WAITAOF", 1, 0, _DURABLE_MILLISECONDS)
            written, waited = pipeline.execute(raise_on_error=False)
        if isinstance(written, Exception):
            raise written
        if isinstance(waited, ResponseError) and "appendonly" in str(waited):
            self._warn_once("charges may be lost when Redis is lost: turn appendonly on")
        elif isinstance(waited, ResponseError) and "unknown command" in str(waited):
            self._warn_once(
                "this Redis cannot tell when a charge is on its disk: use Valkey, or Redis from 7.2 on, or at least "
                "set appendonly to yes and appendfsync to always"
            )
        elif isinstance(waited, Exception):
            raise waited
        elif waited[0] < 1:
            raise NotDurable(
                f"Redis did not write to its disk within {_DURABLE_MILLISECONDS / 1000:g} s, so nothing may be "
                "released: look at its disk, set appendfsync to always or everysec, and try again"
            )

    def _warn_once(self, warning: str) -> None:
        if warning not in self._warned:
            self._warned.add(warning)
            logger.warning(warning)
