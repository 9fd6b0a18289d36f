"""What an epoch costs its data source, and which of its offsets or days it covers."""

from stream_dp.config.days import date_of
from stream_dp.counters.calibration import program_delta
from stream_dp.engine.epoch import Epoch
from stream_dp.epochs.journal import EpochClosed
from stream_dp.privacy.composition import Charge
from stream_dp.privacy.vector import Vector, at, offsets_text


def charge_of(epoch: Epoch) -> Charge:
    """What an epoch costs its data source, all of it before its first release.

    It covers the offsets from which the epoch counts, or the days; of a derived stream nobody knows them, so all of the
    source's.
    """
    guarantee, mechanism = epoch.guarantee, epoch.mechanism
    stream = epoch.privacy["stream"]
    first, *further = epoch.offsets if epoch.days is None else (epoch.first_day,)
    if epoch.is_derived:
        first, further = 0, []
    return Charge(
        id=f"{stream}/epoch/{epoch.number}/{epoch.nonce.hex()}",
        what=f"running histogram of stream {stream}, epoch {epoch.number}",
        unit=guarantee.unit,
        rho=guarantee.rho,
        delta=guarantee.threshold_delta
        + program_delta(
            guarantee.delta, mechanism.drawn_rounds, mechanism.drawn_items, guarantee.unit, mechanism.name
        ),
        first_offset=first,
        end_offset=None,
        digest=epoch.fingerprint,
        exact=(guarantee.epsilon, guarantee.delta),
        loss=mechanism.loss,
        further_offsets=tuple(further),
        zone="" if epoch.days is None else epoch.days.zone,
    )


def charge_up_to(charge: Charge, ends: Vector, following: Epoch) -> Charge:
    """The charge of an epoch that ends at these offsets, where `following` begins."""
    if charge.unit != "user-day":
        return charge.ended(ends[0], ends[1:])
    return charge.ended(following.first_day) if following.first_day > charge.first_offset else charge


def end_day(epoch: Epoch, closed: EpochClosed, at: int) -> int:
    """The day after the last one of which an epoch has counted anything; `at`: when its last round ended."""
    return (
        epoch.first_day if has_counted_nothing(epoch, closed) else max(epoch.first_day, epoch.day_of(at) + 1)
    )


def has_counted_nothing(epoch: Epoch, closed: EpochClosed) -> bool:
    after = epoch.after_barrier.number if epoch.after_barrier is not None else None
    counted = any(end != at(epoch.offsets, number) for number, end in enumerate(closed.ends))
    return not counted and closed.end_barrier in (None, after)


def beginning_of_range(epoch: Epoch) -> str:
    return (
        f"offset {offsets_text(epoch.offsets)}"
        if epoch.days is None
        else f"the day {date_of(epoch.first_day)}"
    )
