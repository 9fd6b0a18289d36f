"""Whether the budget of the data source has room."""

from collections.abc import Iterator
from dataclasses import replace

import msgspec
from redis import Redis

from stream_dp.cli.checklist.finding import Finding, not_passed
from stream_dp.config.settings import Settings
from stream_dp.engine.epoch import Epoch, EpochRefused
from stream_dp.epochs.lifecycle import charge_of
from stream_dp.privacy import composition
from stream_dp.store.ledger import Ledger, LedgerRefused, require_room


def room_in_budget(settings: Settings, redis: Redis) -> Iterator[Finding]:
    """Whether the data source's ledger counts per the same unit, if it counts anything yet."""
    try:
        ledger = Ledger(redis, settings.data_source)
        unit = ledger.state().unit
    except LedgerRefused as error:
        yield not_passed("ledger", error)
        return
    if unit not in (None, settings.unit):
        yield Finding(
            "ledger",
            "failed",
            f'the ledger of {ledger.source!r} counts per {unit}, and the two units cannot be added: set unit = "{unit}"'
            f' instead of "{settings.unit}"',
        )
        return
    yield _room(settings, ledger)


def _room(settings: Settings, ledger: Ledger) -> Finding:
    """Whether the budget has room for an epoch of these settings, after those that are open or were charged."""
    state, own = ledger.state(), f"{settings.stream}/epoch/"
    end = max((charge.end_offset or charge.first_offset for charge in state.charges()), default=0)
    if (
        state.unit == "event" and settings.data_source == settings.events
    ):  # an open epoch ends before the next
        closed = {
            name: msgspec.structs.replace(each, closed_at=end)
            for name, each in state.stored.items()
            if name.startswith(own) and each.now.end_offset is None
        }
        state = replace(state, stored=state.stored | closed)
    try:
        charge = charge_of(Epoch.open(settings, 0, end))
        require_room(ledger.source, state, charge, metered=not settings.unmetered)
    except EpochRefused as refused:
        return not_passed("budget", refused)
    except LedgerRefused as refused:
        return Finding("budget", "warning", f"the next epoch would be refused: {refused}")
    if state.budget is None:
        return Finding(
            "budget", "warning", "UNMETERED: the data source has no budget, and nothing is refused"
        )
    left = composition.room([*state.charges(), charge], state.budget, charge.first_offset, None)
    return Finding(
        "budget",
        "ok",
        f"epsilon {state.budget.epsilon:g}, delta {state.budget.delta:g} has room for an epoch of these settings; "
        f"after it there stays rho {left.rho:.4g}",
    )
