"""How many labels of public logs every mechanism shows, by both rules, beside the survey's statement.

The true engine with fixed noise keys, one release after every event.
"""

import gzip
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import orjson

from benchmarks.markdown import table
from benchmarks.noise_and_thresholds import RULES
from benchmarks.public_logs import verse_words
from stream_dp.counters import MECHANISMS
from stream_dp.counters.binary import BinaryMechanism, levels
from stream_dp.counters.calibration import calibrate
from stream_dp.counters.discovery_schedule import rounds_of_tests
from stream_dp.counters.protocol import CalibratedCounter
from stream_dp.dev.flights import flight_events
from stream_dp.planning.comparison import survey
from stream_dp.planning.preview import PublicLog, Run, run, seen
from stream_dp.privacy.keyed_noise import KeyedNoise
from stream_dp.privacy.shown import Shown
from tests.shared import RETAIL

RUNS = 5


@lru_cache
def retail_log() -> PublicLog:
    """The invoices, which must lie where `RETAIL` says."""
    with gzip.open(RETAIL, "rb") as lines:
        return PublicLog.of(lines)


@lru_cache
def flights_log() -> PublicLog:
    """The flights that left New York in 2013."""
    return PublicLog.of(flight_events())


@lru_cache
def verses_log() -> PublicLog:
    """The verses of a Bible, a label for each word."""
    return PublicLog.of(orjson.dumps({"items": words}) for words in verse_words())


def survey_mechanism(epsilon: float, delta: float, horizon: int, items_per_event: int) -> BinaryMechanism:
    """What the survey states, to run beside the mechanisms: nobody should run it for anything else."""
    stated = survey(epsilon, delta, horizon, items_per_event)
    sigma_squared = items_per_event * levels(horizon) / (2 * stated.rho)
    taus = (int(stated.tau.max),) * levels(horizon)
    return BinaryMechanism(horizon, items_per_event, sigma_squared, delta / 2, taus)


def runs(log: PublicLog, mechanism: CalibratedCounter, number: int) -> list[Run]:
    """So many runs with keys of their own, always the same ones."""
    noises = (KeyedNoise(each.to_bytes(32, "big"), "accuracy", bytes(16)) for each in range(number))
    return [run(log, mechanism, noise) for noise in noises]


def contestants(
    epsilon: float, horizon: int, items_per_event: int
) -> dict[tuple[str, Shown], CalibratedCounter]:
    """The survey's statement and every mechanism by both rules for showing labels, at delta 1e-6."""
    settings = epsilon, 1e-6, horizon, items_per_event
    found: dict[tuple[str, Shown], CalibratedCounter] = {
        (name, rule): calibrate(*settings, mechanism=name, shown=rule)[0]
        for name in MECHANISMS
        for rule in RULES
    }
    return {("survey", "each-round"): survey_mechanism(*settings), **found}


def over_time(
    log: PublicLog,
    epsilons: Sequence[float],
    horizon: int,
    items_per_event: int,
    number: int,
) -> str:
    """How many labels were seen, as a mean over the rounds of each fifth of the log, after it, and ever."""
    parts = np.array_split(np.arange(len(log.events)), 5)
    rows = []
    for epsilon in epsilons:
        for (name, rule), mechanism in contestants(epsilon, horizon, items_per_event).items():
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
    """Flights with three items each."""
    return over_time(flights_log(), (0.5, 1.0), 524_287, 3, 1)


def verses() -> str:
    """Verses with up to 16 words counted."""
    return over_time(verses_log(), (1.0, 4.0), 32_767, 16, 1)


def found_at_tests() -> str:
    """All three logs with labels that are found at tests, at the default ones."""
    rows = []
    for name, log, epsilons, horizon, items, number in (
        ("invoices", retail_log(), (1.0, 2.0, 4.0), 32_767, 16, RUNS),
        ("verses", verses_log(), (1.0, 2.0, 4.0), 32_767, 16, 1),
        ("flights", flights_log(), (0.5, 1.0), 524_287, 3, 1),
    ):
        parts = np.array_split(np.arange(len(log.events)), 5)
        for epsilon in epsilons:
            mechanism, _ = calibrate(
                epsilon, 1e-6, horizon, items, "blt", tests=rounds_of_tests(horizon), at_least=1
            )
            runs_of = runs(log, mechanism, number)
            sizes = np.mean([each.sizes for each in runs_of], axis=0)
            means = [f"{sizes[part].mean():.1f}" for part in parts]
            rows.append([name, f"{epsilon:g}", *means, f"{seen(log, runs_of).labels:.1f}"])
    ends = [f"{ordinal} fifth" for ordinal in ("first", "second", "third", "fourth", "last")]
    return table(["log", "epsilon", *ends, "after the last event"], rows)
