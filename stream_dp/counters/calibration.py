"""From a guaranteed (epsilon, delta) to the noise and the thresholds that keep it, and what the result guarantees."""

from dataclasses import dataclass, replace

from stream_dp.counters import DISCRETE, MECHANISMS, WINDOW, Mechanism
from stream_dp.counters.blt import NUMERICAL_SHARE, BltMechanism
from stream_dp.counters.protocol import EpochParameters
from stream_dp.counters.window import LARGEST_WINDOW, WindowMechanism
from stream_dp.privacy.accounting import (
    discrete_gaussian_epsilon,
    discrete_gaussian_sigma_squared,
    gaussian_rho,
)
from stream_dp.privacy.composition import Unit
from stream_dp.privacy.discrete_gaussian import LARGEST_SIGMA_SQUARED
from stream_dp.privacy.keyed_noise import MOST_CELLS, collision_probability
from stream_dp.privacy.shown import Shown
from stream_dp.privacy.wording import in_words, unit_in_words

LARGEST_HORIZON = 2**24

_DRAW_DISTANCE = 2.0**-100
"""At most this chance that a draw is not discrete Gaussian, by either log: see privacy/discrete_gaussian.py."""

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
) -> tuple[Mechanism, Guarantee]:
    """The least noise that makes a whole epoch (epsilon, delta)-DP.  Which labels are `shown` costs nothing.

    Where the unit is the user, or a user's day, the setting items_per_user takes the place of `items_per_event`.
    Half of delta goes to the threshold, and the other half, less what is charged for computed noise that is not
    the exact one and for colliding cells, to the conversion.  Of windows, which never end,
    `horizon` is the window, and the guarantee that of a block of so many rounds: no event is in two.  Raises ValueError
    for a setting out of range, naming it.
    """
    _check(mechanism, horizon, items_per_event, unit)
    if not 0 < epsilon <= 100:
        raise ValueError(f"epsilon must be above 0 and at most 100, not {epsilon:g}")
    if not 1e-12 <= delta <= 0.5:
        raise ValueError(f"delta must be between 1e-12 and 0.5, not {delta:g}")
    threshold_delta = delta / 2
    charged = program_delta(delta, horizon, items_per_event, unit, mechanism)
    conversion_delta = delta - threshold_delta - charged
    if conversion_delta <= 0:
        raise ValueError(
            f"delta {delta:g} leaves nothing for the noise: raise delta, or lower horizon or {items_name(unit)}"
        )
    parameters = EpochParameters(horizon, items_per_event, threshold_delta * _FRESH, shown)
    if mechanism not in DISCRETE:
        rho = gaussian_rho(epsilon, conversion_delta)
        if mechanism == WINDOW:
            found: Mechanism = (window := WindowMechanism.of(replace(parameters, shown="each-round"), rho))
            blt = window.block
        else:
            found = blt = BltMechanism.of(parameters, rho)
        _check_variance(blt.draw_sd**2, unit)
        needed = blt.failure_probability / NUMERICAL_SHARE
        if needed > delta:
            raise ValueError(
                f"{mechanism} computes its noise exactly enough for a delta of at least {needed:.2g} here, not "
                f"{delta:g}: raise delta, lower epsilon, {_size_name(mechanism)} or {items_name(unit)}, or choose "
                "another mechanism"
            )
        return found, Guarantee(unit, float(epsilon), float(delta), blt.rho, threshold_delta, "exact")
    kind = DISCRETE[mechanism]
    shifts = items_per_event * kind.nodes_per_event(horizon)
    sigma_squared = discrete_gaussian_sigma_squared(epsilon, conversion_delta, shifts)
    _check_variance(sigma_squared, unit)
    sigma_squared = max(sigma_squared, kind.least_sigma_squared)
    calibrated = kind.of(parameters, sigma_squared)
    method = discrete_gaussian_epsilon(sigma_squared, shifts, conversion_delta).method
    return calibrated, Guarantee(unit, float(epsilon), float(delta), calibrated.rho, threshold_delta, method)


def guarantee_of(
    sigma_squared: float,
    threshold_delta: float,
    horizon: int,
    items_per_event: int,
    mechanism: str = "binary",
    shown: Shown = "kept",
) -> tuple[Mechanism, Guarantee]:
    """What given noise guarantees: epsilon at a delta of twice `threshold_delta`, split as in `calibrate`.

    Raises ValueError for a parameter out of range.
    """
    _check(mechanism, horizon, items_per_event, "event")
    if mechanism not in DISCRETE:
        raise ValueError(f"the noise of {mechanism} is not given by a variance: calibrate it to an epsilon")
    if not 0 < sigma_squared <= LARGEST_SIGMA_SQUARED:
        raise ValueError(
            f"sigma_squared must be above 0 and at most {LARGEST_SIGMA_SQUARED:g}, not {sigma_squared:g}"
        )
    kind = DISCRETE[mechanism]
    if sigma_squared < kind.least_sigma_squared:
        raise ValueError(
            f"{mechanism} needs noise of variance at least {kind.least_sigma_squared:g}, not {sigma_squared:g}: raise "
            "sigma_squared"
        )
    if not 1e-12 <= threshold_delta <= 0.25:
        raise ValueError(f"threshold_delta must be between 1e-12 and 0.25, not {threshold_delta:g}")
    parameters = EpochParameters(horizon, items_per_event, threshold_delta * _FRESH, shown)
    calibrated = kind.of(parameters, sigma_squared)
    shifts = items_per_event * kind.nodes_per_event(horizon)
    conversion = discrete_gaussian_epsilon(sigma_squared, shifts, threshold_delta)
    delta = 2 * threshold_delta + coupling_delta(horizon, items_per_event, mechanism=mechanism)
    return calibrated, Guarantee(
        "event", conversion.epsilon, delta, calibrated.rho, threshold_delta, conversion.method
    )


def program_delta(
    delta: float, horizon: int, items_per_event: int, unit: Unit = "event", mechanism: str = "binary"
) -> float:
    """The part of `delta` that pays for all differences between ideal noise and what the program computes.

    With `threshold_delta` it is all of an epoch's delta that is not left to the conversion of rho: what a ledger that
    adds up rho must add up too.  None of it grows with epsilon, so it holds at whatever epsilon the ledger converts.
    """
    rounding = 0.0 if mechanism in DISCRETE else NUMERICAL_SHARE * delta
    return coupling_delta(horizon, items_per_event, unit, mechanism) + rounding


def coupling_delta(
    horizon: int, items_per_event: int, unit: Unit = "event", mechanism: str = "binary"
) -> float:
    """What it costs that draws are neither exactly discrete Gaussian nor certain to be independent.

    Of what is charged for a draw, its table needs a quarter at most.  What a counter adds where one draw stands for
    several (privacy/wide_gaussian.py), less than 1e-33 for each of its draws, is covered by the rest.  With blt a draw
    takes two blocks of bits, and an event touches all rounds after it, with windows those of its block; what its draws
    and sums lack is charged apart (`program_delta`).  Where users are bounded, also that 128 bits tell them apart.
    """
    fails = 0.0 if unit == "event" else _USERS_ALIKE
    if mechanism not in DISCRETE:
        touched = 2 * horizon
    else:
        kind = DISCRETE[mechanism]
        touched = horizon.bit_length() + kind.start_draws(horizon)
        draws = kind.draws_per_round * horizon + kind.start_draws(horizon)  # of one label
        fails += items_per_event * draws * _DRAW_DISTANCE
    return fails + collision_probability(items_per_event * touched)


def _check_variance(sigma_squared: float, unit: Unit) -> None:
    if sigma_squared > LARGEST_SIGMA_SQUARED:
        raise ValueError(
            f"this guarantee needs noise of variance {sigma_squared:g}, more than any count could stand out from: "
            f"raise epsilon or delta, or lower horizon or {items_name(unit)}"
        )


def items_name(unit: Unit) -> str:
    """The setting that bounds what one unit brings."""
    return "items_per_event" if unit == "event" else "items_per_user"


def _size_name(mechanism: str) -> str:
    """What the setting is called that `horizon` stands for."""
    return "window" if mechanism == WINDOW else "horizon"


def _check(mechanism: str, horizon: int, items_per_event: int, unit: Unit) -> None:
    if mechanism not in (*MECHANISMS, WINDOW):
        raise ValueError(f"mechanism must be one of {', '.join((*MECHANISMS, WINDOW))}, not {mechanism!r}")
    if mechanism == WINDOW and unit == "user":
        raise ValueError(
            'a user would be in every window that a stream ever shows: mechanism = "window" takes unit = "event" or '
            'unit = "user-day"'
        )
    most = LARGEST_WINDOW if mechanism == WINDOW else LARGEST_HORIZON
    if not 1 <= horizon <= most:
        raise ValueError(f"{_size_name(mechanism)} must be between 1 and {most}, not {horizon}")
    if not 1 <= items_per_event <= 100_000:
        raise ValueError(f"{items_name(unit)} must be between 1 and 100000, not {items_per_event}")
