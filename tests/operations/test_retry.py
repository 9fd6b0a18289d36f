"""An outage is waited for, longer each time and never in step with others; anything else is raised at once."""

import asyncio
from collections.abc import Iterator
from itertools import pairwise
from types import SimpleNamespace

import pytest
from kafka.errors import KafkaTimeoutError
from redis.exceptions import AuthenticationError
from redis.exceptions import ConnectionError as RedisIsAway

from stream_dp.config.settings import Settings
from stream_dp.errors import Refused
from stream_dp.operations import backoff as backoff_file
from stream_dp.operations.backoff import Backoff, pause
from stream_dp.operations.retry import awaited, retry_until_done
from stream_dp.operations.watch import Watch
from stream_dp.store.ledger import NotDurable

SETTINGS = Settings(
    stream="shop", epsilon=1.0, delta=1e-6, horizon=7, items_per_event=1, redis="redis://:secret@state:6379/0"
)
FIRST, LONGEST = backoff_file._FIRST_WAIT_SECONDS, backoff_file._LONGEST_WAIT_SECONDS


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The time by which an attempt lasts, moved by hand."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(backoff_file, "time", SimpleNamespace(monotonic=lambda: clock.now))
    return clock


def test_waits_double_up_to_a_limit_and_keep_to_the_upper_half(clock: SimpleNamespace) -> None:
    backoff = Backoff()
    most = FIRST
    for _ in range(12):
        backoff.begin()
        assert most / 2 <= backoff.failed(OSError()) <= most
        most = min(2 * most, LONGEST)
    assert most == LONGEST


def test_an_attempt_that_lasted_begins_with_short_waits_again(clock: SimpleNamespace) -> None:
    backoff = Backoff()
    for _ in range(12):
        backoff.begin()
        backoff.failed(OSError())
    backoff.begin()
    clock.now += LONGEST + 1
    assert backoff.failed(OSError()) <= FIRST


def test_workers_that_lost_a_server_together_do_not_come_back_together(clock: SimpleNamespace) -> None:
    workers = [Backoff() for _ in range(20)]
    assert len({worker.failed(OSError()) for worker in workers}) == 20


@pytest.fixture
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What would have been waited."""
    waits: list[float] = []

    async def noted(stopping: asyncio.Event, seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr(backoff_file, "pause", noted)
    return waits


async def attempts(*outcomes: Exception | None) -> tuple[int, Watch]:
    """How many attempts were made where they end like this; a last one that fails with nothing is the end."""
    left: Iterator[Exception | None] = iter(outcomes)
    made, finished = 0, False
    watch = Watch("shop", "shop.events")

    async def attempt() -> None:
        nonlocal made, finished
        made += 1
        outcome = next(left)
        if outcome is not None:
            raise outcome
        finished = True

    await retry_until_done(attempt, lambda: finished, asyncio.Event(), SETTINGS, list, watch)
    return made, watch


async def test_outages_of_all_kinds_are_waited_for(no_waiting: list[float]) -> None:
    outages = [
        KafkaTimeoutError(),
        RedisIsAway(),
        OSError(),
        NotDurable("slow disk"),
    ]
    made, watch = await attempts(*outages, None)
    assert made == len(no_waiting) + 1 == len(outages) + 1
    assert all(later > earlier / 2 for earlier, later in pairwise(no_waiting))
    counted = {server: counter._value.get() for server, counter in watch.operator.outages.items()}
    assert counted == {"kafka": 2, "redis": 2, "schema-registry": 0}


async def test_a_mistake_is_no_outage(no_waiting: list[float]) -> None:
    with pytest.raises(ValueError, match="a defect"):
        await attempts(RedisIsAway(), ValueError("a defect"))
    assert len(no_waiting) == 1


async def test_a_wrong_password_is_a_refusal_and_names_what_to_change(no_waiting: list[float]) -> None:
    """It is told without the password; later Redis may be there again before its users are."""
    with pytest.raises(Refused, match=r"Redis at state refuses .* set redis_password") as refusal:
        await attempts(AuthenticationError("invalid username-password pair"))
    assert "secret" not in str(refusal.value)
    assert no_waiting == []
    made, _ = await attempts(RedisIsAway(), AuthenticationError("no password is set"), None)
    assert made == 3


async def _never() -> None:
    raise AssertionError("no attempt is made")


async def test_who_is_stopped_while_waiting_waits_no_longer() -> None:
    stopping = asyncio.Event()
    stopping.set()
    async with asyncio.timeout(60):
        await pause(stopping, 3_600)
        await retry_until_done(_never, lambda: False, stopping, SETTINGS, list, Watch("shop", "shop.events"))


@pytest.mark.parametrize(
    ("outage", "who"),
    [
        (RedisIsAway(), "Redis at state"),
        (NotDurable(""), "Redis at state"),
        (KafkaTimeoutError(), f"Kafka at {SETTINGS.kafka}"),
    ],
)
def test_the_server_that_is_waited_for_is_named_without_its_password(outage: Exception, who: str) -> None:
    assert awaited(outage, SETTINGS) == who
