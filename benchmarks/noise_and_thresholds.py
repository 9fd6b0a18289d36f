"""How large the noise of every mechanism is and what a label must reach, in theory and as the true counters draw it."""

import math
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta, norm

from benchmarks.markdown import table
from stream_dp.counters import MECHANISMS
from stream_dp.counters.calibration import calibrate
from stream_dp.counters.protocol import CalibratedCounter, Hits
from stream_dp.planning.comparison import Visibility, over_rounds, spread, survey, visibility
from stream_dp.privacy.keyed_noise import EMPTY_HISTORY, KeyedNoise
from stream_dp.privacy.shown import Shown

CONFIDENCE = 1 - 1e-6

_NONE = np.empty(0, np.int64)
_NO_HITS = Hits(_NONE, _NONE)
_ROUNDS_AT_ONCE = 4096
_CELLS_AT_ONCE = 1 << 22


# Exact theory


def standard(name: str, horizon: int) -> tuple[float, float]:
    """Largest and mean sd of one count over the rounds, at rho = 1 and one item an event."""
    mechanism, _ = calibrate(1.0, 1e-6, horizon, 1, mechanism=name)
    sd, scale = over_rounds(mechanism.sds, horizon, horizon), math.sqrt(mechanism.rho)
    return sd.max * scale, sd.mean * scale


@lru_cache
def square_root(horizon: int) -> tuple[float, float]:
    """The same of the square-root Toeplitz factorisation: c_k = (2k choose k) / 4^k on both sides."""
    k = np.arange(1, horizon)
    c = np.concatenate([[1.0], np.cumprod((2 * k - 1) / (2 * k))])
    squares = np.cumsum(c * c)
    sds = np.sqrt(squares[-1] * squares / 2)
    return float(sds[-1]), float(sds.mean())


def theory(horizons: Sequence[int] = (2**10, 2**12, 2**14, 2**16, 2**18, 2**20)) -> str:
    """Every mechanism against the square-root Toeplitz factorisation."""
    rows = []
    for horizon in horizons:
        found = {name: standard(name, horizon) for name in MECHANISMS}
        reference = square_root(horizon)
        pairs = [f"{most:.2f} / {mean:.2f}" for most, mean in (*found.values(), reference)]
        rows.append([f"2^{horizon.bit_length() - 1}", *pairs, f"{found['blt'][0] / reference[0] - 1:.1%}"])
    return table(["rounds", *MECHANISMS, "square-root Toeplitz", "blt above it"], rows)


RULES: tuple[Shown, Shown] = ("each-round", "kept")


def sights(
    epsilon: float, delta: float, horizon: int, items_per_event: int
) -> list[tuple[Visibility, Shown]]:
    """The survey's statement and every mechanism by both rules for showing labels."""
    settings = epsilon, delta, horizon, items_per_event
    found = [
        (visibility(*calibrate(*settings, mechanism=name, shown=rule)), rule)
        for name in MECHANISMS
        for rule in RULES
    ]
    return [(survey(*settings), "each-round"), *found]


PROMISES = ((1.0, 1e-6, 65_535, 4), (1.0, 1e-6, 32_767, 16), (4.0, 1e-6, 32_767, 16), (1.0, 1e-6, 524_287, 3))


def thresholds(promises: Sequence[tuple[float, float, int, int]] = PROMISES) -> str:
    """What a label must reach."""
    rows = []
    for epsilon, delta, horizon, items in promises:
        for each, rule in sights(epsilon, delta, horizon, items):
            settings = f"{epsilon:g}, {delta:g}", f"{horizon:,}", str(items), each.mechanism, rule
            sd, tau = f"{each.sd.mean:.1f} / {each.sd.max:.1f}", f"{each.tau.mean:.1f} / {each.tau.max}"
            rows.append([*settings, sd, tau, str(each.seen_half), str(each.seen_mostly)])
    header = (
        "epsilon, delta|rounds|items|mechanism|shown|sd: mean / most|tau: mean / most|seen half|seen at 95%"
    )
    return table(header.split("|"), rows)


# Measured noise


def noise_blocks(
    mechanism: CalibratedCounter, labels: int, rounds: int
) -> Iterable[tuple[NDArray[np.int64], NDArray[np.int32]]]:
    """The true counter's noise of so many labels over the first `rounds` rounds: (rounds, noise) block by block."""
    noise = KeyedNoise(bytes(32), "accuracy", bytes(16))
    counter = mechanism.counter(noise)
    ids = noise.label_ids(b"%d" % number for number in range(labels))
    size, first_seen = max(1, _CELLS_AT_ONCE // labels), np.ones(labels, np.int64)
    while counter.round < rounds:
        block = np.arange(counter.round + 1, min(rounds, counter.round + size) + 1)
        yield block, counter.advance(ids, [EMPTY_HISTORY] * len(block), _NO_HITS, first_seen)
        first_seen = _NONE


def started_noise(
    mechanism: CalibratedCounter, rounds: Sequence[int], labels: int
) -> Iterable[tuple[int, NDArray[np.int32]]]:
    """The noise in each of `rounds` (increasing) of so many labels first seen in that very round, others each time."""
    noise = KeyedNoise(bytes(32), "accuracy", bytes(16))
    counter = mechanism.counter(noise)
    nobody = np.empty((0, 2), np.uint64)
    for number in rounds:
        while counter.round < number - 1:
            size = min(_ROUNDS_AT_ONCE, number - 1 - counter.round)
            counter.advance(nobody, [EMPTY_HISTORY] * size, _NO_HITS, _NONE)
        newcomers = mechanism.counter(noise)
        newcomers.restore(deepcopy(counter.state()), 0)
        ids = noise.label_ids(b"%d %d" % (number, each) for each in range(labels))
        first_seen = np.full(labels, number)
        yield number, newcomers.advance(ids, [EMPTY_HISTORY], _NO_HITS, first_seen)[0]


def sd_of(noise: NDArray[np.int32]) -> NDArray[np.float64]:
    """Root mean square over labels, the last axis."""
    return np.sqrt(np.mean(np.square(noise, dtype=np.float64), axis=-1))


def measured(mechanism: CalibratedCounter, labels: int) -> tuple[float, float]:
    """Sd in the rounds where theory has its maximum, and mean over all rounds, of labels seen from round 1 on."""
    blocks = [sd_of(noise) for _, noise in noise_blocks(mechanism, labels, mechanism.horizon)]
    sds, stated = np.concatenate(blocks), mechanism.sds(np.arange(1, mechanism.horizon + 1))
    highest = stated >= stated.max() * (1 - 1e-9)
    return float(np.sqrt(np.mean(sds[highest] ** 2))), float(sds.mean())


def measured_late(mechanism: CalibratedCounter, labels: int, rounds: int) -> tuple[float, float, float]:
    """Sd in the last round that has the largest, mean over so many rounds and theory's, of labels first seen there."""
    everything = np.arange(1, mechanism.horizon + 1)
    stated = mechanism.sds(everything)
    highest = int(everything[stated >= stated.max() * (1 - 1e-9)][-1])
    some = spread(1, mechanism.horizon, rounds)
    found = {number: float(sd_of(noise)) for number, noise in started_noise(mechanism, some.tolist(), labels)}
    [(_, most)] = started_noise(mechanism, [highest], 5 * labels)
    return float(sd_of(most)), float(np.mean(list(found.values()))), float(mechanism.sds(some).mean())


def simulation(short: int = 1023, long: int = 65_535, labels: int = 100_000) -> str:
    """Theory beside what the true counters draw."""
    rows = []

    def row(name: str, horizon: str, pairs: Iterable[tuple[float, float]]) -> None:
        cells = [[f"{stated:.3f}", f"{found:.3f}", f"{found / stated - 1:+.2%}"] for stated, found in pairs]
        rows.append([name, horizon, *cells[0], *cells[1]])

    for name in MECHANISMS:
        mechanism, _ = calibrate(1.0, 1e-6, short, 1, mechanism=name)
        sd = over_rounds(mechanism.sds, short)
        row(name, f"{short:,}", zip((sd.max, sd.mean), measured(mechanism, labels), strict=True))
        mechanism, _ = calibrate(1.0, 1e-6, long, 1, mechanism=name)
        most, mean, stated = measured_late(mechanism, labels // 2, 64)
        row(name, f"{long:,}", [(over_rounds(mechanism.sds, long).max, most), (stated, mean)])
    return table(["mechanism", "rounds", "most", "measured", "off", "mean", "measured", "off"], rows)


# The threshold's delta


def escape_rate(
    mechanism: CalibratedCounter, labels: int, taus: Callable[[NDArray[np.int64]], NDArray[Any]]
) -> tuple[float, float]:
    """How often a label that only the first event holds is ever shown, and an upper confidence bound on it."""
    escaped = np.zeros(labels, bool)
    for rounds, noise in noise_blocks(mechanism, labels, mechanism.horizon):
        escaped |= np.any(1 + noise >= taus(rounds)[:, None], axis=0)
    number = int(escaped.sum())
    return number / labels, float(beta.ppf(CONFIDENCE, number + 1, labels - number))


def without_union(mechanism: CalibratedCounter, delta: float) -> Callable[[NDArray[np.int64]], NDArray[Any]]:
    """Broken thresholds, which spend the whole budget in every round."""
    return lambda rounds: 1 + norm.isf(delta) * mechanism.sds(rounds)


def escapes(horizon: int = 255, labels: int = 100_000, deltas: Sequence[float] = (0.2, 0.02)) -> str:
    """The measured delta of every threshold, at budgets that are large enough to be measured."""
    rows = []
    for delta in deltas:
        for name in MECHANISMS:
            for rule in RULES:
                mechanism, guarantee = calibrate(1.0, delta, horizon, 1, mechanism=name, shown=rule)
                budget = guarantee.threshold_delta
                rate, most = escape_rate(mechanism, labels, mechanism.taus)
                broken, _ = escape_rate(mechanism, labels, without_union(mechanism, budget))
                rows.append([name, rule, f"{budget:g}", f"{rate:.5f}", f"{most:.5f}", f"{broken:.3f}"])
    return table(["mechanism", "shown", "budget", "measured", "at most", "broken on purpose"], rows)
