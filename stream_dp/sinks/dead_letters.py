"""Dead letters go to their topic beside the releases, which never wait for them.  PRIVATE, like the events they copy.

They have a connection of their own, and a buffer of limited size where the topic cannot be written: no right to it, no
such topic, a broker that refuses them.  Whatever becomes of them, the records that they copy have been counted.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Iterable

from aiokafka import AIOKafkaProducer
from aiokafka.errors import MessageSizeTooLargeError
from kafka.errors import KafkaError

from stream_dp.config.settings import Settings
from stream_dp.events.dead_letter import DeadLetter
from stream_dp.kafka import log, roles
from stream_dp.kafka.rights import missing_rights, told
from stream_dp.operations.backoff import Backoff, retry
from stream_dp.operations.watch import Watch
from stream_dp.sinks.sending import letter_producer, stop_producer

logger = logging.getLogger(__name__)

MOST_LETTERS, MOST_BYTES = 50_000, 64 << 20
"""How many wait at most.  Of what is beyond the oldest are lost, and counted for the operator."""

_LARGEST_LETTER = 1 << 20
_LETTERS_AT_ONCE, _BYTES_AT_ONCE = 100, 4 << 20
_LONGEST_SILENCE_SECONDS = 30.0


def prepare_dead_letters(settings: Settings) -> None:
    """Make sure that dead letters can be written, and warn where they cannot be: releases do not depend on it."""
    try:
        if settings.create_topics:
            log.create_topics(settings.kafka_address, settings.dead_letters)
        reason = why_unwritable(settings)
    except KafkaError as error:
        reason = f"{type(error).__name__}: {error}"
    if reason is not None:
        logger.warning("dead letters will wait in memory, and releases continue: %s", reason)


def why_unwritable(settings: Settings) -> str | None:
    """What to change before dead letters can be written; None if nothing.  Raises KafkaError if no broker answers.

    Nothing is written to find out, because a record in that topic would be a dead letter.
    """
    kafka, topic = settings.kafka_address, settings.dead_letters
    try:
        if missing := missing_rights(kafka, roles.dead_letters(settings)):
            return told(missing)
        log.check_topic(kafka, topic)  # its warning is left out: it may forget
    except log.LogRefused as refused:
        return str(refused)
    return None


class LetterBuffer:
    """Letters that wait to be written, the oldest first, as many as there is room for; `lost` counts the others."""

    def __init__(self, most_letters: int = MOST_LETTERS, most_bytes: int = MOST_BYTES) -> None:
        self._most_letters, self._most_bytes = most_letters, most_bytes
        self._letters: deque[DeadLetter] = deque()
        self._bytes = 0
        self.lost = 0

    def __len__(self) -> int:
        return len(self._letters)

    def put(self, letter: DeadLetter) -> None:
        """Let one wait; a very large one without the key and value that it copies."""
        kept = letter if letter.size <= _LARGEST_LETTER else letter.without_content()
        self._letters.append(kept)
        self._bytes += kept.size
        while len(self._letters) > self._most_letters or self._bytes > self._most_bytes:
            self._take()
            self.lost += 1

    def take(self) -> list[DeadLetter]:
        """The oldest, as many as are sent at once; at least one, where there is one."""
        taken, size = list[DeadLetter](), 0
        while self._letters and len(taken) < _LETTERS_AT_ONCE and (size < _BYTES_AT_ONCE):
            taken.append(self._take())
            size += taken[-1].size
        return taken

    def _take(self) -> DeadLetter:
        letter = self._letters.popleft()
        self._bytes -= letter.size
        return letter


class DeadLetters:
    """The task that writes them, from `async with` to its end.

    A letter is written at least once, unless the buffer overflows, or the process ends while the topic cannot be
    written.
    """

    def __init__(self, settings: Settings, watch: Watch) -> None:
        self._settings, self._watch = settings, watch
        self._buffer = LetterBuffer()
        self._put = self._written = 0
        self._failing = False  # from a failure on until nothing waits any more
        self._changed = asyncio.Condition()
        self._writing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "DeadLetters":
        self._writing = asyncio.create_task(self._write())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._writing is not None
        await self.written()
        self._writing.cancel()
        await asyncio.wait({self._writing})
        if self._left:
            logger.warning(
                "dead letters that could not be written to %s are lost; the records themselves are in %s",
                self._settings.dead_letters,
                self._settings.events,
            )

    async def put(self, letters: Iterable[DeadLetter]) -> None:
        """Let letters wait to be written.  The first one is told, without what it copies."""
        for letter in letters:
            if not self._put:
                logger.warning(
                    "the record at offset %d of partition %d of %s is not an event: %s; it counts as an empty one, "
                    "like all others that come to %s from now on",
                    letter.offset,
                    letter.partition,
                    letter.topic,
                    letter.reason,
                    self._settings.dead_letters,
                )
            self._buffer.put(letter)
            self._put += 1
        await self._tell()

    async def written(self) -> None:
        """Return when all that were put so far are written or lost, or at once while they cannot be written."""
        last = self._put
        async with self._changed:
            await self._changed.wait_for(lambda: self._failing or self._put - self._left >= last)

    @property
    def _left(self) -> int:
        return self._put - self._written - self._buffer.lost

    async def _tell(self) -> None:
        self._watch.dead_letters_wait(self._left, self._buffer.lost)
        async with self._changed:
            self._changed.notify_all()

    async def _write(self) -> None:
        """Whatever fails, the stream goes on."""
        await retry(self._write_until_failure, Backoff(), asyncio.Event())

    async def _write_until_failure(self) -> None:
        """Connect when there is something to write."""
        async with self._changed:
            await self._changed.wait_for(lambda: len(self._buffer))
        try:
            await self._write_on()
        except Exception as failure:
            await self._failed(failure)
            raise

    async def _write_on(self) -> None:
        sender = letter_producer(self._settings.kafka_address, self._settings.compression)
        try:
            await asyncio.wait_for(sender.start(), _LONGEST_SILENCE_SECONDS)
            while True:
                async with self._changed:
                    await self._changed.wait_for(lambda: len(self._buffer))
                await self._write_some(sender)
                if self._failing and not self._left:
                    self._failing = False
                    logger.warning("dead letters are written to %s again", self._settings.dead_letters)
                await self._tell()
        finally:
            await stop_producer(sender, asyncio.CancelledError)  # what it has not written waits here

    async def _write_some(self, sender: AIOKafkaProducer) -> None:
        """Write the oldest letters, all at once.  Those that fail wait again behind the others; raises why one did."""
        letters = self._buffer.take()
        tasks = [asyncio.create_task(self._send(sender, letter)) for letter in letters]
        try:
            await asyncio.wait(tasks, timeout=_LONGEST_SILENCE_SECONDS)
        finally:
            failure: BaseException | None = None
            for letter, task in zip(letters, tasks, strict=True):
                error = task.exception() if task.done() else TimeoutError("Kafka does not answer")
                if error is None:
                    self._written += 1
                else:
                    failure = error
                    task.cancel()
                    self._buffer.put(letter)
        if failure is not None:
            raise failure

    async def _send(self, sender: AIOKafkaProducer, letter: DeadLetter) -> None:
        """Write a letter.  No record may be bad enough to stop the others.

        The client sends no record without key and value: such a one gets an empty key.  One that with its headers has
        grown beyond what the topic takes goes without both; its headers say where the original is.
        """
        topic = self._settings.dead_letters
        try:
            await sender.send_and_wait(topic, letter.value, _key_of(letter), headers=letter.headers)
        except MessageSizeTooLargeError:
            bare = letter.without_content()
            await sender.send_and_wait(topic, None, _key_of(bare), headers=bare.headers)

    async def _failed(self, failure: Exception) -> None:
        if not self._failing:
            logger.warning(
                "dead letters cannot be written to %s and wait in memory, while releases continue: %r",
                self._settings.dead_letters,
                failure,
            )
        self._failing = True
        await self._tell()


def _key_of(letter: DeadLetter) -> bytes | None:
    return b"" if letter.value is None and letter.key is None else letter.key
