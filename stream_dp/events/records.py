"""Many records at once, column by column, so that no step of Python runs for each record."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, repeat
from operator import lt
from typing import overload

from stream_dp.events.record import Headers, Record

_made: "partial[Record]" = partial(tuple.__new__, Record)


@dataclass(frozen=True, slots=True)
class Records(Sequence[Record]):
    """Records of one partition as they follow each other: what stands in place i of each column belongs together.

    `headers` is empty where none of them has any, or where nobody asked for them.
    """

    partition: int
    offsets: Sequence[int]
    timestamps: Sequence[int]
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    headers: Sequence[Headers] = ()

    @classmethod
    def of(cls, records: Sequence[Record]) -> "Records":
        """From records of one partition; raises ValueError for none, and where they are of several."""
        if isinstance(records, Records):
            return records
        offsets, timestamps, keys, values, partitions, headers = zip(*records, strict=True)
        if len(set(partitions)) > 1:
            raise ValueError("records of several partitions have no columns in common")
        return cls(partitions[0], offsets, timestamps, keys, values, headers if any(headers) else ())

    @classmethod
    def joined(cls, parts: Sequence["Records"]) -> "Records":
        """Several of one partition, at least one, one after the other."""
        if len(parts) == 1:
            return parts[0]
        headers: list[Headers] = []
        if any(part.headers for part in parts):
            headers = [each for part in parts for each in part.headers or repeat((), len(part))]
        return cls(
            parts[0].partition,
            [*chain.from_iterable(part.offsets for part in parts)],
            [*chain.from_iterable(part.timestamps for part in parts)],
            [*chain.from_iterable(part.keys for part in parts)],
            [*chain.from_iterable(part.values for part in parts)],
            headers,
        )

    def __len__(self) -> int:
        return len(self.offsets)

    def __iter__(self) -> Iterator[Record]:
        headers = self.headers or repeat(())
        rows = zip(self.offsets, self.timestamps, self.keys, self.values, repeat(self.partition), headers)
        return map(_made, rows)

    @overload
    def __getitem__(self, place: int) -> Record: ...
    @overload
    def __getitem__(self, place: slice) -> "Records": ...
    def __getitem__(self, place: int | slice) -> "Record | Records":
        if isinstance(place, slice):
            return Records(
                self.partition,
                self.offsets[place],
                self.timestamps[place],
                self.keys[place],
                self.values[place],
                self.headers[place],
            )
        headers = self.headers[place] if self.headers else ()
        row = self.offsets[place], self.timestamps[place], self.keys[place], self.values[place]
        return Record(*row, self.partition, headers)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Records) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def ascends_from(self, offset: int) -> bool:
        """Whether every offset is above the one before it, and the first at least `offset`."""
        return self.offsets[0] >= offset and all(map(lt, self.offsets, self.offsets[1:]))
