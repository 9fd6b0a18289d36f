"""The process that writes barriers.  It reads no event: it asks where the events end, and that is all it learns.

When a barrier is written and what it says must not depend on what events hold, so whoever decodes and counts them must
not write it.  This process is not slowed down by them either: it has a core's attention and connections of its own.
"""

import logging
import time
from collections.abc import Callable
from threading import Event
from types import TracebackType

from kafka import TopicPartition
from kafka.admin import OffsetSpec
from kafka.errors import InvalidTimestampError, KafkaError, TopicAuthorizationFailedError
from kafka.protocol.consumer import IsolationLevel

from stream_dp.barriers.topic import barrier_before_last_epoch, check_ends, other_barriers, read_barriers
from stream_dp.config.days import Days, days_of
from stream_dp.config.settings import Settings
from stream_dp.errors import spoken
from stream_dp.events.barrier_chain import Barrier, BarrierChain, named
from stream_dp.kafka import log, roles
from stream_dp.kafka.clients import admin_client, producer_client
from stream_dp.kafka.log import LogRefused
from stream_dp.kafka.outages import Outages
from stream_dp.kafka.rights import refuse_without_rights
from stream_dp.privacy.vector import at

logger = logging.getLogger(__name__)

_ANSWER_SECONDS = 10
_LONGEST_SLEEP_SECONDS = 60.0
_AGAIN_SECONDS = 1.0
_RECORDS_BACK = 1_000
_BEFORE_MIDNIGHT, _STEP = 1_000, 500  # milliseconds


class Moments:
    """When barriers are due: at the multiples of `seconds` since 1970.  `clock` gives seconds since 1970.

    Moments that were missed are made up for by the next one.  With `days`, barriers are also due a second before each
    of them begins and as it begins: the round over midnight is counted nowhere, so it should be short.
    """

    def __init__(
        self, seconds: float, clock: Callable[[], float] = time.time, days: Days | None = None
    ) -> None:
        self._interval = max(1, round(seconds * 1000))
        self._clock, self._days = clock, days
        self._over = self._moment()

    def due(self, last: int) -> int | None:
        """The moment that has come since this was asked last; None if there is none.  `last`: the last barrier's.

        One that was due in a time that has not come, because a clock was wrong, does not hold up the others: they count
        on from there.
        """
        moment = self._moment()
        if moment == self._over:
            return None
        self._over = moment
        if last > moment + self._interval:
            return (last // self._interval + 1) * self._interval
        return moment if moment > last else None

    def seconds_until(self, due: int) -> float:
        """How long it is until a moment; below 0 where it has come."""
        return due / 1000 - self._clock()

    def seconds_left(self) -> float:
        """Until the next moment, or to look at the clock again."""
        now = self.now()
        left = self._interval - now % self._interval
        if self._days is not None:
            midnight = self._days.begins(self._days.at(now) + 1)
            nearly = midnight - _BEFORE_MIDNIGHT
            left = min(left, (nearly if now < nearly else midnight) - now)
        return min(left / 1000, _LONGEST_SLEEP_SECONDS)

    def now(self) -> int:
        """What the clock says, in milliseconds."""
        return int(self._clock() * 1000)

    def _moment(self) -> int:
        """The last moment that has come."""
        now = self.now()
        regular = now // self._interval * self._interval
        if self._days is None:
            return regular
        midnight = self._days.begins(self._days.at(now + _BEFORE_MIDNIGHT))
        return max(regular, midnight if midnight <= now else midnight - _BEFORE_MIDNIGHT)


class BarrierWriter:
    """Writes the barriers of a stream until `stopping`.  `key` is that of `barriers.key.barrier_key`."""

    def __init__(self, settings: Settings, key: bytes, clock: Callable[[], float] = time.time) -> None:
        """`clock` gives seconds since 1970."""
        self._settings, self._key = settings, key
        days = days_of(settings.time_zone) if settings.unit == "user-day" else None
        self._moments = Moments(settings.tick_seconds, clock, days)
        self._counts_on = False  # because the last barrier was due in a time that has not come

    def run(self, stopping: Event) -> None:
        """Write until `stopping`.  An outage of Kafka is waited out; raises `LogRefused` or `Refused`."""
        outages = Outages()
        while not stopping.is_set():
            try:
                with _Connection(self._settings, self._key, self._moments.now) as connection:
                    outages.over()
                    self._write(connection, stopping)
            except (KafkaError, OSError) as outage:
                needed = roles.barriers_writer(self._settings)
                refuse_without_rights(self._settings.kafka_address, needed, outage)
                outages.waits(f"Kafka at {self._settings.kafka}", spoken(outage))
                stopping.wait(_AGAIN_SECONDS)

    def _write(self, connection: "_Connection", stopping: Event) -> None:
        while not stopping.wait(self._moments.seconds_left()):
            due = self._moments.due(connection.last_due)
            if due is not None:
                self._write_one(connection, due)

    def _write_one(self, connection: "_Connection", due: int) -> None:
        """Write the barrier that is due.

        Kafka bounds how far ahead of its own clock that may lie.  Raises `LogRefused` where it is this host's clock
        that lies further ahead; where an earlier barrier does, the next moment is waited for.
        """
        ahead = self._moments.seconds_until(due)
        if ahead > 0 and not self._counts_on:
            logger.warning(
                "the last barrier was due %.0f s from now by this host's clock, and the next ones continue from there: "
                "correct the clocks of all hosts that write barriers",
                ahead,
            )
        self._counts_on = ahead > 0
        try:
            connection.write(due)
        except InvalidTimestampError:
            if self._counts_on:
                return
            raise LogRefused(
                f"Kafka refuses the barrier that is due now, because this host's clock is too far ahead of its own, "
                f"and none was written: correct one of the two clocks (topic {self._settings.barriers!r})"
            ) from None


def rounded_up(answered: int, due: int) -> int:
    """When the answer had come, in whole steps after `due`: how fast a broker is may depend on what events hold.

    >>> rounded_up(10_003, 10_000), rounded_up(10_501, 10_000)
    (10500, 11000)
    """
    return due + _STEP * max(1, -((due - answered) // _STEP))


class _Connection:
    """One connection to Kafka: it knows the chain as far as it was when it wrote last."""

    def __init__(self, settings: Settings, key: bytes, now: Callable[[], int]) -> None:
        self._settings, self._key, self._now = settings, key, now
        self._epochs = TopicPartition(settings.epochs, 0)
        self._admin = admin_client(settings.kafka_address)
        try:
            self._producer = producer_client(settings.kafka_address)
        except BaseException:
            self._admin.close()
            raise
        self._chain: BarrierChain | None = None
        self._journal_end = -1

    def __enter__(self) -> "_Connection":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._producer.close(timeout=0)
        self._admin.close()

    @property
    def last_due(self) -> int:
        """When the last barrier that is known was due."""
        return self._chain.last.due if self._chain is not None else 0

    def write(self, due: int) -> None:
        """Write the barrier that is due, if an epoch is waiting for it.  Raises `LogRefused` or KafkaError."""
        events, unled = self._partitions()
        asked = dict.fromkeys((*events, self._epochs), OffsetSpec.LATEST)
        told = self._admin.list_partition_offsets(asked, IsolationLevel.READ_COMMITTED)
        answered = rounded_up(self._now(), due)
        if self._follow_epochs(told[self._epochs].offset):
            self.write(due)  # a barrier that was just read may be younger than this answer
            return
        if self._chain is None or due <= self._chain.last.due:
            return
        last = self._chain.last.ends
        ends = {place.partition: told[place].offset for place in events}
        ends |= {number: at(last, number) for number in unled}
        vector = [ends[number] for number in sorted(ends)]
        check_ends(self._settings, vector, last)
        value = self._chain.encode(due, named(vector), answered, unled)
        sent = self._producer.send(self._settings.barriers, value, timestamp_ms=due, partition=0)
        self._read_up_to(sent.get(timeout=_ANSWER_SECONDS).offset, value)

    def _partitions(self) -> tuple[list[TopicPartition], list[int]]:
        """The partitions of the events topic that somebody leads, and the numbers of those that nobody does just now.

        The latter hold nobody up: their last offset is said again.
        """
        topic = self._settings.events
        [told] = self._admin.describe_topics([topic])
        if told["error_code"] == TopicAuthorizationFailedError.errno:
            raise TopicAuthorizationFailedError(topic)
        unled = [each["partition_index"] for each in told["partitions"] if each["leader_id"] < 0]
        every = range(len(told["partitions"]))
        return [TopicPartition(topic, number) for number in every if number not in unled], unled

    def _follow_epochs(self, end: int) -> bool:
        """Find the chain of the last epoch if another one may have been opened; returns whether it was looked for."""
        if end == self._journal_end:
            return False
        start = barrier_before_last_epoch(self._settings, self._key, end)
        self._journal_end = end
        if start is None:
            self._chain = None
        elif self._chain is None or self._chain.last.chain != start.chain:
            self._chain = BarrierChain(
                self._key, self._settings.stream, last_of(self._settings, self._key, start)
            )
        return True

    def _read_up_to(self, stored: int, value: bytes) -> None:
        """Follow the chain to the record at the offset `stored`, this process's own: mostly it is the next one."""
        assert self._chain is not None
        last = self._chain.last
        if stored < last.next_offset:
            raise other_barriers(self._settings, last)
        if stored == last.next_offset:
            self._chain.take(stored, value)
            return
        for offset, other in read_barriers(self._settings, last.next_offset, stored + 1):
            self._chain.take(offset, other)


def last_of(settings: Settings, key: bytes, start: Barrier) -> Barrier:
    """The last barrier of a chain, of which `start` is one.  It reads the end of the topic first: most is long past."""
    chain, back = BarrierChain(key, settings.stream, start), _RECORDS_BACK
    end = log.offsets(settings.kafka_address, settings.barriers).end
    while end - back > start.next_offset:
        latest = chain.latest_named(read_barriers(settings, end - back, end))
        if latest is not None:
            chain.last = latest
            break
        back *= 8
    for offset, value in read_barriers(settings, chain.last.next_offset, end):
        chain.take(offset, value)
    return chain.last
