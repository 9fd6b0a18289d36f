"""The state of a stream in Redis: packed columns, written by one compare-and-set transaction per checkpoint.

Keys, all under `stream_dp:{<stream>}:` so that a cluster keeps them together:

    fence           which worker may write: a random token of the one that took over last
    closing         the epoch that is about to be closed, and where: the one that took over last has said so
    meta            epoch, round, history, position, columns, number of labels and of bytes of pairs, checkpoint number
    labels          list of labels in the order in which they were first admitted
    pairs           where the privacy unit is the user, which items of which user were admitted: PAIR_BYTES a pair, a
                    list of the bytes that each checkpoint added
    counts          int32 per label, packed
    active:<name>   a column of the counter of the labels that pruning leaves active in a block of rounds; `active:rows`
                    are their numbers
    column:<name>   a column of the counter, likewise: `column:sums:<level>` and `column:noise:<level>` of the binary
                    mechanism are the live node of that level and its cached noise
    key             the noise key, unless it is kept elsewhere
"""

import secrets
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray
from redis import Redis
from redis.client import Pipeline as Transaction
from redis.exceptions import ResponseError, WatchError

from stream_dp.bounding import PAIR_BYTES
from stream_dp.counters.protocol import Column, CounterState
from stream_dp.epoch import Epoch
from stream_dp.histogram import HistogramState
from stream_dp.noise_table import BlockState
from stream_dp.pipeline import Position

FORMAT = 3
_ACTIVE_ROWS = "active:rows"
_LABELS_PER_COMMAND = 10_000
_LARGEST_PIECE = 1 << 24  # bytes of pairs in one element of their list
_DAMAGED = (
    "the state in Redis does not fit together: restore it from its backup, or rebuild it from "
    "the noise key and the events topic with `stream-dp rebuild --replace`"
)


class Fenced(Exception):
    """Another worker has taken the stream over: this one must stop."""


class Superseded(Fenced):
    """It was another worker that took the stream over, and nothing is lost."""


class StateDamaged(Exception):
    """What Redis holds does not fit together; the message says what to do."""


class _ColumnMeta(msgspec.Struct, frozen=True):
    """What makes cells of bytes: `dtype` as numpy names it, `width` values in each of `rows` rows."""

    name: str
    version: int
    dtype: str
    width: int
    rows: int

    @property
    def row_bytes(self) -> int:
        return np.dtype(self.dtype).itemsize * self.width


class _BlockMeta(msgspec.Struct):
    """A block of rounds that has begun, with its active labels: the state of their counter."""

    round: int
    tweaks: dict[int, bytes]
    histories: list[bytes]


class Sharding(msgspec.Struct, frozen=True):
    """Into how many shards the labels of an epoch are divided.

    `frames` is the sequencer's: in each partition of the frames topic, where the frames after its checkpoint begin.
    """

    shards: int
    frames: list[int] = []


class Closing(msgspec.Struct, frozen=True):
    """The epoch of this nonce ends: whoever holds the stream counts nothing at or after `end_offset` under it.

    `end_unknown` and `end_barrier`: see journal.EpochClosed.
    """

    nonce: bytes
    end_offset: int
    end_unknown: bool = False
    end_barrier: int | None = None


class _Format(msgspec.Struct):
    format: int


class _Meta(msgspec.Struct):
    """The small part of a checkpoint; `releases_offset` is where the releases after it begin."""

    format: int
    checkpoint: int
    epoch: Epoch
    round: int
    history: bytes
    labels: int
    pairs: int
    columns: list[_ColumnMeta]
    tweaks: dict[int, bytes]
    block: _BlockMeta | None
    position: Position
    releases_offset: int
    key_check: str
    sharding: Sharding | None = None


@dataclass
class Checkpoint:
    """All that a worker needs to go on exactly where another one stopped.

    `pairs` is what the bound on users' items remembers: bytes that only ever grow (bounding.py).  `sharding` is None
    where one worker does everything.
    """

    epoch: Epoch
    state: HistogramState
    position: Position
    releases_offset: int
    key_check: str
    pairs: bytes | bytearray = b""
    sharding: Sharding | None = None


@dataclass
class _Write:
    """Bytes to write from position `start` of a column on; a write that starts at 0 replaces what was there."""

    name: str
    start: int
    cells: bytes


@dataclass
class PreparedCheckpoint:
    """A checkpoint as bytes: the worker may go on while it is written."""

    meta: _Meta
    packed_meta: bytes
    new_labels: list[bytes]
    new_pairs: bytes
    writes: list[_Write]
    dead_columns: set[str]


class CheckpointStore:
    """The checkpoints of one stream.  One worker at a time may write: the one that took over last."""

    def __init__(self, redis: Redis, stream: str) -> None:
        self._redis = redis
        self._prefix = f"stream_dp:{{{stream}}}:"
        self._token = b""
        self._checkpoint = 0
        self._labels = 0
        self._pairs = 0  # bytes
        self._held: dict[str, _ColumnMeta] = {}  # the columns that Redis holds

    def _key(self, name: str) -> str:
        return self._prefix + name

    def take_over(self) -> None:
        """Fence off every other worker.  A worker that held the stream before may only renew its own hold.

        The token is random: a Redis that was rolled back would give the same number of a counter to two workers.
        """
        if not self._token:
            token = secrets.token_hex(16).encode()
            self._redis.set(self._key("fence"), token)
            self._token = token
        else:
            self._check_fence(self._redis.get(self._key("fence")))

    def _check_fence(self, found: Any) -> None:
        if found is None:
            raise Fenced("Redis has lost its state while this worker ran: it stops; restore Redis")
        if found != self._token:
            raise Superseded("another worker has taken this stream over; this one stops")

    def holds_state(self) -> bool:
        """Whether there is a checkpoint, sound or not."""
        return bool(self._redis.exists(self._key("meta")))

    def load(self) -> Checkpoint | None:
        """The last checkpoint, or None where there has never been one."""
        while True:
            try:
                return self._load()
            except WatchError:  # a worker made a checkpoint meanwhile
                continue

    def _load(self) -> Checkpoint | None:
        with self._redis.pipeline(transaction=True) as transaction:
            transaction.watch(self._key("meta"))
            packed: Any = transaction.get(self._key("meta"))
            if packed is None:
                return None
            meta = _decode_meta(packed)
            transaction.multi()
            transaction.lrange(self._key("labels"), 0, -1)
            transaction.lrange(self._key("pairs"), 0, -1)
            transaction.get(self._key("counts"))
            for column in meta.columns:
                transaction.get(self._key(column.name))
            labels, pieces, counts, *cells = transaction.execute()
        pairs = b"".join(pieces)
        if (len(labels), len(pairs)) != (meta.labels, meta.pairs) or len(pairs) % PAIR_BYTES:
            raise StateDamaged(_DAMAGED)
        found = {
            column.name: Column(column.name.partition(":")[2], column.version, _unpack(packed, column))
            for column, packed in zip(meta.columns, cells, strict=True)
        }
        everyone = [column for name, column in found.items() if name.startswith("column:")]
        state = HistogramState(
            meta.history,
            _decode_labels(labels),
            _unpack(counts, _ColumnMeta("counts", 0, "<i4", 1, meta.labels)),
            CounterState(meta.round, everyone, meta.tweaks),
        )
        if meta.block is not None:
            rows = found.pop(_ACTIVE_ROWS).cells
            active = [column for name, column in found.items() if name.startswith("active:")]
            counter = CounterState(meta.block.round, active, meta.block.tweaks)
            state.block = BlockState(rows, counter, meta.block.histories)
        self._remember(meta)
        return Checkpoint(
            meta.epoch, state, meta.position, meta.releases_offset, meta.key_check, pairs, meta.sharding
        )

    def _remember(self, meta: _Meta) -> None:
        self._checkpoint, self._labels, self._pairs = meta.checkpoint, meta.labels, meta.pairs
        self._held = {column.name: column for column in meta.columns}

    def start_over(self) -> None:
        """Forget the state of a closed epoch; the next checkpoint is the first of another one.  Raises `Fenced`."""
        while True:
            try:
                with self._redis.pipeline(transaction=True) as transaction:
                    transaction.watch(self._key("fence"), self._key("meta"))
                    self._check_fence(transaction.get(self._key("fence")))
                    columns = [
                        name
                        for kind in ("column:*", "active:*")
                        for name in transaction.scan_iter(match=self._key(kind))
                    ]
                    transaction.multi()
                    transaction.delete(
                        *map(self._key, ("closing", "meta", "labels", "pairs", "counts")), *columns
                    )
                    transaction.execute()
                break
            except WatchError:  # another worker's write, or only a lost connection: the next look tells
                continue
        self._checkpoint, self._labels, self._pairs, self._held = 0, 0, 0, {}

    def mark_closing(self, closing: Closing) -> None:
        """Say that an epoch is about to be closed, so that whoever takes over from now on knows.  Raises `Fenced`."""
        while True:
            try:
                with self._redis.pipeline(transaction=True) as transaction:
                    transaction.watch(self._key("fence"))
                    self._check_fence(transaction.get(self._key("fence")))
                    transaction.multi()
                    transaction.set(self._key("closing"), msgspec.msgpack.encode(closing))
                    transaction.execute()
                return
            except WatchError:  # somebody takes over, or only a lost connection: the next look tells
                continue

    def closing(self) -> Closing | None:
        """What `mark_closing` has said last, and `start_over` has not made needless; None if it cannot be read."""
        packed: Any = self._redis.get(self._key("closing"))
        try:
            return msgspec.msgpack.decode(packed or b"", type=Closing)
        except msgspec.DecodeError:
            return None

    def check_hold(self) -> None:
        """Raise `Fenced` if another worker has taken the stream over."""
        self._check_fence(self._redis.get(self._key("fence")))

    def prepare(self, checkpoint: Checkpoint) -> PreparedCheckpoint:
        """Copy what has changed since the last checkpoint.  Call `commit` with it before preparing another."""
        state = checkpoint.state
        columns = dict(_columns(state))
        held = [_describe(name, column) for name, column in columns.items()]
        writes = [_Write("counts", 0, _pack(state.counts))]
        for column in held:
            old = self._held.get(column.name)
            start = old.rows if old is not None and old.version == column.version else 0
            writes.append(
                _Write(column.name, start * column.row_bytes, _pack(columns[column.name].cells[start:]))
            )
        block = state.block
        meta = _Meta(
            FORMAT,
            self._checkpoint + 1,
            checkpoint.epoch,
            state.counter.round,
            state.history,
            len(state.labels),
            len(checkpoint.pairs),
            held,
            state.counter.tweaks,
            _BlockMeta(block.counter.round, block.counter.tweaks, block.histories) if block else None,
            checkpoint.position,
            checkpoint.releases_offset,
            checkpoint.key_check,
            checkpoint.sharding,
        )
        new_labels = [label.encode() for label in state.labels[self._labels :]]
        new_pairs = bytes(checkpoint.pairs[self._pairs :])
        return PreparedCheckpoint(
            meta, msgspec.msgpack.encode(meta), new_labels, new_pairs, writes, set(self._held) - set(columns)
        )

    def commit(self, prepared: PreparedCheckpoint) -> None:
        """Write it in one transaction, or nothing of it.

        Raises `Fenced` when another worker has taken over or has written since.  A commit whose answer was
        lost may be repeated.
        """
        while True:
            try:
                self._commit_unless_changed(prepared)
                break
            except WatchError:  # another worker's write, or only a lost connection: the next look tells
                continue
        self._remember(prepared.meta)

    def _commit_unless_changed(self, prepared: PreparedCheckpoint) -> None:
        with self._redis.pipeline(transaction=True) as transaction:
            transaction.watch(self._key("fence"), self._key("meta"))
            self._check_fence(transaction.get(self._key("fence")))
            packed: Any = transaction.get(self._key("meta"))
            if packed == prepared.packed_meta:
                return
            if (_decode_meta(packed).checkpoint if packed else 0) != prepared.meta.checkpoint - 1:
                raise Fenced("Redis holds a checkpoint that this worker did not write; it stops")
            transaction.multi()
            self._write(transaction, prepared)
            try:
                transaction.execute()
            except ResponseError as error:  # the client's text quotes the command, and so labels and noise
                answer = str(error).rpartition(" of pipeline caused error: ")[2]
                raise type(error)(answer) from None

    def _write(self, transaction: Transaction, prepared: PreparedCheckpoint) -> None:
        for start in range(0, len(prepared.new_labels), _LABELS_PER_COMMAND):
            transaction.rpush(self._key("labels"), *prepared.new_labels[start : start + _LABELS_PER_COMMAND])
        for start in range(0, len(prepared.new_pairs), _LARGEST_PIECE):
            transaction.rpush(self._key("pairs"), prepared.new_pairs[start : start + _LARGEST_PIECE])
        for write in prepared.writes:
            if write.start:
                transaction.setrange(self._key(write.name), write.start, write.cells)
            else:
                transaction.set(self._key(write.name), write.cells)
        if prepared.dead_columns:
            transaction.delete(*(self._key(name) for name in prepared.dead_columns))
        transaction.set(self._key("meta"), prepared.packed_meta)


def _decode_labels(labels: list[bytes]) -> list[str]:
    try:
        return [label.decode() for label in labels]
    except UnicodeDecodeError:
        raise StateDamaged(_DAMAGED) from None


def _decode_meta(packed: bytes) -> _Meta:
    try:
        written = msgspec.msgpack.decode(packed, type=_Format).format
        if written != FORMAT:
            raise StateDamaged(f"Redis holds state of format {written}, this program reads format {FORMAT}")
        return msgspec.msgpack.decode(packed, type=_Meta)
    except (msgspec.DecodeError, UnicodeError):
        raise StateDamaged(_DAMAGED) from None


def _columns(state: HistogramState) -> Iterator[tuple[str, Column]]:
    """The columns of a state under their names in Redis."""
    for column in state.counter.columns:
        yield f"column:{column.name}", column
    if state.block is not None:
        start = state.counter.round  # another block has other active labels
        for column in state.block.counter.columns:
            yield f"active:{column.name}", replace(column, version=start << 32 | column.version)
        yield _ACTIVE_ROWS, Column("rows", start, state.block.rows)


def _describe(name: str, column: Column) -> _ColumnMeta:
    cells = column.cells
    width = cells.shape[1] if cells.ndim == 2 else 1
    return _ColumnMeta(name, column.version, cells.dtype.newbyteorder("<").str, width, len(cells))


def _pack(cells: NDArray[Any]) -> bytes:
    return cells.astype(cells.dtype.newbyteorder("<"), copy=False).tobytes()


def _unpack(packed: bytes | None, column: _ColumnMeta) -> NDArray[Any]:
    if len(packed or b"") != column.rows * column.row_bytes:
        raise StateDamaged(_DAMAGED)
    cells = np.frombuffer(packed or b"", column.dtype).astype(np.dtype(column.dtype).newbyteorder("="))
    return cells.reshape(column.rows, column.width) if column.width > 1 else cells
