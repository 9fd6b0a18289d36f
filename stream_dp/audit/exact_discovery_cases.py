"""Settings of discovery whose true delta is counted, and six rules near the right one that must exceed it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from stream_dp.audit.exact_discovery import Counts, Floats, Found, Log, Rule, worst, worst_adaptive
from stream_dp.counters.blt import quantile_above
from stream_dp.counters.blt_parameters import Gaps
from stream_dp.counters.discovery import KNOWN, DiscoveryMechanism
from stream_dp.counters.protocol import EpochParameters
from stream_dp.privacy.accounting import gaussian_delta, gaussian_rho
from stream_dp.privacy.composition import Unit

_IDENTITY = Gaps((), ())
"""C of shown labels is the identity: then an item that is charged twice shows most."""


class CountedAgain(Rule):
    """What a label had before it was found enters the counter of shown labels, too."""

    broken = "events of the tests counted again in later rounds"

    def later(self, log: Log, test: int) -> Floats:
        found = super().later(log, test)
        if test != KNOWN:
            found[0] = self.counts(log)[test - 1]
        return found


class MeasuredAgain(CountedAgain):
    """The count that found the label is not shown, and it is measured once more with fresh noise."""

    broken = "the count measured again when a label is shown"

    def found(self, counts: Counts, noise: NDArray[np.int32]) -> Found:
        tests, _ = super().found(counts, noise)
        return Found(tests, np.zeros_like(tests))


class CountedInBoth(Rule):
    """The events since the last test belong to it and to the counter of shown labels."""

    broken = "events of a test's own block counted in both counters"

    def later(self, log: Log, test: int) -> Floats:
        found = super().later(log, test)
        if test != KNOWN:
            found[0] = np.diff(self.counts(log), prepend=0)[test - 1]
        return found


class FoundByTrueCounts(Rule):
    """A label is found if its true count reaches the threshold."""

    broken = "a label found by its true count"

    def passes(self, counts: Counts, measured: NDArray[np.int64]) -> NDArray[np.bool_]:
        return np.broadcast_to(np.array(counts) >= self.taus, measured.shape)


class MinimumBeyondTau(Rule):
    """The threshold is that of a least count of 1, and fewer than m events are still never shown."""

    broken = "a least count of true events that the threshold does not add"

    @property
    def taus(self) -> NDArray[np.int64]:
        return super().taus - (self.mechanism.at_least - 1)


class EachTestSpendsAll(Rule):
    """The union over tests dropped."""

    broken = "all of the threshold's delta spent at each test"

    @property
    def taus(self) -> NDArray[np.int64]:
        mechanism = self.mechanism
        alone = quantile_above(mechanism.threshold_delta / mechanism.items_per_event)
        return structs.replace(mechanism, deviations=alone).test_taus.astype(np.int64)


@dataclass(frozen=True)
class DiscoveryCase:
    """A rule on a small horizon.  `held`: how often a round may hold the label; `known`: how many items are known.

    `adaptive`: producers see the first test before they go on.
    """

    rule: Rule
    epsilon: float
    unit: Unit = "event"
    known: int = 0
    held: Sequence[int] = (0, 1)
    adaptive: bool = False

    def worst(self) -> float:
        """The largest delta of any neighbours."""
        if self.adaptive:
            return worst_adaptive(self.rule, self.epsilon, self.unit, self.held)
        return worst(self.rule, self.epsilon, self.unit, self.known, self.held)

    @property
    def guaranteed(self) -> float:
        """The delta that the proof gives."""
        mechanism = self.rule.mechanism
        return gaussian_delta(mechanism.rho, self.epsilon) + mechanism.threshold_delta


def _mechanism(
    tests: tuple[int, ...],
    rho: float,
    threshold_delta: float,
    items: int = 1,
    at_least: int = 1,
    gaps: Gaps | None = _IDENTITY,
    cap_share: bool = False,
) -> DiscoveryMechanism:
    """With a round after the last test."""
    parameters = EpochParameters(tests[-1] + 1, items, threshold_delta, "kept", cap_share)
    return DiscoveryMechanism.of(parameters, rho, tests, at_least, gaps)


_TABLE = gaussian_rho(1.0, 0.04)  # where the cost of the noisy tables is most of delta, at epsilon 1
_THRESHOLD = 0.12  # rho where nothing but an escape has a loss above 8
_SURE = (0, 1, 8)  # eight times in one round are enough to be found, nearly always


def discovery_cases() -> list[DiscoveryCase]:
    """The right rule for one label and for two, where either part of delta is most of it."""
    found = [DiscoveryCase(Rule(_mechanism((1, 3), _TABLE, 0.004, gaps=None)), 1.0, held=_SURE)]
    for tests, at_least in (((2, 3), 2), ((1, 2, 3), 1)):
        mechanism = _mechanism(tests, _TABLE, 0.004, at_least=at_least)
        found.append(DiscoveryCase(Rule(mechanism), 1.0, held=_SURE))
    for tests, at_least in (((1, 2), 1), ((1, 2, 3), 2)):
        found.append(DiscoveryCase(Rule(_mechanism(tests, _THRESHOLD, 0.02, at_least=at_least)), 8.0))
    beside = Rule(_mechanism((1, 2, 3), _TABLE, 0.004, cap_share=True))
    found.append(DiscoveryCase(beside, 1.0, held=_SURE))
    units: tuple[Unit, Unit] = ("event", "user")
    for unit in units:
        mechanism = _mechanism((1, 2), _TABLE, 0.004, items=2)
        found += [
            DiscoveryCase(Rule(mechanism), 1.0, unit, held=_SURE),
            DiscoveryCase(Rule(mechanism), 1.0, unit, known=1, held=_SURE),
            DiscoveryCase(Rule(mechanism), 1.0, unit, held=_SURE, adaptive=True),
        ]
    return found


def broken_cases() -> list[DiscoveryCase]:
    """Each wrong rule in the setting that exposes it."""
    twice = _mechanism((1, 3), _TABLE, 0.004)
    return [
        *(
            DiscoveryCase(kind(twice), 1.0, held=_SURE)
            for kind in (CountedAgain, MeasuredAgain, CountedInBoth)
        ),
        DiscoveryCase(FoundByTrueCounts(twice), 1.0, held=(0, 1, 6)),
        DiscoveryCase(EachTestSpendsAll(_mechanism((1, 2, 3), _THRESHOLD, 0.02)), 8.0),
        DiscoveryCase(MinimumBeyondTau(_mechanism((3,), _THRESHOLD, 0.02, at_least=3)), 8.0),
    ]
