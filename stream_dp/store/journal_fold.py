"""What the records of a ledger's journal add up to, in their order, and a look at Redis completed by it.

Redis decides which of two charges comes first while it is whole; the journal remembers what it decided, and has the
last word where Redis was lost, rolled back, or restored from an old backup.
"""

from collections.abc import Iterable

import msgspec

from stream_dp.privacy.composition import Budget, Charge, Unit
from stream_dp.store.ledger_records import (
    BudgetSet,
    Entry,
    State,
    Stored,
    check_unit,
    lower,
    merged,
    read_journal,
)


class JournalFold:
    """What the journal of one source says, as far as it was read."""

    def __init__(self, source: str, records: Iterable[bytes] = ()) -> None:
        self.source = source
        self.budgets: list[BudgetSet] = []
        self._own_deltas: float | None = None
        self._entries: list[Entry] = []
        self._budget_at: dict[str, Budget | None] = {}
        for record in records:
            self.take(record)

    def take(self, record: bytes) -> None:
        """The next record.  Raises `LedgerDamaged`."""
        entry = read_journal(self.source, record)
        if isinstance(entry, BudgetSet):
            self.budgets.append(entry)
            if not self._entries:
                self._own_deltas = entry.budget.own_deltas
            return
        self._entries.append(entry)
        self._budget_at.setdefault(entry.charge.id, lower(entry.budget, self.budget))

    @property
    def budget(self) -> Budget | None:
        """The budget that was set last; None where none is on record.

        How delta is shared is what was set last before the first charge.
        """
        if not self.budgets:
            return None
        return msgspec.structs.replace(self.budgets[-1].budget, own_deltas=self._own_deltas)

    def completed(self, held: State) -> State:
        """What Redis holds, with every charge of the journal, and the lower of the two budgets.

        Raises `UnitMismatch` and `ChargeConflict`.
        """
        unit = held.unit
        stored, following = dict(held.stored), held.next_number
        for entry in self._entries:
            unit = self._same_unit(unit, entry.charge.unit)
            found = merged(stored.get(entry.charge.id), entry, following)
            stored[entry.charge.id] = found
            following = max(following, found.number + 1)
        for each in self.budgets:
            unit = self._same_unit(unit, each.budget.unit)
        return State(unit, lower(held.budget, self.budget), self._in_one_order(stored))

    def _in_one_order(self, stored: dict[str, Stored]) -> dict[str, Stored]:
        """The charges with places that differ.  Of two that took the same place the journal has the right one first.

        That happens where one was made on a Redis that had forgotten the other.  What the first charge of a source
        settles (composition.py) is then settled by the same one as before.
        """
        if len({each.number for each in stored.values()}) == len(stored):
            return stored
        last = len(self._budget_at)
        place = {name: position for position, name in enumerate(self._budget_at)}
        names = sorted(stored, key=lambda name: (stored[name].number, place.get(name, last)))
        return {
            name: msgspec.structs.replace(stored[name], number=number)
            for number, name in enumerate(names, start=1)
        }

    def _same_unit(self, counts: Unit | None, unit: Unit) -> Unit:
        check_unit(self.source, counts, unit)
        return unit

    def up_to(self, charge_id: str, state: State) -> tuple[list[Charge], Budget | None]:
        """The charges that count before this one and it itself, as they stand in `state`, and the budget it met.

        Those count before it that the journal has first, and those that only Redis has.
        """
        order = {name: place for place, name in enumerate(self._budget_at)}
        own = order.get(charge_id, len(order))
        first = [each.now for each in state.in_order() if order.get(each.made.id, -1) <= own]
        return first, self._budget_at.get(charge_id, state.budget)
