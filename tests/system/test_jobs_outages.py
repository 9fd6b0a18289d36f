"""A worker of jobs that cannot work for a while: what it holds on to, and whether it goes on."""

import socket
import threading
from collections.abc import Iterator

import pytest

from stream_dp.jobs.worker import JobWorker
from stream_dp.settings import Settings


@pytest.fixture
def nowhere() -> Iterator[str]:
    """The URL of a Redis that is not there, and will not be."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield f"redis://127.0.0.1:{holder.getsockname()[1]}/0"


def test_an_outage_of_redis_costs_no_thread_for_each_attempt(
    kafka: str, nowhere: str, topic_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = JobWorker(Settings(stream=topic_prefix, kafka=kafka, redis=nowhere))
    asked, before = 0, set(threading.enumerate())
    next_offset = running.store.next_offset

    def counted(name: str) -> int | None:
        nonlocal asked
        asked += 1
        if asked == 3:
            running.stop()
        return next_offset(name)

    monkeypatch.setattr(running.store, "next_offset", counted)
    running.run()
    assert asked == 3
    assert set(threading.enumerate()) <= before
