"""A viewer as docs/dashboard.md describes one: it makes whole releases of the frames it gets."""

import json
from typing import Any


class Viewer:
    """Holds what a page holds after the frames it has read."""

    def __init__(self) -> None:
        self.labels: list[str] = []
        self.told: dict[str, Any] = {}
        self.wholes = self.updates = 0

    def read(self, frame: bytes) -> None:
        """Take one event of the stream."""
        fields = dict(line.split(": ", 1) for line in frame.decode().splitlines() if line)
        content = json.loads(fields["data"])
        labels = content.pop("labels", [])
        if fields["event"] == "whole":
            self.labels, self.wholes = labels, self.wholes + 1
        else:
            assert fields["event"] == "update"
            self.labels, self.updates = self.labels + labels, self.updates + 1
        self.told.update(content)

    @property
    def round(self) -> int:
        """The round on show, 0 for none."""
        return int(self.told["release"]["round"]) if "release" in self.told else 0

    @property
    def counts(self) -> dict[str, int]:
        """The release on show."""
        return {self.labels[each]: n for each, n in zip(self.told["ids"], self.told["counts"], strict=True)}
