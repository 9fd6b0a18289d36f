"""What the ledger keeps in Redis and in its journal, and why it may refuse."""

import math
from dataclasses import dataclass

import msgspec

from stream_dp.batch.gumbel_top_k import PayWhatYouGet
from stream_dp.privacy.composition import Budget, Charge, Load, Room, Unit

FORMAT = 1


class LedgerRefused(Exception):
    """The ledger does not do what was asked; the message says why and what would be possible."""


class BudgetExceeded(LedgerRefused):
    """It does not fit, nothing was charged; the message says what would fit."""


class ChargeConflict(LedgerRefused):
    """The id was used before with other parameters, or is not known."""


class UnitMismatch(LedgerRefused):
    """The ledger of this source counts in the other unit."""


class NotDurable(LedgerRefused):
    """Redis has the change, but not on its disk: release nothing, and repeat the same call."""


class LedgerDamaged(LedgerRefused):
    """What Redis or the journal holds is no ledger of this program."""


class Header(msgspec.Struct, frozen=True):
    """`charges` is how many there are: a Redis that evicted some is noticed."""

    format: int
    unit: Unit
    budget: Budget | None
    charges: int


class Query(msgspec.Struct, frozen=True):
    """A query of a pay-what-you-get budget: at most `reserved` marks, `spent` once its result is settled."""

    reserved: int
    spent: int | None = None

    @property
    def marks(self) -> int:
        return self.reserved if self.spent is None else self.spent


class Marks(msgspec.Struct, frozen=True):
    """A pay-what-you-get budget as it was opened, and its queries by id."""

    opened: PayWhatYouGet
    queries: dict[str, Query]


class Stored(msgspec.Struct, frozen=True):
    """A charge as it was made, its place in the order of charges, and what has become of it since."""

    number: int
    made: Charge
    closed_at: int | None = None
    marks: Marks | None = None

    @property
    def now(self) -> Charge:
        """The charge with the range that counts now."""
        return self.made if self.closed_at is None else closed(self.made, self.closed_at)


@dataclass(frozen=True)
class State:
    """What one look at Redis found: the charges by id."""

    unit: Unit | None
    budget: Budget | None
    stored: dict[str, Stored]

    def charges(self) -> list[Charge]:
        """The charges in the order in which they were made."""
        return [stored.now for stored in sorted(self.stored.values(), key=lambda stored: stored.number)]


@dataclass(frozen=True)
class Change:
    """What to write: a budget where it changed, the unit where there was none, and the charges that changed."""

    budget: Budget | None = None
    stored: tuple[Stored, ...] = ()

    def header(self, state: State) -> Header:
        """The header after the change."""
        budget = self.budget or state.budget
        unit = state.unit or (budget.unit if budget is not None else self.stored[0].made.unit)
        names = state.stored.keys() | {stored.made.id for stored in self.stored}
        return Header(FORMAT, unit, budget, len(names))


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """A record of the journal: a charge and the budget as they stood then; `marks` with the queries that changed."""

    v: int
    source: str
    charge: Charge
    budget: Budget | None
    marks: Marks | None = None


def closed(charge: Charge, end_offset: int) -> Charge:
    """The charge, ending at `end_offset`."""
    return msgspec.structs.replace(charge, end_offset=end_offset)


def unpack(source: str, packed: bytes | None, charges: dict[bytes, bytes]) -> State:
    """The state in the keys of the ledger; raises `LedgerDamaged`."""
    if packed is None and not charges:
        return State(None, None, {})
    try:
        header = msgspec.msgpack.decode(packed or b"", type=Header)
        stored = [msgspec.msgpack.decode(value, type=Stored) for value in charges.values()]
    except (msgspec.DecodeError, UnicodeError):
        header = None
    if header is None or header.format != FORMAT or header.charges != len(charges):
        raise LedgerDamaged(
            f"Redis holds no whole ledger of {source!r}: restore Redis from its backup, or delete the keys of this "
            "ledger and restore it from its journal"
        )
    return State(header.unit, header.budget, {each.made.id: each for each in stored})


def read_journal(source: str, record: bytes) -> Entry:
    """The record of the journal of `source`; raises `LedgerDamaged`."""
    try:
        entry = msgspec.json.decode(record, type=Entry)
    except (msgspec.DecodeError, UnicodeError):
        raise LedgerDamaged("the journal holds a record that no ledger wrote") from None
    if entry.v != FORMAT:
        raise LedgerDamaged(f"the journal is of format {entry.v}, this program reads format {FORMAT}")
    if entry.source != source:
        raise LedgerDamaged(
            f"the journal of {source!r} holds a record of {entry.source!r}: it is not its journal"
        )
    return entry


def merged(known: Stored | None, entry: Entry, number: int) -> Stored:
    """What to store where `known` is stored and the journal has `entry`, whose charge may be its closed form."""
    charge = entry.charge
    if known is None:
        return Stored(number, charge, marks=entry.marks)
    if known.marks is not None and entry.marks is not None:
        known = msgspec.structs.replace(known, marks=_with_queries(known.marks, entry.marks.queries))
    if known.made.end_offset is not None:
        check_same(known.made, charge)
        return known
    check_same(known.made, msgspec.structs.replace(charge, end_offset=None))
    if known.closed_at is None and charge.end_offset is not None:
        return msgspec.structs.replace(known, closed_at=charge.end_offset)
    return known


def _with_queries(marks: Marks, found: dict[str, Query]) -> Marks:
    """The marks with the queries of the journal too; a query is settled once, so whoever knows how is right."""
    settled = {name: query for name, query in found.items() if query.spent is not None}
    queries = found | marks.queries
    return Marks(
        marks.opened,
        {name: settled.get(name, query) if query.spent is None else query for name, query in queries.items()},
    )


def check_same(made: Charge, charge: Charge) -> None:
    """Raise `ChargeConflict` unless the two are the same charge; `what` may be worded anew."""
    if msgspec.structs.replace(charge, what=made.what) != made:
        raise ChargeConflict(
            f"the id {charge.id!r} was charged before with other parameters, so nothing was charged: use a new id"
        )


def does_not_fit(source: str, budget: Budget, charge: Charge, left: Room) -> str:
    """The refusal of a charge, and the largest one that would fit."""
    where = "for users" if budget.unit == "user" else f"on {_offsets(charge)}"
    told = (
        f"the charge {charge.id!r} (rho {charge.rho:.4g}, delta {charge.delta:.4g}) does not fit the budget of "
        f"{source!r} (epsilon {budget.epsilon:g}, delta {budget.delta:g} per {budget.unit}): {where} "
    )
    if left.untouched:
        return told + (
            "nothing is spent yet, so what fits is a single charge that guarantees the budget by itself, or rho "
            f"{_down(left.rho)} with delta {_down(left.delta)}"
        )
    if left.rho == 0:
        return told + "nothing is left: read other offsets, or raise the budget"
    return told + (
        f"there is left rho {_down(left.rho)} (a pure epsilon of {_down(left.pure_epsilon)}) with delta "
        f"{_down(left.delta)}"
    )


def too_small(source: str, budget: Budget, exceeded: list[Load]) -> str:
    """The refusal of a budget below what is spent, and the least one that would do."""
    told = f"more is spent on {source!r} than epsilon {budget.epsilon:g} with delta {budget.delta:g}: "
    epsilon = max(budget.least_epsilon(load) for load in exceeded)
    if epsilon < math.inf:
        return told + f"with this delta, set epsilon to {_up(epsilon)} or more"
    delta = max(2 * load.delta for load in exceeded)
    return told + f"set delta to {_up(delta)} or more, for half of it must cover the charges' own deltas"


def _offsets(charge: Charge) -> str:
    if charge.end_offset is None:
        return f"offsets {charge.first_offset} on"
    return f"offsets {charge.first_offset} to {charge.end_offset}"


def _down(value: float) -> str:
    """Six digits that are not above the value, so that what is said to fit does."""
    return f"{value * (1 - 1e-5):.6g}"


def _up(value: float) -> str:
    """Six digits that are not below the value."""
    return f"{value * (1 + 1e-5):.6g}"
