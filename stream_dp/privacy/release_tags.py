"""What shows, to whoever holds the key, from which log a release came: a keyed tag of the head of the hash chain.

The head after a round commits to everything admitted up to it, so the tag tells one log from another even where no
released count does.  To everybody else it is 16 random bytes: docs/guarantee.md argues why it costs nothing.
"""

from collections.abc import Sequence
from struct import Struct

from stream_dp.privacy.keyed_noise import subkey
from stream_dp.privacy.many_digests import digests

TAG_BYTES = 16
_ROUND, _LENGTH = Struct("<Q"), Struct("<I")


class ReleaseTags:
    """The tags of the releases of one epoch, whose public nonce is `nonce`, under the noise key."""

    def __init__(self, key: bytes, stream: str, nonce: bytes) -> None:
        name = stream.encode()
        self._context = _LENGTH.pack(len(name)) + name + nonce
        self._key = subkey(key, b"release tag")

    def tags(self, rounds: Sequence[int], heads: Sequence[bytes]) -> list[str]:
        """The tag of each round after which the head of the hash chain is that of `heads`, in hexadecimal digits."""
        texts = [
            self._context + _ROUND.pack(number) + head for number, head in zip(rounds, heads, strict=True)
        ]
        return [tag.hex() for tag in digests(self._key, texts, TAG_BYTES)]
