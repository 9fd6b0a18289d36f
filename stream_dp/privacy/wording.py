"""The guarantee in one sentence of plain English, wherever people read it."""

from math import ceil, exp

UNMETERED = (
    " UNMETERED: the source had no budget when this was charged, so nothing bounds what all releases from it reveal "
    "together."
)
"""Follows the sentence where no budget pays for what is released."""

_LARGEST_SPELT_OUT = 10.0


def in_words(unit: str, released: str, epsilon: float, delta: float) -> str:
    """What taking one unit out of the data can change.

    `unit` is what is protected, `released` everything that the guarantee is about.

    >>> in_words("one event", "this job releases", 1.0, 1e-6)
    'Taking any one event out of the data changes the probability of anything that this job releases by at most a \
factor of e^1 (about 2.7), except with probability 1e-06.'
    """
    factor = f"e^{epsilon:g}" + (f" (about {exp(epsilon):,.1f})" if epsilon < _LARGEST_SPELT_OUT else "")
    exception = f", except with probability {delta:g}" if delta else ""
    return (
        f"Taking any {unit} out of the data changes the probability of anything that {released} by at most a factor "
        f"of {factor}{exception}."
    )


def for_viewers(unit: str, epsilon: float, delta: float) -> str:
    """The guarantee for somebody who has never heard of epsilon; `unit` is `event`, `user` or `user-day`.

    It is the definition of differential privacy for one outcome, with the factor rounded up.

    >>> for_viewers("event", 2.0, 1e-6)
    'Noise hides every single event: anything you see here is at most 7.4 times likelier with it than without it, but \
for a chance of 1 in 1,000,000.'
    """
    whose = _PROTECTED[unit]
    factor = ceil(exp(min(epsilon, _LARGEST_SPELT_OUT + 10)) * 10) / 10
    most = f"is at most {factor:,.1f}" if factor < 1_000_000 else "may be more than a million"
    exception = f", but for a chance of 1 in {1 / delta:,.0f}" if delta else ""
    return (
        f"Noise hides every single {whose}: anything you see here {most} times likelier with it than without it"
        f"{exception}.{_of_longer(unit, epsilon)}"
    )


def _of_longer(unit: str, epsilon: float) -> str:
    """What a unit of one day does not promise: n days of one user are n units."""
    if unit != "user-day":
        return ""
    return (
        f" That is for one day, at epsilon {epsilon:g}: for a week of the same user it is epsilon {7 * epsilon:g}, and "
        f"for a month epsilon {30 * epsilon:g}."
    )


def unit_in_words(unit: str, items: int | None = None) -> str:
    """One unit, an event, a user or a day of a user, of which at most `items` labels count."""
    most = "" if items is None else f" (up to {items:,} label{'' if items == 1 else 's'})"
    of_users = "" if unit == "event" else ","
    return f"one {_PROTECTED[unit]}{most}{of_users}"


_PROTECTED = {
    "event": "event",
    "user": "user, with all of their events",
    "user-day": "user's day, with all of their events of that day",
}
