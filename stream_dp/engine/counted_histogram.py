"""The histogram of a stream that an engine counts: it knows of the labels that are shown, and of no others.

The engine counts those that are not shown, and finds labels at tests.  What is left is the counter of shown labels.
Rounds, noise and releases are those of `DiscoveryHistogram`.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stream_dp.counters.discovery import DiscoveryMechanism
from stream_dp.counters.protocol import grown
from stream_dp.engine.discovery_histogram import DiscoveryHistogram
from stream_dp.engine.histogram import HistogramState
from stream_dp.privacy.keyed_noise import KeyedNoise


class CountedHistogram(DiscoveryHistogram):
    """For its methods see `RunningHistogram`; rounds admit labels that are shown, and no others.

    `found` has the labels that the tests of coming rounds find, in their order, with what was measured.
    """

    def __init__(
        self, mechanism: DiscoveryMechanism, noise: KeyedNoise, state: HistogramState | None = None
    ) -> None:
        super().__init__(mechanism, noise, state)
        self.found: dict[int, Sequence[tuple[str, int]]] = {}

    @property
    def shown_labels(self) -> list[str]:
        """Those that are shown, in the order in which they were found."""
        return list(self._visible.labels)

    def _test(self) -> NDArray[np.int32]:
        found = self.found.pop(self.round)
        rows = self._seen.rows_of([label for label, _ in found])
        self._counts = grown(self._counts, len(self._seen))
        measured = np.array([count for _, count in found], np.int32)
        self._show(rows, self._tests.tests, measured)
        return measured
