"""The text of many labels, packed: no object a label."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, pairwise
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from stream_dp.counters.protocol import grown
from stream_dp.loops import (
    encode_labels,
    find_starts,
    measure_following,
    measure_labels,
    spell_following,
    spell_labels,
)
from stream_dp.loops.packing import packed

CHUNK = 16
"""Every so many labels, one shares nothing with the one before."""

MOST_BESIDE = 6
"""So many bytes a label takes beside its text at most."""

AT_ONCE = 10_000
"""So many labels at a time are made objects of, where all of them are needed in turn."""


class LabelTexts(Sequence[str]):
    """A growing sequence of labels in UTF-8, each without what it begins with as the one before (loops/labels.c).

    It takes at most 3 bytes a label beside the text, and much less than the text of labels such as addresses of pages.
    Reading a label makes a new str.
    """

    def __init__(self, labels: Iterable[str] = ()) -> None:
        self._coded = np.empty(0, np.uint8)
        self._used = 0
        self._starts = np.empty(0, np.int64)
        self._size, self._longest = 0, 0
        self._last = np.empty(0, np.uint8)
        self.extend([label.encode() for label in labels])

    @classmethod
    def of(cls, labels: Sequence[str]) -> "LabelTexts":
        """The same labels; itself where they are packed already."""
        return labels if isinstance(labels, cls) else cls(labels)

    def __len__(self) -> int:
        return self._size

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> list[str]: ...
    def __getitem__(self, place: int | slice) -> str | list[str]:
        if isinstance(place, slice):
            rows = np.arange(*place.indices(self._size))
            return [text.decode() for text in self.take(rows)]
        row = place + self._size if place < 0 else place
        if not 0 <= row < self._size:
            raise IndexError(f"there is no label {place} among {self._size}")
        return self.take(np.array([row]))[0].decode()

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(map(self.__getitem__, _parts(0, self._size)))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, LabelTexts):
            return len(self) == len(other) and self.begins(other)
        return isinstance(other, Sequence) and list(self) == list(other)

    def begins(self, labels: "LabelTexts") -> bool:
        """Whether these are the first ones of `labels`: equal labels have equal codes."""
        code = self._coded[: self._used]
        return self._size <= len(labels) and np.array_equal(code, labels._coded[: labels._used][: self._used])

    def extend(self, texts: Sequence[bytes]) -> None:
        """Append labels, each given as UTF-8."""
        self.extend_packed(*packed(texts))

    def extend_packed(self, text: NDArray[np.uint8], ends: NDArray[np.int64]) -> None:
        """Append labels whose UTF-8 stands one after the other in `text`, and ends at `ends`."""
        if not len(ends):
            return
        size = self._size + len(ends)
        self._coded = grown(self._coded, self._used + len(text) + MOST_BESIDE * len(ends))
        self._starts = grown(self._starts, size // CHUNK + 1)
        self._used = encode_labels(text, ends, self._last, self._size, self._coded, self._used, self._starts)
        last = int(ends[-2]) if len(ends) > 1 else 0
        self._last = text[last : ends[-1]].copy()
        self._longest = max(self._longest, int(np.diff(ends, prepend=0).max()))
        self._size = size

    def copy(self) -> "LabelTexts":
        """The same labels, which grow by themselves; where there is no room to grow, both share what they have."""
        found = LabelTexts()
        has_room = self._used < len(self._coded)
        found._coded = self._coded[: self._used].copy() if has_room else self._coded
        found._starts = self._starts[: -(-self._size // CHUNK)]
        found._used, found._size, found._longest = self._used, self._size, self._longest
        found._last = self._last
        return found

    @property
    def code_bytes(self) -> int:
        """How many bytes `code` takes, which follow from the labels alone."""
        return self._used

    def code(self, start: int = 0) -> NDArray[np.uint8]:
        """What `extend_code` reads, from byte `start` on; what was added to the labels was added to its end."""
        return self._coded[start : self._used]

    def extend_code(self, code: NDArray[np.uint8], labels: int) -> None:
        """Append so many labels by what `code` had in addition for them.  Raises ValueError for anything else."""
        if not labels and not len(code):
            return
        if not 0 < 2 * labels <= len(code):
            raise ValueError("this is not the code of so many labels")
        used, size = self._used + len(code), self._size + labels
        joined = code if not self._used else np.concatenate([self._coded[: self._used], code])
        starts = grown(self._starts, size // CHUNK + 1)
        longest = find_starts(joined, self._used, self._size, labels, starts)
        if longest < 0:
            raise ValueError("this is not the code of so many labels")
        self._coded, self._used, self._starts, self._size = joined, used, starts, size
        self._longest = max(self._longest, longest)
        self._last = np.frombuffer(self.take(np.array([size - 1]))[0], np.uint8)

    def take(self, rows: NDArray[Any]) -> list[bytes]:
        """The UTF-8 of the labels in `rows`, integers."""
        rows = rows.astype(np.int64)
        lengths, spelt = np.empty(len(rows), np.int64), np.empty(self._longest, np.uint8)
        measure_labels(self._coded, self._starts, rows, lengths)
        text = np.empty(int(lengths.sum()), np.uint8)
        spell_labels(self._coded, self._starts, rows, text, spelt)
        return cut(text, np.cumsum(lengths))

    def lengths(self, start: int, end: int) -> NDArray[np.int64]:
        """How many bytes each of the labels from `start` up to `end` takes."""
        found = np.empty(end - start, np.int64)
        if len(found):
            measure_following(self._coded, self._starts, start, found)
        return found

    def packed(self, start: int, end: int) -> Iterator[tuple[NDArray[np.uint8], NDArray[np.int64]]]:
        """The labels from `start` up to `end`, some at a time: their UTF-8 one after the other, and where each ends."""
        for part in _parts(start, end):
            lengths = self.lengths(part.start, part.stop)
            text, spelt = np.empty(int(lengths.sum()), np.uint8), np.empty(self._longest, np.uint8)
            spell_following(self._coded, self._starts, part.start, len(lengths), text, spelt)
            yield text, np.cumsum(lengths)


def cut(text: NDArray[np.uint8], ends: NDArray[np.int64]) -> list[bytes]:
    """The texts that stand one after the other in `text` and end at `ends`."""
    whole = text.tobytes()
    return [whole[begin:end] for begin, end in pairwise([0, *ends.tolist()])]


def _parts(start: int, end: int) -> Iterator[slice]:
    for first in range(start, end, AT_ONCE):
        yield slice(first, min(first + AT_ONCE, end))
