"""What a consumer group has given to one of its members, and what became of it: partitions of events, or shards.

What the group takes away is saved and kept in memory, in case it comes back.  What another process has taken over in
Redis is given up; if the group still says that it belongs here, that process slept, so it is taken over again.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Generic, Protocol, TypeVar

from stream_dp.kafka.log import NoLeader
from stream_dp.operations.progress import Progress
from stream_dp.store.fence import Fenced

logger = logging.getLogger(__name__)

_FENCED_SECONDS, _UNLED_SECONDS = 1.0, 5.0


class Holding(Protocol):
    """What is held by a fence in Redis."""

    def check_hold(self) -> None:
        """Raises `Fenced` where another process has taken it over."""


Held = TypeVar("Held", bound=Holding)


class Holdings(Generic[Held]):
    """What a member holds, by the number of its partition.

    `lock` is held while holdings change, which a rebalance must not interrupt.
    """

    def __init__(self, stream: str, name: str, give_up: Callable[[int, Held], None]) -> None:
        """`name` is what a holding is called in the log; `give_up` is told of those that somebody else has."""
        self._stream, self._name, self._give_up = stream, name, give_up
        self._held: dict[int, Held] = {}
        self._let_go: dict[int, Held] = {}
        self._to_open: dict[int, float] = {}  # with the time from which on to try
        self.lock = asyncio.Lock()

    def __len__(self) -> int:
        return len(self._held)

    def get(self, number: int) -> Held | None:
        """The holding of this number, if it is open."""
        return self._held.get(number)

    def items(self) -> list[tuple[int, Held]]:
        """Those that are open now, which may change meanwhile."""
        return list(self._held.items())

    def values(self) -> list[Held]:
        """See `items`."""
        return list(self._held.values())

    @property
    def to_open(self) -> list[int]:
        """Those that the group has given to this process, and that are not open yet."""
        return list(self._to_open)

    def assigned(self, numbers: Iterable[int]) -> None:
        """The group has divided everything anew: this is to be opened."""
        self._to_open = dict.fromkeys(numbers, 0.0)
        self._let_go = {number: each for number, each in self._let_go.items() if number in self._to_open}

    def let_go(self) -> list[tuple[int, Held]]:
        """Keep all in case the group gives them back; returns those that were open."""
        self._to_open, self._let_go, self._held = {}, self._held, {}
        return list(self._let_go.items())

    def forget(self, number: int) -> None:
        """Do not keep what was let go."""
        self._let_go.pop(number, None)

    def begin_again(self) -> None:
        """Open all that are open once more, from what Redis has."""
        self._to_open |= dict.fromkeys(self._held, 0.0)
        self._held, self._let_go = {}, {}

    async def open_due(
        self, opened: Callable[[int, Held | None], Awaitable[Held]], progress: Progress
    ) -> None:
        """Open what was assigned.

        `opened` gets the number and what is still in memory, where nobody else has had it since.  What Kafka has no
        leader for is tried again later, and holds up nothing else.
        """
        for number in [number for number, since in self._to_open.items() if since <= time.monotonic()]:
            async with self.lock:  # between two of them, the group may divide anew
                if number in self._to_open:
                    with progress.waiting(f"{self._name} {number} to be loaded"):
                        try:
                            await self.guarded(number, self._open(number, opened))
                        except NoLeader as unled:
                            logger.warning("stream %s: %s", self._stream, unled)
                            self._to_open[number] = time.monotonic() + _UNLED_SECONDS

    async def _open(self, number: int, opened: Callable[[int, Held | None], Awaitable[Held]]) -> None:
        kept = self._let_go.pop(number, None)
        if kept is not None:
            try:
                await asyncio.to_thread(kept.check_hold)
            except Fenced:
                kept = None
        self._held[number] = await opened(number, kept)
        del self._to_open[number]

    async def guarded(self, number: int, work: Awaitable[None]) -> None:
        """Do something for a holding, and give it up where another process has taken it over."""
        try:
            await work
        except Fenced as fenced:
            logger.warning("stream %s: %s %d: %s", self._stream, self._name, number, fenced)
            held = self._held.pop(number, None)
            if held is not None:
                self._give_up(number, held)
            self._to_open[number] = time.monotonic() + _FENCED_SECONDS

    async def check_holds(self, progress: Progress) -> None:
        """Ask Redis who holds them."""
        for number, each in self.items():
            with progress.waiting("redis"):
                await self.guarded(number, asyncio.to_thread(each.check_hold))
