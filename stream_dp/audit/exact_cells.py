"""The true delta of a label with two noisy cells beside it: units counted, and units over the cap (cap_cells.py).

What is enumerated is the program: the bound decides what each round admits and what it adds to the cells, the histogram
shows labels, and the cells draw noise of their own, every outcome of it.  Given what is admitted, labels and cells are
independent, so the losses of all of them add up.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, reduce
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np

from stream_dp.audit.exact import Law, Losses, Occurrences, law, losses, merged_law
from stream_dp.audit.exact_noise import enumerated
from stream_dp.counters.binary import BinaryMechanism
from stream_dp.counters.protocol import CalibratedCounter, EpochParameters
from stream_dp.engine.cap_cells import CapCells
from stream_dp.events.bounding import Bound, EventBound, UserBound
from stream_dp.events.event import Event
from stream_dp.privacy.composition import Unit
from stream_dp.privacy.keyed_noise import EMPTY_HISTORY, KEY_BYTES, NONCE_BYTES

Events = tuple[Event, ...]
"""What a round holds."""

_ROUNDS, _MOST = 2, 1
_SIGMA_SQUARED = 32.0
_PARAMETERS = EpochParameters(_ROUNDS, _MOST, 1e-5, "kept", cap_share=True)
_OTHER = Event(["a"], "other")
_MINE = Event(["a"], "me"), Event(["a", "b"], "me")


class EachEvent(UserBound):
    """BROKEN: the events of a user count in the cells one by one, and not the user once."""

    def admit(self, event: Event) -> list[str]:
        units, over = self.units, self.over
        admitted = super().admit(event)
        self.units, self.over = units + 1, over + (len({*event.items}) > self.items_per_user)
        return admitted


@dataclass(frozen=True)
class CellsCase:
    """A label of `mechanism` and its cells, or those of `cells`, against the promise of `correct`.

    `known`: the label is known in advance, so that all of its counts are seen.  `each_event`: see `EachEvent`.
    """

    mechanism: CalibratedCounter
    unit: Unit = "event"
    broken: str = ""
    cells: CalibratedCounter | None = None
    correct: CalibratedCounter | None = None
    each_event: bool = False
    known: bool = True
    epsilon: float = 0.5

    def worst(self) -> float:
        """The largest delta of any neighbours."""
        pairs = _users() if self.unit == "user" else _events()
        return max(self._losses(larger, smaller).delta(self.epsilon) for larger, smaller in pairs)

    def _losses(self, larger: tuple[Events, ...], smaller: tuple[Events, ...]) -> Losses:
        one, other = self._admitted(larger), self._admitted(smaller)
        cells = self.cells or self.mechanism.cells
        of_label = losses(*(law(self.mechanism, held, known=self.known) for held, _ in (one, other)))
        of_cells = (
            losses(_law_of_cell(cells, one[1][n]), _law_of_cell(cells, other[1][n])).merged() for n in (0, 1)
        )
        return reduce(Losses.and_independently, of_cells, of_label)

    def _admitted(
        self, log: tuple[Events, ...]
    ) -> tuple[Occurrences, tuple[tuple[int, ...], tuple[int, ...]]]:
        """The rounds that admit the label, and what each round adds to either cell."""
        bound: Bound = EventBound(_MOST)
        if self.unit == "user":
            kind = EachEvent if self.each_event else UserBound
            bound = kind(_MOST, bytes(KEY_BYTES), bytes(NONCE_BYTES), cap_share=True)
        rounds, cells = set[int](), []
        for number, events in enumerate(log, 1):
            units, over = bound.units, bound.over
            if bound.admit_all(events):
                rounds.add(number)
            cells.append((bound.units - units, bound.over - over))
        counted, capped = zip(*cells, strict=True)
        return frozenset(rounds), (counted, capped)


def _events() -> Iterator[tuple[tuple[Events, ...], tuple[Events, ...]]]:
    """A larger and a smaller log: one event each round, of which the smaller one lacks one."""
    for log in product(((), *((each,) for each in _MINE)), repeat=_ROUNDS):
        for place in range(_ROUNDS):
            yield log, (*log[:place], (), *log[place + 1 :])


def _users() -> Iterator[tuple[tuple[Events, ...], tuple[Events, ...]]]:
    """Another user holds the label or not; the differing one brings up to three events a round, or none at all."""
    for rest in product(((), (_OTHER,)), repeat=_ROUNDS):
        for added in product(((), _MINE[:1], _MINE[1:] * 3), repeat=_ROUNDS):
            rounds = [*zip(rest, added, strict=True)]
            if not any(one and other for one, other in rounds):  # a round admits the label once at most
                yield tuple(one + other for one, other in rounds), rest


@lru_cache(maxsize=256)
def _law_of_cell(cells: CalibratedCounter, counts: tuple[int, ...]) -> Law:
    """What a cell shows to which rounds add these counts."""
    run, noise, probabilities = enumerated(cells, 0)
    beside: Any = SimpleNamespace(cells=run)
    stand_in: Any = noise
    names = [b"%d" % number for number in range(len(probabilities))]
    added = np.repeat(np.array(counts, np.int64)[:, np.newaxis], len(names), axis=1)
    shown = CapCells(beside, stand_in, names=names).observe(added, [EMPTY_HISTORY] * len(counts))
    return merged_law(shown.T.astype(np.int32), probabilities)


def cells_cases() -> list[CellsCase]:
    """The rule, and three that look similar."""
    right = BinaryMechanism.of(_PARAMETERS, _SIGMA_SQUARED)
    bare = BinaryMechanism.of(replace(_PARAMETERS, cap_share=False), _SIGMA_SQUARED)
    return [
        CellsCase(right),
        CellsCase(right, "user"),
        CellsCase(right, known=False, epsilon=1.5),
        CellsCase(right, broken="cells beside the labels that nothing pays for", correct=bare),
        CellsCase(right, broken="cells with the noise of a label, charged by their weight", cells=right),
        CellsCase(right, "user", "a user's events counted each in the cells", each_event=True),
    ]
