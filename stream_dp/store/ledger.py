"""The privacy ledger of a data source in Redis: its budget, and every charge that was ever made on it.

A source is an events topic, or a file that names the topic it was exported from or itself.  Everything that reads the
source charges its one ledger BEFORE anything is released.  Keys, which a cluster keeps together:

    stream_dp:{<source>}:budget          a digest of the whole ledger, the unit, and the budget where one was set
    stream_dp:{<source>}:charges         hash: charge id -> the charge and what has become of it
    stream_dp:{<source>}:ledger-key      the key of the digest: 32 random bytes
    stream_dp:{<source>}:durability      written only to wait for it

Every change is one WATCH ... MULTI ... EXEC, and is on the disk of Redis before the call returns.
Every look is completed by what is known of the ledger's journal (journal_fold.py), which outlives a lost Redis.
What the sums mean, and why the rule by which a charge fits is a valid one: docs/budget.md.
"""

import logging
from collections.abc import Callable
from typing import Any

import msgspec
from redis import Redis
from redis.client import Pipeline as Transaction
from redis.exceptions import NoPermissionError, ResponseError

from stream_dp.config.times import clock, iso_second, now
from stream_dp.privacy import composition
from stream_dp.privacy.composition import Budget, Charge, Room, Spent, Unit
from stream_dp.privacy.keyed_noise import KEY_BYTES, new_key
from stream_dp.privacy.vector import Vector, offsets_text
from stream_dp.store.journal_fold import JournalFold
from stream_dp.store.ledger_records import (
    FORMAT,
    BudgetExceeded,
    BudgetSet,
    Change,
    ChargeConflict,
    Entry,
    LedgerDamaged,
    LedgerRefused,
    Marks,
    NoBudget,
    NotDurable,
    State,
    Stored,
    UnitMismatch,
    check_same,
    check_source,
    check_unit,
    damaged,
    seal,
    unpack,
)
from stream_dp.store.ledger_room import require_room
from stream_dp.store.ledger_sentences import other_share, too_small
from stream_dp.store.seals import Seals

__all__ = [
    "Budget",
    "BudgetExceeded",
    "Charge",
    "ChargeConflict",
    "Ledger",
    "LedgerDamaged",
    "LedgerRefused",
    "NoBudget",
    "NotDurable",
    "UnitMismatch",
]

_DURABLE_MILLISECONDS = 4_000  # below the five seconds after which a client stops waiting for an answer
_NO_FILE = "charges may be lost when Redis is lost: turn appendonly on"
_CANNOT_TELL = (
    "this Redis cannot tell when a charge is on its disk: use Valkey, or Redis from 7.2 on, or at least set appendonly "
    "to yes and appendfsync to always"
)

logger = logging.getLogger(__name__)


class Ledger:
    """The ledger of one source.  Any number of processes may use it at once.

    Every method raises `LedgerRefused` (one of its kinds) or `redis.exceptions.RedisError`.
    """

    def __init__(self, redis: Redis, source: str) -> None:
        check_source(source)
        self.source = source
        self.journal = JournalFold(source)
        self._redis = redis
        names = ("ledger-key", "budget", "charges", "durability")
        self._key, self._budget, self._charges, self._durability = (
            f"stream_dp:{{{source}}}:{name}" for name in names
        )
        self._warned: set[str] = set()

    def state(self) -> State:
        """Unit, budget and charges of one moment, completed by what is known of the journal."""
        return self.journal.completed(self.held())

    def held(self) -> State:
        """Unit, budget and charges that Redis holds at one moment."""
        return self._look()[0]

    def _look(self) -> tuple[State, bytes]:
        """What Redis holds, and the key of its digest: another one if it holds nothing."""
        with self._redis.pipeline(transaction=True) as transaction:
            transaction.get(self._key)
            transaction.get(self._budget)
            transaction.hgetall(self._charges)
            try:
                key, packed, charges = transaction.execute()
            except ResponseError as error:
                if "WRONGTYPE" in str(error):
                    raise damaged(self.source) from None
                raise
        whole = key is not None and len(key) == KEY_BYTES
        state = unpack(self.source, self._seals(key) if whole else None, packed, charges)
        return state, key if packed is not None else new_key()

    def _seals(self, key: bytes) -> Seals:
        return Seals(key, self.source)

    def budget(self) -> Budget | None:
        """The budget, or None where none was set."""
        return self.state().budget

    def charges(self) -> list[Charge]:
        """All charges in the order in which they were made; a closed one with the end it was closed at."""
        return self.state().charges()

    def spent(self) -> Spent:
        """See `State.spent`."""
        return self.state().spent()

    def room(
        self, first_offset: int = 0, end_offset: int | None = None, further_offsets: Vector = ()
    ) -> Room | None:
        """See `State.room`."""
        return self.state().room(first_offset, end_offset, further_offsets)

    def set_budget(self, epsilon: float, delta: float, unit: Unit, own_deltas: float | None = None) -> Budget:
        """Set or change the budget in Redis; refused below what is spent.  ValueError for numbers out of range."""
        budget = self.wanted_budget(epsilon, delta, unit, own_deltas)

        def change(state: State) -> Change:
            self.check_budget(state, budget)
            return Change(budget)

        self.update(change)
        return budget

    def wanted_budget(
        self, epsilon: float, delta: float, unit: Unit, own_deltas: float | None = None
    ) -> Budget:
        """These numbers as a budget; one that says nothing of `own_deltas` keeps what charges were made by."""
        state = self.state()
        if own_deltas is None and state.stored and state.budget is not None:
            own_deltas = state.budget.own_deltas
        return Budget(epsilon=epsilon, delta=delta, unit=unit, own_deltas=own_deltas)

    def check_budget(self, state: State, budget: Budget) -> None:
        """Raise `LedgerRefused` where `budget` is below what is spent, or counts or shares delta in another way."""
        check_unit(self.source, state.unit, budget.unit)
        before = state.budget.own_deltas if state.budget is not None else None
        if state.stored and budget.own_deltas != before:
            raise LedgerRefused(other_share(self.source, before))
        exceeded = composition.refused(state.charges(), budget)
        if exceeded:
            raise BudgetExceeded(too_small(self.source, budget, exceeded))

    def charge(
        self, charge: Charge, marks: Marks | None = None, metered: bool = False, at: int | None = None
    ) -> Charge:
        """Charge once, however often it is called with the same charge; returns the charge as it stands now.

        The one returned has another `end_offset` if it was closed since: nothing past that end is paid for.
        `marks` belongs to pay_what_you_get.py.  Where it is `metered`, a new charge needs a budget: raises `NoBudget`.
        `at`: when it was made, in milliseconds; else now.
        """
        told = iso_second(clock() if at is None else at)

        def change(state: State) -> Change:
            known = state.stored.get(charge.id)
            if known is not None:
                check_same(known.made, charge)
                return Change()
            require_room(self.source, state, charge, metered)
            return Change(stored=(Stored(state.next_number, charge, marks=marks, at=told),))

        before = self.update(change)
        if before.budget is None:
            self._warn_once(
                f"the source {self.source!r} has no budget, so charges are recorded and nothing is refused: "
                "set one with `stream-dp budget set`"
            )
        known = before.stored.get(charge.id)
        return charge if known is None else known.now

    def close(self, charge_id: str, end_offset: int, further_ends: Vector = ()) -> Charge:
        """Record that an open-ended charge read nothing from `end_offset` on, and never will.

        `further_ends`: the same of all partitions but the first; it read nothing of those that they do not name.
        Only the first close counts: one with another end is refused.
        """

        def change(state: State) -> Change:
            known = state.stored.get(charge_id)
            if known is None:
                raise ChargeConflict(f"the ledger of {self.source!r} has no charge {charge_id!r} to close")
            if known.now.end_offset is not None:
                wanted = known.made.ended(end_offset, further_ends)
                if known.now.ends == wanted.ends:
                    return Change()
                raise ChargeConflict(
                    f"the charge {charge_id!r} ends at offset {offsets_text(known.now.ends)} already, not at "
                    f"{offsets_text(wanted.ends)}: make a new charge for what is read beyond"
                )
            if end_offset < known.made.first_offset:
                raise ChargeConflict(
                    f"the charge {charge_id!r} begins at offset {known.made.first_offset}: it cannot end at "
                    f"{end_offset}"
                )
            return Change(
                stored=(msgspec.structs.replace(known, closed_at=end_offset, closed_further=further_ends),)
            )

        before = self.update(change)
        return before.stored[charge_id].made.ended(end_offset, further_ends)

    def journal_record(self, charge: Charge, marks: Marks | None = None) -> bytes:
        """What to append to the source's journal for whatever `charge` and `close` return; holds the budget too.

        `marks`: a pay-what-you-get budget, with those of its queries that have changed.
        """
        state = self.state()
        stored = state.stored.get(charge.id)
        at, number = (None, state.next_number) if stored is None else (stored.at, stored.number)
        return msgspec.json.encode(Entry(FORMAT, self.source, charge, state.budget, number, marks, at))

    def budget_record(self, budget: Budget, by: str) -> bytes:
        """What to append to the source's journal when the budget is set."""
        return msgspec.json.encode(BudgetSet(FORMAT, self.source, budget, by, now()))

    def put_back(self) -> None:
        """Put back into Redis what is known of the ledger's own journal and Redis lacks."""
        self.update(lambda _: Change())

    def update(self, change: Callable[[State], Change]) -> State:
        """Apply `change` to the completed state, atomically and durably; returns the one before.

        `change` may run several times.  Where it changes nothing, an earlier call may have ended before it knew
        that its change is durable: so this one waits for it all the same.
        """

        before: list[State] = []

        def write_changed(transaction: Transaction) -> None:
            held, key = self._look()  # all keys at one moment, which several reads here would not be
            state = self.journal.completed(held)
            self._write(transaction, key, held, change(state).applied(state))
            before[:] = [state]

        # Runs again where another process was faster, or the answer was lost.
        self._redis.transaction(write_changed, self._key, self._budget, self._charges)
        self._make_durable()
        return before[0]

    def _write(self, transaction: Transaction, key: bytes, held: State, wanted: State) -> None:
        """Have Redis hold `wanted` in the place of `held`, with its digest under `key`."""
        changed = [name for name, each in wanted.stored.items() if held.stored.get(name) != each]
        if not changed and held.budget == wanted.budget:
            return
        header, charges = wanted.packed()
        transaction.multi()
        transaction.set(self._key, key)
        transaction.set(self._budget, seal(self._seals(key), header, charges) + header)
        for name in changed:
            packed: Any = charges[name.encode()]
            transaction.hset(self._charges, name, packed)

    def _make_durable(self) -> None:
        """Wait until all that was written before is on the disk of Redis.

        The file is written in order, so it is enough to wait for one more write on the connection that waits.
        """
        with self._redis.pipeline(transaction=False) as pipeline:
            pipeline.set(self._durability, b"")
            pipeline.execute_command("WAITAOF", 1, 0, _DURABLE_MILLISECONDS)
            written, waited = pipeline.execute(raise_on_error=False)
        if isinstance(written, Exception):
            raise written
        if type(waited) is ResponseError:  # the command is not known, or there is no file to wait for
            self._warn_once(_CANNOT_TELL if self._keeps_file() else _NO_FILE)
        elif isinstance(waited, Exception):
            raise waited
        elif waited[0] < 1:
            raise NotDurable(
                f"Redis did not write to its disk within {_DURABLE_MILLISECONDS / 1000:g} s, so nothing may be "
                "released: look at its disk, set appendfsync to always or everysec, and try again"
            )

    def _keeps_file(self) -> bool:
        """Whether Redis writes commands to a file; true if it does not let this user ask."""
        try:
            return bool(self._redis.info("persistence").get("aof_enabled"))
        except NoPermissionError:
            return True

    def _warn_once(self, warning: str) -> None:
        if warning not in self._warned:
            self._warned.add(warning)
            logger.warning(warning)
