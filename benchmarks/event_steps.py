"""Where the time of an event goes between two topics: the steps of a worker, timed within one that runs."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any
from unittest.mock import patch

from stream_dp.engine.discovery_histogram import DiscoveryHistogram
from stream_dp.engine.round_chain import RoundChain
from stream_dp.pipeline.intake import Intake
from stream_dp.releases.encoder import ReleaseEncoder
from stream_dp.sinks import releases
from stream_dp.sinks.sending import Batch

_STEPS = (
    ("decode, bound, and add to the digest of the log", Intake, "process"),
    ("extend the hash chain", RoundChain, "extend"),
    ("count, and draw noise", DiscoveryHistogram, "_block"),
    ("write releases", ReleaseEncoder, "encode"),
    ("put releases into batches", releases, "packed"),
)
_WAITING, _CLIENTS = "wait for the broker", "Kafka's clients and the event loop"
BESIDE = "beside that, in another thread: compress batches"


class Steps:
    """Seconds by step from the last `begin` on.  The event loop's own are what the steps leave of the whole."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = defaultdict(float)
        self._begun, self._whole = perf_counter(), 0.0

    def begin(self) -> None:
        """Forget what was timed before."""
        self._seconds.clear()
        self._begun = perf_counter()

    def microseconds(self, events: int) -> dict[str, float]:
        """Microseconds an event by step; all but the last one add up to the whole."""
        found = {name: self._seconds[name] for name in (*(name for name, *_ in _STEPS), _WAITING)}
        found[_CLIENTS] = self._whole - sum(found.values())
        found[BESIDE] = self._seconds[BESIDE]
        return {name: seconds / events * 1e6 for name, seconds in found.items()}

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Every step that is done meanwhile by this thread's event loop is timed."""
        selector: Any = asyncio.get_running_loop()._selector  # type: ignore[attr-defined]
        timed = [*_STEPS, (_WAITING, selector, "select"), (BESIDE, Batch, "compress")]
        patches = [
            patch.object(owner, name, self._timing(step, getattr(owner, name))) for step, owner, name in timed
        ]
        for each in patches:
            each.start()
        try:
            yield
        finally:
            self._whole = perf_counter() - self._begun
            for each in patches:
                each.stop()

    def _timing(self, step: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def timing(*arguments: Any, **options: Any) -> Any:
            start = perf_counter()
            try:
                return function(*arguments, **options)
            finally:
                self._seconds[step] += perf_counter() - start

        return timing
