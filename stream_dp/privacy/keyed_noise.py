"""Noise that exists once: every draw is a keyed function of who it is for, when, and the history up to then.

    bits(label, round, lane) = AES-256(K, id(label) xor tweak(round, lane))

`id(label)` and `tweak(round, lane)` are 128 bits of keyed BLAKE2b; the tweak binds the noise version, the stream,
the epoch's public nonce, the round, the lane and the hash chain over everything that entered the histogram up to
that round.  So the noise of a cell is the same after a crash, in any order of arrival and in any block, and
differs as soon as the history differs.  The sub-keys come from one 32-byte key.

The guarantee built on it is computational: it holds as long as AES-256 and BLAKE2b look random to whoever
reads the releases.  Chance that two cells that matter share their bits: see `collision_probability`.
"""

import secrets
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from functools import lru_cache
from hashlib import blake2b
from itertools import chain
from struct import Struct
from typing import Self

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from stream_dp.errors import Refused
from stream_dp.loops import mix_words
from stream_dp.loops.packing import packed
from stream_dp.privacy.discrete_gaussian import DiscreteGaussian
from stream_dp.privacy.many_digests import chained_digests, digests, packed_digests

NOISE_VERSION = 1
"""Raised by any change after which equal keys, streams and histories would draw other noise."""

Admitted = Sequence[str] | Mapping[str, int]
"""What a round admits: labels in any order, one as often as events of the round hold it, or how often each."""

KEY_BYTES = 32
NONCE_BYTES = 16
EMPTY_HISTORY = bytes(32)

MOST_CELLS = 2.0**54
"""How many pairs of a label and a round one noise key may serve, all streams and epochs that use it taken together.

That is a million labels in eighteen thousand million rounds.  What else it means: docs/guarantee.md.
"""

_WORD = np.dtype("<u8")
_BLOCK_BYTES = 16
_LENGTH, _PLACE, _PLACE_OF_PART = Struct("<I"), Struct("<QQ"), Struct("<Q32s")
_FEW = 16  # labels that are looked up one by one
_CELLS_AT_ONCE = 1 << 14  # 256 kB of bits: what stays in the second-level cache

_GOLDEN = "b7a55ed997b9dde84028e73bb498147b"


class WrongNoise(Refused):
    """This machine or its libraries draw other noise than everywhere else; the message says what to check."""


class KeyedNoise:
    """The noise of one epoch of one stream.

    `key`: 32 secret bytes; `stream`: the stream's name; `nonce`: the epoch's 16 public bytes.  One thread at a
    time may draw from an instance: it reuses its buffers.
    """

    def __init__(self, key: bytes, stream: str, nonce: bytes) -> None:
        if len(key) != KEY_BYTES:
            raise ValueError(f"the noise key must hold {KEY_BYTES} bytes, not {len(key)}")
        if len(nonce) != NONCE_BYTES:
            raise ValueError(f"an epoch's nonce must hold {NONCE_BYTES} bytes, not {len(nonce)}")
        self._cipher = Cipher(algorithms.AES(subkey(key, b"bits")), modes.ECB())
        self._begin()
        name = stream.encode()
        context = b"%d %d " % (NOISE_VERSION, len(name)) + name + nonce
        self._id_key = subkey(key, b"label id")
        self._tweak_key, self._context = subkey(key, b"tweak"), context
        self._history_key, self._part_key = subkey(key, b"history"), subkey(key, b"part of a round")

    def _begin(self) -> None:
        """What one thread at a time may use."""
        self._encryptor = self._cipher.encryptor()
        self._words = np.empty(2 * _CELLS_AT_ONCE, _WORD)  # reused: fresh pages cost more than the noise
        self._bits = bytearray((_CELLS_AT_ONCE + 1) * _BLOCK_BYTES)

    def beside(self) -> Self:
        """The same noise, for another thread."""
        other = copy(self)
        other._begin()
        return other

    def label_ids(self, labels: Iterable[bytes]) -> NDArray[np.uint64]:
        """128-bit identities of `labels`, uint64 of shape (n, 2)."""
        return self.packed_label_ids(*packed([*labels]))

    def packed_label_ids(self, text: NDArray[np.uint8], ends: NDArray[np.int64]) -> NDArray[np.uint64]:
        """The same of many labels that stand one after the other in `text` and end at `ends`."""
        return packed_digests(self._id_key, text, ends, _BLOCK_BYTES)

    def tweaks(self, places: Iterable[tuple[int, int, bytes]]) -> list[bytes]:
        """The 16 bytes that each place mixes into every label's draw: a round, a lane and H_round."""
        known, place = self._context, _PLACE.pack
        texts = [known + place(round_number, lane) + history for round_number, lane, history in places]
        return digests(self._tweak_key, texts, _BLOCK_BYTES)

    def extend_histories(self, history: bytes, first: int, rounds: Sequence[Admitted]) -> list[bytes]:
        """H_round after each of `rounds`, which a log of one partition admits; `first` follows `history`."""
        found = self.part_digests([(number, 0, admitted) for number, admitted in enumerate(rounds, first)])
        return self.join_histories(history, first, [[(0, digest)] for digest in found])

    def part_digest(self, round_number: int, partition: int, admitted: Admitted) -> bytes:
        """A commitment to the labels that a round admitted of one partition: in any order, or counted already.

        Each label enters once, as UTF-8, with how often it was admitted, in the order of code points.
        """
        return self.part_digests([(round_number, partition, admitted)])[0]

    def part_digests(self, parts: Sequence[tuple[int, int, Admitted]]) -> list[bytes]:
        """The same of many rounds and partitions."""
        return digests(self._part_key, [self._text_of_part(*part) for part in parts], len(EMPTY_HISTORY))

    @staticmethod
    def _text_of_part(round_number: int, partition: int, admitted: Admitted) -> bytes:
        if len(admitted) <= _FEW and len(set(admitted)) == len(admitted) and isinstance(admitted, list):
            framed: Iterable[bytes] = map(_framed_once, sorted(admitted))  # most rounds of one event
        else:
            counts = admitted if isinstance(admitted, Mapping) else Counter(admitted)
            labels = sorted(counts)
            texts = [label.encode() for label in labels]
            sizes, times = map(len, texts), map(counts.__getitem__, labels)
            columns = map(_LENGTH.pack, sizes), texts, map(_LENGTH.pack, times)
            framed = chain.from_iterable(zip(*columns, strict=True))
        return _PLACE.pack(round_number, partition) + b"".join(framed)

    def join_histories(
        self, history: bytes, first: int, rounds: Sequence[Sequence[tuple[int, bytes]]]
    ) -> list[bytes]:
        """The same from the digests of the parts of each round, by partition, in order."""
        texts = [
            _PLACE.pack(number, len(parts)) + b"".join([_PLACE_OF_PART.pack(*part) for part in parts])
            for number, parts in enumerate(rounds, first)
        ]
        return chained_digests(self._history_key, history, texts)

    def draw(
        self, gaussian: DiscreteGaussian, ids: NDArray[np.uint64], tweaks: Sequence[bytes]
    ) -> NDArray[np.int32]:
        """One draw for each tweak and label: int32 of shape (len(tweaks), len(ids))."""
        draws = np.empty((len(tweaks), len(ids)), np.int32)
        # Rows of all labels, or one row of some: contiguous either way.
        gaussian.invert_into(
            (
                bits.reshape(-1, 2),
                draws[top : top + bits.shape[0], left : left + bits.shape[1]].reshape(-1),
            )
            for top, left, bits in self.bits(ids, tweaks)
        )
        return draws

    def bits(
        self, ids: NDArray[np.uint64], tweaks: Sequence[bytes], together: int = 1
    ) -> Iterator[tuple[int, int, NDArray[np.uint64]]]:
        """The 128 bits of each tweak and label, as many at a time as the buffer holds.

        Yields the number of the first tweak, that of the first label and their bits, uint64 of shape (tweaks,
        labels, 2), which last until the next ones are asked for.  All tweaks for some labels come before the next
        labels, and so many tweaks at once that their number is a multiple of `together`.
        """
        pairs = np.frombuffer(b"".join(tweaks), _WORD).reshape(-1, 2)
        columns = max(1, min(len(ids), _CELLS_AT_ONCE // together))
        rows = _CELLS_AT_ONCE // columns // together * together
        for left in range(0, len(ids), columns):
            here = np.ascontiguousarray(ids[left : left + columns])
            for top in range(0, len(pairs), rows):
                block = pairs[top : top + rows]
                shape = (len(block), len(here), 2)
                words = self._words[: 2 * len(block) * len(here)]
                mix_words(here, block, words.reshape(shape))
                self._encryptor.update_into(words.view(np.uint8).data, self._bits)
                yield top, left, np.frombuffer(self._bits, _WORD, words.size).reshape(shape)


@lru_cache(maxsize=1 << 14)
def _framed_once(label: str) -> bytes:
    text = label.encode()
    return _LENGTH.pack(len(text)) + text + _LENGTH.pack(1)


def subkey(key: bytes, purpose: bytes) -> bytes:
    """32 bytes for one purpose: no two purposes ever use the same key."""
    return blake2b(purpose, key=key, digest_size=32, person=b"stream_dp").digest()


def key_check(key: bytes) -> str:
    """A public value that tells a wrong key without telling the key."""
    return subkey(key, b"check")[:8].hex()


def new_key() -> bytes:
    """A fresh 32-byte noise key from the operating system's generator."""
    return secrets.token_bytes(KEY_BYTES)


def new_nonce() -> bytes:
    """A fresh public 16-byte nonce for an epoch about to open."""
    return secrets.token_bytes(NONCE_BYTES)


def collision_probability(blocks: int) -> float:
    """At most this chance that one of the `blocks` of bits that matter is not independent of all others under its key.

    Each of them may have the input of any other, or lack the output of any other, which AES never gives twice: 6
    times `MOST_CELLS` chances of 2^-128 in all (docs/guarantee.md counts them).
    """
    return 6 * blocks * MOST_CELLS / 2.0**128


def check_golden_draw() -> None:
    """Draw 4,096 known values; raise `WrongNoise` where this machine or its libraries compute others."""
    noise = KeyedNoise(bytes(range(KEY_BYTES)), "golden", bytes(NONCE_BYTES))
    [history] = noise.extend_histories(EMPTY_HISTORY, 1, [["b", "a"]])
    tweaks = noise.tweaks((round_number, 0, history) for round_number in range(1, 65))
    draws = noise.draw(DiscreteGaussian(1000.25), noise.label_ids(b"%d" % i for i in range(64)), tweaks)
    digest = blake2b(draws.astype("<i4").tobytes(), digest_size=16).hexdigest()
    if digest != _GOLDEN:
        raise WrongNoise(
            "this machine draws noise that differs from the golden draw of noise version "
            f"{NOISE_VERSION} ({digest} instead of {_GOLDEN}): the noise would not be the same after a "
            "restart elsewhere, so nothing is released; check the cryptography and numpy packages"
        )
