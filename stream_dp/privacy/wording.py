"""The guarantee in one sentence of plain English, wherever people read it."""

from math import exp

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


def unit_in_words(unit: str, items: int | None = None) -> str:
    """One unit, an event or a user, of which at most `items` labels count."""
    most = "" if items is None else f" (up to {items:,} label{'' if items == 1 else 's'})"
    return f"one event{most}" if unit == "event" else f"one user, with all of their events{most},"
