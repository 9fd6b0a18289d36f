"""How accurate running histograms are.  Prints the tables of docs/accuracy.md and says whether they stand there so.

python -m benchmarks.accuracy [section ...]

Noise keys are fixed, so everything but OpenDP's draws comes out the same every time.
"""

import gzip
import json
import math
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta, norm

from stream_dp.batch.cost import epsilon_per_item
from stream_dp.batch.histogram import GaussianHistogram, gaussian_histogram
from stream_dp.counters import MECHANISMS
from stream_dp.counters.binary import BinaryMechanism, levels
from stream_dp.counters.calibration import calibrate
from stream_dp.counters.protocol import CalibratedCounter, Hits
from stream_dp.dev.flights import flight_events
from stream_dp.engine import noise_table
from stream_dp.engine.histogram import RunningHistogram
from stream_dp.engine.noise_table import Pruning
from stream_dp.events.bounding import EventBound
from stream_dp.planning.comparison import Sight, over_rounds, sight, spread, survey
from stream_dp.planning.preview import PublicLog, Run, run, seen
from stream_dp.privacy.accounting import zcdp_rho
from stream_dp.privacy.keyed_noise import EMPTY_HISTORY, KeyedNoise
from stream_dp.privacy.one_shot_noise import OneShotNoise
from stream_dp.privacy.shown import Shown
from tests.real_events import INVOICES, REAL_EVENTS, real_events
from tests.shared import NO_INVOICES, RETAIL

PAGE = Path(__file__).parents[1] / "docs" / "accuracy.md"
TENSORFLOW = Path(sys.prefix) / "tensorflow" / "bin" / "python"
CONFIDENCE = 1 - 1e-6
RUNS = 5

_NONE = np.empty(0, np.int64)
_NO_HITS = Hits(_NONE, _NONE)
_ROUNDS_AT_ONCE = 4096
_CELLS_AT_ONCE = 1 << 22


def main(names: Sequence[str]) -> None:
    """Run the named sections, or all."""
    unknown = sorted(set(names) - set(SECTIONS))
    if unknown:
        sys.exit(f"no section is called {', '.join(unknown)}; there are {', '.join(SECTIONS)}")
    if not RETAIL.exists() and (needing := sorted(ON_INVOICES & set(names or SECTIONS))):
        rest = " ".join(name for name in SECTIONS if name not in ON_INVOICES)
        sys.exit(
            f"{NO_INVOICES}; {', '.join(needing)} cannot be measured without them, and the rest can: "
            f"python -m benchmarks.accuracy {rest}"
        )
    page = PAGE.read_text()
    for name in names or SECTIONS:
        told = SECTIONS[name]()
        stands = f"\n{told}\n\n" in page
        print(f"{told}\n\n[{name}: {'as' if stands else 'NOT as'} in docs/accuracy.md]\n", flush=True)


def table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """In Markdown."""
    names = list(header)
    return "\n".join(f"| {' | '.join(row)} |" for row in (names, ["---"] * len(names), *map(list, rows)))


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


def sights(epsilon: float, delta: float, horizon: int, items_per_event: int) -> list[tuple[Sight, Shown]]:
    """The survey's statement and every mechanism by both rules for showing labels."""
    settings = epsilon, delta, horizon, items_per_event
    found = [
        (sight(*calibrate(*settings, mechanism=name, shown=rule)), rule)
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
        newcomers = counter.subset(_NONE)
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


# Real events


@lru_cache
def retail_log() -> PublicLog:
    """The invoices, which must lie where `RETAIL` says."""
    with gzip.open(RETAIL, "rb") as lines:
        return PublicLog.of(lines)


@lru_cache
def flights_log() -> PublicLog:
    """The flights that left New York in 2013."""
    return PublicLog.of(flight_events())


def survey_mechanism(epsilon: float, delta: float, horizon: int, items_per_event: int) -> BinaryMechanism:
    """What the survey states, to run beside the mechanisms: nobody should run it for anything else."""
    stated = survey(epsilon, delta, horizon, items_per_event)
    sigma_squared = items_per_event * levels(horizon) / (2 * stated.rho)
    taus = (int(stated.tau.max),) * levels(horizon)
    return BinaryMechanism(horizon, items_per_event, sigma_squared, delta / 2, taus)


def runs(log: PublicLog, mechanism: CalibratedCounter, number: int) -> list[Run]:
    """So many runs with keys of their own, always the same ones."""
    keys = (each.to_bytes(32, "big") for each in range(number))
    return [run(log, mechanism, KeyedNoise(key, "accuracy", bytes(16))) for key in keys]


def contestants(
    epsilon: float, horizon: int, items_per_event: int, rules: Sequence[Shown] = RULES
) -> dict[tuple[str, Shown], CalibratedCounter]:
    """The survey's statement and every mechanism by these rules for showing labels, at delta 1e-6."""
    settings = epsilon, 1e-6, horizon, items_per_event
    found: dict[tuple[str, Shown], CalibratedCounter] = {
        (name, rule): calibrate(*settings, mechanism=name, shown=rule)[0]
        for name in MECHANISMS
        for rule in rules
    }
    return {("survey", "each-round"): survey_mechanism(*settings), **found}


def over_time(
    log: PublicLog,
    epsilons: Sequence[float],
    horizon: int,
    items_per_event: int,
    number: int,
    rules: Sequence[Shown] = RULES,
) -> str:
    """How many labels were seen, as a mean over the rounds of each fifth of the log, after it, and ever."""
    parts = np.array_split(np.arange(len(log.events)), 5)
    rows = []
    for epsilon in epsilons:
        for (name, rule), mechanism in contestants(epsilon, horizon, items_per_event, rules).items():
            found = runs(log, mechanism, number)
            told = seen(log, found)
            sizes = np.mean([each.sizes for each in found], axis=0)
            means = [f"{sizes[part].mean():.1f}" for part in parts]
            recall = "/".join(f"{100 * part:.0f}" for part in told.recall.values())
            first = "never" if told.first_label is None else f"{told.first_label:,.0f}"
            rows.append(
                [f"{epsilon:g}", name, rule, *means, f"{told.labels:.1f}", f"{told.ever:.1f}", recall, first]
            )
    ends = [f"to {part[-1] + 1:,}" for part in parts]
    return table(
        ["epsilon", "mechanism", "shown", *ends, "after the last", "ever", "recall", "first label"], rows
    )


def retail() -> str:
    """Invoices with up to 16 items counted."""
    return over_time(retail_log(), (1.0, 2.0, 4.0), 32_767, 16, RUNS)


def flights() -> str:
    """Flights with three items each, by the rule of the literature."""
    return over_time(flights_log(), (0.5, 1.0), 524_287, 3, 1, ("each-round",))


# Pruning


def streams() -> Iterable[tuple[str, list[list[str]], int, int]]:
    """Name, rounds, items of an event and horizon: real events, and streams made to suffer from pruning."""
    real = [list(dict.fromkeys(items))[:16] for items in real_events(INVOICES)]
    yield f"{REAL_EVENTS}, up to 16 items each", real, 16, 32_767
    steady = [[f"label {i % 40}"] for i in range(16_000)]
    yield "40 labels that all linger at the threshold", steady, 1, 16_383
    bursts = [[f"label {i // 400}"] for i in range(16_000)]
    yield "40 labels, each rising from nothing in 400 rounds", bursts, 1, 16_383


def released(
    mechanism: CalibratedCounter, rounds: Sequence[Sequence[str]], pruning: Pruning | None
) -> list[dict[str, int]]:
    """What each round releases, always with the same key."""
    histogram = RunningHistogram(mechanism, KeyedNoise(bytes(32), "accuracy", bytes(16)), pruning=pruning)
    return [
        dict(zip(snapshot.labels.tolist(), snapshot.counts.tolist(), strict=True))
        for block in histogram.blocks(rounds)
        for snapshot in block.snapshots()
    ]


def pruning() -> str:
    """How many releases differ with pruning at epsilon 4, and how many would without a reserve for swings of noise."""
    rows = []
    for name, rounds, items, horizon in streams():
        mechanism, _ = calibrate(4.0, 1e-6, horizon, items, shown="each-round")
        whole = released(mechanism, rounds, None)
        counts = sum(map(len, whole))
        for block_rounds in (16, 64, 256):
            differ = []
            for deviations in (noise_table._DRIFTS, 0):
                with patch.object(noise_table, "_DRIFTS", deviations):
                    pruned = released(mechanism, rounds, Pruning(block_rounds))
                differ.append(sum(one != other for one, other in zip(whole, pruned, strict=True)))
            rows.append([name, f"{block_rounds}", *(f"{n:,}" for n in (len(whole), counts, *differ))])
    return table(["stream", "pruning_rounds", "releases", "counts", "that differ", "broken on purpose"], rows)


# Other libraries


def one_shot() -> str:
    """One release after the last invoice, OpenDP's and ours, at the same rho and the same chance of an escape."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    log, items = retail_log(), 16
    bound = EventBound(items)
    true: dict[str, int] = {}
    for event in log.events:
        for label in bound.admit(event):
            true[label] = true.get(label, 0) + 1
    counts = np.array(list(true.values()), np.int64)
    space = (
        dp.map_domain(dp.atom_domain(T=str), dp.atom_domain(T=int)),
        dp.l02inf_distance(dp.absolute_distance(T=int)),
    )
    change = items, math.isqrt(items), 1

    def theirs(scale: float, tau: int) -> Any:
        return dp.m.make_gaussian_threshold(*space, scale=scale, threshold=tau)

    def costs_at_most(rho: float, scale: float) -> bool:
        return bool(theirs(scale, 10**6).map(change)[0] <= rho)

    def escapes_at_most(delta: float, scale: float, tau: int) -> bool:
        return bool(theirs(scale, tau).map(change)[1] <= delta)

    rows = []
    for epsilon in (1.0, 4.0):
        rho, d = zcdp_rho(epsilon, 5e-7), 5e-7
        ours = GaussianHistogram(epsilon_per_item(rho, items), d, items)
        scale = dp.binary_search(partial(costs_at_most, rho), (0.1, 1e4))
        tau = int(dp.binary_search(partial(escapes_at_most, d, scale), (1, 10**5)))
        release = theirs(scale, tau)
        number = np.mean([len(release(true)) for _ in range(100)])
        rows.append([f"{epsilon:g}", "OpenDP", f"{scale:.3f}", str(tau), f"{number:.0f}"])
        keys = (each.to_bytes(32, "big") for each in range(100))
        number = np.mean([len(gaussian_histogram(counts, ours, OneShotNoise(key)).items) for key in keys])
        rows.append([f"{epsilon:g}", "stream_dp", f"{ours.scale:.3f}", str(ours.tau), f"{number:.0f}"])
    return table(["epsilon", "library", "noise parameter", "threshold", "labels"], rows)


def jax_privacy(horizons: Sequence[int] = (2**10, 2**16, 2**20)) -> str:
    """The largest sd of the buffered linear Toeplitz factorisation that jax-privacy finds, and that of `blt`."""
    import jax

    jax.config.update("jax_enable_x64", True)
    from jax_privacy.matrix_factorization import buffered_toeplitz, toeplitz

    rows = []
    for horizon in horizons:
        found = buffered_toeplitz.optimize(n=horizon, min_buffers=3, max_buffers=5)
        theirs = math.sqrt(float(buffered_toeplitz.max_loss(found, horizon)) / 2)
        coefficients = toeplitz.optimal_max_error_strategy_coefs(horizon)
        reference = float(toeplitz.sensitivity_squared(coefficients)) / math.sqrt(2)
        ours, _ = standard("blt", horizon)
        rows.append(
            [
                f"2^{horizon.bit_length() - 1}",
                f"{theirs:.3f} ({len(found.buf_decay)} buffers)",
                f"{ours:.3f}",
                f"{reference:.3f}",
                f"{square_root(horizon)[0]:.3f}",
            ]
        )
    header = "rounds|jax-privacy BLT|blt|jax-privacy square root|square root here"
    return table(header.split("|"), rows)


def tensorflow_privacy(rounds: int = 1023, labels: int = 20_000) -> str:
    """The measured noise of TensorFlow Privacy's tree aggregation, and of ours, at rho = 1."""
    if not TENSORFLOW.exists():
        return f"TensorFlow Privacy is not installed ({TENSORFLOW} does not exist): it needs Python 3.11 or older."
    node_sd = math.sqrt(levels(rounds) / 2)
    command = [str(TENSORFLOW), "-m", "benchmarks.tree_aggregation", str(rounds), str(labels), str(node_sd)]
    told = subprocess.run(command, capture_output=True, check=True, text=True, cwd=PAGE.parents[1])
    rows = [
        [f"TensorFlow Privacy {name}", f"{max(sds):.2f}", f"{np.mean(sds):.2f}"]
        for name, sds in json.loads(told.stdout).items()
    ]
    for name in MECHANISMS:
        mechanism, _ = calibrate(1.0, 1e-6, rounds, 1, mechanism=name)
        scale = math.sqrt(mechanism.rho)
        most, mean = measured(mechanism, labels)
        rows.append([f"stream_dp {name}", f"{most * scale:.2f}", f"{mean * scale:.2f}"])
    return table(["counter", "most", "mean"], rows)


SECTIONS: dict[str, Callable[[], str]] = {
    each.__name__: each
    for each in (
        theory,
        thresholds,
        simulation,
        escapes,
        retail,
        flights,
        pruning,
        one_shot,
        jax_privacy,
        tensorflow_privacy,
    )
}

ON_INVOICES = {"retail", "pruning", "one_shot"}
"""The sections whose tables are of the retail invoices."""


if __name__ == "__main__":
    main(sys.argv[1:])
