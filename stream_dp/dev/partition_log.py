"""One partition of the embedded broker (trying out and tests): raw record batches in one append-only file.

What is acknowledged has been handed to the operating system, so it survives SIGKILL of the broker.
As with Apache Kafka's defaults it is not forced to disk, so a power cut may cost the last seconds.
"""

import asyncio
import mmap
import os
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from pathlib import Path

from kafka.record.default_records import DefaultRecordBatch

from stream_dp.dev.producer_history import ProducerHistory
from stream_dp.dev.record_batch import (
    HEADER_BYTES,
    PREFIX_BYTES,
    BatchHeader,
    is_intact,
    read_header,
    stored_prefix,
)
from stream_dp.kafka.record_batches import records_of

_INDEX_STEP = 4096  # bytes of log between two index entries
_SCAN_CHUNK = 64 * 1024


class LogDamaged(Exception):
    """A batch in the middle of a log is not what was written; nothing is cut, for good records follow it."""


class PartitionLog:
    """An append-only log of batches; `size` in bytes, `end_offset` the next record's offset.

    Raises LogDamaged when opened on a file with damage in its middle.

    The index has one entry for about every 4 kB: the offset and file position of a batch,
    and the greatest timestamp of all batches before it.
    """

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self.size = 0
        self.end_offset = 0
        self.closed = False
        self.arrivals: set[asyncio.Event] = set()
        self._producers = ProducerHistory()
        self._max_timestamp = -1
        self._offsets = array("q")
        self._positions = array("q")
        self._times_before = array("q")
        self._recover(path)

    def append(self, header: BatchHeader, batch: memoryview) -> int:
        """Store a checked batch and return its base offset; a batch stored before is not stored again.

        Raises BatchRefused for a producer's sequence error, and OSError if the disk fails: the log is unchanged.
        """
        stored_at = self._producers.stored_before(header)
        if stored_at is not None:
            return stored_at
        base_offset = self.end_offset
        self._write(stored_prefix(base_offset, header.size), batch[PREFIX_BYTES:])
        self._account(header, base_offset)
        for arrival in self.arrivals:
            arrival.set()
        return base_offset

    def position(self, offset: int) -> int:
        """Where the batch holding `offset` (0 .. end_offset) starts; the end of the file for `end_offset`."""
        if offset >= self.end_offset:
            return self.size
        start = self._positions[bisect_right(self._offsets, offset) - 1]
        return next(position for position, header in self._batches(start) if offset < header.next_offset)

    def read(self, position: int, limit: int, whole_first: bool) -> bytes:
        """Up to `limit` bytes from the start of a batch; the last batch may be cut, which consumers expect.

        The first batch is never cut: if it alone is longer than `limit`, it comes whole with `whole_first`,
        otherwise nothing comes.
        """
        data = os.pread(self._file, min(max(limit, HEADER_BYTES), self.size - position), position)
        header = read_header(data)
        if header is None or len(data) >= header.size:
            return data
        return os.pread(self._file, header.size, position) if whole_first else b""

    def offset_for_time(self, timestamp: int) -> tuple[int, int]:
        """(offset, timestamp) of the first record at or after `timestamp` (ms); (-1, -1) if there is none."""
        if timestamp > self._max_timestamp:
            return -1, -1
        start = self._positions[max(bisect_left(self._times_before, timestamp) - 1, 0)]
        for position, header in self._batches(start):
            if header.max_timestamp >= timestamp:
                return self._record_at_time(position, header, timestamp)
        return -1, -1

    def close(self) -> None:
        """Release the file; waiting readers wake up and see `closed`."""
        self.closed = True
        os.close(self._file)
        for arrival in self.arrivals:
            arrival.set()

    def _recover(self, path: Path) -> None:
        """Read the whole file, rebuild the index and the producers, and cut off a torn end."""
        length = os.fstat(self._file).st_size
        if length:
            with (
                mmap.mmap(self._file, length, access=mmap.ACCESS_READ) as content,
                memoryview(content) as data,
            ):
                while (header := read_header(data, self.size)) is not None:
                    if header.base_offset != self.end_offset or not is_intact(data, self.size, header):
                        _check_torn(path, data, self.size, header)
                        break
                    self._account(header, header.base_offset)
        if self.size < length:
            print(f"{path}: {length - self.size} bytes of a torn write cut off", file=sys.stderr, flush=True)
            os.ftruncate(self._file, self.size)

    def _write(self, prefix: bytes, rest: memoryview) -> None:
        try:
            written = os.pwritev(self._file, [prefix, rest], self.size)
            if written < len(prefix) + len(rest):
                whole = memoryview(prefix + bytes(rest))
                while written < len(whole):
                    written += os.pwrite(self._file, whole[written:], self.size + written)
        except OSError:
            os.ftruncate(self._file, self.size)
            raise

    def _account(self, header: BatchHeader, base_offset: int) -> None:
        """Take a batch that is now at the end of the file into the index, the producers and the end marks."""
        if not self._positions or self.size - self._positions[-1] >= _INDEX_STEP:
            self._offsets.append(base_offset)
            self._positions.append(self.size)
            self._times_before.append(self._max_timestamp)
        self._producers.remember(header, base_offset)
        self._max_timestamp = max(self._max_timestamp, header.max_timestamp)
        self.size += header.size
        self.end_offset = base_offset + header.last_offset_delta + 1

    def _batches(self, position: int) -> Iterator[tuple[int, BatchHeader]]:
        """(position, header) of every batch from the one that starts at `position` on."""
        chunk, chunk_start = b"", position
        while position < self.size:
            header = (
                read_header(chunk, position - chunk_start) if position - chunk_start < len(chunk) else None
            )
            if header is None:
                chunk, chunk_start = os.pread(self._file, _SCAN_CHUNK, position), position
                header = read_header(chunk)
                if header is None:
                    return
            yield position, header
            position += header.size

    def _record_at_time(self, position: int, header: BatchHeader, timestamp: int) -> tuple[int, int]:
        """The record inside one batch; a batch that cannot be decompressed here counts as one record."""
        try:
            for record in records_of(DefaultRecordBatch, os.pread(self._file, header.size, position)):
                if record.timestamp >= timestamp:
                    return record.offset, record.timestamp
        except Exception:  # a codec that is not installed, or records the producer encoded badly
            return header.base_offset, header.max_timestamp
        return header.base_offset, header.max_timestamp


def _check_torn(path: Path, data: memoryview, start: int, bad: BatchHeader) -> None:
    """Raise LogDamaged if a good batch follows the bad one: a torn write is the last thing in a file."""
    following = read_header(data, start + bad.size) if bad.size > 0 else None
    if following is not None and is_intact(data, start + bad.size, following):
        raise LogDamaged(
            f"{path} is damaged at byte {start}, before good records: restore or delete the topic"
        )
