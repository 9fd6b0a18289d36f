"""The counts of labels that are not shown, in files that are written once and never changed.  PRIVATE.

A file holds runs of labels, one for each of its buckets.  A label's bucket is the first bits of its keyed identity, and
a run is in the order of identities.  So what is known of the labels of a bucket is the sum of its runs in all files,
and each bucket can be added up by another process.

Of each label a run has its identity, its count and its text: 16 bytes, a number that compresses to less than one, and
the text.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from hmac import compare_digest
from itertools import pairwise
from pathlib import Path
from struct import Struct
from struct import error as StructError
from tempfile import NamedTemporaryFile

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from stream_dp.errors import Refused
from stream_dp.loops.packing import packed
from stream_dp.privacy.keyed_noise import KeyedNoise, subkey

BUCKET_BITS = 6
BUCKETS = 1 << BUCKET_BITS
"""Labels are dealt to so many buckets; at a test each of them is a task."""

_MAGIC = b"stream_dp labels 1\n"
_TAG_BYTES = 16
_ENTRY = Struct("<IQQQQ16s")  # bucket, where its run begins, bytes there, bytes unpacked, labels, tag
_COUNT = Struct("<I")
_CODEC = "zstd"
_INDEX, _WHOLE = -1, -2  # what is sealed beside blocks


class LabelsDamaged(Refused):
    """A file of the engine is not as it was written; the message says what to do."""

    @classmethod
    def of(cls, folder: Path, name: str) -> "LabelsDamaged":
        """What to say about the file `name`."""
        return cls(
            f"the file {folder / name} is missing or was changed: stop the engine, remove the folder {folder}, and "
            "start it again; it counts the epoch from its beginning, and gives the same"
        )


@dataclass(frozen=True)
class LabelRun:
    """Labels in the order of their identities.

    `ids` is uint64 of shape (labels, 2), `counts` int32 of shape (labels,).  The UTF-8 of the labels stands one after
    the other in `text`, uint8, and ends at `ends`, int64.
    """

    ids: NDArray[np.uint64]
    counts: NDArray[np.int32]
    text: NDArray[np.uint8]
    ends: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.counts)

    @classmethod
    def of(cls, counts: Mapping[str, int], noise: KeyedNoise) -> "LabelRun":
        """From counts by label."""
        texts = [label.encode() for label in counts]
        text, ends = packed(texts)
        ids = noise.packed_label_ids(text, ends) if texts else np.empty((0, 2), np.uint64)
        run = cls(ids, np.fromiter(counts.values(), np.int32, len(texts)), text, ends)
        return run.take(_by_id(ids))

    def take(self, rows: NDArray[np.int64]) -> "LabelRun":
        """The labels in `rows`, in that order."""
        offsets = np.concatenate([[0], self.ends]).astype(np.int64)
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(self.text)]
        texts = pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(self), buffers).take(pa.array(rows))
        _, borders, packed = texts.buffers()
        ends = np.frombuffer(borders, np.int64, len(rows) + 1)[1:]
        size = int(ends[-1]) if len(rows) else 0
        text = np.frombuffer(packed, np.uint8, size) if size else EMPTY.text
        return LabelRun(self.ids[rows], self.counts[rows], text, ends)

    def labels(self) -> list[str]:
        """Their text."""
        whole = self.text.tobytes()
        return [whole[begin:end].decode() for begin, end in pairwise([0, *self.ends.tolist()])]

    @classmethod
    def joined(cls, runs: Sequence["LabelRun"]) -> "LabelRun":
        """The sum of several: each label once."""
        runs = [run for run in runs if len(run)]
        if not runs:
            return EMPTY
        if len(runs) == 1:
            return runs[0]
        sizes = np.cumsum([0, *(len(run.text) for run in runs[:-1])])
        whole = cls(
            np.concatenate([run.ids for run in runs]),
            np.concatenate([run.counts for run in runs]),
            np.concatenate([run.text for run in runs]),
            np.concatenate([run.ends + size for run, size in zip(runs, sizes.tolist(), strict=True)]),
        )
        order = _by_id(whole.ids)
        ids = whole.ids[order]
        firsts = np.flatnonzero(np.concatenate([[True], np.any(ids[1:] != ids[:-1], axis=1)]))
        sums = np.add.reduceat(whole.counts[order], firsts, dtype=np.int64)
        return replace(whole.take(order[firsts]), counts=sums.astype(np.int32))


EMPTY = LabelRun(
    np.empty((0, 2), np.uint64), np.empty(0, np.int32), np.empty(0, np.uint8), np.empty(0, np.int64)
)


def _by_id(ids: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Their order.  What is joined are ascending runs, which a stable sort merges."""
    order = np.argsort(ids[:, 0], kind="stable")
    high, low = ids[order].T
    if np.any((high[1:] == high[:-1]) & (low[1:] < low[:-1])):
        return np.lexsort((ids[:, 1], ids[:, 0]))
    return order


def in_buckets(run: LabelRun) -> Iterator[tuple[int, LabelRun]]:
    """The labels of each bucket that has any."""
    buckets = (run.ids[:, 0] >> np.uint64(64 - BUCKET_BITS)).astype(np.int64)
    borders = buckets.searchsorted(np.arange(BUCKETS + 1)).tolist()
    for bucket, (begin, end) in enumerate(pairwise(borders)):
        if end > begin:
            yield bucket, run.take(np.arange(begin, end))


class LabelFiles:
    """The files of labels in one folder.  They are sealed with a key, so that no changed byte is believed."""

    def __init__(self, folder: Path, key: bytes) -> None:
        self._folder = folder
        self._keyed = blake2b(key=subkey(key, b"labels that are not shown"), digest_size=_TAG_BYTES)

    def write(self, name: str, runs: Iterable[tuple[int, LabelRun]]) -> None:
        """Write the runs of buckets as the file `name`, which is there whole or not at all."""
        self.write_blocks(name, ((bucket, _packed(run), len(run)) for bucket, run in runs))

    def write_blocks(self, name: str, contents: Iterable[tuple[int, bytes, int]]) -> None:
        """Write a file of blocks: number, content, and how many things are in it."""
        entries, blocks, at = list[bytes](), list[bytes](), 0
        for number, plain, size in contents:
            block = pa.compress(plain, _CODEC, asbytes=True)
            tag = self._tag(name, number, block)
            entries.append(_ENTRY.pack(number, at, len(block), len(plain), size, tag))
            blocks.append(block)
            at += len(block)
        index = _COUNT.pack(len(entries)) + b"".join(entries)
        write_whole(self._folder / name, b"".join((_MAGIC, self._tag(name, _INDEX, index), index, *blocks)))

    def read(self, name: str, bucket: int) -> LabelRun:
        """The run of a bucket.  Raises `LabelsDamaged`."""
        plain, labels = self.read_block(name, bucket)
        return _unpacked(plain, labels) if labels else EMPTY

    def read_block(self, name: str, wanted: int) -> tuple[bytes, int]:
        """A block, empty if the file has none of that number, and how much is in it.  Raises `LabelsDamaged`."""
        try:
            with (self._folder / name).open("rb") as file:
                magic, tag, count = file.read(len(_MAGIC)), file.read(_TAG_BYTES), file.read(_COUNT.size)
                entries = file.read(_COUNT.unpack(count)[0] * _ENTRY.size)
                if magic != _MAGIC or not compare_digest(tag, self._tag(name, _INDEX, count + entries)):
                    raise LabelsDamaged.of(self._folder, name)
                begin = file.tell()
                for number, at, stored, plain, size, sealed in _ENTRY.iter_unpack(entries):
                    if number == wanted:
                        file.seek(begin + at)
                        block = file.read(stored)
                        if not compare_digest(sealed, self._tag(name, number, block)):
                            raise LabelsDamaged.of(self._folder, name)
                        return pa.decompress(block, plain, _CODEC, asbytes=True), size
        except (OSError, StructError, ValueError, pa.ArrowException):
            raise LabelsDamaged.of(self._folder, name) from None
        return b"", 0

    def joined(self, names: Sequence[str], bucket: int) -> LabelRun:
        """All that these files have of a bucket."""
        return LabelRun.joined([self.read(name, bucket) for name in names])

    def _tag(self, name: str, bucket: int, block: bytes) -> bytes:
        keyed = self._keyed.copy()
        keyed.update(b"%s %d " % (name.encode(), bucket) + block)
        return keyed.digest()

    def write_texts(self, name: str, labels: Sequence[str]) -> None:
        """Write labels in their order, without counts."""
        plain = msgspec.msgpack.encode(labels)
        self.write_sealed(name, _COUNT.pack(len(plain)) + pa.compress(plain, _CODEC, asbytes=True))

    def texts(self, name: str) -> list[str]:
        """What `write_texts` wrote.  Raises `LabelsDamaged`."""
        content = self.read_sealed(name)
        if content is None:
            raise LabelsDamaged.of(self._folder, name)
        (size,) = _COUNT.unpack(content[: _COUNT.size])
        plain = pa.decompress(content[_COUNT.size :], size, _CODEC, asbytes=True)
        return msgspec.msgpack.decode(plain, type=list[str])

    def write_sealed(self, name: str, content: bytes) -> None:
        """Write a file that is read as a whole."""
        write_whole(self._folder / name, self._tag(name, _WHOLE, content) + content)

    def read_sealed(self, name: str) -> bytes | None:
        """What `write_sealed` wrote, None if there is no such file.  Raises `LabelsDamaged`."""
        try:
            written = (self._folder / name).read_bytes()
        except FileNotFoundError:
            return None
        tag, content = written[:_TAG_BYTES], written[_TAG_BYTES:]
        if not compare_digest(tag, self._tag(name, _WHOLE, content)):
            raise LabelsDamaged.of(self._folder, name)
        return content


def write_whole(path: Path, content: bytes) -> None:
    """Write a file that nobody ever sees in part."""
    with NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
        try:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            Path(file.name).replace(path)
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise


def _packed(run: LabelRun) -> bytes:
    lengths = np.diff(run.ends, prepend=0).astype("<i4")
    columns: Sequence[NDArray[np.generic]] = (
        run.ids.astype("<u8"),
        run.counts.astype("<i4"),
        lengths,
        run.text,
    )
    return b"".join(column.tobytes() for column in columns)


def _unpacked(plain: bytes, labels: int) -> LabelRun:
    ids = np.frombuffer(plain, "<u8", 2 * labels).reshape(-1, 2)
    counts = np.frombuffer(plain, "<i4", labels, 16 * labels)
    lengths = np.frombuffer(plain, "<i4", labels, 20 * labels)
    text = np.frombuffer(plain, np.uint8, offset=24 * labels)
    return LabelRun(ids, counts, text, np.cumsum(lengths, dtype=np.int64))
