"""What counters let people see at one guarantee, side by side, and what the survey's statement would.

This is what `calibrate`, `preview`, `plan`, `connect`, and `check` share: which counters are
meant, for how many rounds each is calibrated, why some refuse, and what the others let people see.

The survey is that of Rogers (2023), Theorem 11: the Binary Mechanism with one threshold for all rounds, converted
by rho + 2 sqrt(rho ln(1/delta)).  It is computed here for comparison only; no stream runs it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil, log, sqrt
from statistics import NormalDist
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from stream_dp.config.settings import Settings
from stream_dp.counters import COMPARED, EVERY_ROUND, WINDOW
from stream_dp.counters.binary import levels
from stream_dp.counters.calibration import Guarantee, calibrate
from stream_dp.counters.discovery import DiscoveryMechanism
from stream_dp.counters.discovery_schedule import rounds_of_tests
from stream_dp.counters.protocol import CalibratedCounter
from stream_dp.counters.registry import kind_of
from stream_dp.counters.window import WindowMechanism
from stream_dp.errors import Refused
from stream_dp.privacy.composition import Unit
from stream_dp.privacy.discrete_gaussian import variance
from stream_dp.privacy.shown import Shown

ROUNDS_LOOKED_AT = 2**18
"""Up to this horizon means and maxima are over every round; beyond it over so many, spread evenly."""

PAPERS_CONVERSION = "rho + 2 sqrt(rho ln(1/delta))"

Calibrated = tuple[CalibratedCounter, Guarantee]

_ROUNDS_AT_ONCE = 2**16
_GOLDEN = (sqrt(5) - 1) / 2


@dataclass(frozen=True)
class OverRounds:
    """Of the rounds of a horizon."""

    mean: float
    max: float


@dataclass(frozen=True)
class Visibility:
    """What a mechanism lets people see: `sd` and `tau` in counts, over the rounds of its horizon.

    `mechanism` and `discover` name it as settings do.
    `seen_half` and `seen_mostly` are the least true counts that are seen with a probability of at least 1/2 and 95%.
    Where each round shows its own labels, by a round picked at random.  Where labels are kept, at the horizon, of a
    label whose events are spread evenly over all rounds: looking at its best round alone, so that it is seen at least
    so often.  `conversion` names the bound that turns the noise into (epsilon, delta).
    """

    mechanism: str
    discover: str
    rho: float
    conversion: str
    sd: OverRounds
    tau: OverRounds
    seen_half: int
    seen_mostly: int

    @property
    def name(self) -> str:
        """What comparisons call it."""
        return compared_name(self.mechanism, self.discover)


def visibility(mechanism: CalibratedCounter, guarantee: Guarantee) -> Visibility:
    """What a calibrated mechanism lets people see.

    Of windows, `sd` is that of windows, and what is seen that of a label whose events are spread evenly over a window.
    """
    if isinstance(mechanism, WindowMechanism):
        window, block = mechanism.window, mechanism.block
        of_block = _visibility(mechanism.name, window, mechanism.rho, guarantee.conversion, block, kept=True)
        later = over_rounds(lambda places: mechanism.sds(window + places), window)
        return replace(of_block, sd=later)
    if isinstance(mechanism, DiscoveryMechanism):
        found = seen_at_tests(mechanism, guarantee)
        return replace(found, sd=over_rounds(mechanism.sds, mechanism.horizon))
    kept = mechanism.shown == "kept"
    return _visibility(
        mechanism.name, mechanism.horizon, mechanism.rho, guarantee.conversion, mechanism, kept
    )


def seen_at_tests(mechanism: DiscoveryMechanism, guarantee: Guarantee) -> Visibility:
    """What tests let people see; `sd` is that of the tests."""
    tests = np.array(mechanism.tests)
    of_tests = "blt", mechanism.horizon, mechanism.rho, guarantee.conversion, _Tests(mechanism)
    return _visibility(*of_tests, kept=True, tests=tests)


def survey(epsilon: float, delta: float, horizon: int, items_per_event: int) -> Visibility:
    """What the survey's statement would let people see at the same guarantee, half of delta for the threshold."""
    root = sqrt(log(2 / delta))
    rho = (sqrt(root**2 + epsilon) - root) ** 2
    sigma_squared = items_per_event * levels(horizon) / (2 * rho)
    rounds = _SurveyRounds(sigma_squared, survey_tau(sigma_squared, delta / 2, horizon, items_per_event))
    return _visibility("survey", horizon, rho, PAPERS_CONVERSION, rounds)


def survey_tau(sigma_squared: float, threshold_delta: float, horizon: int, items_per_event: int) -> int:
    """The survey's threshold for given noise: 1 + sigma sqrt(h + 1) Phi^-1(1 - d / (D0 L)) in every round.

    A noisy count is whole, so it reaches this if and only if it reaches the next whole number, which is returned.
    """
    tail = NormalDist().inv_cdf(threshold_delta / (items_per_event * horizon))
    return ceil(1 - sqrt(sigma_squared * (levels(horizon) + 1)) * tail)


def counters_asked(
    mechanism: str | None,
    discover: str | None,
    window: int | None,
    horizons: Sequence[int],
    unit: Unit = "event",
) -> tuple[tuple[str, ...], Sequence[int]]:
    """The counters that are meant by names with commas between, None for all, and the rounds of each calibration.

    `discover` is that of `blt`, or several with commas between.  With a `window` its rounds are the only ones.  Raises
    `Refused`.
    """
    if window is not None:
        if mechanism not in (None, WINDOW):
            raise Refused(
                f"--window is for the mechanism window: leave --window or --mechanism {mechanism} out"
            )
        horizons = [window]
        mechanism = WINDOW
    names = _words(mechanism or "blt")
    if window is None and WINDOW in names:
        raise Refused("the mechanism window counts the last rounds: say how many, such as --window 60")
    for name in names:
        try:
            kind_of(name, unit)
        except ValueError as error:
            raise Refused(str(error)) from None
    if discover is None:
        return COMPARED if mechanism is None else tuple(names), horizons
    rules = _words(discover)
    for rule in rules:
        if rule not in ("default", "every-round"):
            raise Refused(f"--discover must be default or every-round here, not {rule!r}")
    if "blt" not in names:
        raise Refused(f"{names[0]} looks for new labels in every round: leave --discover out, or take blt")
    found = [compared_name(name, rule) for name in names for rule in rules]
    return tuple(dict.fromkeys(found)), horizons


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",")]


def compared_name(mechanism: str, discover: str) -> str:
    """What comparisons call the counter of these settings."""
    return EVERY_ROUND if (mechanism, discover) == ("blt", "every-round") else mechanism


def calibrate_each(
    epsilon: float,
    delta: float,
    horizon: int,
    items_per_event: int,
    names: Sequence[str] = COMPARED,
    unit: Unit = "event",
    shown: Shown = "kept",
    cap_share: bool = False,
) -> tuple[list[Calibrated], dict[str, str]]:
    """The mechanisms that can keep this guarantee, calibrated, and by name why the others refuse it.

    Raises `Refused` where all of them do.
    """
    calibrated: list[Calibrated] = []
    refused = {}
    if shown != "kept":  # which is looked for in every round
        names = list(dict.fromkeys(EVERY_ROUND if name == "blt" else name for name in names))
    for name in names:
        tests = rounds_of_tests(horizon) if name == "blt" else ()
        mechanism = "blt" if name == EVERY_ROUND else name
        try:
            calibrated.append(
                calibrate(
                    epsilon,
                    delta,
                    horizon,
                    items_per_event,
                    mechanism,
                    unit,
                    shown,
                    tests,
                    cap_share=cap_share,
                )
            )
        except ValueError as error:
            refused[name] = str(error)
    if not calibrated:
        raise Refused(refused[names[0]])
    return calibrated, refused


def seen_with_each(settings: Settings) -> list[Visibility]:
    """What each counter that can count as these settings say would let people see, best first."""
    asked = settings.epsilon, settings.delta, settings.calibrated_rounds, settings.items_per_unit
    names = (WINDOW,) if settings.window else COMPARED
    calibrated, _ = calibrate_each(*asked, names, settings.unit, settings.shown, settings.cap_share)
    found = [visibility(mechanism, guarantee) for mechanism, guarantee in calibrated]
    return sorted(found, key=lambda each: each.seen_mostly)


def settings_of(mechanism: CalibratedCounter) -> dict[str, str]:
    """The settings `mechanism` and `discover` of a counter."""
    if isinstance(mechanism, DiscoveryMechanism):
        return {"mechanism": "blt", "discover": "default"}
    return {"mechanism": mechanism.name, "discover": "every-round"}


def name_of(settings: Settings) -> str:
    """What comparisons call the counter of these settings."""
    return compared_name(settings.mechanism, "default" if settings.finds_at_tests else "every-round")


def over_rounds(
    value: Callable[[NDArray[np.int64]], NDArray[Any]], horizon: int, most: int = ROUNDS_LOOKED_AT
) -> OverRounds:
    """Mean and maximum of a value of rounds, of which at most so many are looked at."""
    total, count, largest = 0.0, 0, -float("inf")
    rounds = spread(1, horizon, most)
    for start in range(0, len(rounds), _ROUNDS_AT_ONCE):
        values = value(rounds[start : start + _ROUNDS_AT_ONCE])
        total += float(values.sum(dtype=np.float64))
        count += len(values)
        largest = max(largest, values.max().item())
    if len(rounds) < horizon:
        largest = max(largest, value(_edges(horizon)).max().item())
    return OverRounds(total / count, largest)


def spread(first: int, last: int, most: int) -> NDArray[np.int64]:
    """The rounds `first`..`last`, or `most` of them: one of every equal part, at a place that favours no binary digit.

    >>> spread(1, 5, 8), len(spread(1, 1000, 10))
    (array([1, 2, 3, 4, 5]), 10)
    """
    rounds = last - first + 1
    if rounds <= most:
        return np.arange(first, last + 1)
    parts = np.arange(most)
    return first + ((parts + parts * _GOLDEN % 1) * (rounds / most)).astype(np.int64)


def _edges(horizon: int) -> NDArray[np.int64]:
    """Where trees have their longest chains: the last round, and those before the powers of two."""
    return np.array([2**k - 1 for k in range(1, horizon.bit_length() + 1) if 2**k - 1 <= horizon] + [horizon])


class _Rounds(Protocol):
    """What a round's noise and threshold are."""

    def taus(self, rounds: NDArray[np.int64]) -> NDArray[np.int32]: ...
    def sds(self, rounds: NDArray[np.int64]) -> NDArray[np.float64]: ...


@dataclass(frozen=True)
class _SurveyRounds:
    """The Binary Mechanism's noise under one threshold."""

    sigma_squared: float
    tau: int

    def taus(self, rounds: NDArray[np.int64]) -> NDArray[np.int32]:
        return np.full(len(rounds), self.tau, np.int32)

    def sds(self, rounds: NDArray[np.int64]) -> NDArray[np.float64]:
        return np.sqrt(np.bitwise_count(rounds) * variance(self.sigma_squared))


@dataclass(frozen=True)
class _Tests:
    """The noise and the thresholds of tests, in their rounds alone."""

    mechanism: DiscoveryMechanism

    def taus(self, rounds: NDArray[np.int64]) -> NDArray[np.int32]:
        return self.mechanism.taus(rounds)

    def sds(self, rounds: NDArray[np.int64]) -> NDArray[np.float64]:
        places = np.minimum(np.searchsorted(self.mechanism.tests, rounds), len(self.mechanism.tests) - 1)
        return self.mechanism.test_sds[places]


def _visibility(
    name: str,
    horizon: int,
    rho: float,
    conversion: str,
    rounds: _Rounds,
    kept: bool = False,
    tests: NDArray[np.int64] | None = None,
) -> Visibility:
    sd, tau = over_rounds(rounds.sds, horizon), over_rounds(rounds.taus, horizon)
    if kept:
        looked_at = _best_rounds(horizon) if tests is None else tests
        reached = looked_at / horizon
    else:
        looked_at = spread(1, horizon, _ROUNDS_AT_ONCE)
        reached = np.ones(len(looked_at))
    taus, sds = rounds.taus(looked_at), rounds.sds(looked_at)

    def chance(count: int) -> float:
        # Noise is whole, and close to a rounded Gaussian: count + noise >= tau where that is above tau - 1/2 - count.
        chances = ndtr((count * reached - taus + 0.5) / sds)
        return float(chances.max() if kept else chances.mean())

    most = ceil(float((taus + 10 * sds).max()))
    return Visibility(
        name,
        "every-round" if tests is None else "default",
        rho,
        conversion,
        sd,
        tau,
        _least_count(chance, most, 0.5),
        _least_count(chance, most, 0.95),
    )


def _best_rounds(horizon: int) -> NDArray[np.int64]:
    """The last round, and all that end in so many binary zeros that there are some thousands of them at most."""
    step = 1 << max(0, horizon.bit_length() - 12)
    return np.append(np.arange(step, horizon, step), horizon)


def _least_count(chance: Callable[[int], float], most: int, probability: float) -> int:
    """The least true count whose chance to be seen is at least this probability; `most` is one that has it."""
    hidden, shown = 0, most
    while shown - hidden > 1:
        middle = (hidden + shown) // 2
        if chance(middle) >= probability:
            shown = middle
        else:
            hidden = middle
    return shown
