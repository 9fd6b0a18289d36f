"""Streams over a topic with several partitions: what is fed to them, and how many rounds that makes."""

from tests.system.example_events import some_events
from tests.system.streams import Stream

PARTITIONS = 3
KINDS = ["ticks", "per-event", "every-3"]


def feed_segments(stream: Stream, first: int, last: int, partitions: int = PARTITIONS) -> None:
    """Events in all partitions, a barrier after each dozen; every third one closes nothing."""
    for number in range(first, last + 1):
        if number % 3:
            stream.spread(some_events(12, seed=number), partitions)
        stream.close_rounds(1_000 * number)


def rounds(kind: str, segments: int) -> int:
    events = 12 * sum(1 for number in range(1, segments + 1) if number % 3)
    return {"ticks": segments, "per-event": events, "every-3": events // 3}[kind]
