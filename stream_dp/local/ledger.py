"""A privacy budget in your own program: every job takes it, and is refused once it is empty."""

from __future__ import annotations

from pathlib import Path
from secrets import token_hex
from typing import Literal

from stream_dp.epochs.people import whoever
from stream_dp.jobs.calibrated import Calibrated
from stream_dp.jobs.request import JobRequest
from stream_dp.privacy.composition import Budget, Charge
from stream_dp.store.ledger_file import LedgerFile, LocalLedger
from stream_dp.store.ledger_records import Change, LedgerRefused, State, check_unit


class Ledger:
    """The most that all jobs on one data source may spend together: (epsilon, delta), per unit.

        ledger = stream_dp.Ledger(epsilon=2, delta=1e-6, unit="user", file="orders.ledger")
        best = stream_dp.top_k(sales, 20, item="sku", user="customer", epsilon=1, ledger=ledger)
        print(ledger.left)

    `unit` is what is protected: all of one "user", or one "event", which is a row.  `file` keeps the ledger when the
    program ends; other programs may use it at the same time.  Without a file it is gone then, and whoever runs the
    program again spends the budget again.  One ledger is for one data source: give all tables with the same people the
    same one.  A file holds the ledgers of several, by the name `source`; `stream-dp budget show` says where that of the
    commands is.

    Raises `Refused` for a ledger that has another budget or unit, and ValueError for numbers out of range.
    """

    def __init__(
        self,
        epsilon: float,
        delta: float = 1e-6,
        *,
        unit: Literal["user", "event"],
        file: str | Path | None = None,
        source: str = "data",
    ) -> None:
        self._budget = Budget(epsilon=epsilon, delta=delta, unit=unit)
        self._file = LedgerFile(None if file is None else Path(file))
        self._ledger = LocalLedger(self._file, source, whoever())
        self._ledger.update(self._open)

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
        return self._ledger.spent().epsilon

    @property
    def left(self) -> float:
        """The largest epsilon of one more job with Laplace noise; jobs with Gaussian noise may have a little more."""
        room = self._ledger.room()
        assert room is not None
        return self._budget.epsilon if room.untouched else room.pure_epsilon

    def charge(self, charge: Charge) -> None:
        """Charge it, durably if there is a file.  Raises `Refused` where it does not fit, and charges nothing then."""
        self._ledger.charge(charge, metered=True)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _open(self, state: State) -> Change:
        check_unit(self._ledger.source, state.unit, self._budget.unit)
        if state.budget not in (None, self._budget):
            raise LedgerRefused(
                f"the ledger holds a budget of epsilon {state.budget.epsilon:g} and delta {state.budget.delta:g}: give "
                "the same numbers, or another file for data of other people"
            )
        return Change(self._budget)


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
