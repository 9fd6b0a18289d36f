"""Whether a ledger has room for a charge, wherever the ledger is kept."""

import msgspec

from stream_dp.privacy import composition
from stream_dp.privacy.composition import Budget, Charge
from stream_dp.store.ledger_records import BudgetExceeded, NoBudget, State, check_unit, check_zone
from stream_dp.store.ledger_sentences import does_not_fit, no_budget


def require_room(source: str, state: State, charge: Charge, metered: bool) -> None:
    """Refuse a new charge that the ledger has no room for.

    Raises `UnitMismatch`, `BudgetExceeded`, and `NoBudget` where it is `metered`.
    """
    check_unit(source, state.unit, charge.unit)
    charges, budget = state.charges(), state.budget
    check_zone(source, charges, charge)
    if budget is None:
        if metered:
            raise NoBudget(no_budget(source))
        return
    if composition.refused([*charges, charge], budget):
        further = charge.further_offsets, charge.further_ends
        left = composition.room(charges, budget, charge.first_offset, charge.end_offset, *further)
        raise BudgetExceeded(
            does_not_fit(source, budget, charge, left, _more_like_the_last(charges, charge, budget))
        )


def _more_like_the_last(charges: list[Charge], charge: Charge, budget: Budget) -> int:
    """How many more charges like the last one fit on the offsets of `charge`."""
    if not charges:
        return 0
    there = {
        name: getattr(charge, name)
        for name in ("first_offset", "end_offset", "further_offsets", "further_ends")
    }
    return composition.more_like(msgspec.structs.replace(charges[-1], **there), charges, budget)
