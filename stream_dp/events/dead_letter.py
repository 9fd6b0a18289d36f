"""A record that was not a valid event, and why."""

from dataclasses import dataclass, replace

_BYTES_BESIDE_CONTENT = 500


@dataclass(frozen=True)
class DeadLetter:
    """A record that was counted as an empty event: the original bytes and why.  RAW DATA."""

    reason: str
    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    left_out: bool = False

    @property
    def size(self) -> int:
        """About how many bytes it takes in memory."""
        return len(self.key or b"") + len(self.value or b"") + len(self.reason) + _BYTES_BESIDE_CONTENT

    def without_content(self) -> "DeadLetter":
        """This dead letter without the original key and value, which are too large to be sent once more."""
        return replace(self, key=None, value=None, left_out=True)

    @property
    def headers(self) -> list[tuple[str, bytes]]:
        """What the dead-letter topic's record carries beside the original key and value."""
        fields: dict[str, str | int] = {
            "reason": self.reason,
            "topic": self.topic,
            "partition": self.partition,
            "offset": self.offset,
        }
        if self.left_out:
            fields["left-out"] = "key and value: too large"
        return [(name, str(value).encode()) for name, value in fields.items()]
