"""Decompress what Kafka's codecs made, a piece at a time: 1 MB of zeros can stand for gigabytes."""

import gzip
import io
import zlib
from collections.abc import Callable, Iterator
from functools import partial

import zstandard

from stream_dp.errors import needs_extra

PIECE = 1 << 20
"""Most bytes of a piece, except of snappy, whose blocks hold up to `_SNAPPY_TIMES` times their size."""

DAMAGE = (EOFError, OSError, RuntimeError, ValueError, zlib.error, zstandard.ZstdError)
"""What the codecs raise for bytes that are not theirs."""

_XERIAL_MAGIC, _XERIAL_HEADER_BYTES = b"\x82SNAPPY\x00", 16
_SNAPPY_TIMES = 32


def pieces(codec: int, payload: bytes | memoryview) -> Iterator[bytes]:
    """What `payload` decompresses to; `codec` is the number that record batches have for it.  Raises one of `DAMAGE`.

    Raises KeyError for a codec that is not known, and `ExtraMissing` for one that is not installed.
    """
    return _CODECS[codec](payload)


def _gzip(payload: bytes | memoryview) -> Iterator[bytes]:
    with gzip.GzipFile(fileobj=io.BytesIO(payload)) as file:
        yield from iter(partial(file.read, PIECE), b"")


def _lz4(payload: bytes | memoryview) -> Iterator[bytes]:
    with needs_extra("a topic compressed with lz4", "codecs"):
        import lz4.frame
    with lz4.frame.LZ4FrameFile(io.BytesIO(payload)) as file:
        yield from iter(partial(file.read, PIECE), b"")


def _zstd(payload: bytes | memoryview) -> Iterator[bytes]:
    with zstandard.ZstdDecompressor().stream_reader(io.BytesIO(payload), read_across_frames=True) as file:
        yield from iter(partial(file.read, PIECE), b"")


def _snappy(payload: bytes | memoryview) -> Iterator[bytes]:
    """One block, or as Java's clients frame it, several with their lengths before them."""
    view = memoryview(payload)
    if view[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        yield _snappy_block(view)
        return
    at = _XERIAL_HEADER_BYTES
    while at < len(view):
        start = at + 4
        at = start + int.from_bytes(view[at:start], "big")
        if at > len(view):
            raise EOFError("a block is cut off")
        yield _snappy_block(view[start:at])


def _snappy_block(block: memoryview) -> bytes:
    with needs_extra("a topic compressed with snappy", "codecs"):
        import cramjam
    try:
        if cramjam.snappy.decompress_raw_len(block) > _SNAPPY_TIMES * len(block):
            raise ValueError("a block claims to hold more than it can")
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as damaged:
        raise ValueError(str(damaged)) from None


_CODECS: dict[int, Callable[[bytes | memoryview], Iterator[bytes]]] = {
    0: lambda payload: iter([bytes(payload)]),
    1: _gzip,
    2: _snappy,
    3: _lz4,
    4: _zstd,
}
