"""Pay-what-you-get budgets in the ledger: charged once when they are opened, used up query by query, across restarts.

A query returns at most k marks (labels and bottom marks) and uses up only as many as it returned.  In this order:

1. `reserve` k marks, before the query is computed: queries that run at once can then never return too many together,
   and a refusal depends on public numbers only.
2. Compute, and store the result unless one is stored already.
3. `spend` the marks of the STORED result, then publish it.

Each step may be repeated after a crash, with the same query id.  Source: Rogers, "A Unifying Privacy Analysis Framework
for Unknown Domain Algorithms in Differential Privacy", Algorithm 4 and Theorem 10.
"""

from dataclasses import replace

import msgspec

from stream_dp.batch.gumbel_top_k import PayWhatYouGet
from stream_dp.privacy.composition import Charge, Unit
from stream_dp.store.any_ledger import AnyLedger
from stream_dp.store.ledger_records import BudgetExceeded, Change, ChargeConflict, Marks, Query, State


def charge_of(budget_id: str, budget: PayWhatYouGet, *, unit: Unit) -> Charge:
    """What opening `budget` costs: its queries may read every offset."""
    return Charge(
        id=budget_id,
        what=f"pay-what-you-get: {budget.marks} marks in {budget.queries} queries at epsilon {budget.epsilon:g}",
        unit=unit,
        rho=budget.cost.rho,
        delta=budget.cost.delta,
        first_offset=0,
        end_offset=None,
        exact=budget.cost.alone,
        loss=budget.cost.loss,
        digest=f"{budget.marks}:{budget.queries}:{budget.epsilon!r}:{budget.threshold_delta!r}",
    )


def left(ledger: AnyLedger, budget_id: str) -> PayWhatYouGet:
    """The marks and queries that no query has spent or reserved."""
    return left_of(_marks(ledger.state(), budget_id))


def reserve(ledger: AnyLedger, budget_id: str, query_id: str, k: int) -> Query:
    """Take one query of at most k marks from the budget; returns it as it stands, which may be settled already.

    Raises `BudgetExceeded` where the budget has not as many left.
    """

    def change(state: State) -> Change:
        marks = _marks(state, budget_id)
        known = marks.queries.get(query_id)
        if known is not None:
            if known.reserved != k:
                raise ChargeConflict(
                    f"the query {query_id!r} was asked before with k = {known.reserved}: use a new id"
                )
            return Change()
        try:
            left_of(marks).query(k, k)
        except ValueError as error:
            raise BudgetExceeded(str(error)) from None
        return _changed(state, budget_id, query_id, Query(k))

    before = ledger.update(change)
    return _marks(before, budget_id).queries.get(query_id, Query(k))


def spend(ledger: AnyLedger, budget_id: str, query_id: str, marks: int) -> Query:
    """Settle a reserved query at the marks it returned, which gives back the rest; returns the settled query."""

    def change(state: State) -> Change:
        known = _marks(state, budget_id).queries.get(query_id)
        if known is None:
            raise ChargeConflict(
                f"the query {query_id!r} has reserved no marks: reserve them before it is computed"
            )
        if known.spent == marks:
            return Change()
        if known.spent is not None or not 0 <= marks <= known.reserved:
            raise ChargeConflict(
                f"the query {query_id!r} reserved {known.reserved} marks and "
                f"{'was settled' if known.spent is not None else 'cannot be settled'} at "
                f"{marks if known.spent is None else known.spent}: settle it once, at what its stored result holds"
            )
        return _changed(state, budget_id, query_id, Query(known.reserved, marks))

    reserved = _marks(ledger.update(change), budget_id).queries[query_id].reserved
    return Query(reserved, marks)


def is_overdrawn(state: State, budget_id: str) -> bool:
    """Whether queries have taken more of a budget than there is, each from a Redis that had forgotten others."""
    marks = _marks(state, budget_id)
    used = sum(query.marks for query in marks.queries.values())
    return used > marks.opened.marks or len(marks.queries) > marks.opened.queries


def _marks(state: State, budget_id: str) -> Marks:
    stored = state.stored.get(budget_id)
    if stored is None or stored.marks is None:
        lost = "was restored without its queries" if stored is not None else "does not exist"
        raise ChargeConflict(f"the pay-what-you-get budget {budget_id!r} {lost}: open one with a new id")
    return stored.marks


def left_of(marks: Marks) -> PayWhatYouGet:
    """The marks and queries of a budget that none of its queries has spent or reserved."""
    used = sum(query.marks for query in marks.queries.values())
    return replace(
        marks.opened,
        marks=max(0, marks.opened.marks - used),
        queries=max(0, marks.opened.queries - len(marks.queries)),
    )


def _changed(state: State, budget_id: str, query_id: str, query: Query) -> Change:
    marks = _marks(state, budget_id)
    queries = marks.queries | {query_id: query}
    stored = msgspec.structs.replace(state.stored[budget_id], marks=Marks(marks.opened, queries))
    return Change(stored=(stored,))
