"""Texts as the loops take them: their UTF-8 one after the other, and where each ends."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def packed(texts: Sequence[bytes]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The bytes of all texts, and the end of each in them, of shape (texts,)."""
    ends = np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)))
    return np.frombuffer(b"".join(texts), np.uint8), ends
