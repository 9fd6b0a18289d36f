"""The buffered linear Toeplitz counter: near the least error any counter can have, from a few numbers per label.

The noise of a label's running count after round t is s times

    N(t) = sum over a of s_a U_a(t),    U_a(t) = p_a U_a(t-1) + z_t,    z_t ~ N(0, 1), one draw forever,

rounded to the nearest integer.  Poles p and weights s_a: blt_parameters.py; draws: privacy/gaussian_noise.py.

Privacy.  Before rounding this is B (C x + s z): post-processing of Gaussian noise of standard deviation s on C x, which
one event moves by at most sqrt(D0) times the sensitivity of C.  C is lower triangular, so the events may depend on
releases (Denisov, McMahan, Rush, Smith and Thakurta 2022, theorem 2.1).  So rho = D0 sensitivity^2 / (2 s^2), and the
conversion of rho to (epsilon, delta) is that of a single Gaussian, exactly.  True counts are integers, so adding the
rounded noise equals rounding the noisy count.

Threshold.  A count of 1 that should not be seen reaches tau if the noise is at least tau - 3/2, so that tau = 1 +
ceil(q sd(t) + 1/2) lets it through with probability at most Phibar(q) = d / (D0 L).

Computed noise.  Rounding is post-processing of the exact noise only, so `failure_probability` bounds the chance that
any of the D0 L cells that matter is not the integer that exact noise would have given.  It is charged once and without
a factor of e^epsilon, so what counts as a failure must follow from C x + s z alone, and be the same for both neighbours
(docs/guarantee.md, "Failures that show in the table").  Each event below is therefore one of the noise as either of the
two logs would read it off C x + s z.  The two readings of a label's z differ by a vector of length m = sensitivity / s
at most, so those of V_a differ by at most m standard deviations, and those of the normals that a start takes by a
vector of at most that length, too.

- The draws are not quite normal: gaussian_cells.DRAW_DISTANCE each for the log's own reading, and for the other one
  gaussian_cells.missing_chance for all together.  A start at round n takes at most n.
- Outside an event of probability 2 Phibar(12) + 2 Phibar(12 - m) per cell and pole, both readings have |V_a| <= 12
  sd(V_a), V_a = s s_a U_a.
- Then the error of V_a before rounding is, with u = 2^-53 and T_a the sum of p_a^k over k < L, at most

      s s_a T_a (sqrt(poles) (DRAW_ERROR + 72 u^2 LARGEST_DRAW) + c_a u^2 12 sd(U_a))

  with c_a = 4 where p_a = 1 and 8 elsewhere.
  A round adds the error of its draw and those of `blt_advance` (loops/counters.c), and p_a damps what was there
  before.  A start at round n has those of `blt_combine` instead: its row of the factor has the norm s s_a sd(U_a(n)),
  so that its entries add up to at most sqrt(poles) times that, and sd(U_a(n)) is at most the sum of p_a^k over k < n.
- The sum over a adds 50 u^2 12 times the sum of sd(V_a).  Let err be the sum of all that.  Exact and computed noise
  differ only where the exact one is within err of half an integer.  As sd(t) >= s, the density of N(t) mod 1 is at
  most 1 + 1 / (sqrt(2 pi) s), and this happens with probability at most 2 err (1 + 0.4 / s).  Counts are integers, so
  both readings agree on it.

`NUMERICAL_SHARE` is what all of that may take of delta, at most; a calibration that would need more is refused.

Cost: two blocks of keyed bits and about 200 floating point operations per label and round; 2 doubles per pole and label
are kept.
"""

from dataclasses import asdict
from math import sqrt
from typing import ClassVar, Self

import numpy as np
from msgspec import structs
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from stream_dp.counters.blt_counter import BltCounter, law_of_state
from stream_dp.counters.blt_parameters import Gaps, best_gaps, output_weights, squared_sensitivity
from stream_dp.counters.blt_variances import row_variances
from stream_dp.counters.escapes import equal_share
from stream_dp.counters.noise_shape import Covariances, NoiseShape, Step
from stream_dp.counters.protocol import (
    CAP_CELLS,
    CAP_SCALE,
    Enumerated,
    EpochParameters,
    Promise,
    RunningCounter,
)
from stream_dp.privacy.accounting import gaussian_rho
from stream_dp.privacy.gaussian_cells import DRAW_DISTANCE, DRAW_ERROR, LARGEST_DRAW, missing_chance
from stream_dp.privacy.keyed_noise import KeyedNoise, collision_probability
from stream_dp.privacy.loss import Loss, gaussian

NUMERICAL_SHARE = 1e-3
"""How much of delta the difference between computed and exact noise may cost."""

_DEVIATIONS = 12  # of a state's value, beyond which the bound on its rounding error does not hold
_ROUNDOFF = 2.0**-53


class BltMechanism(RunningCounter, frozen=True, tag="blt"):
    """The counter with its poles, noise and threshold fixed.

    `draw_sd` is s, the standard deviation of one draw; an escape is as rare as it must be from `deviations` standard
    deviations on.  `theta_gaps` and `hat_gaps`: see blt_parameters.Gaps.
    """

    draw_sd: float
    threshold_delta: float
    deviations: float
    squared_sensitivity: float
    theta_gaps: tuple[float, ...]
    hat_gaps: tuple[float, ...]

    rounding: ClassVar[float] = 1 / 12
    numerical_share: ClassVar[float] = NUMERICAL_SHARE
    golden_digest: ClassVar[str] = "f5f4b4813074778041a0d2c34dc534cf"
    enumerated: ClassVar[Enumerated] = Enumerated(rounds=3, noise=0.5, epsilon=1.0)

    @classmethod
    def of(cls, parameters: EpochParameters, rho: float, gaps: Gaps | None = None) -> Self:
        """The least noise that costs at most `rho`; `gaps`: None for the best poles of the horizon.

        Each of the D0 * L chances to escape gets an equal part of `threshold_delta`, whatever `shown` is.
        """
        gaps = gaps or best_gaps(parameters.horizon)
        sensitivity = squared_sensitivity(gaps, parameters.horizon)
        return cls(
            **asdict(parameters),
            draw_sd=sqrt(parameters.charged_items * sensitivity / (2 * rho)) * (1 + 1e-15),
            deviations=quantile_above(equal_share(parameters)),
            squared_sensitivity=sensitivity,
            theta_gaps=gaps.theta,
            hat_gaps=gaps.hat,
        )

    @classmethod
    def calibrated(cls, parameters: EpochParameters, promise: Promise) -> tuple[Self, str]:
        """The conversion of rho to (epsilon, delta) is that of a single Gaussian."""
        found = cls.of(parameters, gaussian_rho(promise.epsilon, promise.noise_delta))
        found.require_exact(promise)
        return found, "exact"

    @classmethod
    def coupling_delta(cls, size: int, items_per_event: int) -> float:
        """A draw takes two blocks of bits, and an event touches all rounds after it."""
        return collision_probability(items_per_event * 2 * size)

    @classmethod
    def noise_shape(cls, horizon: int) -> NoiseShape:
        """See `CalibratedCounter.noise_shape`."""
        return NoiseShape(_covariances(best_gaps(horizon)))

    @classmethod
    def noise_state(cls, horizon: int) -> "ToeplitzState":
        """See `CalibratedCounter.noise_state`."""
        return ToeplitzState(best_gaps(horizon))

    @classmethod
    def golden(cls, horizon: int) -> "BltMechanism":
        """With so much noise that the integers show 24 bits beyond those that a count would."""
        poles = (0.001, 0.03125, 0.25), (0.015625, 0.09375, 0.75)
        return BltMechanism(horizon, 1, 2.0**24, 1e-6, 5.0, 2.4, *poles)

    def require_exact(self, promise: Promise, name: str = "blt", size_name: str = "horizon") -> None:
        """Raise ValueError where the noise is too large, or not computed exactly enough, for the promise."""
        promise.require_variance((self.cells if self.cap_share else self).draw_sd ** 2)
        require_share(self.failure_probability, promise, name, size_name)

    @property
    def gaps(self) -> Gaps:
        """The poles."""
        return Gaps(self.theta_gaps, self.hat_gaps)

    @property
    def rho(self) -> float:
        """The zCDP cost of the noisy table of a whole epoch, D0 sensitivity^2 / (2 s^2)."""
        return self.charged_items * self.squared_sensitivity / (2 * self.draw_sd**2)

    @property
    def loss(self) -> Loss:
        """One Gaussian."""
        return gaussian(2 * self.rho)

    @property
    def noise_error(self) -> float:
        """The largest error of a count's noise before it is rounded, while no state is beyond 12 deviations."""
        gaps, weights = np.array(self.gaps.poles), np.array([float(s) for s in output_weights(self.gaps)])
        sums, sds = _power_sums(gaps, self.horizon), np.sqrt(_power_sums(2 * gaps - gaps**2, self.horizon))
        of_draws = sqrt(len(gaps)) * (DRAW_ERROR + 72 * _ROUNDOFF**2 * LARGEST_DRAW)
        of_state = np.where(gaps > 0, 8, 4) * _ROUNDOFF**2 * _DEVIATIONS * sds
        of_sum = 50 * _ROUNDOFF**2 * _DEVIATIONS * sds
        return 1.001 * self.draw_sd * float(weights @ (sums * (of_draws + of_state) + of_sum))

    @property
    def failure_probability(self) -> float:
        """At most this is the chance that a cell that matters differs from what exact noise would have given."""
        poles = len(self.gaps.poles)
        shift = sqrt(self.squared_sensitivity) / self.draw_sd
        near_half = 2 * self.noise_error * (1 + 0.4 / self.draw_sd)
        beyond = poles * 4.02 * float(ndtr(shift - _DEVIATIONS))
        of_cells = self.horizon * (near_half + beyond + DRAW_DISTANCE)
        of_labels = self.items_per_event * (of_cells + missing_chance(self.horizon, shift))
        return of_labels + self.cells.failure_probability if self.cap_share else of_labels

    @property
    def cells(self) -> "BltMechanism":
        """See `CalibratedCounter.cells`."""
        scaled = CAP_SCALE * self.draw_sd
        return structs.replace(self, draw_sd=scaled, items_per_event=CAP_CELLS, cap_share=False)

    def taus(self, rounds: NDArray[np.int64]) -> NDArray[np.int32]:
        """The least noisy count by which a label is shown in each of `rounds`."""
        reach = self.deviations * self.draw_sd * np.sqrt(row_variances(self.gaps, rounds)) * (1 + 1e-12)
        return (1 + np.ceil(reach + 0.5)).astype(np.int32)

    def sds(self, rounds: NDArray[np.int64]) -> NDArray[np.float64]:
        """The standard deviation of every count released in each of `rounds`.

        Rounding adds 1/12 to the variance: right to a relative 1e-3 from s = 0.7 on, and to less beyond s = 1.
        """
        return np.sqrt(self.draw_sd**2 * row_variances(self.gaps, rounds) + 1 / 12)

    def counter(self, noise: KeyedNoise) -> BltCounter:
        """A counter at round 0, without labels."""
        return BltCounter(law_of_state(self.gaps, self.draw_sd, self.horizon), noise)


def require_share(failure: float, promise: Promise, name: str = "blt", size_name: str = "horizon") -> None:
    """Raise ValueError where computed noise differs from the exact one more often than delta has a share for."""
    needed = failure / NUMERICAL_SHARE
    if needed > promise.delta:
        raise ValueError(
            f"{name} computes its noise exactly enough for a delta of at least {needed:.2g} here, not "
            f"{promise.delta:g}: raise delta, lower epsilon, {size_name} or {promise.items_name}, or choose "
            "another mechanism"
        )


def quantile_above(tail: float) -> float:
    """A q with Phibar(q) <= `tail`, for tails from 1e-300 to 1/2, at most a relative 1e-11 too large."""
    return max(0.0, -float(ndtri(tail)) * (1 + 1e-12))


def _power_sums(gaps: NDArray[np.float64], terms: int) -> NDArray[np.float64]:
    """The sum of (1 - gap)^k over k < `terms`, for each gap."""
    decayed = -np.expm1(terms * np.log1p(-gaps))
    return np.where(gaps > 0, decayed / np.where(gaps > 0, gaps, 1.0), float(terms))


def _covariances(gaps: Gaps) -> Covariances:
    """Of the noise in two rounds, one draw of variance 1."""
    gap = np.array(gaps.poles)
    weights = np.array([float(weight) for weight in output_weights(gaps)])
    pairs = gap + gap[:, None] - gap * gap[:, None]  # 1 - p_a p_b

    def covariances(earlier: NDArray[np.int64], later: NDArray[np.int64]) -> NDArray[np.float64]:
        rounds, lags = np.broadcast_arrays(earlier, later - earlier)
        total = np.zeros(rounds.shape)
        for b, log_pole in enumerate(np.log1p(-gap)):
            sums = np.zeros(rounds.shape)
            for a, product in enumerate(pairs[b]):
                powers = -np.expm1(rounds * np.log1p(-product)) / product if product else rounds
                sums += weights[a] * powers
            total += weights[b] * np.exp(lags * log_pole) * sums
        return total

    return covariances


class ToeplitzState:
    """One number a pole: U_a(t) = p_a U_a(t-1) + z_t."""

    def __init__(self, gaps: Gaps) -> None:
        gap = np.array(gaps.poles)
        self._logs = np.log1p(-gap)
        self._products = gap + gap[:, None] - gap * gap[:, None]
        self.weights = np.array([float(weight) for weight in output_weights(gaps)])

    def step(self, before: int, after: int) -> Step:
        rounds = after - before
        with np.errstate(invalid="ignore", divide="ignore"):
            sums = -np.expm1(rounds * (self._logs + self._logs[:, None])) / self._products
        return Step(np.diag(np.exp(rounds * self._logs)), np.where(self._products > 0, sums, float(rounds)))
