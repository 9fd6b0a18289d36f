"""A worker whose jobs are read and counted by Spark: the results of one process, and requests that outlive Spark.

Its broker is a real Apache Kafka, whatever `--kafka` says.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from redis import Redis

from stream_dp.config.settings import Settings
from stream_dp.dev.servers import Servers
from stream_dp.events.stored_files import LocalFile
from stream_dp.jobs.books import ServedBooks
from stream_dp.jobs.request import JobRequest, Unit, decode_request
from stream_dp.jobs.result import JobResult, whole
from stream_dp.jobs.steps import Site, compute, prepare
from tests.system.job_place import Place, register_file
from tests.system.waiting import GIVE_UP_SECONDS

pytest.importorskip("pyspark", reason="Spark is not installed: pip install 'stream_dp[spark]'")

from stream_dp.jobs.spark import Spark

PATIENCE = 10 * GIVE_UP_SECONDS
"""Spark takes seconds to start, and minutes where four of it do at once."""
PARTITIONS, EMPTY = 4, 2
PROMISE: dict[str, Any] = {"epsilon": 4, "delta": 1e-6}
JOBS: dict[str, dict[str, Any]] = {
    "counts": {"job": "histogram", "mechanism": "gaussian", "items_per_user": 3},
    "top": {"job": "top-k", "mechanism": "gumbel", "k": 5},
    "union": {"job": "set-union", "mechanism": "sips", "items_per_user": 4},
}
EXAMPLES = ["q2", "q1", "unclear"]
VOTES: dict[str, dict[str, Any]] = {
    "clear": {"job": "label-votes", "mechanism": "stable", "k": 2, "examples": EXAMPLES},
    "all": {"job": "label-votes", "mechanism": "argmax", "bins": ["cat", "dog"], "examples": EXAMPLES},
}


@pytest.fixture(scope="module")
def spark() -> Iterator[Spark]:
    found = Spark()
    found.start()
    yield found
    found.session.stop()


def feed(place: Place, count: int = 4_000) -> None:
    """Events of people over three of four partitions, those of one person in several; some name nobody."""
    rng = random.Random(place.settings.stream)
    for _ in range(count):
        value = {
            "user": rng.choice(["", *(f"u{rng.randint(1, 500)}" for _ in range(30))]),
            "items": [f"item {int(rng.paretovariate(0.8)) % 200}" for _ in range(rng.randint(1, 3))],
        }
        partition = rng.choice([each for each in range(PARTITIONS) if each != EMPTY])
        place.producer.send(place.settings.events, json.dumps(value).encode(), partition=partition)
    place.producer.flush(GIVE_UP_SECONDS)


def results(place: Place, count: int) -> list[JobResult]:
    """What is published, once there is so much."""
    deadline = time.monotonic() + PATIENCE
    while len(found := place.results(0)) < count:
        assert time.monotonic() < deadline, f"not {count} results: {found}"
        time.sleep(0.1)
    return found


def asked(place: Place, spark: Spark, jobs: dict[str, dict[str, Any]], **more: Any) -> dict[str, JobResult]:
    """What a worker on Spark answers, which is what this process computes with the same key."""
    for name, job in jobs.items():
        place.ask(id=name, **{**PROMISE, **job, **more})
    with place.worker(sorted({job["job"] for job in jobs.values()}), "/", spark):
        results(place, len(jobs))
    found = {}
    for name, job in jobs.items():
        result = whole(place.store.result(name) or [])
        assert result.status == "done", result.reason
        fields = {"v": 1, "id": name, **PROMISE, **job, **more}
        expected = here(place, fields, result)
        assert msgspec.json.encode(result) == msgspec.json.encode(expected)
        found[name] = result
    return found


def here(place: Place, fields: dict[str, Any], result: JobResult) -> JobResult:
    """What one process computes with the key of a job, at the time and cost of its result."""
    request, plan = decode_request(json.dumps(fields).encode()), place.store.plan(fields["id"])
    assert isinstance(request, JobRequest)
    assert plan is not None
    assert result.cost is not None
    assert result.digest == request.digest == plan.digest
    site = Site(place.settings.kafka, place.settings.events)
    books = ServedBooks(place.settings.kafka, place.redis)
    computed = compute(prepare(request, site, books), site, plan.key, result.cost, lambda done, total: None)
    return msgspec.structs.replace(computed, ts=result.ts)


@pytest.mark.parametrize("unit", ["user", "event"])
def test_a_topic_of_several_partitions_gives_what_one_process_gives(
    unit: Unit, servers: Servers, spark: Spark, tmp_path: Path
) -> None:
    with closing(Place(*addresses(servers), unit, tmp_path, unit, PARTITIONS)) as place:
        feed(place)
        found = asked(place, spark, JOBS)
        assert all(result.labels for result in found.values())
        ends = {(result.end_offset, *result.further_ends) for result in found.values()}
        assert len(ends) == 1
        assert [end == 0 for end in ends.pop()] == [each == EMPTY for each in range(PARTITIONS)]
        assert len(place.charges()) == len(JOBS)


def test_offsets_are_those_of_the_admission_whatever_is_written_later(
    servers: Servers, spark: Spark, tmp_path: Path
) -> None:
    with closing(Place(*addresses(servers), "later", tmp_path, "user", PARTITIONS)) as place:
        feed(place, 2_000)
        job = {"counts": JOBS["counts"]}
        first = asked(place, spark, job)["counts"]
        place.redis.hdel("stream_dp:{later}:job:counts", "result")
        feed(place, 2_000)
        place.ask(id="counts", **PROMISE, **JOBS["counts"])
        with place.worker(engine=spark):
            *_, again = results(place, 2)
        assert msgspec.structs.replace(again, ts=first.ts) == first
        assert len(place.charges()) == 1


def test_votes_of_teachers_give_what_one_process_gives(
    servers: Servers, spark: Spark, tmp_path: Path
) -> None:
    votes = [
        (f"t{number}", query, label)
        for number in range(300)
        for query, label in (
            ("q1", "cat"),
            ("q2", "dog"),
            ("q2", "tail"),
            ("unclear", f"own {number}"),
            ("not asked", "cat"),
        )
    ]
    random.Random(3).shuffle(votes)
    teachers, queries, labels = zip(*votes, strict=True)
    file = tmp_path / "votes.parquet"
    pq.write_table(
        pa.table({"teacher": teachers, "query": queries, "label": labels}), file, row_group_size=100
    )
    with Redis.from_url(servers.redis_url) as redis:
        register_file(servers.kafka, redis, LocalFile(file), "teachers", "user")
    source = {"file": str(file), "user": "teacher", "item": "label", "query": "query"}
    with closing(Place(*addresses(servers), "votes", tmp_path)) as place:
        found = asked(place, spark, VOTES, source=source)
    assert set(found["clear"].labels) == {"q1\tcat", "q2\tdog", "q2\ttail"}
    assert found["clear"].bottom
    assert [label.partition("\t")[0] for label in found["all"].labels] == EXAMPLES


def addresses(servers: Servers) -> tuple[str, str]:
    return servers.kafka, servers.redis_url


def command(settings: Settings, log: Path, **environment: str) -> subprocess.Popen[bytes]:
    """The worker as operators start it, which writes its log to a file."""
    values = {"STREAM": settings.stream, "KAFKA": settings.kafka, "REDIS": settings.redis}
    known = {f"STREAM_DP_{name}": value for name, value in {**values, "UNMETERED": "true"}.items()}
    words = [sys.executable, "-m", "stream_dp.cli", "jobs", "worker", "--engine", "spark"]
    with log.open("wb") as said:
        return subprocess.Popen(words, stdout=said, stderr=said, env=os.environ | known | environment)


def test_without_java_a_worker_takes_no_request_and_says_what_to_install(
    servers: Servers, tmp_path: Path
) -> None:
    with closing(Place(*addresses(servers), "no-java", tmp_path, "event")) as place:
        place.ask(id="waits", **PROMISE, **JOBS["top"])
        environment = {"PATH": str(tmp_path), "JAVA_HOME": ""}
        log = tmp_path / "worker.log"
        assert command(place.settings, log, **environment).wait(PATIENCE) == 2
        said = log.read_text()
        assert "Spark does not start" in said
        assert "it needs Java 17 or newer, found by JAVA_HOME or on the path" in said.splitlines()[-1]
        assert "Traceback" not in said
        assert not place.published()
        assert not place.charges()
        assert place.store.plan("waits") is None


def java_of(process: subprocess.Popen[bytes]) -> int:
    """The process of Spark that a worker has started."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            if parent == process.pid and "java" in os.readlink(stat.with_name("exe")):
                return int(stat.parent.name)
        except OSError:  # it has ended since
            continue
    raise AssertionError("there is no process of Spark")


def test_a_worker_whose_spark_is_killed_ends_and_the_next_one_answers_and_charges_once(
    servers: Servers, spark: Spark, tmp_path: Path
) -> None:
    with closing(Place(*addresses(servers), "killed", tmp_path, "user", PARTITIONS)) as place:
        feed(place, 2_000)
        log = tmp_path / "worker.log"
        running = command(place.settings, log)
        try:
            place.ask(id="first", **PROMISE, **JOBS["top"])
            results(place, 1)
            os.kill(java_of(running), signal.SIGKILL)
            place.ask(id="second", **PROMISE, **JOBS["top"])
            assert running.wait(PATIENCE) == 2, log.read_text()
        finally:
            running.kill()
            running.wait()
        assert "the Java process of Spark has ended" in log.read_text()
        assert len(results(place, 1)) == 1
        with place.worker(engine=spark):
            _, second = results(place, 2)
        assert (second.id, second.status) == ("second", "done")
        assert len(place.charges()) == 2
