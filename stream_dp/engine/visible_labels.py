"""Which labels an epoch has shown so far, in the order in which it found them."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_dp.engine.label_texts import LabelTexts


class VisibleLabels:
    """Labels in the order of the rounds that showed them first, then by name, so that only the end ever grows.

    `rows` (int64) are their positions among all labels seen, `labels` (object) their texts, `first_shown` these rounds.
    """

    def __init__(self) -> None:
        self.rows = np.empty(0, np.int64)
        self.labels = np.empty(0, object)
        self.first_shown = np.empty(0, np.int64)

    def include(self, rows: NDArray[np.int64], first_shown: NDArray[Any], labels: LabelTexts) -> None:
        """Add `rows`, positions in `labels`, none of them for the second time, nor found before the last ones."""
        texts = [text.decode() for text in labels.take(rows)]
        order = sorted(range(len(texts)), key=lambda place: (first_shown[place], texts[place]))
        self.rows = np.concatenate([self.rows, rows[order]])
        self.labels = np.concatenate([self.labels, np.array([texts[place] for place in order], object)])
        self.first_shown = np.concatenate([self.first_shown, first_shown[order]])
