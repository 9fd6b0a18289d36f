"""Noise for mechanisms that run once: a keystream of uniform words, read from front to back.

The words are AES-256 in counter mode under a sub-key of one 32-byte key, so a job that is run again with its
stored key releases the same bytes.  One key serves ONE run: reading the same words for two different inputs would
let the noise cancel.  The guarantee is computational: it holds as long as AES-256 and BLAKE2b look random.

How far each draw is from the law it stands for, in total variation:

- `discrete_gaussian`: 2^-100, by inversion of a 128-bit table (see `discrete_gaussian.py`).
- `discrete_laplace`: 2^-120.  The binary digits of a geometric variable G, P(G >= n) = exp(-a n), are independent:
  digit j is 1 with probability 1 / (1 + exp(a 2^j)), because P(G = n) is a product over the digits of n.  Each
  digit compares 128 uniform bits with a 128-bit probability, so at most 40 digits of two variables err by 80 * 2^-128,
  and the digits left out are 1 with probability below 2^-130.  The difference of two such G is discrete Laplace.
- `gumbel`, `exponential`, `gaussian`: doubles computed from 64 bits.  They are only ever compared and never
  released, so their low bits tell nothing.  The probability of an event "one is larger" is off by the rounding of
  the doubles, a relative 2^-45 or so, and by at most 2^-63 a draw for what lies outside the reach of 64 bits.  Two
  compared values are equal doubles with probability below 2^-40; the tie goes to the one that comes first.
- `passes`: 2^-63, by comparison of 64 bits with the probability itself.
"""

import secrets
from collections.abc import Callable
from decimal import Decimal, localcontext
from functools import lru_cache

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray
from scipy.special import ndtri

from stream_dp.privacy.discrete_gaussian import DiscreteGaussian
from stream_dp.privacy.keyed_noise import KEY_BYTES, subkey

_WORD = np.dtype("<u8")
_AT_ONCE = 1 << 14  # draws whose bits stay in the second-level cache
_LAST_DIGIT = 91  # exp(-91) < 2^-131: no digit beyond a 2^j = 91 is drawn
_LARGEST_SCALE = 1e9  # of a discrete Laplace draw: 37 digits

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class OneShotNoise:
    """All the randomness of one run of one mechanism; `key` is 32 secret bytes, used for nothing else."""

    def __init__(self, key: bytes) -> None:
        if len(key) != KEY_BYTES:
            raise ValueError(f"the key of a one-shot mechanism must hold {KEY_BYTES} bytes, not {len(key)}")
        self._key = key
        counter = modes.CTR(bytes(16))
        self._stream = Cipher(algorithms.AES(subkey(key, b"one-shot words")), counter).encryptor()

    @classmethod
    def fresh(cls) -> "OneShotNoise":
        """A source keyed by the operating system's generator."""
        return cls(secrets.token_bytes(KEY_BYTES))

    def words(self, count: int) -> NDArray[np.uint64]:
        """The next `count` uniform 64-bit words of the keystream."""
        return np.frombuffer(self._stream.update(bytes(8 * count)), _WORD)

    def discrete_gaussian(self, sigma_squared: float, count: int) -> Integers:
        """`count` draws of N_Z(0, sigma_squared)."""
        table = _gaussian_table(sigma_squared)

        def draw(size: int) -> NDArray[np.int32]:
            return table.invert(self.words(2 * size).reshape(-1, 2))

        return _in_blocks(count, draw)

    def discrete_laplace(self, scale: float, count: int) -> Integers:
        """`count` draws with P(x) proportional to exp(-|x| / scale) on the integers; 0 < scale <= 1e9."""
        digits = _digit_probabilities(scale)

        def draw(size: int) -> Integers:
            return self._geometric(digits, size) - self._geometric(digits, size)

        return _in_blocks(count, draw)

    def exponential(self, count: int) -> Floats:
        """`count` draws of the exponential law of mean 1, exact to the last bits in both tails."""
        words = self.words(count)
        low, high = _unit(words), _unit(~words)  # low + high = 1, each with its own full precision
        return np.where(low < 0.5, -np.log1p(-np.minimum(low, 0.5)), -np.log(high))

    def gumbel(self, scale: float, count: int) -> Floats:
        """`count` draws of the standard Gumbel law (mean 0.577), times `scale`."""
        return -scale * np.log(self.exponential(count))

    def gaussian(self, sigma: float, count: int) -> Floats:
        """`count` draws of N(0, sigma^2), to be compared and not released; at most 9.1 sigma from 0."""
        words = self.words(count)
        tail = _unit(words << np.uint64(1)) / 2  # in (0, 1/2); the highest bit of the word is the sign
        return np.where(words >> np.uint64(63), sigma, -sigma) * ndtri(tail)

    def passes(self, chance: Floats, missing: Floats) -> NDArray[np.bool_]:
        """Independent coins of probability `chance`, where `missing` is 1 - chance with its own full precision."""
        rare = np.minimum(chance, missing)  # below 1/2, so 2^64 times it fits a word
        hit = self.words(len(rare)) < (rare * 2.0**64).astype(np.uint64)
        return hit ^ (missing < chance)

    def order(self, identities: Integers) -> NDArray[np.intp]:
        """The permutation that sorts `identities` (shape (n,)) by a keyed hash of each, ties by the number itself.

        Which of two comes first depends on the key and these two alone: removing others changes nothing.
        """
        marks = self._hash(b"one-shot order", identities, np.zeros_like(identities))
        order = np.argsort(marks, kind="stable")
        ordered = marks[order]
        if (ordered[1:] == ordered[:-1]).any():
            order = np.lexsort((identities, marks))
        return order

    def sample_marks(self, stage: int, users: Integers, items: Integers) -> NDArray[np.uint64]:
        """A uniform mark for every (user, item): the items of least mark are a sample that the user draws alone.

        `stage` tells the samples of successive rounds apart.
        """
        return self._hash(b"one-shot sample %d" % stage, users, items)

    def _hash(self, purpose: bytes, first: Integers, second: Integers) -> NDArray[np.uint64]:
        """64 bits of AES-256 of each pair under a key of its own."""
        encryptor = Cipher(algorithms.AES(subkey(self._key, purpose)), modes.ECB()).encryptor()
        blocks = np.empty((len(first), 2), np.dtype("<i8"))
        blocks[:, 0] = first
        blocks[:, 1] = second
        if not len(blocks):
            return np.empty(0, np.uint64)
        return np.frombuffer(encryptor.update(blocks.data.cast("B")), _WORD)[::2]

    def _geometric(self, digits: NDArray[np.uint64], size: int) -> Integers:
        """`size` draws of G, P(G >= n) = exp(-n / scale), digit by digit; time does not depend on the values."""
        values = np.zeros(size, np.int64)
        for place, (high, low) in enumerate(digits):
            words = self.words(2 * size)
            first, second = words[:size], words[size:]
            digit = (first < high) | ((first == high) & (second < low))
            values |= digit.astype(np.int64) << place
        return values


def _unit(words: NDArray[np.uint64]) -> Floats:
    """(word + 1/2) / 2^64: in (0, 1], of full relative precision near 0."""
    return words.astype(np.float64) * 2.0**-64 + 2.0**-65


def _in_blocks(count: int, draw: Callable[[int], NDArray[np.signedinteger]]) -> Integers:
    values = np.empty(count, np.int64)
    for start in range(0, count, _AT_ONCE):
        block = values[start : start + _AT_ONCE]
        block[:] = draw(len(block))
    return values


@lru_cache(maxsize=8)
def _gaussian_table(sigma_squared: float) -> DiscreteGaussian:
    return DiscreteGaussian(sigma_squared)


@lru_cache(maxsize=64)
def _digit_probabilities(scale: float) -> NDArray[np.uint64]:
    """1 / (1 + exp(2^j / scale)) in units of 2^-128, rounded down, as (high, low) words: shape (digits, 2)."""
    if not 0 < scale <= _LARGEST_SCALE:
        raise ValueError(f"the scale of discrete Laplace noise must be above 0 and at most 1e9, not {scale}")
    digits = []
    with localcontext() as context:
        context.prec = 80
        exponent = 1 / Decimal(scale)
        while exponent < _LAST_DIGIT:
            whole = int(2**128 / (1 + exponent.exp()))
            digits.append((whole >> 64, whole & (2**64 - 1)))
            exponent *= 2
    return np.array(digits, dtype=np.uint64).reshape(-1, 2)
