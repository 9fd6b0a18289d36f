"""What a ledger says when it refuses a charge or a budget: what is wrong, and what would fit."""

import math

from stream_dp.config.days import date_of
from stream_dp.privacy.composition import Budget, Charge, Load, Room, Unit
from stream_dp.privacy.vector import offsets_text


def does_not_fit(source: str, budget: Budget, charge: Charge, left: Room, more_like_the_last: int) -> str:
    """The refusal of a charge, and the largest one that would fit."""
    where = "for users" if budget.unit == "user" else f"on {_range(charge)}"
    told = (
        f"the charge {charge.id!r} (rho {charge.rho:.4g}, delta {charge.delta:.4g}) does not fit the budget of "
        f"{source!r} (epsilon {budget.epsilon:g}, delta {budget.delta:g} per {budget.unit}): {where}"
    )
    if left.untouched:
        return told + (
            " nothing is spent yet, so what fits is a single charge that guarantees the budget by itself, or rho "
            f"{_down(left.rho)} with delta {_down(left.delta)}"
        )
    if left.pure_epsilon == 0:
        return told + f" nothing is left: {_elsewhere(budget.unit)}, or raise the budget"
    copies = f"; of charges like the last, {more_like_the_last} more fit" if more_like_the_last else ""
    return told + (
        f", epsilon up to {_down(left.pure_epsilon)} fits (of Gaussian noise, rho up to {_down(left.rho)}) with a "
        f"delta up to {_down(left.delta)}{copies}"
    )


def no_budget(source: str) -> str:
    """The refusal of a charge on a source without a budget, and the two ways to go on."""
    return (
        f"the data source {source!r} has no budget, so nothing was charged: set one with `stream-dp budget set "
        f"--source {source} --epsilon 2 --delta 1e-6`, or say with --unmetered (or the setting unmetered = true) that "
        "nothing bounds what all releases from it reveal together"
    )


def other_share(source: str, before: float | None) -> str:
    """The refusal of a budget that shares delta in another way than the charges were made by."""
    how = (
        "as the first charge settled it"
        if before is None
        else f"{before:g} of it for the charges' own deltas"
    )
    return (
        f"the ledger of {source!r} has charges, so how delta is shared cannot change any more ({how}): leave "
        "--own-deltas out, which keeps it"
    )


def too_small(source: str, budget: Budget, exceeded: list[Load]) -> str:
    """The refusal of a budget below what is spent, and the least one that would do."""
    told = f"more is spent on {source!r} than epsilon {budget.epsilon:g} with delta {budget.delta:g}: "
    epsilon = max(budget.least_epsilon(load) for load in exceeded)
    if epsilon < math.inf:
        return told + f"with this delta, set epsilon to {_up(epsilon)} or more"
    delta = max(budget.least_delta(load) for load in exceeded)
    if delta < math.inf:
        return told + f"no epsilon is enough with a delta that the charges use up: set delta to {_up(delta)}"
    return told + "no budget covers it, because the charges' own deltas are too large"


def _elsewhere(unit: Unit) -> str:
    elsewhere: dict[Unit, str] = {
        "event": "read other offsets",
        "user-day": "read other days",
        "user": "ask for data of other people",
    }
    return elsewhere[unit]


def _range(charge: Charge) -> str:
    if charge.unit == "user-day":
        until = "" if charge.end_offset is None else f" until before {date_of(charge.end_offset)}"
        return f"the days from {date_of(charge.first_offset)} on{until}"
    first = offsets_text((charge.first_offset, *charge.further_offsets))
    if charge.end_offset is None:
        return f"offsets {first} on"
    return f"offsets {first} to {offsets_text(charge.ends)}"


def _down(value: float) -> str:
    """Six digits that are not above the value, so that what is said to fit does."""
    return f"{value * (1 - 1e-5):.6g}"


def _up(value: float) -> str:
    """Six digits that are not below the value."""
    return f"{value * (1 + 1e-5):.6g}"
