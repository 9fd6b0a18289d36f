"""Barriers for tests: what a writer would write, at moments that the test chooses."""

from stream_dp.events.barrier_chain import PARTITION, Barrier, BarrierChain, beginning

KEY = bytes(range(32))
STREAM = "s"
CHAIN = "00" * 16


def chain(key: bytes = KEY, stream: str = STREAM, start: Barrier | None = None) -> BarrierChain:
    """A chain from its beginning on, or from `start` on."""
    return BarrierChain(key, stream, start or beginning(CHAIN, 0, 0))


def barriers(*ends: int, due: int = 1_000) -> list[Barrier]:
    """Barriers that count, each `due` milliseconds after the one before, at these ends of the events."""
    following, found = chain(), []
    for place, end in enumerate(ends):
        value = following.encode(due * (place + 1), {PARTITION: end})
        barrier = following.take(place, value)
        assert barrier is not None
        found.append(barrier)
    return found


def values(*ends: int, key: bytes = KEY, due: int = 1_000) -> list[bytes]:
    """The records of such barriers."""
    following, found = chain(key), []
    for place, end in enumerate(ends):
        found.append(following.encode(due * (place + 1), {PARTITION: end}))
        following.take(place, found[-1])
    return found
