"""The mechanisms whose true delta `stream-dp audit --exact` counts, and broken ones that must exceed their guarantee.

Nothing outside this package but the command may import this module.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from stream_dp.audit.exact import guaranteed, worst
from stream_dp.audit.exact_cells import CellsCase, cells_cases
from stream_dp.audit.exact_discovery_cases import DiscoveryCase, broken_cases, discovery_cases
from stream_dp.audit.exact_epochs import Carried, by_admission, by_release, worst_of_both
from stream_dp.audit.exact_noise import EnumeratedNoise
from stream_dp.audit.exact_windows import BLOCKS, DELTA, WINDOW, WindowCase, window_cases
from stream_dp.counters import MECHANISMS
from stream_dp.counters.binary import BinaryMechanism
from stream_dp.counters.blt import BltMechanism
from stream_dp.counters.discovery import DiscoveryMechanism
from stream_dp.counters.protocol import CalibratedCounter, EpochParameters
from stream_dp.counters.registry import COUNTERS
from stream_dp.counters.window import WindowMechanism
from stream_dp.engine.histogram import HistogramState, RunningHistogram
from stream_dp.engine.released_block import ReleasedBlock
from stream_dp.privacy.composition import Unit
from stream_dp.privacy.shown import Shown
from stream_dp.privacy.thresholds import sum_tail_threshold

RULES: tuple[Shown, ...] = ("kept", "each-round")
_THRESHOLD_DELTA = 0.02


@dataclass(frozen=True)
class Case:
    """One mechanism on a small horizon.  `broken`: what is wrong with it, of one that must be caught.

    `window`: a rule for windows without end.  What is counted of it is the chance that a label escapes, where both logs
    have the same table: what an event moves in that is for the Gaussian to hide, so epsilon has no part in it.
    `discovery`: a rule by which labels are found at tests.  `cells`: two cells are counted beside the label.
    `carried`: two epochs follow one another, and this decides what the second one knows of the first.
    """

    mechanism: CalibratedCounter
    epsilon: float
    unit: Unit = "event"
    broken: str = ""
    histogram: type[RunningHistogram] = RunningHistogram
    correct: CalibratedCounter | None = None
    carried: Carried | None = None
    window: WindowCase | None = None
    discovery: DiscoveryCase | None = None
    cells: CellsCase | None = None

    @property
    def rounds(self) -> int:
        """How many rounds are enumerated, of each epoch."""
        return self.mechanism.horizon if self.window is None else WINDOW * BLOCKS


@dataclass(frozen=True)
class Counted:
    """What was counted: the largest delta of any neighbours, and the one that the proof gives."""

    case: Case
    delta: float
    guaranteed: float

    @property
    def exceeded(self) -> bool:
        """The guarantee does not hold."""
        return self.delta > self.guaranteed

    @property
    def as_expected(self) -> bool:
        """A correct mechanism keeps its guarantee, or a broken one was caught."""
        return self.exceeded == bool(self.case.broken)

    def report(self) -> dict[str, object]:
        """For machines."""
        mechanism = self.case.mechanism
        return {
            "mechanism": mechanism.name,
            "shown": mechanism.shown,
            "unit": self.case.unit,
            "items": mechanism.items_per_event,
            "rounds": self.case.rounds,
            "tests": mechanism.tests if isinstance(mechanism, DiscoveryMechanism) else None,
            "cells": self.case.cells is not None,
            "epochs": 1 if self.case.carried is None else 2,
            "epsilon": self.case.epsilon,
            "broken": self.case.broken,
            "delta": self.delta,
            "guaranteed": self.guaranteed,
            "ratio": self.delta / self.guaranteed,
            "as_expected": self.as_expected,
        }


def counted(case: Case) -> Counted:
    """Count one."""
    if case.window is not None:
        return Counted(case, case.window.worst(), float(DELTA))
    if case.discovery is not None:
        return Counted(case, case.discovery.worst(), case.discovery.guaranteed)
    if case.cells is not None:
        return Counted(case, case.cells.worst(), guaranteed(case.correct or case.mechanism, case.epsilon))
    if case.carried is not None:
        delta, _ = worst_of_both(case.mechanism, case.epsilon, case.carried)
    else:
        delta, _ = worst(case.mechanism, case.epsilon, case.unit, case.histogram)
    return Counted(case, delta, guaranteed(case.correct or case.mechanism, case.epsilon))


def cases(names: Sequence[str] = ()) -> list[Case]:
    """All, broken ones last; only those of the named counters where some are named."""
    return [case for case in _every_case() if not names or case.mechanism.name in names]


@cache
def _every_case() -> list[Case]:
    found = [*_correct(), *_windows(), *_discovery(), *_cells(), *_broken()]
    return sorted(found, key=lambda case: bool(case.broken))


def _windows() -> Iterator[Case]:
    """All rules, of blocks of two rounds."""
    mechanism = WindowMechanism.of(EpochParameters(WINDOW, 1, float(DELTA)), 1.0)
    for each in window_cases():
        yield Case(mechanism, 0.0, broken=each.broken, window=each)


def _discovery() -> Iterator[Case]:
    """Labels that are found at tests, and the rules that look similar."""
    for each in (*discovery_cases(), *broken_cases()):
        yield Case(each.rule.mechanism, each.epsilon, each.unit, each.rule.broken, discovery=each)


def _cells() -> Iterator[Case]:
    """Two cells beside a label, and the rules that look similar."""
    for each in cells_cases():
        told = each.epsilon, each.unit, each.broken
        yield Case(each.mechanism, *told, correct=each.correct, cells=each)


def _correct() -> Iterator[Case]:
    """One item in as many rounds as can be enumerated, and two items of an event or of a user in two rounds."""
    units: tuple[Unit, Unit] = ("event", "user")
    kinds = [COUNTERS[name] for name in MECHANISMS]
    for rule, kind in product(RULES, kinds):
        rounds, noise, epsilon = kind.enumerated
        yield Case(kind.of(EpochParameters(rounds, 1, _THRESHOLD_DELTA, rule), noise), epsilon)
        for unit in units:
            yield Case(kind.of(EpochParameters(2, 2, _THRESHOLD_DELTA, rule), noise), epsilon, unit)
        if kind in (BinaryMechanism, BltMechanism):  # one of whole numbers, and one that rounds
            two_rounds = kind.of(EpochParameters(2, 1, _THRESHOLD_DELTA, rule), noise)
            yield Case(two_rounds, epsilon, carried=by_release)


def _broken() -> Iterator[Case]:
    for rule in RULES:
        admitted = BinaryMechanism.of(EpochParameters(2, 1, _THRESHOLD_DELTA, rule), 1.0)
        what = "labels carried on that were admitted and never shown"
        yield Case(admitted, 1.0, broken=what, carried=by_admission)
        correct = BinaryMechanism.of(EpochParameters(3, 1, _THRESHOLD_DELTA, rule), 4.0)
        alone = tuple(sum_tail_threshold(4.0, m + 1, _THRESHOLD_DELTA) for m in range(2))
        every = structs.replace(correct, thresholds=alone, thresholds_by_level=())
        yield Case(every, 5.0, broken="a single round's threshold in every round", correct=correct)
        correct = BinaryMechanism.of(EpochParameters(3, 1, 1e-4, rule), 4.0)
        low = tuple(tau - 3 for tau in (correct.tau(1), correct.tau(3)))
        lower = structs.replace(correct, thresholds=low, thresholds_by_level=())
        yield Case(lower, 5.0, broken="a threshold 3 too low", correct=correct)
    true = BinaryMechanism.of(EpochParameters(4, 1, 0.05, "kept"), 0.5)
    yield Case(
        true, 16.0, broken="a label kept because its true count reached tau", histogram=KeepsTrueCounts
    )
    known = BinaryMechanism.of(EpochParameters(2, 1, _THRESHOLD_DELTA, "kept"), 1.0)
    yield Case(known, 1.0, broken="known labels collected from the data", histogram=CollectsLabels)


class KeepsTrueCounts(RunningHistogram):
    """BROKEN: a label is kept, too, from the round on in which its TRUE count reaches tau."""

    def _release(
        self,
        rounds: NDArray[np.int64],
        noisy: NDArray[np.int32],
        tau: NDArray[np.int32],
        heads: Sequence[bytes],
    ) -> ReleasedBlock:
        rows = np.flatnonzero(self._counts[: len(self._seen)] >= tau[0])
        self._show(rows, np.full(len(rows), rounds[0]))
        return super()._release(rounds, noisy, tau, heads)


class CollectsLabels(RunningHistogram):
    """BROKEN: the labels of the log are taken for public ones, which are shown from the first round on."""

    def __init__(self, mechanism: CalibratedCounter, noise: EnumeratedNoise, state: HistogramState) -> None:
        labels = [f"{number:09d}" for number in range(len(noise.outcomes))]
        state = HistogramState.before_any_round(labels, shown=True)
        super().__init__(mechanism, noise, state)  # type: ignore[arg-type]
