"""What the ledger keeps in Redis and in its journal, and why it may refuse."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

import msgspec

from stream_dp.batch.gumbel_top_k import PayWhatYouGet
from stream_dp.errors import NotReady, Refused, StreamDpError
from stream_dp.privacy import composition
from stream_dp.privacy.composition import Budget, Charge, Room, Spent, Unit
from stream_dp.privacy.vector import Vector
from stream_dp.store.foreign_records import LEAVE_OUT
from stream_dp.store.seals import SEAL_BYTES, Seals

FORMAT = 1
_LONGEST_SOURCE = 249
_SOURCE_CHARACTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")


class LedgerRefused(Refused):
    """The ledger does not do what was asked; the message says why and what would be possible."""


class BudgetExceeded(LedgerRefused):
    """A charge does not fit, and nothing was charged; the message says what would fit."""


class ChargeConflict(LedgerRefused):
    """The id was used before with other parameters, or is not known."""


class NoBudget(LedgerRefused):
    """Nobody has set a budget, and nobody has said that none is wanted."""


class UnitMismatch(LedgerRefused):
    """The ledger of this source counts in the other unit."""


class NotDurable(NotReady):
    """Redis has the change, but not on its disk: release nothing, and repeat the same call."""


class LedgerDamaged(LedgerRefused):
    """What Redis or the journal holds is no ledger of this program."""


class ForeignRecord(StreamDpError):
    """A record of the journal that is not the ledger's; the message says what is wrong with it."""


class Header(msgspec.Struct, frozen=True):
    """What Redis holds beside the charges."""

    format: int
    unit: Unit
    budget: Budget | None


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
    """A charge as it was made, its place in the order of charges, and what has become of it since.

    `at`: when it was made, for people: that of an epoch when the round before it ended, that of a job when it was asked
    for.  `closed_further`: where it was closed in all partitions but the first.
    """

    number: int
    made: Charge
    closed_at: int | None = None
    marks: Marks | None = None
    at: str | None = None
    closed_further: Vector = ()

    @property
    def now(self) -> Charge:
        """The charge with the range that counts now."""
        return self.made if self.closed_at is None else self.made.ended(self.closed_at, self.closed_further)


@dataclass(frozen=True)
class State:
    """What one look at Redis found: the charges by id."""

    unit: Unit | None
    budget: Budget | None
    stored: dict[str, Stored]

    def in_order(self) -> list[Stored]:
        """The charges in the order in which they were made, and what has become of them."""
        return sorted(self.stored.values(), key=lambda stored: stored.number)

    @property
    def next_number(self) -> int:
        """The place of the next charge."""
        return max((stored.number for stored in self.stored.values()), default=0) + 1

    def charges(self) -> list[Charge]:
        """The charges in the order in which they were made."""
        return [stored.now for stored in self.in_order()]

    def spent(self) -> Spent:
        """What the charges add up to at the worst offset, at the budget's delta.

        Without a budget, at twice the sum of the charges' deltas, and at least at 1e-6.
        """
        delta = self.budget.delta if self.budget is not None else None
        return composition.spent(self.charges(), self.unit or "event", delta)

    def room(
        self, first_offset: int = 0, end_offset: int | None = None, further_offsets: Vector = ()
    ) -> Room | None:
        """What one more charge on these offsets may cost; None where no budget was set."""
        if self.budget is None:
            return None
        return composition.room(self.charges(), self.budget, first_offset, end_offset, further_offsets)

    def header(self) -> Header:
        """What is kept beside the charges; the state must not be empty."""
        assert self.unit is not None
        return Header(FORMAT, self.unit, self.budget)

    def packed(self) -> tuple[bytes, dict[bytes, bytes]]:
        """The header, and the charges by id, as Redis holds them; the state must not be empty."""
        charges = {name.encode(): msgspec.msgpack.encode(each) for name, each in self.stored.items()}
        return msgspec.msgpack.encode(self.header()), charges


@dataclass(frozen=True)
class Change:
    """What is to be otherwise: the budget, and charges."""

    budget: Budget | None = None
    stored: tuple[Stored, ...] = ()

    def applied(self, state: State) -> State:
        """The state after the change."""
        budget = self.budget or state.budget
        stored = state.stored | {each.made.id: each for each in self.stored}
        unit = state.unit or (budget.unit if budget is not None else None)
        return State(unit or next((each.made.unit for each in self.stored), None), budget, stored)


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """A record of the journal: a charge and the budget as they stood then; `marks` with the queries that changed.

    `at`: when the charge was made.  `number`: its place in the order of charges.
    """

    v: int
    source: str
    charge: Charge
    budget: Budget | None
    number: Annotated[int, msgspec.Meta(ge=1)]
    marks: Marks | None = None
    at: str | None = None


class BudgetSet(msgspec.Struct, frozen=True):
    """A record of the journal: the budget that counts from there on, who set it and, by their clock, when."""

    v: int
    source: str
    budget: Budget
    by: str
    at: str


def lower(one: Budget | None, other: Budget | None) -> Budget | None:
    """A budget within both: the lesser epsilon and the lesser delta.

    How delta is shared is what `other` says, the journal's.
    """
    if one is None or other is None:
        return one or other
    epsilon, delta = min(one.epsilon, other.epsilon), min(one.delta, other.delta)
    return msgspec.structs.replace(other, epsilon=epsilon, delta=delta, unit=one.unit)


def unpack(source: str, seals: Seals | None, packed: bytes | None, charges: dict[bytes, bytes]) -> State:
    """The state in the keys of the ledger; raises `LedgerDamaged` unless they are as they were written."""
    if packed is None and not charges:
        return State(None, None, {})
    header = (packed or b"")[SEAL_BYTES:]
    if seals is None or seal(seals, header, charges) != (packed or b"")[:SEAL_BYTES]:
        raise damaged(source)
    try:
        found = msgspec.msgpack.decode(header, type=Header)
        stored = {
            name.decode(): msgspec.msgpack.decode(value, type=Stored) for name, value in charges.items()
        }
    except (msgspec.DecodeError, UnicodeError):
        raise damaged(source) from None
    if found.format != FORMAT:
        raise damaged(source)
    return State(found.unit, found.budget, stored)


def seal(seals: Seals, header: bytes, charges: dict[bytes, bytes]) -> bytes:
    """The digest of a whole ledger: no part of it is changed, lost or put back to what it was unnoticed."""
    return seals.of("ledger", header, sorted(charges.items())).digest


def damaged(source: str) -> LedgerDamaged:
    """The refusal of a ledger in Redis that is not whole."""
    return LedgerDamaged(
        f"Redis holds no whole ledger of {source!r}: restore Redis from its backup, or delete the keys of this ledger, "
        f"which begin with stream_dp:{{{source}}}:, and the next charge takes it from its journal"
    )


def read_journal(source: str, record: bytes) -> Entry | BudgetSet:
    """The record of the journal of `source`.

    Raises `ForeignRecord` for one that says nothing of this ledger, and `LedgerDamaged` for one of another format.
    """
    try:
        said = msgspec.json.decode(record, type=_Said)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise ForeignRecord("is not a record of a ledger") from None
    if said.source != source:
        raise ForeignRecord(f"belongs to the ledger of {said.source[:249]!r}")
    if said.v != FORMAT:
        raise LedgerDamaged(
            f"it is of format {said.v}, this program reads format {FORMAT}: install the version of stream_dp that "
            f"wrote it; if none has, {LEAVE_OUT}"
        )
    try:
        if said.charge is msgspec.UNSET:
            return msgspec.json.decode(record, type=BudgetSet)
        return msgspec.json.decode(record, type=Entry)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise ForeignRecord("is not a record of a ledger") from None


class _Said(msgspec.Struct):
    """What every record of a journal says, whatever its format."""

    v: int
    source: str
    charge: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


def objection(known: Stored, entry: Entry) -> str | None:
    """Why the record cannot be about the charge that is `known` from the records before it; None if it can."""
    bounded, charge = known.made.end_offset is not None, entry.charge
    if not is_same(known.made, charge if bounded else charge.ended(None)):
        return f"has other parameters than the first record of the charge {charge.id!r}"
    if known.closed_at is not None and charge.end_offset is not None and charge.ends != known.now.ends:
        return f"ends the charge {charge.id!r} elsewhere than the first record that ended it"
    if known.marks is not None and entry.marks is not None and known.marks.opened != entry.marks.opened:
        return f"has other marks than the first record of the charge {charge.id!r}"
    return None


def followed(known: Stored, entry: Entry) -> Stored:
    """What has become of the charge that is `known` after a record of it to which there is no `objection`."""
    charge = entry.charge
    if known.made.end_offset is None and known.closed_at is None and charge.end_offset is not None:
        ends = {"closed_at": charge.end_offset, "closed_further": charge.further_ends}
        known = msgspec.structs.replace(known, **ends)
    if known.marks is None or entry.marks is None:
        return known
    settled = {name: query for name, query in known.marks.queries.items() if query.spent is not None}
    queries = known.marks.queries | entry.marks.queries | settled  # a query is settled once
    return msgspec.structs.replace(known, marks=Marks(known.marks.opened, queries))


def name_of_source(called: str) -> str:
    """The name of a data source that is called like this, as far as it can be.

    >>> name_of_source("orders of May.csv")
    'orders_of_May.csv'
    """
    named = "".join(each if each in _SOURCE_CHARACTERS else "_" for each in called)
    return named[:_LONGEST_SOURCE]


def check_source(source: str) -> None:
    """Raise `LedgerRefused` unless this can be the name of a data source."""
    if not 0 < len(source) <= _LONGEST_SOURCE or not _SOURCE_CHARACTERS.issuperset(source):
        raise LedgerRefused(
            f"{source!r} names no data source: give the events topic that the data come from, or for a file of its own "
            "a name of at most 249 letters, digits, '.', '_' and '-'"
        )


def check_unit(source: str, counts: Unit | None, unit: Unit) -> None:
    """Raise `UnitMismatch` where the ledger of `source` counts per another unit than `unit`."""
    if counts not in (None, unit):
        raise UnitMismatch(
            f"the ledger of {source!r} counts per {counts}, and the two units cannot be added: use the unit {counts} "
            f"instead of {unit}"
        )


def check_zone(source: str, charges: Iterable[Charge], charge: Charge) -> None:
    """Raise `UnitMismatch` where the ledger's days are those of another time zone than the days of `charge`."""
    zone = next((each.zone for each in charges), charge.zone)
    if zone != charge.zone:
        raise UnitMismatch(
            f"the ledger of {source!r} counts days of the time zone {zone}, and days of two zones overlap: set "
            f'time_zone = "{zone}" instead of "{charge.zone}"'
        )


def is_same(made: Charge, charge: Charge) -> bool:
    """Whether the two are the same charge; what they say for people may differ."""
    return msgspec.structs.replace(charge, what=made.what) == made


def check_same(made: Charge, charge: Charge) -> None:
    """Raise `ChargeConflict` unless the two are the same charge."""
    if not is_same(made, charge):
        raise ChargeConflict(
            f"the id {charge.id!r} was charged before with other parameters, so nothing was charged: use a new id"
        )
