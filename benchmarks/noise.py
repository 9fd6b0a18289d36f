"""What a draw of the keyed discrete Gaussian costs, beside OpenDP's exact sampler and numpy's float normal."""

from functools import partial

import numpy as np
import opendp.prelude as dp
from rich.console import Console
from rich.table import Table

from benchmarks.measure import take_turns
from stream_dp.privacy.discrete_gaussian import DiscreteGaussian
from stream_dp.privacy.keyed_noise import EMPTY_HISTORY, KEY_BYTES, NONCE_BYTES, KeyedNoise

SIGMA_SQUARED = 1219.5  # epsilon 1, delta 1e-6, 65,535 rounds, 4 items an event
LABELS, ROUNDS = 1_000, 100
OPENDP_DRAWS = 2_000
TURNS = 15


def main(console: Console) -> None:
    """Print nanoseconds per draw and ratios."""
    noise = KeyedNoise(bytes(KEY_BYTES), "bench", bytes(NONCE_BYTES))
    gaussian = DiscreteGaussian(SIGMA_SQUARED)
    ids = noise.label_ids(b"%d" % i for i in range(LABELS))
    tweaks = noise.tweaks((round_number, 0, EMPTY_HISTORY) for round_number in range(ROUNDS))
    floats = np.random.default_rng(0)
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.l2_distance(T=float)
    exact = dp.m.make_gaussian(*space, scale=SIGMA_SQUARED**0.5)
    zeros = [0] * OPENDP_DRAWS
    seconds = take_turns(
        {
            "stream_dp, keyed and exact to 2^-100": lambda: noise.draw(gaussian, ids, tweaks),
            "numpy standard_normal, float, not secure": lambda: floats.standard_normal(LABELS * ROUNDS),
            "OpenDP discrete Gaussian, exact": lambda: exact(zeros),
        },
        TURNS,
    )
    draws = dict(zip(seconds, (LABELS * ROUNDS, LABELS * ROUNDS, OPENDP_DRAWS), strict=True))
    ours = next(iter(seconds.values())) / (LABELS * ROUNDS)
    table = Table("sampler", "ns a draw", "times ours", title=f"Noise: N_Z(0, {SIGMA_SQUARED:g})")
    for name, time in seconds.items():
        each = time / draws[name]
        table.add_row(name, f"{each * 1e9:,.1f}", f"{each / ours:,.2f}")
    console.print(table)
    console.print(_correlation(noise, gaussian, ids))


def _correlation(noise: KeyedNoise, gaussian: DiscreteGaussian, ids: np.ndarray) -> str:
    """Whether the time of a block tells how large its largest draw is: it should not."""
    times, largest = [], []
    for block in range(2_000):
        tweaks = noise.tweaks([(block, 0, EMPTY_HISTORY)])
        times.append(take_turns({"": partial(noise.draw, gaussian, ids, tweaks)}, 3)[""])
        largest.append(int(np.abs(noise.draw(gaussian, ids, tweaks)).max()))
    by_time, by_size = (np.argsort(np.argsort(column)) for column in (times, largest))
    correlation = float(np.corrcoef(by_time, by_size)[0, 1])
    return (
        f"Time of a block of {LABELS} draws against its largest draw, rank correlation over 2,000 blocks: "
        f"{correlation:+.3f} (chance alone stays within +-{3 / 2_000**0.5:.3f})"
    )
