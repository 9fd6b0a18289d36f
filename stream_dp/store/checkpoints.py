"""The state of a stream in Redis: packed columns, written by one compare-and-set transaction per checkpoint.

Keys, all under `stream_dp:{<stream>}:` so that a cluster keeps them together:

    fence           which worker may write: a random token of the one that took over last
    closing         the epoch that is about to be closed, and where: the one that took over last has said so
    meta            epoch, round, history, position, columns, number of labels and of bytes of pairs, checkpoint number,
                    and the digests of all that follows
    labels          the labels in the order in which they were first admitted, packed, as a list of pages
                    (label_pages.py); where labels are forgotten, the list begins anew whenever some were
    pairs           where the privacy unit is the user, which items of which user were admitted: PAIR_BYTES a pair, a
                    list of the bytes that each checkpoint added
    counts          int32 per label, packed
    column:<name>   a column of the counter, likewise: `column:sums:<level>` and `column:noise:<level>` of the binary
                    mechanism are the live node of that level and its cached noise; `column:shown` is there where
                    labels are kept: the round that showed each of them first, or 0
    shown:<name>    where labels are found at tests, those that are shown: `shown:rows` are their numbers in the order
                    in which they were found, `shown:tests` the tests, and the others are columns of their counter
    cells:<name>    where cells are counted beside the labels, their counts and the columns of their counter
    recent:<name>   of windows, what the last two blocks held: the heads of the hash chain, and which labels were hit
    key             the noise key, unless it is kept elsewhere

`meta` and `closing` carry their own digests, and all digests are keyed (seals.py): what does not stand as a worker with
the key has written it, for this place, is damage.  Only the fence has none, because no start reads it.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import msgspec
from redis import Redis
from redis.client import Pipeline as Transaction
from redis.exceptions import WatchError

from stream_dp.engine.label_texts import LabelTexts
from stream_dp.privacy.keyed_noise import key_check
from stream_dp.store.checkpoint_columns import (
    columns_of,
    first_seal,
    meta_of,
    state_of,
)
from stream_dp.store.checkpoint_records import (
    Checkpoint,
    Closing,
    Meta,
    StateDamaged,
    counts_meta,
    damaged,
    describe,
    pack,
    pack_cells,
    unpack_closing,
    unpack_meta,
)
from stream_dp.store.fence import Fence, Fenced, damage_of, sound
from stream_dp.store.label_pages import PAGE, from_last_page, read_pages, with_code, write_pages
from stream_dp.store.seals import Seal, Seals

__all__ = [
    "Checkpoint",
    "CheckpointStore",
    "Closing",
    "KnownLabels",
    "PreparedCheckpoint",
    "StateDamaged",
]

logger = logging.getLogger(__name__)

_LARGEST_PIECE = 1 << 24  # bytes of pairs in one element of their list


@dataclass
class _Write:
    """Bytes to write from position `start` of a column on; a write that starts at 0 replaces what was there.

    `seal` is that of what stays before them.
    """

    name: str
    start: int
    cells: bytes
    seal: Seal


@dataclass
class _Held:
    """What Redis holds: the meta record, `packed` as it stands there, and the seals of everything else by name."""

    packed: bytes = b""
    meta: Meta | None = None
    seals: dict[str, Seal] = field(default_factory=dict)


@dataclass(frozen=True)
class KnownLabels:
    """The labels of a checkpoint that was loaded, and their seal: a later one of the epoch begins with them."""

    nonce: bytes
    labels: LabelTexts
    seal: Seal


@dataclass
class PreparedCheckpoint:
    """A checkpoint as bytes: the worker may go on while it is written.

    `label_code` is that of labels from the last page on that Redis has, which has `labels_there` bytes in all.
    """

    meta: Meta
    packed_meta: bytes
    label_code: bytes
    labels_there: int
    new_pairs: bytes
    writes: list[_Write]
    dead_columns: set[str]
    before: _Held
    seals: Seals
    forgets_labels: bool = False
    forgets_pairs: bool = False

    @cached_property
    def after(self) -> _Held:
        """What Redis is to hold; computed where no work waits for the digests."""
        nonce = self.meta.epoch.nonce
        begun = {
            name: seal
            for name, seal in self.before.seals.items()
            if not (self.forgets_pairs if name == "pairs" else self.forgets_labels)
        }
        added = {"labels": self.label_code[self.labels_there % PAGE :], "pairs": self.new_pairs}
        seals = {
            name: begun.get(name, self.seals.of(name, nonce)).followed_by(piece)
            for name, piece in added.items()
        } | {write.name: write.seal.followed_by(write.cells) for write in self.writes}
        digests = {name: seal.digest for name, seal in seals.items()}
        return _Held(pack("meta", self.packed_meta, self.seals, digests), self.meta, seals)


class CheckpointStore:
    """The checkpoints of one stream.  One worker at a time may write: the one that took over last.

    The noise key comes with `load` or `start_over`, one of which comes before the first checkpoint.
    """

    def __init__(self, redis: Redis, stream: str) -> None:
        self._redis = redis
        self._stream = stream
        self._prefix = f"stream_dp:{{{stream}}}:"
        self._fence = Fence(redis, self._key("fence"), self._key("meta"))
        self._seals: Seals | None = None
        self._held = _Held()
        self._unread: KnownLabels | None = None
        self.topics: Callable[[], dict[str, str]] = dict
        """What tells the identities of the stream's topics: every checkpoint says them, and `load` compares them."""

    def _key(self, name: str) -> str:
        return self._prefix + name

    def take_over(self) -> None:
        """Fence off every other worker.  A worker that held the stream before may only renew its own hold."""
        self._fence.take_over()

    @property
    def is_taken(self) -> bool:
        """Whether this process has taken the stream over; else it only looks, and writes nothing."""
        return self._fence.is_taken

    def check_hold(self) -> None:
        """Raise `Fenced` if another worker has taken the stream over, `NotTakenOver` if this one never has."""
        self._fence.check_hold()

    def holds_state(self) -> bool:
        """Whether there is a checkpoint, sound or not."""
        return bool(self._redis.exists(self._key("meta")))

    def has_changed(self) -> bool:
        """Whether Redis holds another checkpoint than the one that was loaded or written here last."""
        with damage_of("meta"):
            return bool((self._redis.get(self._key("meta")) or b"") != self._held.packed)

    def load(self, key: bytes, known: KnownLabels | None = None) -> Checkpoint | None:
        """The last checkpoint, or None where there has never been one; warns of topics that were made anew since.

        `key` is the noise key.  Labels that are `known` are not read, if the digest of all labels says that they are
        the first ones; `check_unread` does so later.  Raises `StateDamaged` where anything is not as it was written,
        and `EpochRefused` where it was written under another key.
        """
        self._seals = Seals(key, self._stream)
        while True:
            try:
                checkpoint = self._load(self._seals, key_check(key), known)
                break
            except WatchError:  # a worker made a checkpoint meanwhile
                continue
        if checkpoint is not None:
            self._compare_topics(checkpoint)
        return checkpoint

    def _compare_topics(self, checkpoint: Checkpoint) -> None:
        """Note in a checkpoint which of its topics are others by now.

        A topic that was restored from a copy is another one too, so this alone is no refusal.  Where nothing that was
        counted or sent is left to compare, the checks that follow refuse.
        """
        now = self.topics()
        checkpoint.made_anew = frozenset(
            name for name, identity in checkpoint.topics.items() if now.get(name, identity) != identity
        )
        checkpoint.unchanged = frozenset(
            name for name, identity in checkpoint.topics.items() if now.get(name) == identity
        )
        for name in sorted(checkpoint.made_anew):
            logger.warning(
                "the topic %r was deleted and re-created, or comes from another cluster, since the last checkpoint: "
                "what was counted and sent last is compared with it now; `stream-dp verify` compares all of it",
                name,
            )

    def known_labels(self, nonce: bytes, labels: Sequence[str]) -> KnownLabels:
        """The labels of the checkpoint that was loaded last, which is of the epoch with this nonce, and their seals."""
        return KnownLabels(nonce, LabelTexts.of(labels).copy(), self._held.seals["labels"])  # theirs may grow

    def check_unread(self) -> None:
        """Read the labels that `load` has not.  Raises `StateDamaged` where Redis holds others."""
        known, self._unread = self._unread, None
        if known is None:
            return
        assert self._seals is not None
        seal, left = self._seals.of("labels", known.nonce), known.labels.code_bytes
        for page in read_pages(self._redis, self._key("labels"), 0, -(-left // PAGE)):
            seal = seal.followed_by(page[:left])
            left -= min(left, len(page))
        if seal.digest != known.seal.digest:
            raise damaged("labels")

    def _load(self, seals: Seals, check: str, known: KnownLabels | None) -> Checkpoint | None:
        """See `load`.  Raises `WatchError` where a checkpoint came between.

        Labels are only added to, mostly, so all full pages are read before the transaction, some at a time.
        """
        with damage_of("meta"):
            first: Any = self._redis.get(self._key("meta"))
        if first is None:
            return None
        begun, _ = unpack_meta(first, seals, check)
        if known is not None and known.nonce != begun.epoch.nonce:
            known = None
        labels = known.labels if known is not None else LabelTexts()
        skipped, page = labels.code_bytes % PAGE, labels.code_bytes // PAGE
        full = max(page, begun.label_bytes // PAGE)
        code = bytearray().join(read_pages(self._redis, self._key("labels"), page, full))
        with self._redis.pipeline(transaction=True) as transaction:
            with damage_of("meta"):
                transaction.watch(self._key("meta"))
                packed: Any = transaction.get(self._key("meta"))
            if packed is None:
                return None
            meta, digests = unpack_meta(packed, seals, check)
            if (meta.epoch.nonce, meta.labels_version) != (begun.epoch.nonce, begun.labels_version):
                raise WatchError("the labels of this checkpoint are others")
            columns = {column.name: column for column in (counts_meta(meta.labels), *meta.columns)}
            transaction.multi()
            transaction.lrange(self._key("labels"), full, -1)
            transaction.lrange(self._key("pairs"), 0, -1)
            for name in columns:
                transaction.get(self._key(name))
            names = "labels", "pairs", *columns
            rest, pieces, *cells = map(sound, names, transaction.execute(raise_on_error=False))
        for last in rest:
            code += last
        del code[:skipped]
        pairs = b"".join(pieces)
        found = {name: column or b"" for name, column in zip(columns, cells, strict=True)}
        nonce = meta.epoch.nonce
        begun_seal = known.seal if known is not None else seals.of("labels", nonce)
        held = {
            "labels": begun_seal.followed_by(code),
            "pairs": seals.of("pairs", nonce).followed_by(pairs),
        } | {
            name: first_seal(seals, nonce, column).followed_by(found[name])
            for name, column in columns.items()
        }
        wrong = [name for name, seal in held.items() if seal.digest != digests.get(name)]
        if known is not None and "labels" in wrong:
            return self._load(seals, check, None)
        if wrong:
            raise damaged(*wrong)
        labels = with_code(labels, code, meta.labels)
        if (labels.code_bytes, len(pairs)) != (meta.label_bytes, meta.pairs):
            raise damaged("labels", "pairs")
        self._held, self._unread = _Held(packed, meta, held), known
        read = {name: column.unpacked(found[name]) for name, column in columns.items()}
        state = state_of(meta, labels, read)
        return Checkpoint(
            meta.epoch,
            state,
            meta.position,
            meta.releases_offset,
            meta.key_check,
            pairs,
            meta.counts_offset,
            meta.topics,
        )

    def start_over(self, key: bytes) -> None:
        """Forget the state of a closed epoch; the next checkpoint is the first of another one.  Raises `Fenced`.

        `key` is the noise key of that one.
        """

        def forget(transaction: Transaction) -> None:
            columns = [
                name
                for kind in ("column:*", "shown:*", "cells:*", "recent:*")
                for name in transaction.scan_iter(match=self._key(kind))
            ]
            transaction.multi()
            transaction.delete(*map(self._key, ("closing", "meta", "labels", "pairs", "counts")), *columns)

        self._fence.write_unless_lost(forget)
        self._seals, self._held = Seals(key, self._stream), _Held()

    def mark_closing(self, closing: Closing, key: bytes) -> None:
        """Say that an epoch is about to be closed, so that whoever takes over from now on knows.  Raises `Fenced`."""
        packed = pack("closing", msgspec.msgpack.encode(closing), Seals(key, self._stream), {})

        def mark(transaction: Transaction) -> None:
            transaction.multi()
            transaction.set(self._key("closing"), packed)

        self._fence.write_unless_lost(mark)

    def is_closing(self) -> bool:
        """Whether `mark_closing` has said anything that `start_over` has not made needless."""
        return bool(self._redis.exists(self._key("closing")))

    def closing(self, key: bytes) -> Closing | None:
        """What `mark_closing` has said last, and `start_over` has not made needless.  Raises `StateDamaged`."""
        with damage_of("closing"):
            packed: Any = self._redis.get(self._key("closing"))
        return None if packed is None else unpack_closing(packed, Seals(key, self._stream))

    def prepare(self, checkpoint: Checkpoint) -> PreparedCheckpoint:
        """Copy what has changed since the last checkpoint.  Call `commit` with it before preparing another."""
        assert self._seals is not None, "a checkpoint is written under the noise key that was loaded with"
        state, before, nonce = checkpoint.state, self._held, checkpoint.epoch.nonce
        columns = dict(columns_of(state))
        metas = [describe(name, column) for name, column in columns.items()]
        old = {column.name: column for column in before.meta.columns} if before.meta else {}
        counts = counts_meta(len(state.labels))
        writes = [_Write("counts", 0, pack_cells(state.counts), first_seal(self._seals, nonce, counts))]
        for column in metas:
            known = old.get(column.name)
            if known is not None and known.version == column.version:
                start, seal = known.rows, before.seals[column.name]
            else:
                start, seal = 0, first_seal(self._seals, nonce, column)
            cells = pack_cells(columns[column.name].cells[start:])
            writes.append(_Write(column.name, start * column.row_bytes, cells, seal))
        forgets = before.meta is not None and before.meta.labels_version != state.labels_version
        labels_there = before.meta.label_bytes if before.meta is not None and not forgets else 0
        label_code = from_last_page(LabelTexts.of(state.labels), labels_there)
        forgets_pairs = before.meta is not None and _day(before.meta) != _day(checkpoint)
        pairs_there = before.meta.pairs if before.meta is not None and not forgets_pairs else 0
        new_pairs = bytes(checkpoint.pairs[pairs_there:])
        dead = set(old) - set(columns)
        number = before.meta.checkpoint + 1 if before.meta else 1
        meta = meta_of(checkpoint, metas, number, self.topics())
        packed = msgspec.msgpack.encode(meta)
        return PreparedCheckpoint(
            meta,
            packed,
            label_code,
            labels_there,
            new_pairs,
            writes,
            dead,
            before,
            self._seals,
            forgets,
            forgets_pairs,
        )

    def commit(self, prepared: PreparedCheckpoint) -> None:
        """Write it in one transaction, or nothing of it.

        Raises `Fenced` when another worker has taken over or has written since.  A commit whose answer was
        lost may be repeated.
        """

        def write_unless_written(transaction: Transaction) -> None:
            packed: Any = transaction.get(self._key("meta")) or b""
            if packed == prepared.after.packed:
                return
            if packed != prepared.before.packed:
                raise Fenced("Redis holds a checkpoint that this worker did not write; it stops")
            transaction.multi()
            self._write(transaction, prepared)

        with damage_of("fence, meta"):
            self._fence.write_unless_lost(write_unless_written)
        self._held = prepared.after

    def _write(self, transaction: Transaction, prepared: PreparedCheckpoint) -> None:
        if prepared.forgets_labels:
            transaction.delete(self._key("labels"))
        if prepared.forgets_pairs:
            transaction.delete(self._key("pairs"))
        write_pages(transaction, self._key("labels"), prepared.label_code, prepared.labels_there)
        for start in range(0, len(prepared.new_pairs), _LARGEST_PIECE):
            transaction.rpush(self._key("pairs"), prepared.new_pairs[start : start + _LARGEST_PIECE])
        for write in prepared.writes:
            if write.start:
                transaction.setrange(self._key(write.name), write.start, write.cells)
            else:
                transaction.set(self._key(write.name), write.cells)
        if prepared.dead_columns:
            transaction.delete(*(self._key(name) for name in prepared.dead_columns))
        transaction.set(self._key("meta"), prepared.after.packed)


def _day(counted: Meta | Checkpoint) -> int:
    """The day whose pairs it has."""
    return counted.epoch.day_of(counted.position.closed)
