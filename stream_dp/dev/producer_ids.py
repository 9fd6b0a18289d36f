"""Producer ids of the embedded broker (trying out and tests): never given twice, restarts included."""

from pathlib import Path

from stream_dp.dev.atomic_file import write_atomically

_BLOCK = 1000  # ids reserved on disk at a time


class ProducerIds:
    """Hands out producer ids; the end of the reserved block is on disk before any id of it is used."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._next = int(path.read_text()) if path.exists() else 0
        self._reserved = self._next

    def new(self) -> int:
        if self._next == self._reserved:
            self._reserved += _BLOCK
            write_atomically(self._path, str(self._reserved))
        self._next += 1
        return self._next - 1
