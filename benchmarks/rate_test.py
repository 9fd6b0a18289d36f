"""Would a second test, of a label's rate, show so many more labels of `blt` that it earns its cost?

Kept labels are tested by one noisy count at a time. The proof of `blt` publishes more: q = C x + z for each label,
with z_t ~ N(0, s^2) (counters/blt.py). A label of steady rate shows in M(l) = sum over t <= l of w_t q_t, whose
weights w = C 1 are largest where such a label's signal is. The test shows an admitted label from the first round l
on in which

    M(l) >= b(l) + S(l)

- S(l) is the most that one event can add to M(l): the largest over t <= l of the sum over s = t..l of w_s c_(s-t).
- b(l) is where E = 1/alpha, with E the mean over some fixed k > 0 of exp(k N - k^2 V(l) / 2), as a function of N,
  and V(l) = s^2 times the sum over t <= l of w_t^2.

How often is a label shown too early? Take a label of A (docs/guarantee.md) before the smaller log admits it. In the
larger log it has exactly one event, in the smaller one none, and all c_k are positive. So M(l) <= N(l) + S(l), with
N(l) the sum over t <= l of w_t z_t, and it passes only where N(l) >= b(l). Each z_t is independent of everything
before it, so each exp(k N(l) - k^2 V(l) / 2) is a martingale in l with the mean 1, and so is E, which grows with N.
By Ville's inequality E reaches 1/alpha in any round at all with probability at most alpha. No union over the rounds
is needed, and it does not matter how events react to releases. D0 labels cost D0 alpha. M is a function of q and of
nothing else, so the restriction lemma holds as it does for kept labels, with this chance added to that of the
counts. Half of d pays for each of the two tests.

The k are such that b is lowest from a thirtieth of the horizon on. There b is 6.3 standard deviations of N; one
normal mixture (Robbins 1970) gives 6.4 to 6.6.
"""

from collections.abc import Sequence
from math import log
from time import process_time
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from scipy.signal import fftconvolve, lfilter
from scipy.special import logsumexp, ndtri

from benchmarks.counters import BLOCKS, LABELS, ROUNDS_AT_ONCE, Stream
from benchmarks.markdown import table
from benchmarks.measure import take_turns
from benchmarks.noisy_paths import blt_noise, true_hits
from benchmarks.public_logs import Hits, public_logs
from stream_dp.counters.blt import BltMechanism
from stream_dp.counters.blt_parameters import Gaps, residues
from stream_dp.counters.calibration import calibrate
from stream_dp.counters.protocol import EpochParameters

EPSILONS = (1.0, 2.0, 4.0)
RUNS = {"invoices": 5, "flights": 1, "verses": 2}
"""By log."""
ENOUGH, AT_MOST = 1.2, 1.5
"""How many times the labels it must show on every log, and how many times the time it may take."""

_SHARE = 0.5  # of d for this test
_SLOPES = 16
_EARLIEST = 1 / 30  # of the horizon
_MARGIN = 1 + 1e-9  # far above the errors of floating point here
_CELLS_AT_ONCE = 4_000_000


class RateTest(NamedTuple):
    """By round, from the first on: the weights, the variance of M's noise, and b + S, what M must reach."""

    weights: NDArray[np.float64]
    variances: NDArray[np.float64]
    least: NDArray[np.float64]

    @classmethod
    def of(cls, mechanism: BltMechanism, chance: float) -> "RateTest":
        """A label that should not be seen passes in any round of the horizon with at most this chance."""
        c = coefficients(mechanism.gaps, mechanism.horizon)
        weights = np.cumsum(c)
        variances = mechanism.draw_sd**2 * np.cumsum(weights**2)
        return cls(weights, variances, boundary(variances, chance) + most_of_one_event(weights, c))


def coefficients(gaps: Gaps, terms: int) -> NDArray[np.float64]:
    """c_k for k < `terms`."""
    theta = np.array(gaps.theta)
    powers = np.exp(np.outer(np.log1p(-theta), np.arange(terms - 1)))
    return np.concatenate([[1.0], residues(np.array(gaps.hat), theta) @ powers])


def boundary(variances: NDArray[np.float64], chance: float) -> NDArray[np.float64]:
    """b: noise of these growing variances ever reaches it with at most this chance."""
    places = np.geomspace(max(1, len(variances) * _EARLIEST), len(variances), _SLOPES).astype(int) - 1
    slopes = np.sqrt(2 * log(1 / chance) / variances[places])
    low, high = np.zeros(len(variances)), np.full(len(variances), 2 * log(1 / chance) / slopes.min())
    high += slopes.max() * variances  # here every term is at least 1/chance
    for _ in range(100):
        middle = (low + high) / 2
        exponents = np.outer(middle, slopes) - np.outer(variances / 2, slopes**2)
        reached = logsumexp(exponents, axis=1) - log(_SLOPES) >= log(1 / chance)
        low, high = np.where(reached, low, middle), np.where(reached, middle, high)
    return high * _MARGIN


def most_of_one_event(weights: NDArray[np.float64], c: NDArray[np.float64]) -> NDArray[np.float64]:
    """S, or a little above it: it grows with l, so some rounds stand for those before them."""
    rounds = len(weights)
    ends = np.unique(np.geomspace(1, rounds, 200).astype(int))
    most = np.array([fftconvolve(weights[:end][::-1], c[:end])[:end].max() for end in ends])
    return most[np.searchsorted(ends, np.arange(1, rounds + 1))] * _MARGIN


def signals(gaps: Gaps, hits: NDArray[np.int32]) -> NDArray[np.float64]:
    """C x, for x of shape (labels, rounds)."""
    theta = np.array(gaps.theta)
    found = hits.astype(float)
    for weight, gap in zip(residues(np.array(gaps.hat), theta), theta, strict=True):
        found += lfilter([0.0, float(weight)], [1.0, float(gap) - 1], hits, axis=1)
    return found


def labels_shown(log_: Hits, mechanism: BltMechanism, seed: int) -> tuple[int, int]:
    """How many labels are ever shown: by counts alone, and by counts and rates that share d.  The noise is the same."""
    d = mechanism.threshold_delta
    parameters = EpochParameters(mechanism.horizon, mechanism.items_per_event, (1 - _SHARE) * d, "kept")
    sharing = BltMechanism.of(parameters, mechanism.rho)
    test = RateTest.of(mechanism, _SHARE * d / mechanism.items_per_event)
    rounds = np.arange(1, log_.last + 1)
    weights, least = test.weights[: log_.last], test.least[: log_.last]
    random = np.random.default_rng(seed)
    alone, both = 0, 0
    step = max(1, _CELLS_AT_ONCE // log_.last)
    for start in range(0, len(log_.rounds), step):
        hits = true_hits(log_.rounds[start : start + step], log_.last)
        draws = mechanism.draw_sd * random.standard_normal(hits.shape)
        true = np.cumsum(hits, axis=1)
        admitted, noisy = true > 0, true + blt_noise(mechanism, draws)
        rates = np.cumsum(weights * (signals(mechanism.gaps, hits) + draws), axis=1)
        alone += int(np.sum(np.any(admitted & (noisy >= mechanism.taus(rounds)), axis=1)))
        passed = (noisy >= sharing.taus(rounds)) | (rates >= least)
        both += int(np.sum(np.any(admitted & passed, axis=1)))
    return alone, both


def rate_test() -> str:
    """Labels shown after the last event, means of the runs."""
    rows = []
    for name, log_ in public_logs(*RUNS).items():
        for epsilon in EPSILONS:
            settings = epsilon, 1e-6, log_.horizon, log_.items_per_event
            mechanism, _ = calibrate(*settings, "blt", shown="kept")
            assert isinstance(mechanism, BltMechanism)
            found = [labels_shown(_of_use(log_, mechanism), mechanism, seed) for seed in range(RUNS[name])]
            alone, both = np.mean(found, axis=0)
            said = name, str(RUNS[name]), f"{epsilon:g}"
            rows.append([*said, f"{alone:.1f}", f"{both:.1f}", f"{both / alone:.2f}"])
    return table(["log", "runs", "epsilon", "counts alone", "counts and rates", "times as many"], rows)


def _of_use(log_: Hits, mechanism: BltMechanism) -> Hits:
    """Without the labels that are too rare for either test, whatever their noise within 5 standard deviations."""
    least = float(mechanism.taus(np.array([1]))[0]) / 4
    return log_._replace(rounds=[rounds for rounds in log_.rounds if len(rounds) >= least])


# What a label that should not be seen does


def each_round_by_itself(test: RateTest, chance: float) -> NDArray[np.float64]:
    """Broken on purpose: in every round alone the chance is right, and over all of them it is not."""
    return -float(ndtri(chance)) * np.sqrt(test.variances) + test.least - boundary(test.variances, chance)


def escape_rate(mechanism: BltMechanism, least: NDArray[np.float64], labels: int = 100_000) -> float:
    """How many of so many labels pass that only one event holds, in the round from which it adds most."""
    c = coefficients(mechanism.gaps, mechanism.horizon)
    weights = np.cumsum(c)
    enters = int(fftconvolve(weights[::-1], c)[: len(c)][::-1].argmax())
    event = np.concatenate([np.zeros(enters), c[: len(c) - enters]])
    random = np.random.default_rng(1)
    passed, step = 0, max(1, _CELLS_AT_ONCE // len(c))
    for start in range(0, labels, step):
        draws = mechanism.draw_sd * random.standard_normal((min(step, labels - start), len(c)))
        rates = np.cumsum(weights * (event + draws), axis=1)
        passed += int(np.sum(np.any((rates >= least)[:, enters:], axis=1)))
    return passed / labels


def false_passes(horizon: int = 4095, chances: Sequence[float] = (0.1, 0.01)) -> str:
    """Measured false passes at chances that are large enough to be measured."""
    mechanism, _ = calibrate(1.0, 1e-6, horizon, 1, "blt", shown="kept")
    assert isinstance(mechanism, BltMechanism)
    rows = []
    for chance in chances:
        test = RateTest.of(mechanism, chance)
        found = (escape_rate(mechanism, least) for least in (test.least, each_round_by_itself(test, chance)))
        rows.append([f"{chance:g}", *(f"{rate:.5f}" for rate in found)])
    return table(["chance", "measured", "broken on purpose"], rows)


# Cost


def cost() -> float:
    """How many times as long a label and round takes with the test: its state in plain doubles, so at least that."""
    mechanism, _ = calibrate(1.0, 1e-6, 2**20 - 1, 4, "blt", shown="kept")
    assert isinstance(mechanism, BltMechanism)
    alone, both = Stream(mechanism), Stream(mechanism)
    rates = _Rates(mechanism)

    def with_rates() -> None:
        both()
        rates()

    seconds = take_turns({"alone": alone, "both": with_rates}, 15, process_time)
    return seconds["both"] / seconds["alone"]


class _Rates:
    """The state of the test for so many labels as the stream has; each call takes it as far as a call of the stream."""

    def __init__(self, mechanism: BltMechanism) -> None:
        theta = np.array(mechanism.gaps.theta)
        self._poles, self._residues = 1 - theta, residues(np.array(mechanism.gaps.hat), theta)
        self._state, self._sums = np.zeros((len(theta), LABELS)), np.zeros(LABELS)
        self._draws = np.random.default_rng(1).standard_normal((ROUNDS_AT_ONCE, LABELS))
        self._hits = np.zeros((ROUNDS_AT_ONCE, LABELS))
        self._least = np.full(ROUNDS_AT_ONCE, np.inf)

    def __call__(self) -> None:
        for _ in range(BLOCKS):
            step = self._state, self._sums, self._poles, self._residues, self._hits, self._draws
            _advance(*step, np.ones(ROUNDS_AT_ONCE), self._least, np.zeros(LABELS, np.bool_))


def _advance(
    state: NDArray[np.float64],
    sums: NDArray[np.float64],
    poles: NDArray[np.float64],
    parts: NDArray[np.float64],
    hits: NDArray[np.float64],
    draws: NDArray[np.float64],
    weights: NDArray[np.float64],
    least: NDArray[np.float64],
    passed: NDArray[np.bool_],
) -> None:
    """The test's own work in some rounds, for all labels at once; `state` has the shape (poles, labels)."""
    for hit, draw, weight, needed in zip(hits, draws, weights, least, strict=True):
        sums += weight * (hit + state.sum(axis=0) + draw)
        state *= poles[:, np.newaxis]
        state += parts[:, np.newaxis] * hit
        passed |= sums >= needed


def main(console: Console) -> None:
    """Print what the test gains, how often it passes what it should not, and what it costs."""
    console.print("Labels shown after the last event, delta 1e-6")
    print(rate_test())
    console.print("A label of one event, by the chance that it may pass with")
    print(false_passes())
    console.print(f"A label and round takes at least {cost():.2f} times the processor time with the test.")
