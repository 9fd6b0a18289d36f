"""A standby whose rehearsal fails says so, and tries again."""

import asyncio
import logging
from typing import Any

import pytest

from stream_dp.config.settings import Settings
from stream_dp.operations.watch import Watch
from stream_dp.workers import standby
from stream_dp.workers.standby import Standby


class LeaseUntil:
    """A lease that somebody else has, until `over`."""

    def __init__(self) -> None:
        self.over = asyncio.Event()

    def claim(self) -> bool:
        return self.over.is_set()


async def test_a_rehearsal_that_fails_is_told_once_and_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lease, tried = LeaseUntil(), [0]
    loop = asyncio.get_running_loop()

    def rehearse(_: Standby) -> None:
        tried[0] += 1
        if tried[0] == 3:
            loop.call_soon_threadsafe(lease.over.set)
        raise ArithmeticError("nobody expects this")

    monkeypatch.setattr(Standby, "_rehearse", rehearse)
    monkeypatch.setattr(standby, "_warm_up", lambda _: None)
    monkeypatch.setattr(standby, "_REHEARSE_AGAIN_SECONDS", 0.0)
    nobody: Any = None
    someone: Any = lease
    waiting = Standby(Settings(stream="shop"), nobody, someone, Watch("shop", "shop.events"))
    with caplog.at_level(logging.ERROR):
        assert await asyncio.wait_for(waiting.await_turn(asyncio.Event()), 120) is None
    assert tried[0] >= 3
    [told] = caplog.records
    assert "a rehearsal of this standby failed; it is tried again" in told.getMessage()
