"""The records of `<stream>.schemas`: what each schema number stood for when an event that names it was counted.

They are part of the log.  A registry may forget, or say something else tomorrow; the first record of a number in an
epoch settles it for that epoch, and whoever counts the events again reads that and asks no registry.
"""

from collections.abc import Iterable
from hashlib import blake2b
from hmac import compare_digest
from typing import Literal

import msgspec

from stream_dp.events.mapping.schema import HEADER_BYTES, Schema, SchemaNotSettled, schema_number
from stream_dp.privacy.keyed_noise import subkey

_TAG_BYTES = 16


class SchemaSettled(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `number` stands for in the epoch of `nonce`: `schema`, or None where the registry has given none.

    It was asked for `waited` seconds until that was taken for its answer.  `tag` is a keyed digest of all the rest.
    """

    nonce: str
    number: int
    schema: Schema | None
    waited: float
    tag: str = ""
    v: Literal[1] = 1


_DECODER = msgspec.json.Decoder(SchemaSettled)


class SchemaBook:
    """What is settled in one epoch.  Records of other epochs, and those without a valid tag, are passed over."""

    def __init__(self, key: bytes, nonce: bytes, values: Iterable[bytes | None] = ()) -> None:
        """`key` is the noise key; `values` are records of the topic."""
        self._key = blake2b(nonce, key=subkey(key, b"schemas")).digest()
        self._nonce = nonce.hex()
        self._settled: dict[int, Schema | None] = {}
        self.take(*values)

    def schema(self, number: int) -> Schema | None:
        """What the number stands for; None for one that the registry does not know.  Raises `SchemaNotSettled`."""
        try:
            return self._settled[number]
        except KeyError:
            raise SchemaNotSettled(number) from None

    def take(self, *values: bytes | None) -> None:
        """The next records of the topic; the first one of a number counts."""
        for value in values:
            try:
                found = _DECODER.decode(value or b"")
            except (msgspec.DecodeError, UnicodeError, RecursionError):
                continue
            if found.nonce == self._nonce and compare_digest(found.tag.encode(), self._tag(found).encode()):
                self._settled.setdefault(found.number, found.schema)

    def encode(self, number: int, schema: Schema | None, waited: float) -> bytes:
        """The value of a record that settles a number."""
        told = SchemaSettled(self._nonce, number, schema, waited)
        return msgspec.json.encode(msgspec.structs.replace(told, tag=self._tag(told)))

    def unsettled(self, values: Iterable[bytes | None]) -> list[int]:
        """The numbers that these values name and that are not settled, in ascending order."""
        heads = {value[:HEADER_BYTES] for value in values if value}
        numbers = {number for head in heads if (number := schema_number(head)) is not None}
        return sorted(numbers - self._settled.keys())

    def _tag(self, told: SchemaSettled) -> str:
        said = msgspec.json.encode((told.nonce, told.number, told.schema, told.waited), order="deterministic")
        return blake2b(said, key=self._key, digest_size=_TAG_BYTES).hexdigest()
