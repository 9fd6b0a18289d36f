"""The labels that rounds admit, as columns.

A round of one event is a sequence; one that a barrier closes may hold millions of them, and is a mapping if somebody
has counted it.
"""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import cast

import numpy as np
from numpy.typing import NDArray

from stream_dp.privacy.keyed_noise import Admitted

__all__ = ["Admitted", "joined"]


def joined(
    rounds: Sequence[Admitted],
) -> tuple[list[str], NDArray[np.int64], NDArray[np.int64] | None]:
    """The labels of rounds that follow each other, the place of each label's round, and how often each was admitted.

    None for how often where that is once, and a label may come again.  The rounds are all sequences, or all mappings.
    """
    labels = list(chain.from_iterable(rounds))
    steps = np.repeat(np.arange(len(rounds)), np.fromiter(map(len, rounds), np.int64, len(rounds)))
    if not rounds or not isinstance(rounds[0], Mapping):
        return labels, steps, None
    counted = cast("Sequence[Mapping[str, int]]", rounds)
    times = chain.from_iterable(each.values() for each in counted)
    return labels, steps, np.fromiter(times, np.int64, len(labels))
