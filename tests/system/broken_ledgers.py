"""Rules by which a ledger lets too much through; tests of the right ones must fail against them."""

from stream_dp.epochs.journaled_ledger import JournaledLedger
from stream_dp.epochs.registry import FORMAT, Registered
from stream_dp.jobs.request import Source
from stream_dp.jobs.steps import Site
from stream_dp.privacy.composition import Budget, Charge
from stream_dp.store.journal_fold import JournalFold
from stream_dp.store.ledger_records import State
from stream_dp.store.ledger_room import require_room


def believed(source: Source, site: Site, _redis: object) -> Registered:
    """Wrong: whose budget is spent is what the request says."""
    name = source.name or source.topic or ""
    return Registered(FORMAT, "topic", source.topic or "", name, "event", "", "")


def unread(self: JournalFold, held: State) -> State:
    """Wrong: what the journal says is passed over."""
    return held


def overtaken(books: JournaledLedger) -> JournaledLedger:
    """Not wrong, only slow: all that others do from now on happens after its look at the journal, before its charge."""
    setattr(books, "current", lambda: books._ledger)  # noqa: B010
    return books


def of_redis(one: Budget | None, other: Budget | None) -> Budget | None:
    """Wrong: the budget of Redis, where it has one."""
    return one or other


def boundless(source: str, state: State, charge: Charge, metered: bool) -> None:
    """Wrong: a source without a budget has room for everything."""
    require_room(source, state, charge, metered=False)
