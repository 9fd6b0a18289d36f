"""From a guaranteed (epsilon, delta) to the noise and the thresholds that keep it, and what the result guarantees."""

from dataclasses import dataclass

from stream_dp.counters.discovery import DiscoveryMechanism
from stream_dp.counters.protocol import CAP_CELLS, CalibratedCounter, EpochParameters, Promise, items_name
from stream_dp.counters.registry import COUNTERS, Mechanism, kind_of
from stream_dp.privacy.composition import Unit
from stream_dp.privacy.keyed_noise import MOST_CELLS
from stream_dp.privacy.shown import Shown
from stream_dp.privacy.wording import in_words, unit_in_words

_FRESH = 1 - MOST_CELLS**2 / 2.0**128
"""The share of the threshold's delta for labels whose first noise nobody can have seen before: docs/guarantee.md."""

_USERS_ALIKE = 2.0**40 / 2.0**128
"""At most this chance that one user's 128 bits (bounding.py) are another's: no state has room for 2^40 users."""


@dataclass(frozen=True)
class Guarantee:
    """What every release of an epoch guarantees, all its rounds together.

    Neighbours differ in one `unit`.  `delta` contains `threshold_delta`, the chance that a label escapes
    through the threshold; `conversion` names the bound that turns the noise into (epsilon, delta).
    """

    unit: Unit
    epsilon: float
    delta: float
    rho: float
    threshold_delta: float
    conversion: str

    @property
    def sentence(self) -> str:
        """The guarantee in words, for people who read a release."""
        return in_words(unit_in_words(self.unit), "all rounds together show", self.epsilon, self.delta)


def calibrate(
    epsilon: float,
    delta: float,
    horizon: int,
    items_per_event: int,
    mechanism: str = "binary",
    unit: Unit = "event",
    shown: Shown = "kept",
    tests: tuple[int, ...] = (),
    at_least: int = 1,
    cap_share: bool = False,
) -> tuple[Mechanism, Guarantee]:
    """The least noise that makes a whole epoch (epsilon, delta)-DP.  Which labels are `shown` costs nothing.

    `tests`: with blt, the rounds in which new labels of at least `at_least` events are looked for; none for every one.
    `cap_share`: count units, and those that have more items than are counted, in two noisy cells beside the labels.

    Where the unit is the user, or a user's day, the setting items_per_user takes the place of `items_per_event`.
    Half of delta goes to the threshold, and the other half, less what is charged for computed noise that is not
    the exact one and for colliding cells, to the conversion.  Of windows, which never end,
    `horizon` is the window, and the guarantee that of a block of so many rounds: no event is in two.  Raises ValueError
    for a setting out of range, naming it.
    """
    kind = _checked(mechanism, horizon, items_per_event, unit)
    if not 0 < epsilon <= 100:
        raise ValueError(f"epsilon must be above 0 and at most 100, not {epsilon:g}")
    if not 1e-12 <= delta <= 0.5:
        raise ValueError(f"delta must be between 1e-12 and 0.5, not {delta:g}")
    threshold_delta = delta / 2
    if cap_share and kind.size_name != "horizon":
        raise ValueError(f"{mechanism} has no cells beside its labels: leave cap_share out")
    drawn_items = items_per_event + CAP_CELLS * cap_share
    charged = program_delta(delta, horizon + len(tests), drawn_items, unit, mechanism)
    noise_delta = delta - threshold_delta - charged
    if noise_delta <= 0:
        raise ValueError(
            f"delta {delta:g} leaves nothing for the noise: raise delta, or lower horizon or {items_name(unit)}"
        )
    parameters = EpochParameters(horizon, items_per_event, threshold_delta * _FRESH, shown, cap_share)
    promise = Promise(unit, float(epsilon), float(delta), noise_delta)
    found: CalibratedCounter
    if tests:
        found, conversion = DiscoveryMechanism.with_tests(parameters, promise, tests, at_least), "exact"
    else:
        found, conversion = kind.calibrated(parameters, promise)
    return found, Guarantee(unit, promise.epsilon, promise.delta, found.rho, threshold_delta, conversion)


def program_delta(
    delta: float, horizon: int, items_per_event: int, unit: Unit = "event", mechanism: str = "binary"
) -> float:
    """The part of `delta` that pays for all differences between ideal noise and what the program computes.

    `horizon`: in how many rounds a label may draw noise, tests and later rounds both; `items_per_event`: how many
    labels and cells of one unit do.

    With `threshold_delta` it is all of an epoch's delta that is not left to the conversion of rho: what a ledger that
    adds up rho must add up too.  None of it grows with epsilon, so it holds at whatever epsilon the ledger converts.
    """
    rounding = COUNTERS[mechanism].numerical_share * delta
    return coupling_delta(horizon, items_per_event, unit, mechanism) + rounding


def coupling_delta(
    horizon: int, items_per_event: int, unit: Unit = "event", mechanism: str = "binary"
) -> float:
    """What it costs that draws are neither exactly of their law nor certain to be independent.

    Where users are bounded, also that 128 bits tell them apart.
    """
    alike = 0.0 if unit == "event" else _USERS_ALIKE
    return alike + COUNTERS[mechanism].coupling_delta(horizon, items_per_event)


def _checked(mechanism: str, horizon: int, items_per_event: int, unit: Unit) -> type[CalibratedCounter]:
    kind = kind_of(mechanism, unit)
    if not 1 <= horizon <= kind.largest_size:
        raise ValueError(f"{kind.size_name} must be between 1 and {kind.largest_size}, not {horizon}")
    if not 1 <= items_per_event <= 100_000:
        raise ValueError(f"{items_name(unit)} must be between 1 and 100000, not {items_per_event}")
    return kind
