"""Records as integer arrays: which user named which item.  Labels stay in Arrow; no Python object per row."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from stream_dp.batch.baskets import Baskets, baskets, distinct_users_per_item
from stream_dp.events.event import LONGEST_LABEL, BadRecord, Event, decode_event
from stream_dp.jobs.request import Unit

Integers = NDArray[np.int64]

NAMES = pa.dictionary(pa.int32(), pa.large_binary())
"""The Arrow type of a column of names, not yet known to be UTF-8: at most 2^31 names, of any length together."""


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """What a mechanism reads.

    `users`, `items`: int64 of shape (rows,).  Items are numbered by their sorted labels (bytes), which keep their order
    when a user goes away.  Users are numbered by first appearance, so others get other numbers then; why that may be:
    `OneShotNoise.order`.  `labels`: UTF-8 as Arrow large_binary, of shape (items,).
    """

    users: Integers
    items: Integers
    labels: pa.LargeBinaryArray

    def baskets(self) -> Baskets:
        """What each user holds."""
        return baskets(self.users, self.items, len(self.labels))

    def counts(self) -> Integers:
        """How many distinct users hold each item, int64 of shape (items,)."""
        return distinct_users_per_item(self.users, self.items, len(self.labels))

    def names(self, items: Integers) -> list[str]:
        """The labels of `items`."""
        return [label.decode() for label in self.labels.take(pa.array(items)).to_pylist()]

    def places(self, labels: list[str]) -> Integers:
        """For every item its place in `labels`, or -1; int64 of shape (items,)."""
        wanted = pa.array([label.encode() for label in labels], self.labels.type)
        return pc.fill_null(pc.index_in(self.labels, wanted), -1).to_numpy().astype(np.int64)

    def restricted(self, bins: list[str]) -> "Rows":
        """The rows that name one of `bins`, with items numbered by their place in it."""
        items = self.places(bins)[self.items] if len(self.labels) else self.items
        kept = items >= 0
        return Rows(
            self.users[kept], items[kept], pa.array([each.encode() for each in bins], self.labels.type)
        )


@dataclass
class RowCollector:
    """Takes chunks of rows as a reader meets them; what it leaves out it counts.  Both numbers are PRIVATE."""

    without_user: int = 0
    malformed: int = 0
    _units: int = 0
    _users: list[Integers | pa.DictionaryArray] = field(default_factory=list)
    _items: list[pa.DictionaryArray] = field(default_factory=list)

    def add(self, users: pa.Array | Integers, items: pa.Array) -> None:
        """Rows of one chunk: names of users (missing or empty: none), or their numbers, beside names of items."""
        if len(items):
            numbered = isinstance(users, np.ndarray)
            self._users.append(users if numbered else _encoded(users))
            self._items.append(_encoded(items))

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
        return np.arange(self._units - count, self._units)

    def rows(self) -> Rows:
        """Everything that was added and is valid.  Call it once, at the end."""
        if not self._items:
            return Rows(np.empty(0, np.int64), np.empty(0, np.int64), pa.array([], NAMES.value_type))
        items, labels = _unified(self._items)
        users = self._user_numbers()
        order = pc.sort_indices(labels).to_numpy()
        rank = np.empty(len(order) + 1, np.int64)
        rank[order] = np.arange(len(order))
        usable = _valid_labels(labels)
        rank[:-1][~usable] = rank[-1] = -1  # the last place is what -1, no item, looks up
        items = rank[items]
        if items.min() < 0 or users.min() < 0:
            self.malformed += int(np.count_nonzero(items < 0))
            self.without_user += int(np.count_nonzero((items >= 0) & (users < 0)))
            kept = (items >= 0) & (users >= 0)
            users, items = users[kept], items[kept]
        return Rows(users, items, labels.take(pa.array(order)))

    def _user_numbers(self) -> Integers:
        """Numbers by first appearance, -1 for no user."""
        if isinstance(self._users[0], np.ndarray):
            return np.concatenate(self._users)
        users, names = _unified(self._users)
        unnamed = np.flatnonzero(pc.fill_null(pc.binary_length(names), 0).to_numpy() == 0)
        if len(unnamed):
            users[np.isin(users, unnamed)] = -1
        return users


def _encoded(names: pa.Array) -> pa.DictionaryArray:
    """Dictionary-encoded with binary labels, so that nothing need be valid UTF-8 yet."""
    if not pa.types.is_dictionary(names.type):
        return _as_binary(names).dictionary_encode()
    return pa.DictionaryArray.from_arrays(names.indices.cast(pa.int32()), _as_binary(names.dictionary))


def _as_binary(names: pa.Array) -> pa.Array:
    if pa.types.is_integer(names.type):
        names = names.cast(pa.string())
    return names.cast(NAMES.value_type)


def _unified(chunks: list[pa.DictionaryArray]) -> tuple[Integers, pa.LargeBinaryArray]:
    """Positions in one dictionary, -1 for nothing, and the dictionary."""
    whole = pa.chunked_array(chunks, NAMES).unify_dictionaries()
    chunks.clear()
    places, start = np.empty(len(whole), np.int64), 0
    for chunk in whole.chunks:
        indices = chunk.indices if not chunk.null_count else pc.fill_null(chunk.indices, -1)
        places[start : start + len(chunk)] = indices.to_numpy()
        start += len(chunk)
    return places, whole.chunk(0).dictionary


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
