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

from stream_dp.config.times import now
from stream_dp.privacy.composition import Budget, Charge
from stream_dp.privacy.keyed_noise import KEY_BYTES, new_key
from stream_dp.store.any_ledger import AnyLedger
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
    UnitMismatch,
    damaged,
    seal,
    unpack,
)
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


class Ledger(AnyLedger):
    """The ledger of one source in Redis.  Every method may raise `redis.exceptions.RedisError` besides."""

    def __init__(self, redis: Redis, source: str) -> None:
        super().__init__(source)
        self._redis = redis
        names = ("ledger-key", "budget", "charges", "durability")
        self._key, self._budget, self._charges, self._durability = (
            f"stream_dp:{{{source}}}:{name}" for name in names
        )

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
