"""Offsets of an events topic, one for each of its partitions: how far a log with several partitions has come."""

from collections.abc import Sequence

Vector = tuple[int, ...]
"""The offset of partition p in place p.  A partition that it does not name came later: it begins at offset 0."""


def at(vector: Sequence[int], partition: int) -> int:
    """The offset of a partition.

    >>> at((3, 5), 1), at((3, 5), 2)
    (5, 0)
    """
    return vector[partition] if partition < len(vector) else 0


def offsets_text(vector: Sequence[int]) -> str:
    """The offsets for people: a number where there is one partition.

    >>> offsets_text((3,)), offsets_text((3, 5))
    ('3', '3/5')
    """
    return "/".join(map(str, vector))


def larger(one: Sequence[int], other: Sequence[int]) -> Vector:
    """The larger offset of each partition.

    >>> larger((3, 5), (4, 1, 7))
    (4, 5, 7)
    """
    return tuple([max(at(one, number), at(other, number)) for number in range(max(len(one), len(other)))])
