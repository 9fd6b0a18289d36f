"""How much noise a window that never ends has, beside the least that any counter can have: counters/window.py."""

import numpy as np
from rich.console import Console
from rich.table import Table

from stream_dp.counters.blt import BltMechanism
from stream_dp.counters.calibration import calibrate
from stream_dp.counters.protocol import EpochParameters
from stream_dp.counters.window import least_sd, window_sds


def main(console: Console) -> None:
    table = Table("W", "sd", "limit", "ratio", title="sd of a window at rho = 1, one item")
    for window in (12, 60, 240, 1440):
        sd = float(
            np.sqrt(np.max(window_sds(BltMechanism.of(EpochParameters(window, 1, 1e-6), 1.0)) ** 2 - 1 / 4))
        )
        table.add_row(str(window), f"{sd:.3f}", f"{least_sd(window):.3f}", f"{sd / least_sd(window):.3f}")
    console.print(table)
    block, _ = calibrate(1, 1e-6, 60, 4, "blt")
    assert isinstance(block, BltMechanism)
    console.print(
        f"epsilon 1, delta 1e-6, 4 items, W = 60: sd {np.max(window_sds(block)):.1f}, "
        f"tau {int(np.max(block.taus(np.arange(1, 61))))}"
    )


if __name__ == "__main__":
    main(Console(width=110))
