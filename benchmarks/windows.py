"""How much noise a window that never ends has, beside the least that any counter can have: counters/window.py."""

import numpy as np
from rich.console import Console
from rich.table import Table

from stream_dp.counters.calibration import calibrate
from stream_dp.counters.protocol import EpochParameters
from stream_dp.counters.window import WindowMechanism, least_sd, window_sds


def main(console: Console) -> None:
    table = Table("W", "sd", "limit", "ratio", title="sd of a window at rho = 1, one item")
    for window in (12, 60, 240, 1440):
        block = WindowMechanism.of(EpochParameters(window, 1, 1e-6), 1.0).block
        sd = float(np.sqrt(np.max(window_sds(block)) ** 2 - 1 / 4))
        table.add_row(str(window), f"{sd:.3f}", f"{least_sd(window):.3f}", f"{sd / least_sd(window):.3f}")
    console.print(table)
    mechanism, _ = calibrate(1, 1e-6, 60, 4, "window")
    rounds = np.arange(61, 121)
    console.print(
        f"epsilon 1, delta 1e-6, 4 items, W = 60: sd {np.max(mechanism.sds(rounds)):.1f}, "
        f"tau {int(np.max(mechanism.taus(rounds)))}"
    )


if __name__ == "__main__":
    main(Console(width=110))
