"""Keyed digests of many texts at once: BLAKE2b as hashlib has it, without an object for each text."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stream_dp import loops
from stream_dp.loops.packing import packed

CHAINED_BYTES = 32


def digests(key: bytes, texts: Sequence[bytes], size: int) -> list[bytes]:
    """The digest of each text, of 8, 16 or 32 bytes."""
    return _as_bytes(packed_digests(key, *packed(texts), size))


def packed_digests(
    key: bytes, text: NDArray[np.uint8], ends: NDArray[np.int64], size: int, salt: bytes = bytes(16)
) -> NDArray[np.uint64]:
    """The same of texts that stand one after the other in `text` and end at `ends`: of shape (texts, size / 8)."""
    found = np.empty((len(ends), size // 8), np.uint64)
    loops.text_digests(np.frombuffer(key, np.uint8), np.frombuffer(salt, np.uint8), text, ends, found)
    return found


def chained_digests(key: bytes, before: bytes, texts: Sequence[bytes]) -> list[bytes]:
    """Of 32 bytes: the digest of `before` and the first text, that of this digest and the second text, and so on."""
    room = bytes(CHAINED_BYTES)
    whole = bytearray(b"".join([part for text in texts for part in (room, text)]))
    whole[:CHAINED_BYTES] = before
    ends = np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)) + CHAINED_BYTES)
    found = np.empty((len(texts), CHAINED_BYTES // 8), np.uint64)
    loops.chained_digests(np.frombuffer(key, np.uint8), ends, np.frombuffer(whole, np.uint8), found)
    return _as_bytes(found)


def _as_bytes(found: NDArray[np.uint64]) -> list[bytes]:
    each: list[bytes] = found.view(f"V{8 * found.shape[1]}").reshape(-1).tolist()
    return each
