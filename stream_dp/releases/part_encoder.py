"""Writes the labels and numbers of releases as bytes, behind openings that say everything else.

What a label has in every release (its text, since when it is shown) is encoded once and copied from then on, because
the order of labels never changes.  Counts of rounds that show the same labels go from their array to digits in one
pass.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise, repeat
from typing import Any, NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray

from stream_dp.engine.released_block import ReleasedBlock
from stream_dp.releases.noise_fields import changes
from stream_dp.releases.release import LARGEST_PART

_CELLS_AT_ONCE = 1 << 14  # whose digits stay in the second-level cache
_COUNT, _FURTHER = 12, 21
"""How many bytes a part keeps free for a count, and for each further number of a label."""


class _Texts:
    """What each label has in one field, as JSON; all of it is kept joined too, because most rounds show the first ones.

    Text i stands in `joined` from `starts[i]` on, with a comma behind it.
    """

    def __init__(self) -> None:
        self.texts: list[bytes] = []
        self.joined = b""
        self.starts = np.zeros(1, np.int64)

    def extend(self, values: Sequence[Any]) -> None:
        new = [*map(orjson.dumps, values)]
        ends = np.cumsum(np.fromiter((len(text) + 1 for text in new), np.int64, len(new)))
        self.texts += new
        self.starts = np.concatenate([self.starts, ends + self.starts[-1]])
        self.joined += b"".join(text + b"," for text in new)

    def of(self, chosen: slice | NDArray[np.int64]) -> bytes:
        """The texts in these places, joined by commas."""
        if isinstance(chosen, slice):
            return self.joined[self.starts[chosen.start] : max(0, self.starts[chosen.stop] - 1)]
        return b",".join([self.texts[place] for place in chosen.tolist()])

    def sizes(self, chosen: slice | NDArray[np.int64]) -> NDArray[np.int64]:
        """How many bytes each of them takes with its comma."""
        return np.diff(self.starts)[chosen]


class _Part(NamedTuple):
    """What a part of a release says again in every round that shows these labels, before its counts and at its end."""

    chosen: slice | NDArray[np.int64]
    head: bytes
    tail: bytes


class PartEncoder:
    """Writes the parts of releases.  It needs nothing but what is released."""

    def __init__(self) -> None:
        self._known: dict[str, NDArray[Any]] = {}
        self._texts: dict[str, _Texts] = {}
        self._chosen: slice | NDArray[np.int64] | None = None  # the labels that `_parts` are laid out for
        self._parts: list[_Part] = []

    def encode(
        self,
        block: ReleasedBlock,
        openings: Sequence[bytes],
        of_labels: Mapping[str, NDArray[Any]],
        of_counts: Mapping[str, NDArray[Any]],
    ) -> list[list[bytes]]:
        """The parts of each round's release; an opening is the JSON of a release up to the field `part`.

        `of_labels`: integers by field name, one a label, which stay the same while the label is there; `of_counts`:
        integers in the shape of the counts.
        """
        self._know({"labels": block.labels, **of_labels})
        found = list[list[bytes]]()
        for start, end in _runs(block):
            chosen = slice(0, int(block.sizes[start])) if block.shown is None else block.places(start)
            if not _same(chosen, self._chosen):
                self._lay_out(chosen, len(of_counts))
            parts = []
            for part in self._parts:
                here = slice(start, end), part.chosen
                further = {name: column[here] for name, column in of_counts.items()}
                parts.append(_written(openings[start:end], part, block.counts[here], further))
            found += map(list, zip(*parts, strict=True))
        return found

    def _know(self, columns: dict[str, NDArray[Any]]) -> None:
        """Encode what is new; labels that were known stand where they stood, or all of them are others."""
        if columns["labels"] is self._known.get("labels") and columns.keys() == self._known.keys():
            return
        known = len(self._known.get("labels", ()))
        if columns.keys() != self._known.keys() or any(
            not np.array_equal(columns[name][:known], before) for name, before in self._known.items()
        ):
            known, self._texts = 0, {name: _Texts() for name in columns}
        for name, column in columns.items():
            self._texts[name].extend(column[known:].tolist())
        self._known, self._chosen = columns, None

    def _lay_out(self, places: slice | NDArray[np.int64], further: int) -> None:
        """Make the parts of releases of the labels in these places, of `further` numbers beside the counts."""
        names, *fixed = self._texts.items()
        beside = _COUNT + _FURTHER * (further + len(fixed))
        cuts = [*pairwise(_cuts(np.cumsum(names[1].sizes(places) + beside)))]
        self._chosen, self._parts = places, []
        for part, (start, end) in enumerate(cuts, 1):
            mine = slice(start, end) if isinstance(places, slice) else places[start:end]
            head = b',"part":%d,"parts":%d,"labels":[%b],"counts":[' % (part, len(cuts), names[1].of(mine))
            tail = b"".join(b',"%s":[%b]' % (name.encode(), texts.of(mine)) for name, texts in fixed)
            self._parts.append(_Part(mine, head, b"]%b}" % tail))


def _runs(block: ReleasedBlock) -> Iterator[tuple[int, int]]:
    """Rows that show the same labels, as many as make little text: where they begin and end."""
    rows_at_once = max(1, _CELLS_AT_ONCE // max(1, block.counts.shape[1]))
    for start, end in pairwise(changes(block.sizes[:, np.newaxis] if block.shown is None else block.shown)):
        for first in range(start, end, rows_at_once):
            yield first, min(end, first + rows_at_once)


def _same(one: slice | NDArray[np.int64], other: slice | NDArray[np.int64] | None) -> bool:
    if isinstance(one, slice) or not isinstance(other, np.ndarray):
        return isinstance(one, slice) and isinstance(other, slice) and one == other
    return np.array_equal(one, other)


def _cuts(ends: NDArray[np.int64]) -> list[int]:
    """Where labels, whose sizes add up to `ends`, are cut so that each piece fits into a part or is one label.

    Each piece is as long as possible, so labels that follow later move none of the earlier cuts.
    """
    cuts = [0]
    while cuts[-1] < len(ends):
        before = ends[cuts[-1] - 1] if cuts[-1] else 0
        cuts.append(max(cuts[-1] + 1, int(ends.searchsorted(before + LARGEST_PART, "right"))))
    return cuts if len(cuts) > 1 else [0, 0]


def _written(
    openings: Sequence[bytes], part: _Part, counts: NDArray[Any], further: Mapping[str, NDArray[Any]]
) -> Iterator[bytes]:
    """A part of releases that begin with these openings, and have a row of each column of numbers."""
    pieces: list[Iterable[bytes]] = [openings, repeat(part.head), _digits(counts)]
    for name, rows in further.items():
        pieces += repeat(b'],"%b":[' % name.encode()), _digits(rows)
    return map(b"".join, zip(*pieces, repeat(part.tail), strict=False))


def _digits(rows: NDArray[Any]) -> list[bytes]:
    """Each row of integers, of which there is one at least, as JSON without brackets."""
    text = orjson.dumps(np.ascontiguousarray(rows), option=orjson.OPT_SERIALIZE_NUMPY)
    found, start = list[bytes](), 2
    for _ in rows:
        end = text.index(b"]", start)  # a split would take longer
        found.append(text[start:end])
        start = end + 3
    return found
