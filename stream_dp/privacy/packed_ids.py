"""Keyed BLAKE2b of many short texts at once, in machine code: what hashlib gives, without an object for each text.

BLAKE2b as RFC 7693 has it, sequential, with a key and a digest of 16 bytes.  The key fills a block of its own that
comes first and is the same for all texts, so it is hashed once.
"""

import numpy as np
from numpy.typing import NDArray

from stream_dp.privacy.double_double import compiled

DIGEST_BYTES = 16
_BLOCK = 128
_IV = np.array(
    [
        0x6A09E667F3BCC908,
        0xBB67AE8584CAA73B,
        0x3C6EF372FE94F82B,
        0xA54FF53A5F1D36F1,
        0x510E527FADE682D1,
        0x9B05688C2B3E6C1F,
        0x1F83D9ABFB41BD6B,
        0x5BE0CD19137E2179,
    ],
    np.uint64,
)
_SIGMA = np.array(
    [
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
        [14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3],
        [11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4],
        [7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8],
        [9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13],
        [2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9],
        [12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11],
        [13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10],
        [6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5],
        [10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0],
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
        [14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3],
    ],
    np.int64,
)


def begun(key: bytes) -> NDArray[np.uint64]:
    """The state after the block of the key, if texts follow and if none does: uint64 of shape (2, 8)."""
    states = np.array([_IV, _IV])
    states[:, 0] ^= np.uint64(0x01010000 ^ len(key) << 8 ^ DIGEST_BYTES)
    words = np.frombuffer(key.ljust(_BLOCK, b"\0"), "<u8").astype(np.uint64)
    for last, state in enumerate(states):
        _compress(state, words, np.empty(16, np.uint64), np.uint64(_BLOCK), bool(last))
    return states


def digests(
    key_states: NDArray[np.uint64], text: NDArray[np.uint8], ends: NDArray[np.int64]
) -> NDArray[np.uint64]:
    """The digest of each text under the key that `begun` has taken, uint64 of shape (texts, 2).

    The texts stand one after the other in `text`, and end at `ends`.
    """
    found = np.empty((len(ends), 2), np.uint64)
    _digest_all(key_states, text, ends, found)
    return found


@compiled
def _digest_all(key_states, text, ends, found):  # type: ignore[no-untyped-def]
    words, v, state = np.empty(16, np.uint64), np.empty(16, np.uint64), np.empty(8, np.uint64)
    begin = 0
    for i in range(len(ends)):
        place, end = begin, ends[i]
        state[:] = key_states[int(place == end)]
        while place < end:
            size = min(_BLOCK, end - place)
            words[:] = 0
            for j in range(size):
                words[j >> 3] |= np.uint64(text[place + j]) << np.uint64(8 * (j & 7))
            place += size
            _compress(state, words, v, np.uint64(_BLOCK + place - begin), place == end)
        found[i, 0], found[i, 1] = state[0], state[1]
        begin = end


@compiled
def _compress(state, words, v, counter, last):  # type: ignore[no-untyped-def]
    for i in range(8):
        v[i], v[i + 8] = state[i], _IV[i]
    v[12] ^= counter
    if last:
        v[14] = ~v[14]
    for r in range(12):
        _mix(v, 0, 4, 8, 12, words[_SIGMA[r, 0]], words[_SIGMA[r, 1]])
        _mix(v, 1, 5, 9, 13, words[_SIGMA[r, 2]], words[_SIGMA[r, 3]])
        _mix(v, 2, 6, 10, 14, words[_SIGMA[r, 4]], words[_SIGMA[r, 5]])
        _mix(v, 3, 7, 11, 15, words[_SIGMA[r, 6]], words[_SIGMA[r, 7]])
        _mix(v, 0, 5, 10, 15, words[_SIGMA[r, 8]], words[_SIGMA[r, 9]])
        _mix(v, 1, 6, 11, 12, words[_SIGMA[r, 10]], words[_SIGMA[r, 11]])
        _mix(v, 2, 7, 8, 13, words[_SIGMA[r, 12]], words[_SIGMA[r, 13]])
        _mix(v, 3, 4, 9, 14, words[_SIGMA[r, 14]], words[_SIGMA[r, 15]])
    for i in range(8):
        state[i] ^= v[i] ^ v[i + 8]


@compiled
def _turned(word, bits):  # type: ignore[no-untyped-def]
    return word >> np.uint64(bits) | word << np.uint64(64 - bits)


@compiled
def _mix(v, a, b, c, d, x, y):  # type: ignore[no-untyped-def]
    v[a] = v[a] + v[b] + x
    v[d] = _turned(v[d] ^ v[a], 32)
    v[c] = v[c] + v[d]
    v[b] = _turned(v[b] ^ v[c], 24)
    v[a] = v[a] + v[b] + y
    v[d] = _turned(v[d] ^ v[a], 16)
    v[c] = v[c] + v[d]
    v[b] = _turned(v[b] ^ v[c], 63)
