"""What the records of a ledger's journal add up to, in their order, and a look at Redis completed by it.

Redis decides which of two charges comes first while it is whole.  The journal remembers what it decided, and has the
last word on every charge in it: nothing that Redis says of such a charge is believed.  A charge that Redis alone has
counts as it stands there, because it can only take room; nothing is released for it before it is in the journal.
"""

from collections.abc import Iterable

import msgspec

from stream_dp.privacy.composition import Budget, Charge, Unit
from stream_dp.store.foreign_records import passed_over
from stream_dp.store.ledger_records import (
    BudgetSet,
    Entry,
    ForeignRecord,
    LedgerDamaged,
    Marks,
    State,
    Stored,
    damaged,
    followed,
    lower,
    objection,
    read_journal,
)


class JournalFold:
    """What the journal of one source says, as far as it was read.

    The first record about a charge counts, and so does the first that ends it.  `foreign`: what was passed over, by
    offset.
    """

    def __init__(self, source: str, records: Iterable[bytes] = ()) -> None:
        self.source, self.topic = source, f"{source}.ledger"
        self.budgets: list[BudgetSet] = []
        self.foreign: dict[int, str] = {}
        self._unit: Unit | None = None
        self._own_deltas: float | None = None
        self._stored: dict[str, Stored] = {}
        self._budget_at: dict[str, Budget | None] = {}
        for offset, record in enumerate(records):
            self.take(record, offset)

    def take(self, record: bytes, offset: int) -> None:
        """The next record, which stands at this offset.  Raises `LedgerDamaged` for one of another format."""
        try:
            entry = read_journal(self.source, record)
            if isinstance(entry, BudgetSet):
                self._take_budget(entry)
            else:
                self._take_charge(entry)
        except LedgerDamaged as unreadable:
            raise LedgerDamaged(
                f"the record at offset {offset} of the topic {self.topic!r} cannot be read, so nobody knows what was "
                f"spent: {unreadable}"
            ) from None
        except ForeignRecord as foreign:
            self.foreign[offset] = str(foreign)
            passed_over(self.topic, offset, str(foreign))

    def _take_budget(self, entry: BudgetSet) -> None:
        self._require_unit(entry.budget.unit)
        self._unit = entry.budget.unit
        self.budgets.append(entry)
        if not self._stored:
            self._own_deltas = entry.budget.own_deltas

    def _take_charge(self, entry: Entry) -> None:
        charge, known = entry.charge, self._stored.get(entry.charge.id)
        if entry.budget is not None and entry.budget.unit != charge.unit:
            raise ForeignRecord(f"has a budget per {entry.budget.unit} for a charge per {charge.unit}")
        if known is not None:
            why = objection(known, entry)
            if why is not None:
                raise ForeignRecord(why)
            self._stored[charge.id] = followed(known, entry)
            return
        self._require_unit(charge.unit)
        zone = next((each.made.zone for each in self._stored.values()), charge.zone)
        if zone != charge.zone:
            raise ForeignRecord(f"counts days of the time zone {charge.zone}, and the ledger those of {zone}")
        self._unit = charge.unit
        self._stored[charge.id] = Stored(entry.number, charge, marks=entry.marks, at=entry.at)
        self._budget_at[charge.id] = lower(entry.budget, self.budget)

    def _require_unit(self, unit: Unit) -> None:
        if self._unit not in (None, unit):
            raise ForeignRecord(f"counts per {unit}, and the ledger per {self._unit}")

    @property
    def budget(self) -> Budget | None:
        """The budget that was set last; None where none is on record.

        How delta is shared is what was set last before the first charge.
        """
        if not self.budgets:
            return None
        return msgspec.structs.replace(self.budgets[-1].budget, own_deltas=self._own_deltas)

    def made(self, charge_id: str) -> Charge | None:
        """The charge of this id as the journal has it; None if it has none."""
        stored = self._stored.get(charge_id)
        return None if stored is None else stored.made

    def completed(self, held: State) -> State:
        """What Redis holds, with every charge of the journal as it stands there, and the lower of the two budgets.

        Raises `LedgerDamaged` where the two count per other units.
        """
        unit = self._unit or held.unit
        if held.unit not in (None, unit):
            raise damaged(self.source)
        stored = held.stored | {
            name: _with_queries(each, held.stored.get(name)) for name, each in self._stored.items()
        }
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

    def up_to(self, charge_id: str, state: State) -> tuple[list[Charge], Budget | None]:
        """The charges that count before this one and it itself, as they stand in `state`, and the budget it met.

        Those count before it that the journal has first, and those that only Redis has.
        """
        order = {name: place for place, name in enumerate(self._budget_at)}
        own = order.get(charge_id, len(order))
        first = [each.now for each in state.in_order() if order.get(each.made.id, -1) <= own]
        return first, self._budget_at.get(charge_id, state.budget)


def _with_queries(journaled: Stored, held: Stored | None) -> Stored:
    """A charge of the journal with those of its queries that Redis alone has: they have taken marks."""
    if journaled.marks is None or held is None or held.marks is None:
        return journaled
    queries = held.marks.queries | journaled.marks.queries
    return msgspec.structs.replace(journaled, marks=Marks(journaled.marks.opened, queries))
