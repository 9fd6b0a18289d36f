"""The state of a stream in Redis: packed columns, written by one compare-and-set transaction per checkpoint.

Keys, all under `stream_dp:{<stream>}:` so that a cluster keeps them together:

    fence           which worker may write: a random token of the one that took over last
    meta            hash: epoch, round, history, position, live nodes, number of labels, checkpoint number
    labels          list of labels in the order in which they were first admitted
    counts          int32 per label, packed
    sums:<level>    the live node of that level: int32 per label, packed
    noise:<level>   its cached noise, likewise
    key             the noise key, unless it is kept elsewhere
"""

import secrets
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray
from redis import Redis
from redis.client import Pipeline as Transaction
from redis.exceptions import ResponseError, WatchError

from stream_dp.calibration import LARGEST_HORIZON
from stream_dp.counters.binary import Node, level_of, levels
from stream_dp.epoch import Epoch
from stream_dp.histogram import HistogramState
from stream_dp.pipeline import Position

FORMAT = 1
_CELL = np.dtype("<i4")
_LABELS_PER_COMMAND = 10_000
_DAMAGED = (
    "the state in Redis does not fit together: restore it from its backup, or rebuild it from "
    "the noise key and the events topic with `stream-dp rebuild --replace`"
)


class Fenced(Exception):
    """Another worker has taken the stream over: this one must stop."""


class StateDamaged(Exception):
    """What Redis holds does not fit together; the message says what to do."""


class _NodeMeta(msgspec.Struct):
    round: int
    tweak: bytes


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
    nodes: list[_NodeMeta]
    position: Position
    releases_offset: int
    key_check: str


@dataclass
class Checkpoint:
    """All that a worker needs to go on exactly where another one stopped."""

    epoch: Epoch
    state: HistogramState
    position: Position
    releases_offset: int
    key_check: str


@dataclass
class _Column:
    """Cells to write from label number `start` on; a column that starts at 0 replaces what was there."""

    name: str
    start: int
    cells: bytes


@dataclass
class PreparedCheckpoint:
    """A checkpoint as bytes: the worker may go on while it is written."""

    meta: _Meta
    new_labels: list[bytes]
    columns: list[_Column]
    live_levels: set[int]
    dead_levels: set[int]


class CheckpointStore:
    """The checkpoints of one stream.  One worker at a time may write: the one that took over last."""

    def __init__(self, redis: Redis, stream: str) -> None:
        self._redis = redis
        self._prefix = f"stream_dp:{{{stream}}}:"
        self._token = b""
        self._checkpoint = 0
        self._labels = 0
        self._nodes: dict[int, int] = {}  # level -> round of the node whose columns Redis holds

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
            raise Fenced("another worker has taken this stream over; this one stops")

    def holds_state(self) -> bool:
        """Whether there is a checkpoint, sound or not."""
        return bool(self._redis.exists(self._key("meta")))

    def load(self) -> Checkpoint | None:
        """The last checkpoint, or None where there has never been one."""
        with self._redis.pipeline(transaction=True) as transaction:
            transaction.get(self._key("meta"))
            transaction.lrange(self._key("labels"), 0, -1)
            transaction.get(self._key("counts"))
            for level in range(levels(LARGEST_HORIZON)):
                transaction.get(self._key(f"sums:{level}"))
                transaction.get(self._key(f"noise:{level}"))
            packed_meta, labels, counts, *columns = transaction.execute()
        if packed_meta is None:
            return None
        meta = _decode_meta(packed_meta)
        if len(labels) != meta.labels:
            raise StateDamaged(_DAMAGED)
        nodes = []
        for node in meta.nodes:
            place = 2 * level_of(node.round)
            sums, noise = (_unpack(column, meta.labels) for column in columns[place : place + 2])
            nodes.append(Node(node.round, node.tweak, sums, noise))
        texts = _decode_labels(labels)
        state = HistogramState(meta.round, meta.history, texts, _unpack(counts, len(texts)), nodes)
        self._checkpoint, self._labels = meta.checkpoint, meta.labels
        self._nodes = {node.level: node.round for node in nodes}
        return Checkpoint(meta.epoch, state, meta.position, meta.releases_offset, meta.key_check)

    def start_over(self) -> None:
        """Forget the state of a closed epoch; the next checkpoint is the first of another one.  Raises `Fenced`."""
        columns = [
            f"{name}:{level}" for level in range(levels(LARGEST_HORIZON)) for name in ("sums", "noise")
        ]
        names = [self._key(name) for name in ("meta", "labels", "counts", *columns)]
        while True:
            try:
                with self._redis.pipeline(transaction=True) as transaction:
                    transaction.watch(self._key("fence"))
                    self._check_fence(transaction.get(self._key("fence")))
                    transaction.multi()
                    transaction.delete(*names)
                    transaction.execute()
                break
            except WatchError:  # another worker's write, or only a lost connection: the next look tells
                continue
        self._checkpoint, self._labels, self._nodes = 0, 0, {}

    def check_hold(self) -> None:
        """Raise `Fenced` if another worker has taken the stream over."""
        self._check_fence(self._redis.get(self._key("fence")))

    def prepare(self, checkpoint: Checkpoint) -> PreparedCheckpoint:
        """Copy what has changed since the last checkpoint.  Call `commit` with it before preparing another."""
        state, old = checkpoint.state, self._labels
        columns = [_Column("counts", 0, _pack(state.counts, 0, len(state.labels)))]
        for node in state.nodes:
            start = old if self._nodes.get(node.level) == node.round else 0
            for name, cells in (("sums", node.sums), ("noise", node.noise)):
                columns.append(_Column(f"{name}:{node.level}", start, _pack(cells, start, len(state.labels))))
        meta = _Meta(
            FORMAT,
            self._checkpoint + 1,
            checkpoint.epoch,
            state.round,
            state.history,
            len(state.labels),
            [_NodeMeta(node.round, node.tweak) for node in state.nodes],
            checkpoint.position,
            checkpoint.releases_offset,
            checkpoint.key_check,
        )
        live = {node.level for node in state.nodes}
        new_labels = [label.encode() for label in state.labels[old:]]
        return PreparedCheckpoint(meta, new_labels, columns, live, set(self._nodes) - live)

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
        self._checkpoint = prepared.meta.checkpoint
        self._labels = prepared.meta.labels
        self._nodes = {level_of(node.round): node.round for node in prepared.meta.nodes}

    def _commit_unless_changed(self, prepared: PreparedCheckpoint) -> None:
        with self._redis.pipeline(transaction=True) as transaction:
            transaction.watch(self._key("fence"), self._key("meta"))
            self._check_fence(transaction.get(self._key("fence")))
            packed: Any = transaction.get(self._key("meta"))
            if packed == msgspec.msgpack.encode(prepared.meta):
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
        for column in prepared.columns:
            if column.start:
                transaction.setrange(self._key(column.name), column.start * _CELL.itemsize, column.cells)
            else:
                transaction.set(self._key(column.name), column.cells)
        for level in prepared.dead_levels:
            transaction.delete(self._key(f"sums:{level}"), self._key(f"noise:{level}"))
        transaction.set(self._key("meta"), msgspec.msgpack.encode(prepared.meta))


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


def _pack(cells: NDArray[np.int32], start: int, end: int) -> bytes:
    return cells[start:end].astype(_CELL).tobytes()


def _unpack(column: bytes | None, labels: int) -> NDArray[np.int32]:
    if len(column or b"") != labels * _CELL.itemsize:
        raise StateDamaged(_DAMAGED)
    return np.frombuffer(column or b"", _CELL).astype(np.int32)
