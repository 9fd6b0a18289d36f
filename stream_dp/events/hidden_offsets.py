"""Offsets of a derived topic in a record that everybody may read: encrypted, and as long whatever they are.

Whoever derives a topic may leave records out, or choose their partitions by what is in them, so how many records each
partition holds depends on that.  Who has the key of the barriers, which name the same offsets, may know them.
"""

import os

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from stream_dp.events.barrier_chain import Barrier
from stream_dp.privacy.keyed_noise import subkey
from stream_dp.privacy.vector import Vector

_NONCE_BYTES = 12
_BYTES, _BYTES_OF_PARTITION = 512, 96
"""More than what is written of a barrier, and of the three offsets of a partition."""


class Offsets(msgspec.Struct, frozen=True):
    """Those of each partition, and the barrier, if there is one, after which rounds are counted."""

    offsets: Vector
    barrier: Barrier | None = None


def hide(place: Offsets, key: bytes, about: str) -> bytes:
    """Encrypt offsets; `key` is that of `barriers.key.barrier_key`, and `about` says what they are of."""
    size = _BYTES + _BYTES_OF_PARTITION * len(place.offsets)
    plain = msgspec.json.encode(place).ljust(size)
    assert len(plain) == size, "its length would tell how large the offsets are"
    nonce = os.urandom(_NONCE_BYTES)
    return nonce + _cipher(key).encrypt(nonce, plain, about.encode())


def reveal(hidden: bytes, key: bytes, about: str) -> Offsets | None:
    """What `hide` was given; None under another key, or for what is about something else."""
    nonce, text = hidden[:_NONCE_BYTES], hidden[_NONCE_BYTES:]
    try:
        plain = _cipher(key).decrypt(nonce, text, about.encode())
    except (InvalidTag, ValueError):
        return None
    return msgspec.json.decode(plain, type=Offsets)


def _cipher(key: bytes) -> AESGCM:
    return AESGCM(subkey(key, b"hidden offsets"))
