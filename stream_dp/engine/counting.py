"""What every histogram of an epoch can do, and which class an epoch needs."""

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from stream_dp.counters.discovery import DiscoveryMechanism
from stream_dp.counters.protocol import CalibratedCounter
from stream_dp.counters.window import WindowMechanism
from stream_dp.engine.admitted import Admitted
from stream_dp.engine.counted_histogram import CountedHistogram
from stream_dp.engine.discovery_histogram import DiscoveryHistogram
from stream_dp.engine.histogram import HistogramState, RunningHistogram
from stream_dp.engine.released_block import ReleasedBlock
from stream_dp.engine.window_histogram import WindowHistogram
from stream_dp.privacy.keyed_noise import KeyedNoise


class Histogram(Protocol):
    """Fed with what each round admitted; for each method see `RunningHistogram`."""

    @property
    def round(self) -> int: ...

    @property
    def history(self) -> bytes: ...

    @property
    def rounds_left(self) -> int: ...

    def blocks(
        self,
        rounds: Sequence[Admitted],
        histories: Sequence[bytes] | None = None,
        wanted: NDArray[np.bool_] | None = None,
    ) -> Iterator[ReleasedBlock]: ...

    def last_release(self) -> ReleasedBlock: ...

    def state(self) -> HistogramState: ...


def histogram_of(
    mechanism: CalibratedCounter,
    noise: KeyedNoise,
    state: HistogramState | None = None,
    earlier: Histogram | None = None,
    counted: bool = False,
) -> Histogram:
    """One that goes on from `state`; `earlier`: see `RunningHistogram`, windows need none.

    `counted`: an engine counts what is not shown.
    """
    if counted:
        assert isinstance(mechanism, DiscoveryMechanism)
        return CountedHistogram(mechanism, noise, state)
    if isinstance(mechanism, WindowMechanism):
        return WindowHistogram(mechanism, noise, state)
    if isinstance(mechanism, DiscoveryMechanism):
        found = earlier if isinstance(earlier, DiscoveryHistogram) else None
        return DiscoveryHistogram(mechanism, noise, state, found)
    before = earlier if isinstance(earlier, RunningHistogram) else None
    return RunningHistogram(mechanism, noise, state, before)
