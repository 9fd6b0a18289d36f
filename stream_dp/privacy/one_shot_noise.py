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
- `gumbel`, `exponential`, `gaussian`: doubles computed from 128 bits, so that no more than 2^-127 of the law lies
  outside their reach.  They are only ever compared and never released, so their low bits tell nothing.
- `passes`: 2^-128, by comparison of 128 bits with the probability itself.

The keystream is AES in counter mode, whose blocks never repeat: q of n blocks are within 2 q n 2^-128 of uniform.

These distances hold as deficits, too (docs/guarantee.md, "Failures that show in the table").  Where counts get noise,
what a law lacks at a value of the neighbour's noise weighs at most e^10 times as much as at its own: a count moves by
one, and its noise has a scale of at least 0.1.  Where items are chosen it weighs at most e^epsilon times as much, with
the job's own epsilon, which is at most 30.  No budget's epsilon multiplies it.  A mechanism makes at most a few million
draws, and all of this together is below 2^-55, or with `gaussian` below a billionth of the job's delta.  It is not
charged: the least delta of a job is 1e-15, and where a mechanism guarantees delta = 0, that 0 stands for 2^-55 (and for
AES-256).

Rounding is another matter: it is as if counts moved.  A sum of a count and a draw that is about c is rounded by at most
c 2^-53, which changes who is larger no more than moving one count by c 2^-52 would.  With Gumbel noise that multiplies
probabilities: epsilon is off by a relative c 2^-51 for two neighbours, or 4.4e-10 at a count of a million.  Ties are
part of this: at the scale b two sums are equal doubles with probability at most c 2^-54 / b or so, 6e-11 at a million
and b = 1, and then the larger true count comes first.
"""

import secrets
from collections.abc import Callable
from dataclasses import dataclass
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
LARGEST_SCALE = 1e9
"""Of a discrete Laplace draw: 37 digits."""

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
        words = self.words(2 * count).reshape(2, count)
        low, high = _unit(words), _unit(~words)  # low + high = 1, each with its own full precision
        return np.where(low < 0.5, -np.log1p(-np.minimum(low, 0.5)), -np.log(high))

    def gumbel(self, scale: float, count: int) -> Floats:
        """`count` draws of the standard Gumbel law (mean 0.577), times `scale`."""
        return -scale * np.log(self.exponential(count))

    def gaussian(self, sigma: float, count: int) -> Floats:
        """`count` draws of N(0, sigma^2), to be compared and not released; at most 13.1 sigma from 0."""
        words = self.words(2 * count).reshape(2, count)
        signs = words[1] & np.uint64(1)  # the last of the 128 bits: all that _unit sees of it is 2^-128
        return np.where(signs, sigma, -sigma) * ndtri(_unit(words) / 2)

    def passes(self, chance: Floats, missing: Floats) -> NDArray[np.bool_]:
        """Independent coins of probability `chance`, where `missing` is 1 - chance with its own full precision."""
        rare = np.minimum(chance, missing) * 2.0**64  # at most 2^63, so its whole part fits a word
        high = rare.astype(np.uint64)
        low = ((rare - high) * 2.0**64).astype(np.uint64)
        first, second = self.words(2 * len(rare)).reshape(2, len(rare))
        hit = (first < high) | ((first == high) & (second < low))
        return hit ^ (missing < chance)

    def order(self, identities: Integers) -> NDArray[np.intp]:
        """The permutation that sorts `identities`, distinct and of shape (n,), by a keyed hash of each.

        The hashes are blocks of AES, so no two are equal, and every order is equally likely whatever the numbers are.
        Hence the numbers need not stay with the users: when one user leaves and the others are numbered anew, their
        order has the law that it had among them before.  Give both neighbours the same order of those who remain; a
        mechanism that keeps its guarantee for every fixed order then keeps it with an order that it draws.
        """
        marks = self._hash(b"one-shot order", identities, np.zeros_like(identities))
        order = np.argsort(marks[:, 0], kind="stable")
        ordered = marks[order, 0]
        if (ordered[1:] == ordered[:-1]).any():
            order = np.lexsort((marks[:, 1], marks[:, 0]))
        return order

    def sample_marks(self, stage: int, users: Integers, items: Integers) -> NDArray[np.uint64]:
        """A uniform mark for every (user, item): the items of least mark are a sample that the user draws alone.

        `stage` tells the samples of successive rounds apart.  Marks are independent whatever the numbers are, so the
        numbers of users need not stay with them, nor those of items; see `order`.
        """
        return self.sampler(stage).sample_marks(stage, users, items)

    def sampler(self, stage: int) -> "Sampler":
        """What draws the samples of one round."""
        return Sampler(subkey(self._key, b"one-shot sample %d" % stage))

    def _hash(self, purpose: bytes, first: Integers, second: Integers) -> NDArray[np.uint64]:
        return _blocks(subkey(self._key, purpose), first, second)

    def _geometric(self, digits: NDArray[np.uint64], size: int) -> Integers:
        """`size` draws of G, P(G >= n) = exp(-n / scale), digit by digit; time does not depend on the values."""
        values = np.zeros(size, np.int64)
        for place, (high, low) in enumerate(digits):
            words = self.words(2 * size)
            first, second = words[:size], words[size:]
            digit = (first < high) | ((first == high) & (second < low))
            values |= digit.astype(np.int64) << place
        return values


@dataclass(frozen=True)
class Sampler:
    """What a sample needs of a run's randomness: a key that tells nothing of other draws, for other machines too."""

    key: bytes

    def sample_marks(self, stage: int, users: Integers, items: Integers) -> NDArray[np.uint64]:
        """See `OneShotNoise.sample_marks`; the key is that of one stage."""
        return _blocks(self.key, users, items)[:, 0]


def _blocks(key: bytes, first: Integers, second: Integers) -> NDArray[np.uint64]:
    """AES-256 of each pair, as words of shape (pairs, 2)."""
    encryptor = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    blocks = np.empty((len(first), 2), np.dtype("<i8"))
    blocks[:, 0] = first
    blocks[:, 1] = second
    if not len(blocks):
        return np.empty((0, 2), np.uint64)
    return np.frombuffer(encryptor.update(blocks.data.cast("B")), _WORD).reshape(-1, 2)


def _unit(words: NDArray[np.uint64]) -> Floats:
    """(w + 1/2) / 2^128 for w of two words, high and low: shape (2, n) to (n,), in (0, 1], relatively exact near 0."""
    high, low = words.astype(np.float64)
    return high * 2.0**-64 + (low * 2.0**-128 + 2.0**-129)


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
    if not 0 < scale <= LARGEST_SCALE:
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
