"""What a ledger does wherever it is kept: its budget, the charges on it, and what they add up to."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable

import msgspec

from stream_dp.config.times import clock, iso_second
from stream_dp.privacy import composition
from stream_dp.privacy.composition import Budget, Charge, Room, Spent, Unit
from stream_dp.privacy.vector import Vector, offsets_text
from stream_dp.store.journal_fold import JournalFold
from stream_dp.store.ledger_records import (
    BudgetExceeded,
    Change,
    ChargeConflict,
    LedgerRefused,
    Marks,
    State,
    Stored,
    check_same,
    check_source,
    check_unit,
)
from stream_dp.store.ledger_room import require_room
from stream_dp.store.ledger_sentences import other_share, too_small

logger = logging.getLogger(__name__)


class AnyLedger(ABC):
    """The ledger of one source.  Any number of processes may use it at once.

    `journal` is what its journal says, as far as it was read.  Every method may raise `LedgerRefused` (one of its
    kinds), and what the place raises in which it is kept.
    """

    def __init__(self, source: str) -> None:
        check_source(source)
        self.source = source
        self.journal = JournalFold(source)
        self._warned: set[str] = set()

    @abstractmethod
    def state(self) -> State:
        """Unit, budget and charges of one moment, completed by what is known of the journal."""

    @abstractmethod
    def held(self) -> State:
        """Unit, budget and charges of one moment without the journal."""

    @abstractmethod
    def update(self, change: Callable[[State], Change]) -> State:
        """Apply `change` to the completed state, atomically and durably; returns the one before.

        `change` may run several times.
        """

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
        """Set or change the budget; refused below what is spent.  ValueError for numbers out of range."""
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

    def _warn_once(self, warning: str) -> None:
        if warning not in self._warned:
            self._warned.add(warning)
            logger.warning(warning)
