"""Whether the budget of a data source has room for the next epoch of a stream, asked before the last one is closed."""

import msgspec

from stream_dp.engine.epoch import Epoch, EpochRefused
from stream_dp.epochs.charges import beginning_of_range, charge_of, charge_up_to
from stream_dp.epochs.journal import EpochJournal
from stream_dp.privacy import composition
from stream_dp.privacy.composition import Charge
from stream_dp.privacy.vector import Vector
from stream_dp.store.ledger import Ledger
from stream_dp.store.ledger_sentences import does_not_fit


def require_room(ledger: Ledger, journal: EpochJournal, following: Epoch, ends: Vector | None) -> None:
    """Raise `EpochRefused`, which says what would fit, unless the ledger has room for `following`.

    The charge of the epoch that is open is taken to end at `ends`, or to stay as it is if that is None.
    """
    budget = ledger.budget()
    if budget is None:
        return
    closed = journal.closed.get(journal.last.epoch.number) if journal.last else None
    if closed is not None:
        ends = None if closed.end_unknown else closed.ends
    charges = [
        charge_up_to(charge, ends, following)
        if ends is not None and _is_of_open_epoch(charge, journal)
        else charge
        for charge in ledger.charges()
    ]
    charge = charge_of(following)
    if composition.refused([*charges, charge], budget):
        left = composition.room(charges, budget, charge.first_offset, None, charge.further_offsets)
        named = msgspec.structs.replace(charge, id=f"{following.privacy['stream']}/epoch/{following.number}")
        raise EpochRefused(
            f"the budget of {ledger.source!r} has no room for another epoch from {beginning_of_range(following)} on, "
            f"and nothing was closed: {does_not_fit(ledger.source, budget, named, left, 0)}; ask for less epsilon "
            "with --new-epoch, or raise the budget with `stream-dp budget set`"
        )


def _is_of_open_epoch(charge: Charge, journal: EpochJournal) -> bool:
    last = journal.last
    return (
        last is not None
        and charge.end_offset is None
        and charge.id == charge_of(last.epoch).id
        and not last.epoch.is_derived
    )
