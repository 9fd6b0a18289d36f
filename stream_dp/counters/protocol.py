"""What every continual counter has in common, and what it leaves in a checkpoint.

A mechanism is a frozen set of numbers: the noise and the thresholds of one epoch.  Its counter holds the state of all
labels at once and turns rounds into noise.  A counter never sees a label's text and never reads a clock.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, Protocol, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from stream_dp.counters.noise_shape import NoiseShape, NoiseState
from stream_dp.privacy.charge import Unit
from stream_dp.privacy.discrete_gaussian import LARGEST_SIGMA_SQUARED
from stream_dp.privacy.keyed_noise import KeyedNoise
from stream_dp.privacy.loss import Loss
from stream_dp.privacy.shown import Shown

LARGEST_HORIZON = 2**24

CAP_CELLS = 2
"""The cells beside the labels: how many units are counted, and how many of them have more items than are counted."""

CAP_SCALE = 4
"""Their noise is that of a label times this, so that each costs 1/16 of what an item costs."""


class Hits(NamedTuple):
    """Which labels' counts grow in which round, in order: `rounds` and `rows`, int64 of shape (hits,).

    `times` is by how much, int64 of the same shape; None: by one.
    """

    rounds: NDArray[np.int64]
    rows: NDArray[np.int64]
    times: NDArray[np.int64] | None = None

    def among(self, columns: NDArray[np.int64]) -> "Hits":
        """Those whose labels have a column, given for each of them, or -1; their rows are columns."""
        there = columns >= 0
        times = None if self.times is None else self.times[there]
        return Hits(self.rounds[there], columns[there], times)

    def between(self, start: int, last: int) -> "Hits":
        """Those of the rounds after `start`, up to `last`."""
        inside = slice(*self.rounds.searchsorted([start, last], "right"))
        return Hits(
            self.rounds[inside], self.rows[inside], None if self.times is None else self.times[inside]
        )

    def add_to(self, counts: NDArray[np.int32]) -> None:
        """Let the counts grow, int32 of shape (labels,)."""
        times = np.int32(1) if self.times is None else self.times.astype(np.int32)
        np.add.at(counts, self.rows, times)  # a number of another type takes thirty times as long


@dataclass
class Column:
    """One value, or one row of values, per label: `cells` of shape (capacity,) or (capacity, width).

    Cells beyond the number of labels mean nothing.  `version` differs from an earlier one of the same name whenever the
    cell of a label that was known then may have changed.
    """

    name: str
    version: int
    cells: NDArray[Any]


@dataclass
class CounterState:
    """Everything that a counter must remember: `tweaks` are those of earlier rounds that it will use again."""

    round: int = 0
    columns: list[Column] = field(default_factory=list)
    tweaks: dict[int, bytes] = field(default_factory=dict)


class Counter(Protocol):
    """The noise of one running count per label, `labels` of them, after `round` rounds."""

    round: int
    labels: int

    def advance(
        self,
        ids: NDArray[np.uint64],
        histories: Sequence[bytes],
        hits: Hits,
        first_seen: NDArray[np.int64],
        wanted: NDArray[np.int64] | None = None,
    ) -> NDArray[np.int32]:
        """Process the next len(histories) rounds as one matrix; `histories` are the heads H_round of their hash chain.

        `ids`: identities of all labels, shape (labels, 2).  Those beyond `self.labels` are new, and `first_seen`, of
        shape (new labels,), holds the round that admits each of them first, or `self.round`: their noise starts there.
        Returns the noise of every label's running count after each of the rounds `wanted` (in order, default: all of
        them), int32 of shape (rounds, labels), which does not depend on how a stream is cut into blocks; in the rounds
        before a label is first seen it means nothing.
        """
        ...

    def current(self) -> NDArray[np.int32]:
        """The noise of every label's running count after `round`, int32 of shape (labels,); never to be changed."""
        ...

    def state(self) -> CounterState:
        """What a checkpoint keeps.  The arrays are the live ones: copy or write them before the next `advance`."""
        ...

    def restore(self, state: CounterState, labels: int) -> None:
        """Go on from `state`, which holds `labels` labels; a state of round 0 may lack their columns."""
        ...


@dataclass(frozen=True)
class EpochParameters:
    """What a counter's thresholds and noise are computed from, besides how much noise its sums carry.

    `threshold_delta` is the most that may be spent on labels that escape through the threshold (escapes.py).
    """

    horizon: int
    items_per_event: int
    threshold_delta: float
    shown: Shown = "each-round"
    cap_share: bool = False

    @property
    def charged_items(self) -> float:
        """See `CalibratedCounter.charged_items`."""
        return charged_items(self.items_per_event, self.cap_share)


@dataclass(frozen=True)
class Promise:
    """What a counter is calibrated to: (`epsilon`, `delta`) for one `unit`, over all its rounds together.

    `noise_delta`: the part of delta that is left for the noise, beside thresholds and computation.
    """

    unit: Unit
    epsilon: float
    delta: float
    noise_delta: float

    @property
    def items_name(self) -> str:
        """The setting that bounds what one unit brings."""
        return items_name(self.unit)

    def require_variance(self, sigma_squared: float) -> None:
        """Raise ValueError for more noise than any count could stand out from."""
        if sigma_squared > LARGEST_SIGMA_SQUARED:
            raise ValueError(
                f"this guarantee needs noise of variance {sigma_squared:g}, more than any count could stand out from: "
                f"raise epsilon or delta, or lower horizon or {self.items_name}"
            )


def charged_items(items: int, cap_share: bool) -> float:
    """What the noise has to hide of one unit, in items: those that are counted, and the cells beside them."""
    return items + CAP_CELLS / CAP_SCALE**2 if cap_share else items


def items_name(unit: Unit) -> str:
    """The setting that bounds what one unit brings."""
    return "items_per_event" if unit == "event" else "items_per_user"


class Enumerated(NamedTuple):
    """What `stream-dp audit --exact` enumerates of a counter: so many rounds, with `of(..., noise)`, at `epsilon`."""

    rounds: int
    noise: float
    epsilon: float


class _Rule(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """`shown`: which labels a round shows; `cap_share`: whether the cells beside the labels are counted, too."""

    shown: Shown = "each-round"
    cap_share: bool = False


class CalibratedCounter(_Rule, frozen=True, omit_defaults=True):
    """A counter's noise and thresholds, frozen for an epoch; `name` is its tag.

    A field with a default is not written down while it has that value: see `Epoch.fingerprint`.  The class variables
    and class methods are the counter's declaration: settings, calibration, planning, readers of releases, the start of
    a worker, the audit and the tests ask nothing else of it.
    """

    size_name: ClassVar[str] = "horizon"
    """The setting that says for how many rounds it is calibrated."""

    largest_size: ClassVar[int] = LARGEST_HORIZON
    """The most rounds that it can be calibrated for."""

    refused_units: ClassVar[Mapping[Unit, str]] = MappingProxyType({})
    """The units that it cannot protect, and why, in a sentence."""

    rounding: ClassVar[float] = 0.0
    """The variance that rounding adds to each count, where draws are no whole numbers."""

    numerical_share: ClassVar[float] = 0.0
    """The part of delta that pays for computed noise that is not the exact one."""

    golden_digest: ClassVar[str]
    """What golden.py computes of `golden`."""

    enumerated: ClassVar[Enumerated]

    @classmethod
    def of(cls, parameters: EpochParameters, noise: float) -> Self:
        """The counter with its thresholds, for noise of this size."""
        raise NotImplementedError

    @classmethod
    def calibrated(cls, parameters: EpochParameters, promise: Promise) -> tuple[Self, str]:
        """The counter with the least noise that keeps the promise, and the name of the bound that says so.

        Raises ValueError where none can.
        """
        raise NotImplementedError

    @classmethod
    def coupling_delta(cls, size: int, items_per_event: int) -> float:
        """What it costs that draws do not have their exact law, and that few of them may coincide."""
        raise NotImplementedError

    @classmethod
    def noise_shape(cls, horizon: int) -> NoiseShape:
        """How the noise of two rounds is correlated, for readers, who know the horizon."""
        raise NotImplementedError

    @classmethod
    def noise_state(cls, horizon: int) -> NoiseState:
        """How the noise moves from one round to the next, for readers, who know the horizon."""
        raise NotImplementedError

    @classmethod
    def golden(cls, horizon: int) -> "CalibratedCounter":
        """The counter that draws the golden noise: computed from literals only."""
        raise NotImplementedError

    @property
    def horizon(self) -> int:
        """The most rounds of an epoch."""
        raise NotImplementedError

    @property
    def items_per_event(self) -> int:
        """The most items of one event, or of one user, that are counted."""
        raise NotImplementedError

    @property
    def chain_rounds(self) -> int:
        """How many rounds share one hash chain, and so all of what an event costs: an epoch, or a block of windows."""
        return self.horizon

    @property
    def drawn_rounds(self) -> int:
        """In how many rounds a label may draw noise that shows an event: what `coupling_delta` is charged for."""
        return self.chain_rounds

    @property
    def charged_items(self) -> float:
        """What one unit can change in the noisy table, in items: w^2 of one in a cell with 1 / w times their noise."""
        return charged_items(self.items_per_event, self.cap_share)

    @property
    def drawn_items(self) -> int:
        """How many labels and cells draw noise that shows a unit: what `coupling_delta` is charged for."""
        return self.items_per_event + CAP_CELLS * self.cap_share

    @property
    def cells(self) -> "CalibratedCounter":
        """The counter of the cells beside the labels; its thresholds mean nothing."""
        raise NotImplementedError

    @property
    def name(self) -> str:
        """What the setting `mechanism` calls it."""
        return str(self.__struct_config__.tag)

    @property
    def rho(self) -> float:
        """The zCDP cost of the noisy table of a whole epoch."""
        raise NotImplementedError

    @property
    def loss(self) -> Loss:
        """The privacy loss of an epoch, as a ledger adds it up."""
        raise NotImplementedError

    def taus(self, rounds: NDArray[np.int64]) -> NDArray[np.int32]:
        """The least noisy count by which a label is shown in each of `rounds`."""
        raise NotImplementedError

    def sds(self, rounds: NDArray[np.int64]) -> NDArray[np.float64]:
        """The standard deviation of every count released in each of `rounds`."""
        raise NotImplementedError

    def counter(self, noise: KeyedNoise) -> Counter:
        """A counter at round 0, without labels."""
        raise NotImplementedError

    def tau(self, round_number: int) -> int:
        """The least noisy count by which a label is shown in this round."""
        return int(self.taus(np.array([round_number]))[0])

    def sd(self, round_number: int) -> float:
        """The standard deviation of every count released in this round."""
        return float(self.sds(np.array([round_number]))[0])


class RunningCounter(CalibratedCounter, frozen=True, omit_defaults=True):
    """A counter of everything since an epoch's first round, for at most `horizon` rounds."""

    horizon: int
    items_per_event: int


def grown(cells: NDArray[Any], size: int) -> NDArray[Any]:
    """`cells` with room for at least `size` rows, an eighth more than asked so that growth costs little on average."""
    if size <= len(cells):
        return cells
    larger = np.zeros((size + size // 8, *cells.shape[1:]), cells.dtype)
    larger[: len(cells)] = cells
    return larger
