"""Records as integer arrays: which user named which item.  Labels stay in Arrow; no Python object per row."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from stream_dp.batch.baskets import (
    Baskets,
    Marks,
    Share,
    Weighing,
    baskets,
    distinct_users_per_item,
    sizes_in,
)
from stream_dp.errors import WorkerEnds
from stream_dp.events.event import LONGEST_LABEL, BadRecord, Event, decode_event
from stream_dp.events.mapping.text import text_of
from stream_dp.jobs.counted import Counted, as_labels
from stream_dp.jobs.request import Unit
from stream_dp.jobs.stored_rows import USER_SHIFT, StoredRows

Integers = NDArray[np.int64]

Progress = Callable[[int, int], None]
"""Told how far reading is, and of how much, in bytes, offsets or rows; may raise to end it."""

NAMES = pa.dictionary(pa.int32(), pa.large_binary())
"""The Arrow type of a column of names, not yet known to be UTF-8: at most 2^31 names, of any length together."""


_TEXTS = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_string_view,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_binary_view,
    pa.types.is_fixed_size_binary,
)

SEPARATOR = "\t"
"""In an item that is a vote: between the example that it is about and the label that it is for."""

_ITEM_MASK = (1 << USER_SHIFT) - 1
_MOST_UNITS = 1 << (63 - USER_SHIFT)
_ROWS_AT_ONCE = 1 << 22
"""So many rows wait until their names are numbered."""
_ROWS_IN_MEMORY = 1 << 24
"""From so many rows on they are stored in files."""


class ByName:
    """`KnownBy` the names of users and items; users without a name by where their rows stand.

    The bits are the first 64 of a hash of the name.  Whoever makes names whose bits agree makes samples alike, of which
    each still depends on its own user's rows alone.
    """

    def __init__(self, users: "pa.LargeBinaryArray | _Places", labels: pa.LargeBinaryArray) -> None:
        self._users, self._labels = users, labels

    def users(self, numbers: Integers) -> Integers:
        """See `KnownBy.users`."""
        if isinstance(self._users, _Places):
            return self._users.of(numbers)
        return _bits(self._users.take(pa.array(numbers)))

    def items(self, numbers: Integers) -> Integers:
        """See `KnownBy.items`."""
        return self._bits_of_labels[numbers]

    def names(self, numbers: Integers) -> pa.LargeBinaryArray | None:
        """The names of these users; None where users have none."""
        return None if isinstance(self._users, _Places) else self._users.take(pa.array(numbers))

    def renamed(self, labels: pa.LargeBinaryArray) -> "ByName":
        """The same users, and items of these labels."""
        return ByName(self._users, labels)

    @cached_property
    def _bits_of_labels(self) -> Integers:
        return _bits(self._labels)


def _bits(names: pa.LargeBinaryArray) -> Integers:
    """64 bits for each name."""
    return np.frombuffer(
        b"".join([blake2b(name, digest_size=8).digest() for name in names.to_pylist()]), "<i8"
    )


@dataclass(frozen=True, eq=False)
class Rows(Counted):
    """What a mechanism reads.

    `users`, `items`: int64 of shape (rows,).  Users are numbered by first appearance, so others get other numbers when
    a user goes away; why that may be: `OneShotNoise.order`.  `labels`: see `Counted`.  `stored`: rows beyond memory, in
    place of `users` and `items`; `ranks` has the item that each stored number means, or -1.  `known_by`: what samples
    know users and items by.
    """

    users: Integers
    items: Integers
    labels: pa.LargeBinaryArray
    stored: StoredRows | None = None
    ranks: Integers | None = None
    known_by: ByName | None = None

    def __len__(self) -> int:
        return len(self.items) if self.stored is None else len(self.stored)

    def parts(self) -> Iterator["Rows"]:
        """These rows in parts that fit into memory, each with all rows of its users."""
        if self.stored is None or self.ranks is None:
            yield self
            return
        for number in self.stored.parts:
            packed = self.stored.part(number)
            items = self.ranks[packed & _ITEM_MASK]
            kept = items >= 0
            yield Rows((packed >> USER_SHIFT)[kept], items[kept], self.labels, known_by=self.known_by)

    def baskets(self) -> Baskets:
        """See `Counted.baskets`."""
        parts = list(self.parts())
        users, items = (
            np.concatenate([getattr(part, name) for part in parts]) for name in ("users", "items")
        )
        return baskets(users, items, len(self.labels), self.known_by)

    def weighing(self) -> Weighing:
        """See `Counted.weighing`."""
        return self.baskets() if self.stored is None else self

    def weights(
        self,
        items_per_user: int,
        share: Share,
        marks: Marks,
        stage: int = 0,
        released: NDArray[np.bool_] | None = None,
    ) -> Integers:
        """See `Weighing.weights`."""
        sums = np.zeros(len(self.labels), np.int64)
        for part in self.parts():
            sums += part.baskets().weights(items_per_user, share, marks, stage, released)
        return sums

    def counts(self) -> Integers:
        """See `Counted.counts`."""
        counts = np.zeros(len(self.labels), np.int64)
        for part in self.parts():
            counts += distinct_users_per_item(part.users, part.items, len(self.labels))
        return counts

    def sizes(self, edges: Sequence[int]) -> Integers:
        """See `Counted.sizes`."""
        return sum((sizes_in(part.baskets(), edges) for part in self.parts()), np.zeros(len(edges), np.int64))

    def restricted(self, bins: list[str]) -> "Rows":
        """See `Counted.restricted`."""
        places, labels = self.places(bins), as_labels(bins)
        known_by = self.known_by.renamed(labels) if self.known_by is not None else None
        if self.ranks is not None:
            ranks = np.append(places, -1)[self.ranks]
            return Rows(self.users, self.items, labels, self.stored, ranks, known_by)
        items = places[self.items] if len(self.labels) else self.items
        kept = items >= 0
        return Rows(self.users[kept], items[kept], labels, known_by=known_by)


class _Places:
    """Where units without a name stand: in which piece of the source, and the how manieth of it that is valid."""

    def __init__(self) -> None:
        self._firsts, self._pieces = [0], [0]

    def begin(self, piece: int, first: int) -> None:
        """The unit number `first`, and those after it, stand in the piece of this number."""
        self._firsts.append(first)
        self._pieces.append(piece)

    def of(self, numbers: Integers) -> Integers:
        """64 bits for each of these units."""
        firsts, pieces = np.array(self._firsts), np.array(self._pieces)
        found = np.searchsorted(firsts, numbers, "right") - 1
        return pieces[found] << USER_SHIFT | (numbers - firsts[found])


@dataclass
class RowCollector:
    """Takes chunks of rows as a reader meets them; what it leaves out it counts.  These numbers are PRIVATE.

    Memory grows with the names of users and items, and not with the rows.
    """

    without_user: int = 0
    malformed: int = 0
    added: int = 0
    _units: int = 0
    _places: _Places = field(default_factory=_Places)
    _waiting: int = 0
    _users: list[Integers | pa.DictionaryArray] = field(default_factory=list)
    _items: list[pa.DictionaryArray] = field(default_factory=list)
    _user_names: "_Names" = field(default_factory=lambda: _Names(_named))
    _labels: "_Names" = field(default_factory=lambda: _Names(_valid_labels))
    _packed: list[Integers] = field(default_factory=list)
    _stored: StoredRows | None = None

    def begin(self, piece: int) -> None:
        """What is added from now on stands in the piece of this number; before the first call, in piece 0."""
        self._places.begin(piece, self._units)

    def add(self, users: pa.Array | Integers, items: pa.Array) -> None:
        """Rows of one chunk: names of users (missing or empty: none), or their numbers, beside names of items."""
        if len(items):
            numbered = isinstance(users, np.ndarray)
            self._users.append(users if numbered else _encoded(users))
            self._items.append(_encoded(items))
            self._waiting += len(items)
            self.added += len(items)
            if self._waiting >= _ROWS_AT_ONCE:
                self._number()

    def add_events(
        self, records: Sequence[Any], unit: Unit, decode: Callable[[Any], Event] = decode_event
    ) -> None:
        """What `decode` takes: values of records, whole records, or lines.  In the unit `event` each is a user."""
        users: list[str | None] = []
        names: list[str] = []
        edges = [0]
        # Strings alone are kept: thousands of events would keep the garbage collector busy.
        for record in records:
            try:
                event = decode(record)
            except BadRecord:
                self.malformed += 1
                continue
            users.append(event.user)
            names += event.items
            edges.append(len(names))
        sizes = np.diff(edges)
        items = pa.array(names, pa.large_string())
        if unit == "event":
            self.add(np.repeat(self.new_units(len(users)), sizes), items)
        else:
            known = pa.array(users, pa.large_string()).dictionary_encode()
            self.add(known.take(pa.array(np.repeat(np.arange(len(users)), sizes))), items)

    def new_units(self, count: int) -> Integers:
        """Numbers of `count` units that have no name."""
        self._units += count
        if self._units > _MOST_UNITS:
            raise WorkerEnds(f"a job counts at most {_MOST_UNITS:,} events: let it read fewer")
        return np.arange(self._units - count, self._units)

    def rows(self) -> Rows:
        """Everything that was added and is valid.  Call it once, at the end."""
        self._number()
        labels = self._labels.names
        order = pc.sort_indices(labels).to_numpy()
        ranks = np.empty(len(order), np.int64)
        ranks[order] = np.arange(len(order))
        labels = labels.take(pa.array(order))
        known_by = ByName(self._places if self._units else self._user_names.names, labels)
        if self._stored is not None:
            nothing = np.empty(0, np.int64)
            return Rows(nothing, nothing, labels, self._stored, ranks, known_by)
        packed = np.concatenate([np.empty(0, np.int64), *self._packed])
        self._packed.clear()
        return Rows(packed >> USER_SHIFT, ranks[packed & _ITEM_MASK], labels, known_by=known_by)

    def _number(self) -> None:
        """Give numbers to the names that wait, and pack or store their rows."""
        if not self._items:
            return
        items = self._labels.numbers(self._items)
        if isinstance(self._users[0], np.ndarray):
            users = np.concatenate(self._users)
        else:
            users = self._user_names.numbers(self._users)
        self._items, self._users, self._waiting = [], [], 0
        if items.min() < 0 or users.min() < 0:
            self.malformed += int(np.count_nonzero(items < 0))
            self.without_user += int(np.count_nonzero((items >= 0) & (users < 0)))
            kept = (items >= 0) & (users >= 0)
            users, items = users[kept], items[kept]
        users <<= USER_SHIFT
        users |= items
        self._packed.append(users)
        if self._stored is None and sum(map(len, self._packed)) >= _ROWS_IN_MEMORY:
            self._stored = StoredRows()
        if self._stored is not None:
            for packed in self._packed:
                self._stored.put(packed)
            self._packed.clear()


class _Names:
    """Names by number, in the order of their first appearance; `usable` says which of them may be kept."""

    def __init__(self, usable: Callable[[pa.LargeBinaryArray], NDArray[np.bool_]]) -> None:
        self.names: pa.LargeBinaryArray = pa.array([], NAMES.value_type)
        self._usable = usable
        self._kept = np.zeros(1, np.bool_)  # the last place is what -1, no name, looks up

    def numbers(self, chunks: list[pa.DictionaryArray]) -> Integers:
        """The number of each, -1 where there is no name, or none that may be kept."""
        known = pa.DictionaryArray.from_arrays(pa.array([], pa.int32()), self.names)
        whole = pa.chunked_array([known, *chunks], NAMES).unify_dictionaries()
        before, self.names = len(self.names), whole.chunk(0).dictionary
        fresh = self._usable(self.names.slice(before))
        self._kept = np.concatenate([self._kept[:-1], fresh, [False]])
        numbers, start = np.empty(len(whole), np.int64), 0
        for chunk in whole.chunks:
            indices = chunk.indices if not chunk.null_count else pc.fill_null(chunk.indices, -1)
            numbers[start : start + len(chunk)] = indices.to_numpy()
            start += len(chunk)
        if not self._kept[:-1].all():
            numbers[~self._kept[numbers]] = -1
        return numbers


def _encoded(names: pa.Array) -> pa.DictionaryArray:
    """Dictionary-encoded with binary labels, so that nothing need be valid UTF-8 yet."""
    kind = names.type.value_type if pa.types.is_dictionary(names.type) else names.type
    if pa.types.is_floating(kind):  # whose values may be no name, or have one name
        numbers = names if pa.types.is_dictionary(names.type) else names.dictionary_encode()
        names = as_binary(numbers.dictionary).take(numbers.indices)
    if not pa.types.is_dictionary(names.type):
        numbers = pa.types.is_integer(kind)  # there are fewer of them to make text of afterwards
        names = (names if numbers else as_binary(names)).dictionary_encode()
    return pa.DictionaryArray.from_arrays(names.indices.cast(pa.int32()), as_binary(names.dictionary))


def as_binary(names: pa.Array) -> pa.Array:
    """Text, numbers and truth values as names, Arrow large_binary; null for what is of another type."""
    kind = names.type
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        names = names.cast(pa.string())
    elif pa.types.is_floating(kind):
        names = pa.array(map(_of_number, names.to_pylist()), pa.string())
    elif not any(test(kind) for test in _TEXTS):
        return pa.nulls(len(names), NAMES.value_type)
    return names.cast(NAMES.value_type)


def _of_number(number: float | None) -> str | None:
    """As docs/mapping.md says; None for one that is not finite."""
    try:
        return text_of(number)
    except BadRecord:
        return None


def _named(users: pa.LargeBinaryArray) -> NDArray[np.bool_]:
    """Which users have a name, bool of shape (users,)."""
    return pc.fill_null(pc.binary_length(users), 0).to_numpy() > 0


def _valid_labels(labels: pa.LargeBinaryArray) -> NDArray[np.bool_]:
    """Which labels are UTF-8 of 1 to LONGEST_LABEL characters, bool of shape (labels,)."""
    try:
        lengths = pc.fill_null(pc.utf8_length(labels.cast(pa.large_string())), 0).to_numpy()
    except pa.ArrowInvalid:
        lengths = np.array([_length(label) for label in labels.to_pylist()], np.int64)
    return (lengths > 0) & (lengths <= LONGEST_LABEL)


def _length(label: bytes | None) -> int:
    """In characters; 0 for what is no UTF-8."""
    try:
        return len((label or b"").decode())
    except UnicodeDecodeError:
        return 0
