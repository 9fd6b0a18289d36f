"""Streams whose rounds end by barriers: make them, and open an epoch to write barriers for."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from stream_dp.events.barrier_chain import decode_barrier, named
from stream_dp.events.record import Record
from stream_dp.releases.release import decode_release
from tests.system.streams import Stream

TICKS = {"rounds": "ticks", "tick_seconds": 0.1}
NO_MORE: dict[str, Any] = {"write_barriers": False}
"""Settings of a worker that releases what the barriers there are close, and writes none."""


MakeStream = Callable[..., AbstractContextManager[Stream]]


def times(stream: Stream, epoch: int = 1) -> dict[int, str]:
    """When each round of an epoch was closed, as its release says."""
    found = [decode_release(record.value or b"") for record in stream.releases()]
    return {release.round: release.ts for release in found if release.epoch == epoch}


def rounds_of_the_log(stream: Stream) -> int:
    """The last round that the barriers in the topic close."""
    return stream.uninterrupted()[0].round


def open_epoch(stream: Stream, **changed: Any) -> None:
    """Run a worker that counts nothing, so that there is an epoch, and a key, to write barriers for."""
    worker = stream.start(**changed)
    stream.wait_until_logged("epoch 1, round 0")
    stream.stop(worker)


def close_round_of_a_day(stream: Stream, due: int, *unled: int) -> None:
    """Write a barrier like a writer that cannot reach some partitions.

    What came around a midnight counts nowhere, and of those partitions not what came since one.
    """
    chain = stream.chain()
    ends = named(stream.ends()) | {str(each): chain.last.ends[each] for each in unled}
    stream.write(stream.settings.barriers, [Record(0, due, None, chain.encode(due, ends, unled=unled))])


def vars_of(record: tuple[int, bytes | None]) -> dict[str, int]:
    found = decode_barrier(record[1])
    return {"n": found.n, "due": found.due} if found is not None else {}
