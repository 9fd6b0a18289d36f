"""Dead letters that cannot be written wait in a bounded buffer, and nobody waits for them."""

import asyncio
from typing import Any

import pytest
from aiokafka.errors import MessageSizeTooLargeError, TopicAuthorizationFailedError

from stream_dp.config.settings import Settings
from stream_dp.events.dead_letter import DeadLetter
from stream_dp.operations import backoff
from stream_dp.operations.watch import Watch
from stream_dp.sinks import dead_letters
from stream_dp.sinks.dead_letters import DeadLetters, LetterBuffer

SETTINGS = Settings(stream="shop")


def letter(offset: int, value: bytes | None = b"bad", key: bytes | None = None) -> DeadLetter:
    return DeadLetter("a reason", "shop.events", 0, offset, key, value)


def offsets(letters: list[DeadLetter]) -> list[int]:
    return [each.offset for each in letters]


class Topic:
    """A dead-letter topic behind a producer that is refused while `refusal` is set."""

    def __init__(self) -> None:
        self.refusal: Exception | None = None
        self.hangs = False
        self.tries = 0
        self.written: list[tuple[int, bytes | None, bytes | None, bool]] = []

    def producer(self, *_: Any) -> "Topic":
        return self

    async def start(self) -> None:
        """Connected at once."""

    async def send_and_wait(
        self, topic: str, value: bytes | None, key: bytes | None, headers: list[tuple[str, bytes]]
    ) -> None:
        self.tries += 1
        assert topic == SETTINGS.dead_letters
        if self.hangs:
            await asyncio.Event().wait()
        if self.refusal is not None:
            raise self.refusal
        if value is not None and len(value) > 1_000:
            raise MessageSizeTooLargeError
        fields = dict(headers)
        self.written.append((int(fields["offset"]), key, value, "left-out" in fields))

    async def until_tried(self, times: int) -> None:
        while self.tries < times:
            await asyncio.sleep(0.001)


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch) -> Topic:
    async def stopped(*_: Any, **__: Any) -> None:
        """Nothing is open."""

    topic = Topic()
    monkeypatch.setattr(dead_letters, "letter_producer", topic.producer)
    monkeypatch.setattr(dead_letters, "stop_producer", stopped)
    monkeypatch.setattr(backoff, "_FIRST_WAIT_SECONDS", 0.001)
    monkeypatch.setattr(backoff, "_LONGEST_WAIT_SECONDS", 0.001)
    return topic


@pytest.fixture
def watch() -> Watch:
    return Watch("shop", "shop.events")


def metric(watch: Watch, name: str) -> float | None:
    return watch.operator.registry.get_sample_value(f"stream_dp_operator_{name}", {"stream": "shop"})


async def test_letters_are_written_with_what_they_copy(topic: Topic, watch: Watch) -> None:
    async with DeadLetters(SETTINGS, watch) as letters:
        await letters.put([letter(3, b"bad", b"key"), letter(5, None), letter(8, b"x" * 2_000)])
        await letters.written()
        assert sorted(topic.written) == [
            (3, b"key", b"bad", False),
            (5, b"", None, False),
            (8, b"", None, True),
        ]
    assert metric(watch, "dead_letters_waiting") == 0


async def test_a_right_that_is_missing_holds_nobody_up(
    topic: Topic, watch: Watch, caplog: pytest.LogCaptureFixture
) -> None:
    topic.refusal = TopicAuthorizationFailedError("shop.dead-letters")
    async with DeadLetters(SETTINGS, watch) as letters:
        await letters.put(map(letter, range(250)))
        await letters.written()
        await topic.until_tried(2_000)
        assert metric(watch, "dead_letters_waiting") == 250
        told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
        first, *told = told
        assert first.startswith(
            "the record at offset 0 of partition 0 of shop.events is not an event: a reason;"
        )
        assert len(told) == 1
        assert "dead letters cannot be written to shop.dead-letters" in told[0]
        topic.refusal = None
        while metric(watch, "dead_letters_waiting"):
            await asyncio.sleep(0.001)
    assert sorted({each[0] for each in topic.written}) == list(range(250))
    assert "dead letters are written to shop.dead-letters again" in caplog.text


async def test_a_broker_that_does_not_answer_holds_nobody_up_for_long(
    topic: Topic, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters, "_LONGEST_SILENCE_SECONDS", 0.01)
    topic.hangs = True
    async with DeadLetters(SETTINGS, watch) as letters:
        await letters.put([letter(1)])
        await letters.written()
        assert metric(watch, "dead_letters_waiting") == 1
        topic.hangs = False
        while not topic.written:
            await asyncio.sleep(0.001)


async def test_letters_that_are_lost_at_the_end_are_spoken_of(
    topic: Topic, watch: Watch, caplog: pytest.LogCaptureFixture
) -> None:
    topic.refusal = TopicAuthorizationFailedError("shop.dead-letters")
    async with DeadLetters(SETTINGS, watch) as letters:
        await letters.put([letter(1)])
    assert "could not be written to shop.dead-letters are lost" in caplog.text


async def test_all_is_written_before_the_end(topic: Topic, watch: Watch) -> None:
    async with DeadLetters(SETTINGS, watch) as letters:
        await letters.put(map(letter, range(1_000)))
    assert [each[0] for each in topic.written] == list(range(1_000))


async def test_letters_without_room_are_counted(
    topic: Topic, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic.refusal = TopicAuthorizationFailedError("shop.dead-letters")
    async with DeadLetters(SETTINGS, watch) as letters:
        letters._buffer = LetterBuffer(most_letters=10)
        await letters.put(map(letter, range(25)))
        assert (metric(watch, "dead_letters_waiting"), metric(watch, "dead_letters_lost_total")) == (10, 15)
        topic.refusal = None
        await letters.put([])
        while metric(watch, "dead_letters_waiting"):
            await asyncio.sleep(0.001)
    assert sorted(each[0] for each in topic.written) == list(range(15, 25))


def test_the_oldest_letters_make_room() -> None:
    buffer = LetterBuffer(most_letters=3, most_bytes=10**9)
    for offset in range(5):
        buffer.put(letter(offset))
    assert (offsets(buffer.take()), buffer.lost, len(buffer)) == ([2, 3, 4], 2, 0)


def test_a_buffer_is_bounded_in_bytes() -> None:
    buffer = LetterBuffer(most_letters=10**9, most_bytes=1 << 20)
    for offset in range(1_000):
        buffer.put(letter(offset, b"x" * 10_000))
    kept = len(buffer)
    assert 90 < kept < 105
    assert buffer.lost == 1_000 - kept
    assert sum(each.size for each in buffer.take()) <= 1 << 20


def test_a_letter_larger_than_a_message_waits_without_its_content() -> None:
    buffer = LetterBuffer()
    buffer.put(letter(1, b"x" * (100 << 20), b"key"))
    [kept] = buffer.take()
    assert (kept.key, kept.value, dict(kept.headers)["left-out"]) == (None, None, b"key and value: too large")


def test_few_letters_are_taken_where_they_are_large() -> None:
    buffer = LetterBuffer()
    for offset in range(20):
        buffer.put(letter(offset, b"x" * 1_000_000))
    assert [len(buffer.take()) for _ in range(5)] == [5, 5, 5, 5, 0]
