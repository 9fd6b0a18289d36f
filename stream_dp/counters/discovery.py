"""Discovery: labels that nobody sees feed a small counter over a few tests, and shown ones the counter of all rounds.

Nobody sees the counts of a label that is not shown, so its events need not pay for a counter over all rounds.  They
feed a counter over the K public test rounds T_1 < .. < T_K (discovery_schedule.py, discovery_matrix.py).  At test k
every label that is not shown and has at least m true events is measured:

    y = n + round(s1 * (sum over j <= k of c_(k-j) z_j)),    z_j ~ N(0, 1), one draw for each label and test

and is shown from then on if y >= tau_k.  Its later events feed a `blt` counter that begins with zeros, and its count is
y plus what that counter gives.  A label that is known in advance is shown from the first round on, with y = 0.

Privacy.  An item is charged in one of the two counters, never in both, so neither budget is split: s1 and the noise of
the other counter are each what they would be alone.  Each of the D0 K chances to escape passes with probability at most
Phibar(q) = d / (D0 K), with

    tau_k = m + ceil(q s1 sqrt(r(k)) + 1/2)

for a count of exactly m: nobody is tested with fewer.  The proof is in docs/guarantee.md, "Labels that are found at
tests".

Computed noise.  As in blt.py: a test's noise is within `test_error` of what exact arithmetic gives, and the chance that
a rounding shows it is at most 2 err (1 + 0.4 / s1) for each of the D0 K cells that matter.  A term c_(k-j) z_j is off
by c_(k-j) (DRAW_ERROR + 12 u^2 LARGEST_DRAW), u = 2^-53, and each of at most K additions in double-double by 4 u^2
times what has been added up, at most LARGEST_DRAW times the sum of the c_n.
"""

from dataclasses import asdict
from fractions import Fraction
from math import sqrt
from typing import Self

import numpy as np
from numpy.typing import NDArray

from stream_dp.counters.blt import BltMechanism, quantile_above, require_share
from stream_dp.counters.blt_parameters import Gaps
from stream_dp.counters.discovery_matrix import MOST_TESTS, coefficients, variances_of_tests
from stream_dp.counters.discovery_schedule import rounds_of_tests
from stream_dp.counters.noisiest_tests import noisiest_tests
from stream_dp.counters.protocol import EpochParameters, Promise, RunningCounter
from stream_dp.privacy.accounting import gaussian_rho
from stream_dp.privacy.gaussian_cells import DRAW_DISTANCE, DRAW_ERROR, LARGEST_DRAW, missing_chance
from stream_dp.privacy.loss import Loss, gaussian

KNOWN = 0
"""Stands for the test of a label that is shown from the first round on."""

_ROUNDOFF = 2.0**-53
_ROUNDING = 1 / 12
_FEW_PAIRS = 1 << 15  # of tests and rounds: all are looked at


class DiscoveryMechanism(RunningCounter, frozen=True, tag="discovery"):
    """The tests with their noise and thresholds, and the counter of shown labels.

    `tests` are the test rounds, `test_sd` is s1 and `deviations` q.  `counts` is the counter of labels that are shown;
    its own threshold is never used.
    """

    at_least: int
    tests: tuple[int, ...]
    test_sd: float
    threshold_delta: float
    deviations: float
    counts: BltMechanism

    @classmethod
    def of(
        cls,
        parameters: EpochParameters,
        rho: float,
        tests: tuple[int, ...] | None = None,
        at_least: int = 1,
        gaps: Gaps | None = None,
    ) -> Self:
        """The least noise that costs at most `rho` in either counter; `tests`: None for the default ones."""
        tests = rounds_of_tests(parameters.horizon) if tests is None else tests
        if not tests:
            raise ValueError(
                f"no test comes within a horizon of {parameters.horizon} rounds: test more often"
            )
        if len(tests) > MOST_TESTS:
            raise ValueError(
                f"there may be at most {MOST_TESTS:,} tests, not {len(tests):,}: test less often"
            )
        chances = parameters.items_per_event * len(tests)
        sensitivity = float(variances_of_tests(len(tests))[-1])
        return cls(
            **asdict(parameters),
            at_least=at_least,
            tests=tests,
            test_sd=sqrt(parameters.charged_items * sensitivity / (2 * rho)) * (1 + 1e-15),
            deviations=quantile_above(parameters.threshold_delta / chances),
            counts=BltMechanism.of(parameters, rho, gaps),
        )

    @classmethod
    def with_tests(
        cls, parameters: EpochParameters, promise: Promise, tests: tuple[int, ...], at_least: int
    ) -> Self:
        """See `calibrated`, which does not say when labels are looked for."""
        found = cls.of(parameters, gaussian_rho(promise.epsilon, promise.noise_delta), tests, at_least)
        promise.require_variance(found.test_sd**2)
        promise.require_variance((found.cells if found.cap_share else found.counts).draw_sd ** 2)
        require_share(found.failure_probability, promise)
        return found

    @property
    def drawn_rounds(self) -> int:
        """See `CalibratedCounter.drawn_rounds`: a label draws at tests, and in every round in which it is shown."""
        return self.horizon + len(self.tests)

    @property
    def cells(self) -> BltMechanism:
        """See `CalibratedCounter.cells`: they are known in advance, and no test looks at them."""
        return self.counts.cells

    def sds(self, rounds: NDArray[np.int64]) -> NDArray[np.float64]:
        """The largest standard deviation of a count in each of `rounds`, whichever test has found its label."""
        distinct, places = np.unique(rounds, return_inverse=True)
        if len(self.tests) * len(distinct) <= _FEW_PAIRS:
            numbers = np.arange(KNOWN, len(self.tests) + 1)[:, np.newaxis]
            there = self._begins[numbers] <= distinct
            return np.where(there, self.sds_since(numbers, distinct), 0.0).max(axis=0)[places.reshape(-1)]
        noisiest = noisiest_tests(distinct, np.array(self.tests), self.sds_since)
        found = np.maximum(self.sds_since(KNOWN, distinct), self.sds_since(noisiest, distinct))
        return found[places.reshape(-1)]

    @property
    def name(self) -> str:
        """What the setting `mechanism` calls it."""
        return self.counts.name

    @property
    def rho(self) -> float:
        """The zCDP cost of an epoch: that of the dearer counter, because an item is in one of them."""
        sensitivity = float(variances_of_tests(len(self.tests))[-1])
        of_tests = self.charged_items * sensitivity / (2 * self.test_sd**2)
        return max(of_tests, self.counts.rho)

    @property
    def loss(self) -> Loss:
        """One Gaussian."""
        return gaussian(2 * self.rho)

    @property
    def test_sds(self) -> NDArray[np.float64]:
        """The standard deviation of a test's noise before it is rounded, of shape (tests,)."""
        return self.test_sd * np.sqrt(variances_of_tests(len(self.tests)))

    @property
    def test_taus(self) -> NDArray[np.int32]:
        """The least noisy count by which a label is found at each test, of shape (tests,)."""
        reach = np.ceil(self.deviations * self.test_sds * (1 + 1e-12) + 0.5)
        return (self.at_least + reach).astype(np.int32)

    def taus(self, rounds: NDArray[np.int64]) -> NDArray[np.int32]:
        """The threshold of the next test from each of `rounds` on; after the last test, of that one."""
        following = np.searchsorted(self.tests, rounds)
        return self.test_taus[np.minimum(following, len(self.tests) - 1)]

    def sds_since(self, tests: int | NDArray[np.int64], rounds: NDArray[np.int64]) -> NDArray[np.float64]:
        """The standard deviation, in each of `rounds`, of the count of a label that was found at a test, or is `KNOWN`.

        `tests`: their numbers, of any shape that can be broadcast against `rounds`; the result has the common shape.
        Its test's noise stays in a count for good.  Rounding adds 1/12 for each of the two counters.
        """
        numbers = np.asarray(tests)
        of_tests = np.concatenate([[0.0], self.test_sds**2 + _ROUNDING])[numbers]
        ages = rounds - self._begins[numbers]
        later = self.counts.sds(np.maximum(ages, 1).reshape(-1)).reshape(ages.shape)
        return np.sqrt(of_tests + np.where(ages > 0, later, 0.0) ** 2)

    @property
    def _begins(self) -> NDArray[np.int64]:
        """After which round the counter of a label begins, by its test, `KNOWN` first."""
        return np.array([0, *self.tests])

    def tests_by(self, rounds: NDArray[np.int64]) -> NDArray[np.int64]:
        """How many tests there have been by each of `rounds`; the number of the last one."""
        return np.searchsorted(self.tests, rounds, "right")

    @property
    def test_error(self) -> float:
        """The largest error of a test's noise before it is rounded."""
        total = float(sum(coefficients(len(self.tests)), Fraction(0)))
        of_terms = total * (DRAW_ERROR + 12 * _ROUNDOFF**2 * LARGEST_DRAW)
        of_sums = 4 * _ROUNDOFF**2 * len(self.tests) * LARGEST_DRAW * total
        return 1.001 * self.test_sd * (of_terms + of_sums)

    @property
    def failure_probability(self) -> float:
        """At most this chance that a cell that matters differs from what exact noise would have given."""
        shift = sqrt(2 * self.rho / self.charged_items)
        near_half = 2 * self.test_error * (1 + 0.4 / self.test_sd)
        of_tests = len(self.tests) * (near_half + DRAW_DISTANCE) + missing_chance(len(self.tests), shift)
        return self.items_per_event * of_tests + self.counts.failure_probability
