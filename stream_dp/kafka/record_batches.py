"""How the Kafka clients read fetched batches: no batch takes all memory, and no record's shape stops a reader.

Both clients would decompress a batch as a whole, and give up on it where the name of a header is no UTF-8.  Here they
still read what they can read within `AT_ONCE` bytes.  The records of any other batch are unpacked one by one, in
pieces, and are the same whichever way they are read: of a key or a value, `cut` leaves one byte beyond its limit.
"""

import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from operator import attrgetter
from typing import Any, NamedTuple

from stream_dp.errors import Refused
from stream_dp.events.record import LARGEST_VALUE, Headers, Record, cut, kept
from stream_dp.events.records import Records
from stream_dp.kafka.inflation import DAMAGE, pieces

AT_ONCE = 16 << 20
"""Most bytes that a batch is decompressed to as a whole."""

_HEADER = struct.Struct(">qiibIhiqqqhii")
_LENGTH = struct.Struct(">8xi")
_BEFORE_LENGTH_COUNTS = 12
_MAGIC_PLACE, _ATTRIBUTES_PLACE = 16, 21
_CODEC, _BROKERS_TIME, _CONTROL = 0x07, 0x08, 0x20


_COLUMNS = attrgetter("offset", "timestamp", "key", "value")

_MOST_OF_HEADERS = LARGEST_VALUE + 10
"""Those that take more, lengths included, are more than `kept` keeps."""


class UnreadableBatch(Refused):
    """A batch in Kafka holds no records that anybody could read; the message says where it is."""


class Header(NamedTuple):
    """The header of a record batch of format 2; times are in milliseconds."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    checksum: int
    attributes: int
    last_offset_delta: int
    first_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records: int


def name_producer(
    batch: bytearray, producer: tuple[int, int, int], crc32c: Callable[[memoryview], int]
) -> None:
    """Write into a complete batch who sends it: the producer's number and epoch, and the number of its first record."""
    header = Header._make(_HEADER.unpack_from(batch))
    named = header._replace(
        **dict(zip(("producer_id", "producer_epoch", "base_sequence"), producer, strict=True))
    )
    _HEADER.pack_into(batch, 0, *named)
    _HEADER.pack_into(batch, 0, *named._replace(checksum=crc32c(memoryview(batch)[_ATTRIBUTES_PLACE:])))


@dataclass(frozen=True, slots=True)
class UnpackedRecord:
    """A record with what both clients ask of theirs."""

    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    size_in_bytes: int
    headers: Headers = ()
    checksum: None = None

    def validate_crc(self) -> bool:
        """The checksum is the batch's."""
        return True


class Batches:
    """Stands where a client has its `MemoryRecords`: the batches in the bytes that one fetch gave for a partition."""

    def __init__(self, reader: Callable[[bytes], Any], data: bytes) -> None:
        self._batches = reader(data)
        self._data = memoryview(data)
        self._at = 0
        self.columns_of: int | None = None
        """Of which partition it is, where each batch is to give all of its records as one: see `WholeBatch`."""
        self.headers = False
        """Whether these are to hold headers."""

    def has_next(self) -> bool:
        return bool(self._batches.has_next())

    def size_in_bytes(self) -> int:
        return len(self._data)

    def next_batch(self) -> Any:
        """The next one as the client knows it, None after the last; of format 2, with records that come as here."""
        batch = self._batches.next_batch()
        if batch is None:
            return None
        data = self._data[self._at :]
        data = data[: _BEFORE_LENGTH_COUNTS + _LENGTH.unpack_from(data)[0]]
        self._at += len(data)
        if data[_MAGIC_PLACE] < 2 or data[_ATTRIBUTES_PLACE + 1] & _CONTROL:
            return batch
        return _Batch(batch, data, self.columns_of, self.headers)


def read_within_bounds(fetcher: Any) -> None:
    """Let a client read through `Batches`, from the import of its module `fetcher` on.

    Neither client has a setting for it.
    """
    fetcher.MemoryRecords = partial(Batches, fetcher.MemoryRecords)


@dataclass(frozen=True, slots=True)
class WholeBatch:
    """All records of a batch in the place of one, as a client of aiokafka asks for it: `offset` is that of the last."""

    offset: int
    timestamp: int
    value: Records
    timestamp_type: int = 0
    key: None = None
    headers: tuple[()] = ()
    checksum: None = None


class _Batch:
    """A client's batch, but for its records."""

    def __init__(self, batch: Any, data: memoryview, columns_of: int | None, headers: bool) -> None:
        self._batch, self._data = batch, data
        self._columns_of, self._headers = columns_of, headers

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batch, name)

    def __iter__(self) -> Iterator[Any]:
        if self._columns_of is None:
            return records_of(type(self._batch), self._data)
        return whole_batches(type(self._batch), self._data, self._columns_of, self._headers)


def whole_batches(
    kind: Callable[[bytes], Any], data: memoryview, partition: int, headers: bool
) -> Iterator[WholeBatch]:
    """What `records_of` gives, as one or, where the batch is broken or too large for that, one by one."""
    found: Records | None = None
    if not headers:
        with suppress(
            Exception
        ):  # the clients raise many things over a batch that is broken: it is read again below
            found = _in_columns(kind, data, partition)
    if found is not None:
        yield WholeBatch(found.offsets[-1], found.timestamps[-1], found)
        return
    for record in records_of(kind, data):
        alone = Record(
            record.offset,
            record.timestamp,
            cut(record.key),
            cut(record.value),
            partition,
            kept(record.headers) if headers else (),
        )
        yield WholeBatch(record.offset, record.timestamp, Records.of([alone]))


def _in_columns(kind: Callable[[bytes], Any], data: memoryview, partition: int) -> Records | None:
    """The records of a batch in columns; None for one that is too large, has none, or whose offsets are not its own."""
    header = Header._make(_HEADER.unpack_from(data))
    whole = _as_a_whole(header.attributes & _CODEC, data[_HEADER.size :])
    if whole is None or not header.records:
        return None
    plain = header._replace(attributes=header.attributes & ~_CODEC)
    rows = map(_COLUMNS, kind(_HEADER.pack(*plain) + whole))
    offsets, timestamps, keys, values = zip(*rows, strict=True)
    if len(whole) > LARGEST_VALUE:
        keys, values = tuple(map(cut, keys)), tuple(map(cut, values))
    found = Records(partition, offsets, timestamps, keys, values)
    is_in_place = found.ascends_from(header.base_offset)
    return found if is_in_place and offsets[-1] <= header.base_offset + header.last_offset_delta else None


def records_of(kind: Callable[[bytes], Any], data: bytes | memoryview) -> Iterator[Any]:
    """The records of the batch in `data`, by the client's own class `kind` or one by one.  Raises `UnreadableBatch`.

    Raises what `kind` raises for a codec that is not known.
    """
    header, payload = Header._make(_HEADER.unpack_from(data)), memoryview(data)[_HEADER.size :]
    codec = header.attributes & _CODEC
    given = 0
    try:
        whole = _as_a_whole(codec, payload)
        if whole is not None:
            plain = header._replace(attributes=header.attributes & ~_CODEC)
            for record in _in_place(header, kind(_HEADER.pack(*plain) + whole)):
                yield record
                given += 1
            return
    except KeyError:
        yield from kind(bytes(data))
        return
    except Exception:  # the clients raise many things over a batch that is broken: it is read again below
        pass
    try:
        yield from islice(_in_place(header, _one_by_one(header, pieces(codec, payload))), given, None)
    except DAMAGE as error:
        raise UnreadableBatch(
            f"Kafka holds a batch of records from offset {header.base_offset} on that cannot be read "
            f"({type(error).__name__}): whoever wrote it has broken it; restore the topic, or open a new epoch after it"
        ) from None


def _in_place(header: Header, records: Iterable[Any]) -> Iterator[Any]:
    """The records, as long as their offsets go up and are the batch's.  Raises ValueError."""
    least, last = header.base_offset, header.base_offset + header.last_offset_delta
    for record in records:
        if not least <= record.offset <= last:
            raise ValueError("a record has an offset of another one")
        least = record.offset + 1
        yield record


def _as_a_whole(codec: int, payload: memoryview) -> bytes | None:
    """The records' bytes; None for more than `AT_ONCE`."""
    found, size = [], 0
    for piece in pieces(codec, payload):
        size += len(piece)
        if size > AT_ONCE:
            return None
        found.append(piece)
    return b"".join(found)


def _one_by_one(header: Header, parts: Iterator[bytes]) -> Iterator[UnpackedRecord]:
    """The records in bytes that come in `parts`."""
    source = _Source(parts)
    brokers_time = bool(header.attributes & _BROKERS_TIME)
    for _ in range(header.records):
        size = source.number()
        end = source.position + size
        source.number()  # attributes, of which there are none, as both clients read them
        timestamp = header.first_timestamp + source.number()
        offset = header.base_offset + source.number()
        key, value = source.part(end), source.part(end)
        timestamp = header.max_timestamp if brokers_time else timestamp
        headers = _headers(source.take(end - source.position, _MOST_OF_HEADERS + 1))
        yield UnpackedRecord(offset, timestamp, int(brokers_time), key, value, size, headers)


def _headers(block: bytes) -> Headers:
    """What stands behind a record's value; none where it is too large or broken, which concerns this record alone.

    A name that is no UTF-8 gets marks in place of what cannot be read.
    """
    source, found = _Source(iter((block,))), []
    try:
        for _ in range(source.number() if len(block) <= _MOST_OF_HEADERS else 0):
            name, value = source.part(len(block)), source.part(len(block))
            if name is None:
                return ()
            found.append((name.decode(errors="replace"), value))
    except (EOFError, ValueError):
        return ()
    return tuple(found) if source.position == len(block) else ()


class _Source:
    """Bytes that come in pieces, taken from front to back: `position` is how many were.

    Raises EOFError and ValueError.
    """

    def __init__(self, parts: Iterator[bytes]) -> None:
        self._parts = parts
        self._piece, self._at = b"", 0
        self.position = 0

    def number(self) -> int:
        """A signed integer of variable length."""
        value = shift = 0
        while shift < 70:
            byte = self.take(1, 1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)
            shift += 7
        raise ValueError("a number is too long")

    def part(self, end: int) -> bytes | None:
        """A key or a value, as far as it is kept; it must not go beyond `end`."""
        size = self.number()
        if size > end - self.position:
            raise ValueError("a part is larger than its record")
        return None if size < 0 else self.take(size, LARGEST_VALUE + 1)

    def take(self, count: int, most: int) -> bytes:
        """The next `count` bytes, of which the first `most` are kept."""
        if count < 0:
            raise ValueError("a part is larger than its record")
        self.position += count
        kept = self._piece[self._at : self._at + min(count, most)]
        while count > len(self._piece) - self._at:
            count -= len(self._piece) - self._at
            piece = next(self._parts, None)
            if piece is None:
                raise EOFError("the batch ends in a record")
            self._piece, self._at = piece, 0
            kept += piece[: min(count, most - len(kept))]
        self._at += count
        return kept
