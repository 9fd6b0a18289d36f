"""A stream with real events for tests of jobs: requests go in, results come out."""

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from kafka import KafkaProducer
from redis import Redis

from stream_dp.config.events_section import EventsSection
from stream_dp.config.settings import Settings
from stream_dp.epochs.file_names import file_key, file_name
from stream_dp.epochs.registry import Registry
from stream_dp.events.stored_files import StoredFile
from stream_dp.jobs.engine import Engine
from stream_dp.jobs.request import JOBS
from stream_dp.jobs.result import JobResult, decode_result
from stream_dp.jobs.store import JobStore
from stream_dp.jobs.worker import JobWorker
from stream_dp.kafka import log
from stream_dp.kafka.clients import admin_client
from stream_dp.privacy.charge import Unit
from stream_dp.privacy.composition import Charge
from stream_dp.privacy.keyed_noise import key_check
from stream_dp.store.ledger import Ledger
from stream_dp.store.pay_what_you_get import left
from tests.real_events import real_records
from tests.shared import RETAIL
from tests.system.broker_clients import all_records
from tests.system.waiting import GIVE_UP_SECONDS, wait_until

UNIT: Unit = "user" if RETAIL.exists() else "event"  # flights have no user
TOP: dict[str, Any] = {
    "job": "top-k",
    "mechanism": "gumbel",
    "epsilon": 4,
    "delta": 1e-6,
    "k": 5,
    "unit": UNIT,
}
UNION: dict[str, Any] = {
    "job": "set-union",
    "mechanism": "sips",
    "epsilon": 4,
    "delta": 1e-6,
    "items_per_user": 10,
    "unit": UNIT,
}
COUNTS: dict[str, Any] = {
    "job": "histogram",
    "mechanism": "gaussian",
    "epsilon": 4,
    "delta": 1e-6,
    "items_per_user": 5,
    "unit": UNIT,
}
EVENTS = 1_500
PAID_BY_MARKS: dict[str, Any] = {
    **TOP,
    "mechanism": "pay-what-you-get",
    "budget": "anna",
    "marks": 30,
    "queries": 4,
}


def register_file(kafka: str, redis: Redis, file: StoredFile, source: str, unit: Unit) -> None:
    """What an operator does before anybody may read a file."""
    registry = Registry(kafka)
    key = file_key(registry, redis, may_create=True)
    assert key is not None
    registry.register("file", file_name(file, key), source, unit, key=key_check(key))


class Place:
    """One stream with real events; requests go in, results come out."""

    def __init__(
        self,
        kafka: str,
        redis_url: str,
        name: str,
        folder: Path,
        unit: Unit = UNIT,
        partitions: int = 1,
        mapping: EventsSection | None = None,
    ) -> None:
        self.settings = Settings(stream=name, kafka=kafka, redis=redis_url, unmetered=True, mapping=mapping)
        self.redis = Redis.from_url(redis_url)
        self.store = JobStore(self.redis, name)
        self.log_file = folder / "jobs.log"
        self.producer = KafkaProducer(bootstrap_servers=kafka, acks="all")
        log.create_topics(kafka, f"{name}.jobs", f"{name}.results")
        log.create_topics(kafka, self.settings.events, partitions=partitions)
        self.register(self.settings.events, unit=unit)

    def register(self, topic: str, source: str | None = None, unit: Unit = UNIT) -> None:
        """What an operator does before anybody may read a topic."""
        Registry(self.settings.kafka).register("topic", topic, source or topic, unit)

    def close(self) -> None:
        self.producer.close()
        self.redis.close()

    def own_id(self, name: str) -> str:
        """An id that no other test has, nor another try of this one: all commands share theirs."""
        return f"{name}-{self.settings.stream[-8:]}"

    def feed(self, values: Sequence[bytes], at: int | None = None) -> None:
        """Append events, and wait until the broker has them."""
        for sent in [self.producer.send(self.settings.events, value, timestamp_ms=at) for value in values]:
            sent.get(GIVE_UP_SECONDS)

    def ask(self, at: int | None = None, **fields: Any) -> None:
        self.send(json.dumps({"v": 1, **fields}).encode(), at)

    def send(self, value: bytes, at: int | None = None) -> None:
        self.write(f"{self.settings.stream}.jobs", value, at)

    def write(self, topic: str, value: bytes, at: int | None = None) -> None:
        self.producer.send(topic, value, timestamp_ms=at).get(GIVE_UP_SECONDS)

    def remake(self, kind: str) -> None:
        """Delete the topic `<stream>.<kind>` and create it again, empty."""
        topic = f"{self.settings.stream}.{kind}"
        with admin_client(self.settings.kafka) as admin:
            admin.delete_topics([topic])
            wait_until(lambda: topic not in admin.list_topics(), lambda: f"{topic} is not deleted")
        log.create_topics(self.settings.kafka, topic)
        self.producer.close()
        self.producer = KafkaProducer(bootstrap_servers=self.settings.kafka, acks="all")

    def published(self) -> list[bytes]:
        return [
            each.value or b"" for each in all_records(self.settings.kafka, f"{self.settings.stream}.results")
        ]

    def results(self, at_least: int) -> list[JobResult]:
        """What is published, once it holds so many whole results: the last part of each is there."""
        found: list[JobResult] = []

        def enough() -> bool:
            found[:] = map(decode_result, self.published())
            return sum(result.part == result.parts for result in found) >= at_least

        wait_until(enough, lambda: f"not {at_least} whole results: {found}")
        return found

    def charges(self, source: str | None = None) -> list[Charge]:
        return Ledger(self.redis, source or self.settings.events).charges()

    @contextmanager
    def worker(
        self, jobs: Sequence[str] = JOBS, folder: Path | str | None = None, engine: Engine | None = None
    ) -> Iterator[JobWorker]:
        running = JobWorker(self.settings, jobs, folder, engine)
        thread = threading.Thread(target=running.run)
        thread.start()
        try:
            yield running
        finally:
            running.stop()
            thread.join(GIVE_UP_SECONDS)
            assert not thread.is_alive()

    def answers(self, *requests: dict[str, Any]) -> list[JobResult]:
        """What a worker answers to these requests, one each."""
        before = len(self.published())
        for request in requests:
            self.ask(**request)
        with self.worker():
            return self.results(before + len(requests))[before:]


def teas(test: str) -> str:
    """A file in which 500 users have tea; no other test's, because a file belongs to one source for ever."""
    return "user,item\n" + "".join(f"{test}-{user},tea\n" for user in range(500))


@contextmanager
def job_place(kafka: str, redis_url: str, name: str, folder: Path) -> Iterator[Place]:
    """A stream that holds the first real events."""
    with closing(Place(kafka, redis_url, name, folder)) as place:
        place.feed(list(real_records(EVENTS)))
        yield place


def anna(place: Place) -> tuple[int, int]:
    """The marks and queries left of the one budget that is charged."""
    [charge] = place.charges()
    found = left(Ledger(place.redis, place.settings.events), charge.id)
    return found.marks, found.queries


def marks_of(result: JobResult) -> int:
    assert result.status == "done", result.reason
    return len(result.labels) + bool(result.bottom)
