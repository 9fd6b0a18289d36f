"""The labels that rounds admit, as columns."""

from collections.abc import Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from stream_dp.privacy.keyed_noise import Admitted

__all__ = ["Admitted", "joined"]


def joined(rounds: Sequence[Admitted]) -> tuple[list[str], NDArray[np.int64]]:
    """The labels of rounds that follow each other, and the place of each label's round."""
    labels = list(chain.from_iterable(rounds))
    return labels, np.repeat(np.arange(len(rounds)), np.fromiter(map(len, rounds), np.int64, len(rounds)))
