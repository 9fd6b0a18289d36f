"""The same accuracy by other libraries: OpenDP, jax-privacy and TensorFlow Privacy."""

import json
import math
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.labels_seen import retail_log
from benchmarks.markdown import table
from benchmarks.noise_and_thresholds import measured, square_root, standard
from stream_dp.batch.cost import epsilon_per_item
from stream_dp.batch.histogram import GaussianHistogram, gaussian_histogram
from stream_dp.counters import MECHANISMS
from stream_dp.counters.binary import levels
from stream_dp.counters.calibration import calibrate
from stream_dp.events.bounding import EventBound
from stream_dp.privacy.accounting import zcdp_rho
from stream_dp.privacy.one_shot_noise import OneShotNoise

_TENSORFLOW = Path(sys.prefix) / "tensorflow" / "bin" / "python"


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
    if not _TENSORFLOW.exists():
        return f"TensorFlow Privacy is not installed ({_TENSORFLOW} does not exist): it needs Python 3.11 or older."
    node_sd = math.sqrt(levels(rounds) / 2)
    command = [str(_TENSORFLOW), "-m", "benchmarks.tree_aggregation", str(rounds), str(labels), str(node_sd)]
    told = subprocess.run(command, capture_output=True, check=True, text=True, cwd=Path(__file__).parents[1])
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
