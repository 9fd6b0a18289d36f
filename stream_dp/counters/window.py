"""Counts of the last W rounds, for ever: blocks of W rounds, each a blt counter of horizon W with noise of its own.

At place i of block b, with S_b(i) the true count of the block's first i rounds and N_b(i) its noise, the window is

    [S_b(i) + N_b(i)] + [S_(b-1)(W) + N_(b-1)(W)] - [S_(b-1)(i) + N_(b-1)(i)],

rounds i+1..W of the last block and 1..i of this one, without bias.  In the first block the terms of b - 1 are absent.

Privacy.  An event is in one block and moves that block's C x by at most sqrt(D0) column norms, whatever else the stream
ever does; the windows are post-processing of the blocks' tables of integers.  So rho, rounding and draws cost what ONE
block of W rounds costs.  What else the event could show is that its label is tested at all.

Threshold.  In block b a label is tested by the block's own count, S_b(i) + N_b(i) >= tau(i), from its first event or
its first showing in the block on.  Take a log and the same log with one event more, in block b.  A test that one of
them makes and the other does not lies after the event, in block b, and before the smaller log has an event or a showing
of the label there.  Until then no release of either log holds anything of N_b for this label, so whatever is known of
the past, and whoever chose the moment by it, each of at most W such tests passes with probability at most p, and all
with at most W p = d / D0.  From the first common event or showing on both logs test the same noisy counts, and from the
next block on nothing of the event is tested.  A window count tested in place of the block's holds noise that is known
already, and whoever knows it chooses the moment: no such bound holds.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from math import sqrt
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from stream_dp.counters import WINDOW
from stream_dp.counters.blt import BltMechanism
from stream_dp.counters.blt_variances import growth_variances, row_variances
from stream_dp.counters.protocol import CalibratedCounter, EpochParameters, Promise
from stream_dp.counters.window_poles import best_window_gaps
from stream_dp.privacy.accounting import gaussian_rho
from stream_dp.privacy.charge import Unit
from stream_dp.privacy.keyed_noise import KeyedNoise
from stream_dp.privacy.loss import Loss
from stream_dp.privacy.shown import Shown

if TYPE_CHECKING:
    from stream_dp.counters.blt_counter import BltCounter

LARGEST_WINDOW = 2**16
ENDLESS = 2**53
"""More rounds than any stream has, and still a number that every reader of JSON knows: 285,000 years of a round a
millisecond."""

NO_USERS = (
    'a user would be in every window that a stream ever shows: mechanism = "window" takes unit = "event" or '
    'unit = "user-day"'
)

_ROUNDING = 1 / 12


class WindowMechanism(CalibratedCounter, frozen=True, kw_only=True, tag="window"):
    """Blocks of one counter without end: `block` is that of each block, and its horizon the window."""

    block: BltMechanism
    shown: Shown = "window"

    size_name: ClassVar[str] = "window"
    largest_size: ClassVar[int] = LARGEST_WINDOW
    refused_units: ClassVar[Mapping[Unit, str]] = MappingProxyType({"user": NO_USERS})
    numerical_share: ClassVar[float] = BltMechanism.numerical_share
    golden_digest: ClassVar[str] = BltMechanism.golden_digest

    @classmethod
    def of(cls, parameters: EpochParameters, rho: float) -> Self:
        """The poles that make windows best, and the least noise for which a block costs at most `rho`.

        The horizon of `parameters` is the window, and each round shows its own labels.
        """
        each = replace(parameters, shown="each-round")
        return cls(block=BltMechanism.of(each, rho, best_window_gaps(parameters.horizon)))

    @classmethod
    def calibrated(cls, parameters: EpochParameters, promise: Promise) -> tuple[Self, str]:
        """As of one block, since no event is in two."""
        found = cls.of(parameters, gaussian_rho(promise.epsilon, promise.noise_delta))
        found.block.require_exact(promise, WINDOW, cls.size_name)
        return found, "exact"

    @classmethod
    def coupling_delta(cls, size: int, items_per_event: int) -> float:
        """An event touches the rounds of its block that come after it."""
        return BltMechanism.coupling_delta(size, items_per_event)

    @classmethod
    def golden(cls, horizon: int) -> BltMechanism:
        """Windows are made of blocks of it."""
        return BltMechanism.golden(horizon)

    @property
    def window(self) -> int:
        """How many rounds a release counts."""
        return self.block.horizon

    @property
    def horizon(self) -> int:
        """There is none."""
        return ENDLESS

    @property
    def items_per_event(self) -> int:
        """See `CalibratedCounter.items_per_event`."""
        return self.block.items_per_event

    @property
    def chain_rounds(self) -> int:
        """The rounds of a block."""
        return self.window

    @property
    def rho(self) -> float:
        """The zCDP cost of one block, which is all that an event can cost."""
        return self.block.rho

    @property
    def loss(self) -> Loss:
        """One Gaussian."""
        return self.block.loss

    def places(self, rounds: NDArray[np.int64]) -> NDArray[np.int64]:
        """The place of each round in its block, from 1 on."""
        return (rounds - 1) % self.window + 1

    def taus(self, rounds: NDArray[np.int64]) -> NDArray[np.int32]:
        """The least noisy count of a block by which a label passes in each of `rounds`."""
        return self.block.taus(self.places(rounds))

    def sds(self, rounds: NDArray[np.int64]) -> NDArray[np.float64]:
        """The standard deviation of every window released in each of `rounds`."""
        places = self.places(rounds)
        of_windows = window_sds(self.block)[places - 1]
        return np.where(rounds > self.window, of_windows, self.block.sds(places))

    def counter(self, noise: KeyedNoise) -> "BltCounter":
        """The noise of one block, at its beginning, without labels."""
        return self.block.counter(noise)


@lru_cache(maxsize=8)
def window_sds(block: BltMechanism) -> NDArray[np.float64]:
    """The standard deviation of a window at each place of a block, of shape (W,), from the second block on."""
    length = block.horizon
    places = np.arange(1, length + 1)
    later = [growth_variances(block.gaps, place, np.array([length - place]))[0] for place in places[:-1]]
    exact = block.draw_sd**2 * (row_variances(block.gaps, places) + np.array([*later, 0.0]))
    return np.sqrt(exact + _ROUNDING * np.where(places < length, 3, 1))


def least_sd(window: int) -> float:
    """The least that any endless counter's window can have at rho = 1 and one item: L_W / sqrt 2, to some percent.

    L_W = 4 / pi^2 ln W + 0.99 is the Lebesgue constant of the Toeplitz root of the window matrix.
    """
    return (4 / np.pi**2 * float(np.log(window)) + 0.99) / sqrt(2)


class Showing:
    """Whether one label is shown: from a passed test until W rounds after its last one, by nothing else."""

    def __init__(self, window: int) -> None:
        self._window = window
        self._left = 0  # rounds for which it is still shown
        self._tested = False

    @property
    def is_shown(self) -> bool:
        """Whether a passed test still keeps it in the next round."""
        return self._left > 0

    def begin_block(self) -> None:
        """Tests begin anew with every block."""
        self._tested = False

    def step(self, has_event: bool, noisy: int, tau: int) -> bool:
        """Whether a round shows it.  `noisy`: the block's own noisy count; it is looked at only if it is tested."""
        self._tested |= has_event or self._left > 0
        if self._tested and noisy >= tau:
            self._left = self._window
        shown = self._left > 0
        self._left = max(0, self._left - 1)
        return shown
