"""Rows beyond memory: in a file without a name, which vanishes with the process.

It is divided so that all rows of a user are in one part.  What is stored is as private as what was read, and so has to
be the folder of temporary files (TMPDIR).
"""

import tempfile
import weakref

import numpy as np
from numpy.typing import NDArray

from stream_dp.errors import WorkerEnds

_PARTS = 64
USER_SHIFT = 32
"""A packed row is user << USER_SHIFT | item."""

Integers = NDArray[np.int64]


class StoredRows:
    """Packed rows, int64 of shape (rows,), put in one after the other, and taken out part by part."""

    def __init__(self) -> None:
        try:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115  # open as long as this is
        except OSError as error:
            raise _no_room(error) from None
        weakref.finalize(self, self._file.close)
        self._stretches: list[list[tuple[int, int]]] = [[] for _ in range(_PARTS)]
        self._rows = 0

    def __len__(self) -> int:
        return self._rows

    def put(self, packed: Integers) -> None:
        """Store some more.  Raises `WorkerEnds`."""
        parts = ((packed >> USER_SHIFT) % _PARTS).astype(np.uint8)
        try:
            self._file.seek(8 * self._rows)
            self._file.write(packed[np.argsort(parts, kind="stable")].data)
            self._file.flush()
        except OSError as error:
            raise _no_room(error) from None
        ends = self._rows + np.cumsum(np.bincount(parts, minlength=_PARTS))
        for number, (start, end) in enumerate(zip([self._rows, *ends[:-1]], ends, strict=True)):
            self._stretches[number].append((int(start), int(end - start)))
        self._rows += len(packed)

    def part(self, number: int) -> Integers:
        """All rows of the users of one part.  Raises `WorkerEnds` where they cannot be read again."""
        found = [np.empty(0, np.int64)]
        try:
            for start, count in self._stretches[number]:
                self._file.seek(8 * start)
                found.append(np.frombuffer(self._file.read(8 * count), np.int64))
        except OSError as error:
            raise _no_room(error) from None
        return np.concatenate(found)

    @property
    def parts(self) -> range:
        """The numbers of the parts."""
        return range(_PARTS)


def _no_room(error: OSError) -> WorkerEnds:
    return WorkerEnds(
        f"rows beyond memory cannot be stored in {tempfile.gettempdir()}: {error.strerror}; let TMPDIR name a private "
        "folder with 8 bytes of room for each row, and run the job again with the same --id"
    )
