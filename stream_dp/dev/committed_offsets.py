"""Offsets that consumer groups committed to the embedded broker (trying out and tests), kept in one file.

Each line of the file is a JSON array: group, topic, partition, offset, metadata; a key's last line counts.
It is rewritten at start and whenever most of its lines are out of date.
"""

import json
import os
from pathlib import Path

from stream_dp.dev.atomic_file import write_atomically

_REWRITE_AFTER = 10_000  # out-of-date lines

_Key = tuple[str, str, int]
_Value = tuple[int, str]


class CommittedOffsets:
    """(group, topic, partition) -> (offset, metadata); what is committed survives SIGKILL."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offsets = _read(path)
        self._rewrite()

    def commit(self, group: str, topic: str, partition: int, offset: int, metadata: str) -> None:
        self._offsets[group, topic, partition] = (offset, metadata)
        self._append(json.dumps([group, topic, partition, offset, metadata]))

    def get(self, group: str, topic: str, partition: int) -> tuple[int, str]:
        """(offset, metadata), or (-1, "") if the group committed nothing there."""
        return self._offsets.get((group, topic, partition), (-1, ""))

    def of_group(self, group: str) -> dict[str, list[int]]:
        """Topic -> partitions with a committed offset."""
        found: dict[str, list[int]] = {}
        for owner, topic, partition in self._offsets:
            if owner == group:
                found.setdefault(topic, []).append(partition)
        return found

    def groups(self) -> set[str]:
        return {group for group, _, _ in self._offsets}

    def forget_topic(self, topic: str) -> None:
        """Drop what was committed for a deleted topic."""
        self._offsets = {key: value for key, value in self._offsets.items() if key[1] != topic}
        os.close(self._file)
        self._rewrite()

    def close(self) -> None:
        os.close(self._file)

    def _append(self, line: str) -> None:
        data = line.encode() + b"\n"
        written = os.write(self._file, data)
        if written < len(data):  # a full disk: leave no half line for the next one to be glued to
            os.ftruncate(self._file, os.fstat(self._file).st_size - written)
            raise OSError(f"{self._path.name}: the disk is full")
        self._lines += 1
        if self._lines > _REWRITE_AFTER + 2 * len(self._offsets):
            os.close(self._file)
            self._rewrite()

    def _rewrite(self) -> None:
        lines = [json.dumps([*key, *value]) + "\n" for key, value in self._offsets.items()]
        write_atomically(self._path, "".join(lines))
        self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        self._lines = len(lines)


def _read(path: Path) -> dict[_Key, _Value]:
    """What the file says; a last line that a crash cut short was never acknowledged and is dropped."""
    offsets: dict[_Key, _Value] = {}
    if not path.exists():
        return offsets
    for line in path.read_text().split("\n")[:-1]:
        group, topic, partition, offset, metadata = json.loads(line)
        offsets[group, topic, partition] = (offset, metadata)
    return offsets
