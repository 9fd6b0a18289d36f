"""Labels that grow evenly, or from some round on, under the noise of the true counters."""

import numpy as np

from benchmarks.noisy_paths import Paths, shown_paths
from stream_dp.counters.calibration import calibrate
from stream_dp.counters.registry import Mechanism

EPSILON, HORIZON = 2.0, 4_095


def mechanism(name: str) -> Mechanism:
    """At epsilon 2, one item an event, labels kept."""
    return calibrate(EPSILON, 1e-6, HORIZON, 1, name, shown="kept")[0]


def even_paths(counter: Mechanism, labels: int, seed: int = 1) -> Paths:
    """Those of so many labels, as likely to be of any size, that are shown."""
    random = np.random.default_rng(seed)
    rates = np.exp(random.uniform(np.log(0.01), np.log(0.3), labels))
    hits = [1 + np.flatnonzero(random.random(HORIZON) < rate) for rate in rates]
    found = list(shown_paths(counter, hits, HORIZON, seed))
    return Paths(*(np.concatenate(each) for each in zip(*found, strict=True)))
