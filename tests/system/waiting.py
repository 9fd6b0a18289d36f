"""Waiting for a condition, and never for a time."""

import time
from collections.abc import Callable

from tests.stacks import Stillness

GIVE_UP_SECONDS = 120.0


def wait_until(condition: Callable[[], bool], otherwise: Callable[[], str]) -> None:
    """Return once `condition()`; the test fails with what `otherwise` says if that takes far too long."""
    deadline, stillness = time.monotonic() + GIVE_UP_SECONDS, Stillness(otherwise)
    while not condition():
        assert time.monotonic() < deadline, otherwise()
        stillness.look()
        time.sleep(0.05)
