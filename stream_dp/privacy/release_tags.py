"""What shows, to whoever holds the key, from which log a release came: a keyed tag of the head of the hash chain.

The head after a round commits to everything admitted up to it, so the tag tells one log from another even where no
released count does.  To everybody else it is 16 random bytes: docs/guarantee.md argues why it costs nothing.
"""

from hashlib import blake2b
from struct import Struct

from stream_dp.privacy.keyed_noise import subkey

TAG_BYTES = 16
_ROUND, _LENGTH = Struct("<Q"), Struct("<I")


class ReleaseTags:
    """The tags of the releases of one epoch, whose public nonce is `nonce`, under the noise key."""

    def __init__(self, key: bytes, stream: str, nonce: bytes) -> None:
        name = stream.encode()
        context = _LENGTH.pack(len(name)) + name + nonce
        self._keyed = blake2b(context, key=subkey(key, b"release tag"), digest_size=TAG_BYTES)

    def tag(self, round_number: int, head: bytes) -> str:
        """The tag of a round after which the head of the hash chain is `head`, in hexadecimal digits."""
        tag = self._keyed.copy()
        tag.update(_ROUND.pack(round_number) + head)
        return tag.hexdigest()
