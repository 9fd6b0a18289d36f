"""One look at a charge before it is made: whether the budget has room for it, and what stays."""

import msgspec

from stream_dp.jobs.books import Books
from stream_dp.jobs.request import Unit
from stream_dp.jobs.result import ResultCost, cost_of
from stream_dp.jobs.steps import Prepared, budget_id, charge_of
from stream_dp.privacy import composition
from stream_dp.privacy.composition import Budget
from stream_dp.store.ledger import LedgerRefused
from stream_dp.store.ledger_room import require_room

MOST_COUNTED = 100
_NO_KEY = bytes(32)  # a forecast draws no noise, and its charge is not made


class Left(msgspec.Struct, frozen=True):
    """What one more charge on the same offsets may cost."""

    rho: float
    delta: float
    pure_epsilon: float


class Forecast(msgspec.Struct, frozen=True):
    """What a charge to `source` would meet.  `left` is what stays of the budget after it, None where it does not fit.

    `more`: how many more charges like it would fit then, on the same events; none are counted beyond `MOST_COUNTED`.
    `why_not`: the ledger's sentence where the charge would be refused.
    """

    source: str
    unit: Unit
    cost: ResultCost
    fits: bool
    budget: Budget | None
    spent_epsilon: float
    left: Left | None = None
    more: int | None = None
    why_not: str | None = None


def forecast(prepared: Prepared, books: Books) -> Forecast:
    """The charge of a job, looked at and not made.  One that draws on an open pay-what-you-get budget has none."""
    state = books.look(prepared.name)
    budget, charge, shared = (
        state.budget,
        charge_of(prepared, "forecast", _NO_KEY),
        prepared.calibrated.shared,
    )
    new = [] if shared is not None and budget_id(shared.name) in state.stored else [charge]
    spent = state.spent().epsilon
    found = Forecast(prepared.name, prepared.unit, cost_of(prepared.calibrated, budget), True, budget, spent)
    try:
        for each in new:
            require_room(prepared.name, state, each, metered=not books.unmetered)
    except LedgerRefused as refused:
        return msgspec.structs.replace(found, fits=False, why_not=str(refused))
    if budget is None:
        return found
    room = composition.room([*state.charges(), *new], budget, *prepared.offsets)
    more = composition.more_like(charge, [*state.charges(), *new], budget, MOST_COUNTED)
    return msgspec.structs.replace(found, left=Left(room.rho, room.delta, room.pure_epsilon), more=more)
