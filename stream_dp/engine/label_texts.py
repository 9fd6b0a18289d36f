"""The text of many labels, packed: no object a label."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, pairwise
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from stream_dp.counters.protocol import grown

AT_ONCE = 10_000
"""So many labels at a time are made objects of, where all of them are needed in turn."""


class LabelTexts(Sequence[str]):
    """A growing sequence of labels: their UTF-8 one after the other, and where each of them ends.

    It takes 8 bytes a label beside the text.  Reading a label makes a new str.
    """

    def __init__(self, labels: Iterable[str] = ()) -> None:
        self._text = bytearray()
        self._ends = np.zeros(1, np.int64)  # of label i in place i + 1, so that it begins in place i
        self._size = 0
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
        return self._text[self._ends[row] : self._ends[row + 1]].decode()

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(map(self.__getitem__, _parts(0, self._size)))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, LabelTexts):
            return len(self) == len(other) and self.begins(other)
        return isinstance(other, Sequence) and list(self) == list(other)

    def begins(self, labels: "LabelTexts") -> bool:
        """Whether these are the first ones of `labels`."""
        size, length = self._size, self._ends[self._size]
        same_ends = size <= len(labels) and np.array_equal(
            self._ends[1 : size + 1], labels._ends[1 : size + 1]
        )
        return same_ends and memoryview(self._text) == memoryview(labels._text)[:length]

    def extend(self, texts: Sequence[bytes]) -> None:
        """Append labels, each given as UTF-8."""
        size = self._size + len(texts)
        self._ends = grown(self._ends, size + 1)
        lengths = np.fromiter(map(len, texts), np.int64, len(texts))
        np.cumsum(lengths, out=self._ends[self._size + 1 : size + 1])
        self._ends[self._size + 1 : size + 1] += self._ends[self._size]
        self._text += b"".join(texts)
        self._size = size

    def extend_by(self, labels: "LabelTexts", start: int = 0) -> None:
        """Append those of `labels` from place `start` on."""
        size = self._size + len(labels) - start
        moved = self._ends[self._size] - labels._ends[start]
        self._ends = grown(self._ends, size + 1)
        self._ends[self._size + 1 : size + 1] = labels._ends[start + 1 : len(labels) + 1] + moved
        self._text += labels.text(start, len(labels))
        self._size = size

    def since(self, start: int) -> "LabelTexts":
        """A copy of those from place `start` on."""
        rest = LabelTexts()
        rest.extend_by(self, start)
        return rest

    def take(self, rows: NDArray[Any]) -> list[bytes]:
        """The UTF-8 of the labels in `rows`, integers."""
        starts, ends = self._ends[rows].tolist(), self._ends[rows + 1].tolist()
        with memoryview(self._text) as text:
            return [bytes(text[start:end]) for start, end in zip(starts, ends, strict=True)]

    def text(self, start: int, end: int) -> bytes:
        """The UTF-8 of the labels from `start` up to `end`, one after the other."""
        return bytes(memoryview(self._text)[self._ends[start] : self._ends[end]])

    def lengths(self, start: int, end: int) -> NDArray[np.int64]:
        """How many bytes each of these labels takes."""
        return np.diff(self._ends[start : end + 1])

    def encoded(self, start: int, end: int) -> Iterator[list[bytes]]:
        """The labels from `start` up to `end` as UTF-8, `AT_ONCE` at a time."""
        for part in _parts(start, end):
            text, first = self.text(part.start, part.stop), self._ends[part.start]
            ends = (self._ends[part.start : part.stop + 1] - first).tolist()
            yield [text[begin:end] for begin, end in pairwise(ends)]


def _parts(start: int, end: int) -> Iterator[slice]:
    for first in range(start, end, AT_ONCE):
        yield slice(first, min(first + AT_ONCE, end))
