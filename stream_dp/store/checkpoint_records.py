"""What the small keys of a checkpoint hold, and how they are read: nothing of them is used before its seal fits."""

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from stream_dp.counters.protocol import CAP_CELLS, Column
from stream_dp.engine.epoch import Epoch, EpochRefused
from stream_dp.engine.histogram import HistogramState
from stream_dp.errors import Refused
from stream_dp.events.bounding import PAIR_BYTES
from stream_dp.pipeline.pipeline import Position
from stream_dp.privacy.vector import Vector
from stream_dp.store.seals import SEAL_BYTES, Seals

FORMAT = 1

SHOWN_SINCE = "column:shown"
RECENT = "recent:"
SHOWN = "shown:"
CELLS, CELL_COUNTS = "cells:", "cells:counts"
SHOWN_ROWS, SHOWN_TESTS, SHOWN_COUNTS = "shown:rows", "shown:tests", "shown:counts"

_Count = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]
_Head = Annotated[bytes, msgspec.Meta(max_length=32)]
_Digest = Annotated[bytes, msgspec.Meta(min_length=SEAL_BYTES, max_length=SEAL_BYTES)]


class StateDamaged(Refused):
    """What Redis holds does not fit together; the message says what to do."""


def damaged(*names: str) -> StateDamaged:
    """What to say where the Redis keys of these names are not what was written."""
    return StateDamaged(
        f"the state in Redis does not fit together ({', '.join(names)}): nothing is released; restore it from its "
        "backup, or rebuild it from the noise key and the events topic with `stream-dp rebuild --replace`"
    )


class ColumnMeta(msgspec.Struct, frozen=True):
    """What makes `rows` cells of bytes: `dtype` as numpy names it."""

    name: Annotated[str, msgspec.Meta(pattern=r"^(column|recent|shown|cells):[a-z]+(:[0-9a-z]+)?\Z")]
    version: _Count
    dtype: Literal["<i4", "<i8", "<f8"]
    rows: _Count

    @property
    def row_bytes(self) -> int:
        """How many bytes a cell takes."""
        return np.dtype(self.dtype).itemsize

    def unpacked(self, packed: bytes) -> NDArray[Any]:
        """The cells, which may not be written to.  Raises `StateDamaged` where these are not as many."""
        if len(packed) != self.rows * self.row_bytes:
            raise damaged(self.name)
        return np.frombuffer(packed, self.dtype).astype(np.dtype(self.dtype).newbyteorder("="), copy=False)


def counts_meta(labels: int) -> ColumnMeta:
    """The true counts as a column: they are replaced by every checkpoint."""
    return ColumnMeta("counts", 0, "<i4", labels)


class Closing(msgspec.Struct, frozen=True):
    """The epoch of this nonce ends: whoever holds the stream counts nothing at or after `end_offset` under it.

    `end_unknown`, `end_barrier` and `further_ends`: see journal.EpochClosed.  `at`: the time that its record there
    carries.
    """

    nonce: bytes
    end_offset: _Count
    end_unknown: bool = False
    end_barrier: int | None = None
    at: int = 0
    further_ends: Vector = ()


class Meta(msgspec.Struct):
    """The small part of a checkpoint; `releases_offset` is where the releases after it begin.

    `topics` are the identities that the broker gave for the stream's topics, by name.  `label_bytes` is what the labels
    take, packed (label_texts.py).  While `labels_version` stays the same, labels are only added.
    """

    format: int
    checkpoint: _Count
    epoch: Epoch
    round: _Count
    history: Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
    labels: _Count
    label_bytes: _Count
    pairs: _Count
    columns: list[ColumnMeta]
    tweaks: dict[_Count, _Head]
    position: Position
    releases_offset: _Count
    key_check: str
    topics: dict[str, str] = {}
    labels_version: _Count = 0
    counts_offset: _Count | None = None

    def check_shape(self) -> None:
        """Raise `StateDamaged` unless the parts have the sizes that belong together."""
        rows = {column.name: column.rows for column in self.columns}
        sizes = {"column": self.labels, "shown": rows.get(SHOWN_ROWS, 0), "cells": CAP_CELLS}
        fits = (
            len(rows) == len(self.columns)
            and all(
                count == sizes[name.partition(":")[0]]
                for name, count in rows.items()
                if not name.startswith(RECENT)
            )
            and self.pairs % PAIR_BYTES == 0
        )
        if not fits:
            raise damaged("meta")


@dataclass
class Checkpoint:
    """All that a worker needs to go on exactly where another one stopped.

    `pairs` is what the bound on users' items remembers: bytes that only grow (bounding.py), where the unit is a user's
    day until the next one.  `counts_offset` is from where on the counts topic has to be read, None unless an engine has
    counted the labels that are not shown, which are then missing here.  `topics` are the identities of the topics that
    it was made with, by name, as far as the broker told them; `made_anew` names those in whose place a start has found
    others, and `unchanged` those that it has found again.
    """

    epoch: Epoch
    state: HistogramState
    position: Position
    releases_offset: int
    key_check: str
    pairs: bytes | bytearray = b""
    counts_offset: int | None = None
    topics: dict[str, str] = field(default_factory=dict)
    made_anew: frozenset[str] = frozenset()
    unchanged: frozenset[str] = frozenset()


class _Written(msgspec.Struct):
    """What every record of every format begins with."""

    format: int


class _Sealed(msgspec.Struct):
    """A sealed record: the record itself as MessagePack, the digests of what belongs to it, and that of both."""

    format: int
    body: bytes
    digests: dict[str, _Digest]
    seal: bytes


def pack(name: str, body: bytes, seals: Seals, digests: dict[str, bytes]) -> bytes:
    """A record, which is MessagePack already, and the digests of what belongs to it, with their seal."""
    seal = seals.of(name, body, digests).digest
    return msgspec.msgpack.encode(_Sealed(FORMAT, body, digests, seal))


def unpack_meta(packed: bytes, seals: Seals, key_check: str) -> tuple[Meta, dict[str, bytes]]:
    """The meta record and the digests of everything else.

    Raises `StateDamaged`, and `EpochRefused` where it was made with another noise key.
    """
    try:
        body, digests, fits = _opened("meta", packed, seals)
        meta = msgspec.msgpack.decode(body, type=Meta)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise damaged("meta") from None
    if meta.key_check != key_check:
        raise EpochRefused(
            f"the noise key is not the one that epoch {meta.epoch.number} was opened with: supply that one; if it is "
            "the right one, Redis is damaged: rebuild its state with `stream-dp rebuild --replace`"
        )
    if not fits:
        raise damaged("meta")
    meta.check_shape()
    return meta, digests


def unpack_closing(packed: bytes, seals: Seals) -> Closing:
    """The closing record.  Raises `StateDamaged`."""
    try:
        body, _, fits = _opened("closing", packed, seals)
        closing = msgspec.msgpack.decode(body, type=Closing)
    except (msgspec.DecodeError, UnicodeError, StateDamaged):
        fits = False
    if not fits:
        raise StateDamaged(
            "Redis says that an epoch is being closed, and what it says does not fit together (closing): nothing is "
            "released; restore it from its backup, or open a new epoch, which is charged, with --new-epoch"
        )
    return closing


def _opened(name: str, packed: bytes, seals: Seals) -> tuple[bytes, dict[str, bytes], bool]:
    """The body of a record, its digests, and whether its seal fits."""
    written = msgspec.msgpack.decode(packed, type=_Written).format
    if written != FORMAT:
        raise StateDamaged(
            f"Redis holds state of format {written} and this program reads format {FORMAT}: continue with the program "
            "that wrote it; if none did, rebuild it with `stream-dp rebuild --replace`"
        )
    record = msgspec.msgpack.decode(packed, type=_Sealed)
    return record.body, record.digests, seals.of(name, record.body, record.digests).digest == record.seal


def describe(name: str, column: Column) -> ColumnMeta:
    """What to remember of a column's cells, which are written apart from it."""
    dtype: Any = column.cells.dtype.newbyteorder("<").str
    return ColumnMeta(name, column.version, dtype, len(column.cells))


def pack_cells(cells: NDArray[Any]) -> bytes:
    """The bytes of which `ColumnMeta.unpacked` makes the same cells."""
    return cells.astype(cells.dtype.newbyteorder("<"), copy=False).tobytes()
