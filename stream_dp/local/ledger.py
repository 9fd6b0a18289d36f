"""A privacy budget in your own program: every job takes it, and is refused once it is empty."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from secrets import token_hex
from typing import Literal

import msgspec

from stream_dp.config.times import clock, iso_second
from stream_dp.jobs.calibrated import Calibrated
from stream_dp.jobs.request import JobRequest
from stream_dp.privacy.composition import Budget, Charge
from stream_dp.store.ledger_records import Change, LedgerRefused, State, Stored, check_unit
from stream_dp.store.ledger_room import require_room

_TABLE = "CREATE TABLE IF NOT EXISTS ledger (id TEXT PRIMARY KEY, value BLOB NOT NULL)"
_BUDGET = "budget"
_NAME = "this ledger"


class Ledger:
    """The most that all jobs on one data source may spend together: (epsilon, delta), per unit.

        ledger = stream_dp.Ledger(epsilon=2, delta=1e-6, unit="user", file="orders.ledger")
        best = stream_dp.top_k(sales, 20, item="sku", user="customer", epsilon=1, ledger=ledger)
        print(ledger.left)

    `unit` is what is protected: all of one "user", or one "event", which is a row.  `file` keeps the ledger when the
    program ends; other programs may use it at the same time.  Without a file it is gone then, and whoever runs the
    program again spends the budget again.  One ledger is for one data source: give all tables with the same people the
    same one.

    Raises `Refused` for a file whose ledger has another budget or unit, and ValueError for numbers out of range.
    """

    def __init__(
        self,
        epsilon: float,
        delta: float = 1e-6,
        *,
        unit: Literal["user", "event"],
        file: str | Path | None = None,
    ) -> None:
        self._budget = Budget(epsilon=epsilon, delta=delta, unit=unit)
        if file is not None:
            os.close(os.open(file, os.O_RDWR | os.O_CREAT, 0o600))
        self._database = sqlite3.connect(
            ":memory:" if file is None else file, isolation_level=None, timeout=60
        )
        self._database.execute("PRAGMA synchronous = FULL")
        self._database.execute(_TABLE)
        self._change(self._open)

    @property
    def unit(self) -> str:
        """What is protected."""
        return self._budget.unit

    @property
    def delta_of_a_job(self) -> float:
        """What a call takes that names no delta: a tenth of the budget's, so that ten fit."""
        return self._budget.delta / 10

    @property
    def spent(self) -> float:
        """The epsilon, at the budget's delta, of all that was charged."""
        return self._state().spent().epsilon

    @property
    def left(self) -> float:
        """The largest epsilon of one more job with Laplace noise; jobs with Gaussian noise may have a little more."""
        room = self._state().room()
        assert room is not None
        return self._budget.epsilon if room.untouched else room.pure_epsilon

    def charge(self, charge: Charge) -> None:
        """Charge it, durably if there is a file.  Raises `Refused` where it does not fit, and charges nothing then."""

        def change(state: State) -> Change:
            require_room(_NAME, state, charge, metered=True)
            return Change(stored=(Stored(state.next_number, charge, at=iso_second(clock())),))

        self._change(change)

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def _open(self, state: State) -> Change:
        check_unit(_NAME, state.unit, self._budget.unit)
        if state.budget not in (None, self._budget):
            raise LedgerRefused(
                f"the ledger holds a budget of epsilon {state.budget.epsilon:g} and delta {state.budget.delta:g}: give "
                "the same numbers, or another file for data of other people"
            )
        return Change(self._budget)

    def _state(self) -> State:
        stored: dict[str, Stored] = {}
        budget = None
        for name, value in self._database.execute("SELECT id, value FROM ledger"):
            if name == _BUDGET:
                budget = msgspec.msgpack.decode(value, type=Budget)
            else:
                stored[name] = msgspec.msgpack.decode(value, type=Stored)
        return State(None if budget is None else budget.unit, budget, stored)

    def _change(self, change: Callable[[State], Change]) -> None:
        """Apply `change` to what the file holds, as one transaction that no other program comes between."""
        self._database.execute("BEGIN IMMEDIATE")
        with self._database:  # commits, or undoes what was begun
            before = self._state()
            after = change(before).applied(before)
            rows = {name: each for name, each in after.stored.items() if name not in before.stored}
            written = [(name, msgspec.msgpack.encode(each)) for name, each in rows.items()]
            if after.budget != before.budget:
                written.append((_BUDGET, msgspec.msgpack.encode(after.budget)))
            self._database.executemany("INSERT INTO ledger VALUES (?, ?)", written)


def charge_of(request: JobRequest, calibrated: Calibrated) -> Charge:
    """What a job costs a ledger in one's own program: each call draws noise of its own and is charged by itself."""
    cost, unit = calibrated.cost, request.unit
    assert unit is not None
    return Charge(
        id=f"job/{token_hex(16)}",
        what=f"{request.job} by {request.mechanism}",
        unit=unit,
        rho=cost.rho,
        delta=cost.delta,
        first_offset=0,
        end_offset=None,
        digest=request.digest,
        exact=(calibrated.epsilon, calibrated.delta),
        loss=cost.loss,
    )
