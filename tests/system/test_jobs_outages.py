"""A worker of jobs that cannot work, or cannot publish: what it holds on to, and whether it goes on."""

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from stream_dp.config.connections import Kafka
from stream_dp.config.settings import Settings
from stream_dp.errors import SparkFailed, WorkerEnds
from stream_dp.events.stored_files import stored_file
from stream_dp.jobs.counted import Counted
from stream_dp.jobs.engine import Seen, ThisProcess
from stream_dp.jobs.request import Unit
from stream_dp.jobs.result import whole
from stream_dp.jobs.rows import Progress
from stream_dp.jobs.source_file import RowFile
from stream_dp.jobs.store import Place as StoredPlace
from stream_dp.jobs.topic_rows import TopicRange
from stream_dp.jobs.worker import JobWorker
from stream_dp.kafka import log
from stream_dp.kafka.clients import admin_client
from stream_dp.store.ledger import Ledger
from tests.object_store import object_store
from tests.system.job_place import TOP, UNION, Place, register_file, teas
from tests.system.waiting import wait_until


@pytest.fixture
def nowhere() -> Iterator[str]:
    """The URL of a Redis that is not there, and will not be."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield f"redis://127.0.0.1:{holder.getsockname()[1]}/0"


@pytest.mark.counts_clients
def test_an_outage_of_redis_costs_no_thread_for_each_attempt(
    kafka: str, nowhere: str, topic_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = JobWorker(Settings(stream=topic_prefix, kafka=kafka, redis=nowhere))
    asked, before = 0, set(threading.enumerate())
    next_request = running.store.next_request

    def counted(name: str) -> StoredPlace | None:
        nonlocal asked
        asked += 1
        if asked == 3:
            running.stop()
        return next_request(name)

    monkeypatch.setattr(running.store, "next_request", counted)
    running.run()
    assert asked == 3
    wait_until(lambda: set(threading.enumerate()) <= before, lambda: f"{threading.enumerate()} run on")


def test_an_object_store_that_is_away_is_waited_for(
    kafka: str,
    redis_url: str,
    nowhere: str,
    topic_prefix: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    place = Place(kafka, redis_url, topic_prefix, tmp_path)
    with object_store(monkeypatch) as store:
        name = store.put("x.csv", teas(topic_prefix).encode())
        register_file(kafka, place.redis, stored_file(name), f"{topic_prefix}.orders", "user")
        place.ask(id="one", **{**TOP, "unit": "user", "source": {"file": name}})
        with monkeypatch.context() as away:
            away.setenv("AWS_ENDPOINT_URL", nowhere.replace("redis", "http").removesuffix("/0"))
            with place.worker(folder="s3://lake"):
                wait_until(lambda: "waiting for the object store" in caplog.text, lambda: caplog.text)
                assert not place.published()
                away.undo()
                [found] = place.results(1)
    assert (found.id, found.labels) == ("one", ["tea"])


class Failing(ThisProcess):
    """Where rows are counted: it fails once, after the charge."""

    def __init__(self, failure: Exception) -> None:
        self._failures = [failure]

    def rows(
        self, place: TopicRange | RowFile, unit: Unit, kafka: Kafka, progress: Progress
    ) -> tuple[Counted, Seen]:
        if self._failures:
            raise self._failures.pop()
        return super().rows(place, unit, kafka, progress)


def test_a_job_that_spark_does_not_finish_is_tried_again_and_charged_once(
    kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = Place(kafka, redis_url, topic_prefix, tmp_path, "event")
    place.feed([b'{"items": ["tea"]}'] * 500)
    place.ask(id="one", **TOP | {"unit": "event"})
    with place.worker(engine=Failing(SparkFailed("Spark did not finish the job"))):
        [found] = place.results(1)
    assert (found.status, found.labels) == ("done", ["tea"])
    assert "waiting for Spark" in caplog.text
    assert len(place.charges()) == 1


def test_a_worker_that_lacks_what_jobs_need_ends_and_the_next_one_answers_and_charges_once(
    kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path
) -> None:
    """A refusal would say something of the rows."""
    place = Place(kafka, redis_url, topic_prefix, tmp_path, "event")
    place.feed([b'{"items": ["tea"]}'] * 500)
    place.ask(id="one", **TOP | {"unit": "event"})
    with pytest.raises(WorkerEnds):
        JobWorker(place.settings, engine=Failing(WorkerEnds("the disk is full"))).run()
    assert len(place.charges()) == 1
    assert not place.published()
    with place.worker():
        [found] = place.results(1)
    assert (found.status, found.labels) == ("done", ["tea"])
    assert len(place.charges()) == 1


@pytest.mark.apache("batches")
def test_a_request_as_large_as_a_message_is_refused_and_the_next_one_answered(
    kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path
) -> None:
    place = Place(kafka, redis_url, topic_prefix, tmp_path)
    long = "\\" * 480_000  # 960 kB of JSON; quoted in a reason, twice that
    wrong: dict[str, dict[str, object]] = {
        "from": {"source": {"from": long}},
        "file": {"source": {"file": long}},
        "item": {"source": {"file": "x.csv", "name": "x", "item": long}},
        "mechanism": {"mechanism": long},
        "field": {long: 1},
    }
    for name, fields in wrong.items():
        place.ask(**{"id": name, **TOP, **fields})
    place.ask(id="last", **TOP | {"k": 0})
    with place.worker(folder=tmp_path):
        found = place.results(6)
    assert [result.id for result in found] == ["from", "file", "item", "mechanism", "field", "last"]
    assert {result.status for result in found} == {"refused"}
    assert all(len(result.reason or "") < 500 for result in found)


@pytest.mark.apache("batches")
def test_a_result_that_its_topic_does_not_take_is_told_and_comes_when_the_topic_does(
    kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path
) -> None:
    results = f"{topic_prefix}.results"
    with admin_client(kafka) as admin:
        few = {"num_partitions": 1, "replication_factor": 1, "configs": {"max.message.bytes": "20000"}}
        admin.create_topics({results: few})
        place = Place(kafka, redis_url, topic_prefix, tmp_path, unit="event")
        place.feed(
            [json.dumps({"items": [f"{number:04d}" + "x" * 600]}).encode() for number in range(100)] * 30
        )
        many = {"id": "many", **UNION, "unit": "event", "epsilon": 8}
        place.ask(**many)
        place.ask(id="next", **TOP | {"k": 0})
        with place.worker():
            refused, after = place.results(2)
        assert (refused.id, refused.status, after.id) == ("many", "refused", "next")
        assert "max.message.bytes to 1048588 or more" in (refused.reason or "")
        admin.delete_topics([results])  # the embedded broker changes no settings of a topic
        wait_until(lambda: results not in admin.list_topics(), lambda: f"{results} is not deleted")
    log.create_topics(kafka, results)
    place.ask(**many)
    with place.worker():
        [published] = place.results(1)
    assert published == whole(place.store.result("many") or [])
    assert len(published.labels) == 100
    assert len(Ledger(place.redis, place.settings.events).charges()) == 1
