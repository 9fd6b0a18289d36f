"""Which labels have been seen, and the row of each: packed text, 128-bit identities, and an index of 4 bytes a slot.

The index is a table of rows with open addressing.  A label is looked for from the slot that the second word of its
identity names, slot by slot up to an empty one.  Identities are keyed, so nobody without the noise key can choose
labels that come near each other there.  Two labels are the same if their text is: a collision costs a step more and
merges nothing.
"""

from collections.abc import Sequence
from itertools import filterfalse

import numpy as np
from numpy.typing import NDArray

from stream_dp.counters.protocol import grown
from stream_dp.engine.label_texts import LabelTexts
from stream_dp.loops import place_rows
from stream_dp.privacy.keyed_noise import KeyedNoise

MOST_RECENT = 1 << 18
"""So many labels are kept as objects, too."""

MOST_CHARACTERS = 1 << 24
"""So many characters these labels have together at most, so that nobody can fill memory with long ones."""

_FULLEST = 0.75  # of the slots: beyond it the chains become long
_FEWEST_SLOTS = 1 << 6
_EMPTY = -1


class SeenLabels:
    """The labels of one epoch, in the order in which they came: a label's place among them is its row.

    `texts` has their text and `ids` their identities under `noise`, uint64 of shape (labels, 2).  Labels that were met
    lately are also kept as objects, because most events bring those: at most `most_recent` of them, of at most
    `MOST_CHARACTERS`.
    """

    def __init__(self, noise: KeyedNoise, most_recent: int = MOST_RECENT) -> None:
        self.texts = LabelTexts()
        self._noise = noise
        self._ids = np.empty((0, 2), np.uint64)
        self._slots = np.full(_FEWEST_SLOTS, _EMPTY, np.int32)
        self._recent: dict[str, int] = {}
        self._most_recent = most_recent
        self._characters = 0  # of the recent ones

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def ids(self) -> NDArray[np.uint64]:
        """See the class.  A view of what grows: ask again after labels were added."""
        return self._ids[: len(self.texts)]

    def rows_of(self, labels: Sequence[str]) -> NDArray[np.int64]:
        """The row of each of these labels, int64; those that were never seen are added, in the order given."""
        recent = self._recent
        if others := dict.fromkeys(filterfalse(recent.__contains__, labels)):
            recent.update(zip(others, self._look_up([*others]).tolist(), strict=True))
            self._characters += sum(map(len, others))
        rows = np.fromiter(map(recent.__getitem__, labels), np.int64, len(labels))
        if len(recent) > self._most_recent or self._characters > MOST_CHARACTERS:
            recent.clear()
            self._characters = 0
        return rows

    def extend(self, labels: Sequence[str], start: int = 0) -> None:
        """Add those from place `start` on, which were never seen and differ.  Raises ValueError for any others."""
        texts, known = LabelTexts.of(labels), len(self)
        self._make_room(known, known + len(texts) - start)
        if is_all := not known and not start:
            self.texts = texts.copy()
        for text, ends in texts.packed(start, len(texts)):
            if not is_all:
                self.texts.extend_packed(text, ends)
            self._add_ids(self._noise.packed_label_ids(text, ends), known)
            known += len(ends)

    def only(self, rows: NDArray[np.int64]) -> "SeenLabels":
        """Those in `rows` alone."""
        part = SeenLabels(self._noise)
        part._add(self.texts.take(rows), self._ids[rows])
        return part

    def _look_up(self, labels: list[str]) -> NDArray[np.int64]:
        """The rows of labels, all of them different; those that were never seen are added."""
        texts = [label.encode() for label in labels]
        ids = self._noise.label_ids(texts)
        rows = self._find(ids, texts)
        new = np.flatnonzero(rows == _EMPTY)
        if len(new):
            rows[new] = np.arange(len(self), len(self) + len(new))
            self._add([texts[place] for place in new.tolist()], ids[new])
        return rows

    def _find(self, ids: NDArray[np.uint64], texts: Sequence[bytes]) -> NDArray[np.int64]:
        """The rows of labels, `_EMPTY` for one that was never seen."""
        rows = np.full(len(ids), _EMPTY, np.int64)
        open_, slots = np.arange(len(ids)), self._homes(ids)
        while len(open_):
            found = self._slots[slots]
            there = found != _EMPTY
            open_, slots, found = open_[there], slots[there], found[there]
            alike = np.flatnonzero(self._ids[found, 0] == ids[open_, 0])
            known = self.texts.take(found[alike])
            same = [texts[place] == text for place, text in zip(open_[alike].tolist(), known, strict=True)]
            alike = alike[np.array(same, bool)]
            rows[open_[alike]] = found[alike]
            others = np.ones(len(open_), bool)
            others[alike] = False
            open_, slots = open_[others], slots[others] + 1 & len(self._slots) - 1
        return rows

    def _add(self, texts: Sequence[bytes], ids: NDArray[np.uint64]) -> None:
        """Append labels that are not there."""
        known = len(self)
        self.texts.extend(texts)
        self._add_ids(ids, known)

    def _add_ids(self, ids: NDArray[np.uint64], known: int) -> None:
        """Append the identities of labels from row `known` on.  Raises ValueError for a label that is there twice."""
        size = known + len(ids)
        self._make_room(known, size)
        self._ids[known:size] = ids
        alike = np.zeros(len(ids), np.bool_)
        place_rows(self._slots, self._ids, known, alike)
        for row in (known + np.flatnonzero(alike)).tolist():
            same = np.flatnonzero(np.all(self._ids[: row + 1] == self._ids[row], axis=1))
            *others, own = self.texts.take(same)
            if own in others:
                raise ValueError("a label is there twice")

    def _make_room(self, known: int, size: int) -> None:
        """For `size` labels, of which `known` have their identities."""
        self._ids = grown(self._ids, size)
        slots = len(self._slots)
        if size > _FULLEST * slots:
            while size > _FULLEST * slots:
                slots *= 2
            self._slots = np.full(slots, _EMPTY, np.int32)
            place_rows(self._slots, self._ids, 0, np.zeros(known, np.bool_))

    def _homes(self, ids: NDArray[np.uint64]) -> NDArray[np.int64]:
        return (ids[:, 1] & np.uint64(len(self._slots) - 1)).astype(np.int64)
