"""Windows without end on small blocks: what an event can show beyond its block's Gaussian, with all noise summed up.

A label's noise has a small law of integers, N(1) = z_1, N(2) = z_1 + z_2 and so on, of which everything is summed up in
fractions.  For every course of events that both logs share, for every moment of the one event more, and for every
course of releases that may have been seen before it, the chance that one log shows the label in a round in which the
other does not must be at most what all tests of one block are promised to take: W p.  The two logs are compared where
their tables are the same, that is where the smaller one's noise is larger by what the event counts: that much is what
the Gaussian pays for.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import accumulate, product

from stream_dp.counters.window import Showing

WINDOW, BLOCKS = 2, 2
LAW = {-2: Fraction(1, 16), -1: Fraction(3, 16), 0: Fraction(1, 2), 1: Fraction(3, 16), 2: Fraction(1, 16)}
DELTA = Fraction(1, 8)
Noise = tuple[tuple[int, ...], ...]
"""The noise of each block by place."""

Rule = Callable[[Noise, Sequence[int], Sequence[int]], list[int | None]]
"""What each round releases of the label: its noisy window, or None."""


@cache
def threshold(place: int, chance: Fraction) -> int:
    """The least tau that a count of 1 passes with at most this chance."""
    law: dict[int, Fraction] = defaultdict(Fraction)
    for draws in product(LAW, repeat=place):
        weight = Fraction(1)
        for draw in draws:
            weight *= LAW[draw]
        law[sum(draws)] += weight
    passing = [tau for tau in range(-9, 12) if sum(w for n, w in law.items() if n + 1 >= tau) <= chance]
    return min(passing)


def counts_of(events: Sequence[int], block: int) -> list[int]:
    """S_b by place, with S_b(0)."""
    return [0, *accumulate(events[block * WINDOW : (block + 1) * WINDOW])]


def window(noise: Noise, events: Sequence[int], block: int, place: int) -> int:
    """The noisy window."""
    now = counts_of(events, block)[place] + noise[block][place - 1]
    if not block:
        return now
    before = counts_of(events, block - 1)
    return now + before[WINDOW] + noise[block - 1][-1] - before[place] - noise[block - 1][place - 1]


def sound(noise: Noise, events: Sequence[int], taus: Sequence[int]) -> list[int | None]:
    """The rule as it is."""
    showing, found = Showing(WINDOW), []
    for block in range(BLOCKS):
        showing.begin_block()
        for place in range(1, WINDOW + 1):
            noisy = counts_of(events, block)[place] + noise[block][place - 1]
            shown = showing.step(bool(events[block * WINDOW + place - 1]), noisy, taus[place - 1])
            found.append(window(noise, events, block, place) if shown else None)
    return found


def leaves_with_its_events(noise: Noise, events: Sequence[int], taus: Sequence[int]) -> list[int | None]:
    """Wrong: a label goes when its true window is empty."""
    found = sound(noise, events, taus)
    for number in range(len(events)):
        if not any(events[max(0, number - WINDOW + 1) : number + 1]):
            found[number] = None
    return found


def takes_the_window_for_the_test(
    noise: Noise, events: Sequence[int], taus: Sequence[int]
) -> list[int | None]:
    """Wrong: what is tested is the window, which holds the noise of the last block; the same keeping.

    Its thresholds are right for the law of that noise.
    """
    of_window = [threshold(WINDOW, DELTA / WINDOW)] * WINDOW
    found: list[int | None] = []
    left = 0
    for number, block, place in places():
        noisy = window(noise, events, block, place)
        in_window = any(events[max(0, number - WINDOW + 1) : number + 1])
        if (in_window or left) and noisy >= of_window[place - 1]:
            left = WINDOW
        found.append(noisy if left else None)
        left = max(0, left - 1)
    return found


def places() -> Iterable[tuple[int, int, int]]:
    """Each round with its block and its place there."""
    return ((number, number // WINDOW, number % WINDOW + 1) for number in range(BLOCKS * WINDOW))


@cache
def all_noise() -> list[tuple[Noise, Fraction]]:
    """Each noise that two blocks can have, and how likely it is."""
    rows = []
    for draws in product(LAW, repeat=WINDOW):
        weight = Fraction(1)
        for draw in draws:
            weight *= LAW[draw]
        rows.append((tuple(accumulate(draws)), weight))
    found = []
    for blocks in product(rows, repeat=BLOCKS):
        weight = Fraction(1)
        for _, each in blocks:
            weight *= each
        found.append((tuple(row for row, _ in blocks), weight))
    return found


def reused_noise() -> list[tuple[Noise, Fraction]]:
    """Wrong: every block has the noise of the first."""
    return [((noise[0],) * BLOCKS, weight) for noise, weight in all_noise()]


COURSES = [[3, 0, 0, 0], [4, 0, 0, 0], [2, 0, 0, 0], [0, 0, 0, 0]]
"""Courses of the label that both logs share: in the second block it is silent."""


def without(noise: Noise, moment: int) -> Noise:
    """The noise by which a log without the event of this moment has the same table."""
    block, before = divmod(moment, WINDOW)
    rows = [list(row) for row in noise]
    rows[block][before:] = [each + 1 for each in rows[block][before:]]
    return tuple(map(tuple, rows))


def own_taus(chance: Fraction = DELTA / WINDOW) -> list[int]:
    """The thresholds of a block whose tests each pass with at most this chance."""
    return [threshold(place, chance) for place in range(1, WINDOW + 1)]


def worst(
    rule: Rule = sound,
    taus: Sequence[int] | None = None,
    law: Callable[[], Sequence[tuple[Noise, Fraction]]] = all_noise,
) -> Fraction:
    """The largest chance, over all that may be known before the event, that one log shows what the other does not."""
    found, taus = Fraction(0), taus or own_taus()
    for events, moment in product(COURSES, range(BLOCKS * WINDOW)):
        larger = [*events[:moment], events[moment] + 1, *events[moment + 1 :]]
        known: dict[tuple[int | None, ...], Fraction] = defaultdict(Fraction)
        differs: dict[tuple[int | None, ...], Fraction] = defaultdict(Fraction)
        for noise, weight in law():
            less, more = rule(without(noise, moment), events, taus), rule(noise, larger, taus)
            prefix = tuple(less[:moment])
            known[prefix] += weight
            if less != more:
                differs[prefix] += weight
        found = max([found, *(differs[prefix] / known[prefix] for prefix in differs)])
    return found


@dataclass(frozen=True)
class WindowCase:
    """The rule, or one that must be caught: `broken` says what is wrong with it."""

    broken: str = ""
    rule: Rule = sound
    taus: tuple[int, ...] | None = None
    law: Callable[[], Sequence[tuple[Noise, Fraction]]] = all_noise

    def worst(self) -> float:
        """The largest chance that one log shows what the other does not."""
        return float(worst(self.rule, self.taus, self.law))


def window_cases() -> list[WindowCase]:
    """The rule, and four that look alike."""
    return [
        WindowCase(),
        WindowCase("a label leaves when its true window empties", leaves_with_its_events),
        WindowCase("the window is tested, with noise that was shown", takes_the_window_for_the_test),
        WindowCase("the union over a block is forgotten", taus=tuple(own_taus(DELTA))),
        WindowCase("a block's noise is used in the next one", law=reused_noise),
    ]
