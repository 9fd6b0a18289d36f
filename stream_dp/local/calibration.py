"""What the noise of a histogram would be, before there is one: nothing here reads an event."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from stream_dp.counters.calibration import Guarantee
from stream_dp.counters.calibration import calibrate as calibrated
from stream_dp.counters.registry import Mechanism
from stream_dp.counters.window import WindowMechanism
from stream_dp.errors import Refused
from stream_dp.frames import Framed
from stream_dp.local.settings import Source, local_settings


@dataclass(frozen=True)
class Calibration(Framed):
    """The noise and the thresholds that some settings lead to.

    `mechanism` is the name of the counter, and `guarantee.sentence` says in words what all releases guarantee together.
    """

    guarantee: Guarantee
    counter: Mechanism

    @property
    def mechanism(self) -> str:
        """The counter that adds up the noise."""
        return self.counter.name

    @property
    def horizon(self) -> int:
        """Rounds that are calibrated for."""
        return self.counter.horizon

    def sd(self, round: int | None = None) -> float:
        """The standard deviation of every count of a round, by default the last.  Raises ValueError."""
        return float(self.counter.sds(self._rounds(round))[0])

    def threshold(self, round: int | None = None) -> int:
        """The noisy count from which on a round, by default the last, shows a new label.

        Where labels are found at tests, it is that of the next test, and at the end of the last.

        Raises ValueError.
        """
        return int(self.counter.taus(self._rounds(round))[0])

    def _columns(self) -> dict[str, Any]:
        """A row for each power of two and for the last round."""
        powers = 2 ** np.arange(self._last.bit_length(), dtype=np.int64)
        rounds = np.unique(np.append(powers, self._last))
        return {"round": rounds, "sd": self.counter.sds(rounds), "threshold": self.counter.taus(rounds)}

    def _caption(self) -> str:
        """What it guarantees, for a notebook."""
        return f"{self.mechanism}: {self.guarantee.sentence}"

    @property
    def _last(self) -> int:
        """The last round, or of windows the last of the second block: all blocks from there on are alike."""
        return 2 * self.counter.window if isinstance(self.counter, WindowMechanism) else self.horizon

    def _rounds(self, round: int | None) -> Any:
        number = self._last if round is None else round
        if not 1 <= number <= self.horizon:
            raise ValueError(f"round {number} is not among the {self.horizon:,} of the horizon")
        return np.array([number])


def calibrate(settings: Source = None, **overrides: Any) -> Calibration:
    """The noise that `settings` lead to; they are given as to `Histogram`.

        stream_dp.calibrate(epsilon=1).threshold()

    Raises `SettingsError`, or `Refused` where they guarantee nothing.
    """
    found = local_settings(settings, overrides)
    try:
        counter, guarantee = calibrated(
            found.epsilon,
            found.delta,
            found.calibrated_rounds,
            found.items_per_unit,
            found.mechanism,
            found.unit,
            found.shown,
            found.tests(found.horizon),
            found.at_least,
        )
    except ValueError as error:
        raise Refused(str(error)) from None
    return Calibration(guarantee, counter)
