"""Whether the budget of the data source has room, as `stream-dp check` and `stream-dp worker --dry-run` say it."""

from collections.abc import Iterator
from dataclasses import replace

import msgspec
from kafka.errors import KafkaError
from redis import Redis

from stream_dp.cli.checklist.finding import Finding, not_passed
from stream_dp.config.days import days_of
from stream_dp.config.settings import Settings
from stream_dp.config.times import clock
from stream_dp.engine.epoch import Epoch, EpochRefused
from stream_dp.epochs.charges import charge_of
from stream_dp.epochs.journal import EpochJournal
from stream_dp.epochs.journaled_ledger import look
from stream_dp.kafka import log
from stream_dp.privacy import composition
from stream_dp.privacy.vector import Vector, larger
from stream_dp.privacy.wording import room_for
from stream_dp.store.ledger import Ledger, LedgerRefused
from stream_dp.store.ledger_room import require_room

_MOST_COUNTED = 100


def next_charge(settings: Settings, redis: Redis, new_epoch: bool, recount: bool) -> Iterator[Finding]:
    """What a worker that starts now, with these options, would charge, and whether the budget has room for it.

    Raises KafkaError.
    """
    if not new_epoch and log.existing(settings.kafka_address, settings.epochs):
        journal = EpochJournal(settings)
        if journal.last is not None and journal.last_is_open:
            number = journal.last.epoch.number
            yield Finding("epoch", "ok", f"epoch {number} is open: a worker continues it and charges nothing")
            return
    yield from room_in_budget(settings, redis, recount)


def epoch_is_open(settings: Settings) -> bool:
    """Whether a worker that starts now continues an epoch, and so charges nothing; True where Kafka does not say it."""
    try:
        return (
            bool(log.existing(settings.kafka_address, settings.epochs))
            and EpochJournal(settings).last_is_open
        )
    except KafkaError:
        return True


def room_in_budget(
    settings: Settings, redis: Redis, recount: bool = False, needed: bool = True
) -> Iterator[Finding]:
    """Whether the data source's ledger counts per the same unit, if it counts anything yet, and has room.

    `recount`: the next epoch begins with the first event, instead of where the last one ends.  `needed`: without room
    no worker could start.  Where Kafka does not
    answer, which has the ledger's journal, Redis is believed alone.
    """
    try:
        try:
            ledger = look(settings.kafka_address, redis, settings.data_source)
        except KafkaError:
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
    yield _room(settings, ledger, recount, needed)


def _room(settings: Settings, ledger: Ledger, recount: bool, needed: bool) -> Finding:
    """Whether the budget has room for an epoch of these settings, after those that are open or were charged."""
    state, own = ledger.state(), f"{settings.stream}/epoch/"
    ends: Vector = (0,)
    for each in state.charges():
        ends = larger(ends, each.ends or (each.first_offset, *each.further_offsets))
    if recount:  # what the open epoch has counted by then is counted again
        held = log.offsets_of_all(settings.kafka_address, settings.events)
        ends = larger(ends, [partition.end for partition in held])
    first_day = 0
    if settings.unit == "user-day" and not recount:
        first_day = days_of(settings.time_zone).at(clock()) + 1
        ends = (first_day,)
    if (
        state.unit in ("event", "user-day") and settings.data_source == settings.events
    ):  # an open epoch ends before the next
        closed = {
            name: msgspec.structs.replace(each, closed_at=ends[0], closed_further=ends[1:])
            for name, each in state.stored.items()
            if name.startswith(own) and each.now.end_offset is None
        }
        state = replace(state, stored=state.stored | closed)
    try:
        first = (0,) if recount else ends
        charge = charge_of(Epoch.open(settings, 0, first[0], further_offsets=first[1:], first_day=first_day))
        require_room(ledger.source, state, charge, metered=not settings.unmetered)
    except EpochRefused as refused:
        return not_passed("budget", refused)
    except LedgerRefused as refused:
        return Finding(
            "budget", "failed" if needed else "warning", f"the next epoch would be refused: {refused}"
        )
    if state.budget is None:
        return Finding(
            "budget", "warning", "UNMETERED: the data source has no budget, and nothing is refused"
        )
    more = composition.more_like(charge, [*state.charges(), charge], state.budget, _MOST_COUNTED)
    return Finding(
        "budget",
        "ok",
        f"epsilon {state.budget.epsilon:g}, delta {state.budget.delta:g} has room for an epoch of these settings; "
        f"after it, there is {room_for(more, _MOST_COUNTED)} like it, on the same events",
    )
