"""Writes the labels and numbers of releases as bytes, behind openings that say everything else."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from stream_dp.engine.released_block import ReleasedBlock
from stream_dp.releases.release import LARGEST_PART

NO_COLUMNS: Mapping[str, NDArray[Any]] = {}


class PartEncoder:
    """Writes the parts of releases.  It needs nothing but what is released."""

    def encode(
        self, block: ReleasedBlock, openings: Sequence[bytes], beside: Mapping[str, NDArray[Any]] = NO_COLUMNS
    ) -> list[list[bytes]]:
        """The parts of each round's release; an opening is the JSON of a release up to the field `part`.

        `beside`: integers by field name, in the order of the counts and as many.
        """
        labels, numbers = block.labels.take(block.ranks).tolist(), {"counts": block.counts, **beside}
        ends = np.cumsum(block.sizes)
        places = zip(openings, (ends - block.sizes).tolist(), ends.tolist(), strict=True)
        return [_parts(opening, _pieces(labels, numbers, start, end)) for opening, start, end in places]


def _pieces(
    labels: list[str], numbers: Mapping[str, NDArray[Any]], start: int, end: int
) -> list[tuple[memoryview, bytes]]:
    """The labels from `start` to before `end` and their numbers as JSON, halved until each piece fits into a part.

    The labels come without their brackets, the numbers with the names of their fields.
    """
    names = memoryview(orjson.dumps(labels[start:end]))[1:-1]
    fields = b",".join(
        b'"%s":%s' % (name.encode(), orjson.dumps(column[start:end], option=orjson.OPT_SERIALIZE_NUMPY))
        for name, column in numbers.items()
    )
    if len(names) + len(fields) <= LARGEST_PART or end - start == 1:
        return [(names, fields)]
    middle = (start + end) // 2
    return _pieces(labels, numbers, start, middle) + _pieces(labels, numbers, middle, end)


def _parts(opening: bytes, pieces: Sequence[tuple[memoryview, bytes]]) -> list[bytes]:
    """The parts of one release, each with its piece of the labels."""
    number = len(pieces)
    return [
        b"".join((opening, b',"part":%d,"parts":%d,"labels":[' % (part, number), labels, b"],", fields, b"}"))
        for part, (labels, fields) in enumerate(pieces, 1)
    ]
