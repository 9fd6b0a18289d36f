"""The guarantee in one sentence of plain English, wherever people read it."""

from math import ceil, exp, expm1, log, log10

from stream_dp.privacy.share import Share

UNMETERED = (
    " UNMETERED: the source had no budget when this was charged, so nothing bounds what all releases from it reveal "
    "together."
)
"""Follows the sentence where no budget pays for what is released."""

_LARGEST_SPELT_OUT = 10.0
_WEAK = 4.0
"""Docs say the same of an epsilon above this."""

_LEAST_ODDS = 100
"""What happens once in fewer times is no exception."""


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

    A bound of e^epsilon on every likelihood ratio moves even odds to e^epsilon : 1 and no further.

    >>> for_viewers("event", 2.0, 1e-6)
    'Each single event is hidden: what is shown here can turn a 50:50 guess about it into about 88:12 at most, except \
with a chance of 1 in 1,000,000. Someone with many events is not hidden as a person.'
    """
    whose, guessed, besides = _HIDDEN[unit]
    exception = f", except with a chance of 1 in {1 / delta:,.0f}" if delta else ""
    weak = (
        f" Epsilon {epsilon:g} is high: above 4 the proof means little by itself." if epsilon > _WEAK else ""
    )
    return (
        f"{whose}: what is shown here can turn a 50:50 guess about {guessed} into {odds(epsilon)}{exception}.{besides}"
        f"{of_longer(unit, epsilon, delta)}{weak}"
    )


def odds(epsilon: float) -> str:
    """What even odds become at most, in percent; the smaller part keeps one digit that is not zero.

    >>> odds(1.0), odds(6.0), odds(20.0)
    ('about 73:27 at most', 'about 99.8:0.2 at most', 'near certainty')
    """
    if epsilon > _LARGEST_SPELT_OUT:
        return "near certainty"
    smaller = 100 / (1 + exp(epsilon))
    digits = max(0, ceil(-log10(smaller)))
    return f"about {100 - smaller:.{digits}f}:{smaller:.{digits}f} at most"


def of_longer(unit: str, epsilon: float, delta: float) -> str:
    """What a unit of one day does not promise, after a space; nothing of other units.

    >>> of_longer("user-day", 0.5, 1e-6)
    ' That is for one day, at epsilon 0.5: for a week of the same user it is epsilon 3.5, but for a chance of 1 in \
20,200, and for a month epsilon 15, but for a chance that is no promise any more.'
    """
    if unit != "user-day":
        return ""
    week, month = (_of_days(epsilon, delta, days) for days in (WEEK, MONTH))
    return (
        f" That is for one day, at epsilon {epsilon:g}: for a week of the same user it is {week}, and for a month "
        f"{month}."
    )


def of_units(epsilon: float, delta: float, units: int) -> tuple[float, float]:
    """The (epsilon, delta) of so many units together, each of which has this one: group privacy, delta at most 1.

    Going from one log to the other a unit at a time, each step multiplies all that was lost before by e^epsilon: delta
    is that of one unit times the sum of e^(k epsilon) over k < `units`.

    >>> of_units(1.0, 1e-6, 7)
    (7.0, 0.000637632977479034)
    """
    if not delta:
        return units * epsilon, 0.0
    # The logarithm of (e^(n epsilon) - 1) / (e^epsilon - 1), which overflows for no epsilon.
    terms = (units - 1) * epsilon + log(-expm1(-units * epsilon)) - log(-expm1(-epsilon))
    return units * epsilon, exp(min(0.0, log(delta) + terms))


WEEK, MONTH = 7, 30
"""Days."""


def _of_days(epsilon: float, delta: float, days: int) -> str:
    total, chance = of_units(epsilon, delta, days)
    told = f"epsilon {total:g}"
    if not chance:
        return told
    if 1 / chance < _LEAST_ODDS:
        return f"{told}, but for a chance that is no promise any more"
    return f"{told}, but for a chance of 1 in {1 / chance:,.0f}"


def unit_in_words(unit: str, items: int | None = None) -> str:
    """One unit, an event, a user or a day of a user, of which at most `items` labels count."""
    most = "" if items is None else f" (up to {items:,} label{'' if items == 1 else 's'})"
    of_users = "" if unit == "event" else ","
    return f"one {_PROTECTED[unit]}{most}{of_users}"


def counted(unit: str, items: int, over: str | None = None) -> str:
    """What a count is of: no interval shows what the cap leaves out.  `over`: which share of the units has more items.

    >>> counted("event", 16)
    'Counts the first 16 items of each event; what comes after is left out.'
    >>> counted("event", 16, "45% (44% to 46%)")
    'Counts the first 16 items of each event; 45% (44% to 46%) of the events have more, and what comes after is \
left out.'
    """
    whose = {"event": "each event", "user": "each user", "user-day": "each user's day"}[unit]
    first = "item" if items == 1 else f"{items:,} items"
    more = "" if over is None else f"{over} of the {_MANY[unit]} have more, and "
    return f"Counts the first {first} of {whose}; {more}what comes after is left out."


def sampled(unit: str, most: int | None, over: Share | None = None, part: float | None = None) -> str | None:
    """What the counts of a job leave out of units with more than `most` items; None if it is nothing.

    `over`: which share of the units has more; `part`: what is counted of all that they hold.

    >>> sampled("user", 16, Share(0.4512, 0.4432, 0.4501))
    'Every user counts with at most 16 items, a choice of them if there are more, as 45% (44% to 46%) of the users \
have. Intervals do not cover what that leaves out.'
    >>> sampled("user", 1, part=0.62)
    'Every user counts with at most 1 item, a choice of them if there are more. Intervals do not cover what that \
leaves out: about 62% of what they hold is counted.'
    """
    if most is None:
        return None
    items = "1 item" if most == 1 else f"{most:,} items"
    more = "" if over is None else f", as {over.percent} of the {_MANY[unit]} have"
    counted = "" if part is None else f": about {part:.0%} of what they hold is counted"
    return (
        f"Every {unit} counts with at most {items}, a choice of them if there are more{more}. Intervals do not cover "
        f"what that leaves out{counted}."
    )


def room_for(more: int, counted_to: int) -> str:
    """How many more charges fit, of which nobody counted more than `counted_to`.

    >>> room_for(0, 100), room_for(20, 100), room_for(100, 100)
    ('room for no more', 'room for 20 more', 'room for at least 100 more')
    """
    number = "no" if more == 0 else f"at least {more:,}" if more >= counted_to else f"{more:,}"
    return f"room for {number} more"


def never_shown(unit: str, at_least: int) -> str:
    """What a least count promises, whatever the noise is; nothing for a count of 1, which every label has.

    >>> never_shown("user", 10)
    'No label that fewer than 10 users hold is ever shown, unless it was known in advance.'
    """
    if at_least == 1:
        return ""
    return f"No label that fewer than {at_least:,} {_MANY[unit]} hold is ever shown, unless it was known in advance."


_PROTECTED = {
    "event": "event",
    "user": "user, with all of their events",
    "user-day": "user's day, with all of their events of that day",
}

_MANY = {"event": "events", "user": "users", "user-day": "users' days"}

_HIDDEN = {
    "event": ("Each single event is hidden", "it", " Someone with many events is not hidden as a person."),
    "user": ("Each user is hidden, with all of their events", "them", ""),
    "user-day": ("Each day of a user is hidden, with all of their events of that day", "it", ""),
}
"""Who is hidden, the word for them in a guess about them, and who is not hidden."""
