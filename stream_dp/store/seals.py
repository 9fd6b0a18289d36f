"""Keyed digests of what Redis keeps: a value that somebody or something changed is refused.

A digest is 128 bits of BLAKE2b under a key that follows from the noise key, and bound to the stream and to what it is a
digest of: a name, an epoch's nonce, a version.  So nothing can be put in the place of anything else.  Between two
checkpoints a column or a list grows at its end, or is replaced.  The digest of what grows goes on from the last one, so
that a checkpoint hashes what it writes and nothing else.
"""

from hashlib import blake2b
from typing import Any

import msgspec

from stream_dp.privacy.keyed_noise import subkey

SEAL_BYTES = 16


class Seal:
    """The digest of what has come so far; going on from it leaves it as it is."""

    def __init__(self, so_far: blake2b) -> None:
        self._so_far = so_far

    def followed_by(self, piece: bytes | bytearray | memoryview) -> "Seal":
        """The digest of the same with `piece` after it."""
        longer = self._so_far.copy()
        longer.update(piece)
        return Seal(longer)

    @property
    def digest(self) -> bytes:
        """`SEAL_BYTES` bytes."""
        return self._so_far.digest()


class Seals:
    """The digests of one stream under its noise key."""

    def __init__(self, key: bytes, stream: str) -> None:
        self._keyed = blake2b(key=subkey(key, b"state"), digest_size=SEAL_BYTES)
        self._stream = stream

    def of(self, name: str, *which: Any) -> Seal:
        """The digest of nothing yet under this name; `which` says more, as plain data."""
        return Seal(self._keyed.copy()).followed_by(msgspec.msgpack.encode((self._stream, name, *which)))
