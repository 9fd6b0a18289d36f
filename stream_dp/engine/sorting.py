"""The order of a release: the largest count first, then by label."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def sorted_by_count(
    noisy: NDArray[np.int32], tau: NDArray[np.int32] | None, places: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[Any], NDArray[Any]]:
    """The cells of each row that reach its `tau`, largest count first, then by place, which is given for each column.

    All of them where `tau` is None.  Returns how many there are in each row, their places and their counts, row after
    row.  Count and place share one unsigned key, of 32 bits where they fit: sorting is what a release costs most.
    """
    rows, width = noisy.shape
    if not noisy.size:
        return np.zeros(rows, np.int64), np.empty(0, np.uint32), np.empty(0, np.int32)
    bits, largest, smallest = width.bit_length(), int(noisy.max()), int(noisy.min())
    reach = largest - smallest + 1
    unsigned, signed, modulus = (
        (np.uint32, np.int32, 1 << 32) if reach << bits < 1 << 32 else (np.uint64, np.int64, 1 << 64)
    )
    keys: NDArray[Any] = noisy.astype(signed, copy=False).view(unsigned)
    keys = np.multiply(keys, unsigned(-(1 << bits) % modulus))
    keys += (places + (largest << bits)).astype(unsigned)  # wrapped to (largest - noisy) << bits | place
    keys.sort(axis=1)
    ends = None if tau is None else np.clip(largest + 1 - tau.astype(np.int64), 0, reach) << bits
    if ends is None or np.all(keys[:, -1] < ends.astype(unsigned)):
        sizes, keys = np.full(rows, width), keys.reshape(-1)
    else:
        ends = ends.astype(unsigned)
        sizes = np.count_nonzero(keys < ends[:, np.newaxis], axis=1)
        keys = np.concatenate([row[:size] for row, size in zip(keys, sizes.tolist(), strict=True)])
    ranks = keys & unsigned((1 << bits) - 1)
    keys >>= unsigned(bits)
    return sizes, ranks, np.subtract(largest, keys.view(signed), dtype=signed)
