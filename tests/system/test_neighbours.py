"""Two logs that differ in one record: all that the public topics hold is the same, but for what the theorem covers.

That is which labels a release shows with which counts and totals, and its tag.  The names of the two streams and the
nonces are drawn apart, so they are left out too.  What the noise lets through of labels and counts is not looked at
here.
"""

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from kafka import KafkaAdminClient
from typer.testing import CliRunner

from stream_dp.barriers.key import barrier_key
from stream_dp.barriers.topic import barrier_before_last_epoch
from stream_dp.cli import app
from stream_dp.config.days import days_of
from stream_dp.config.times import iso_second, milliseconds
from stream_dp.epochs.journal import EpochJournal
from stream_dp.epochs.registry import TOPIC as REGISTRY
from stream_dp.epochs.registry import default_ledger
from stream_dp.events.record import Record
from stream_dp.jobs.worker import JobWorker
from stream_dp.kafka import log
from stream_dp.releases.windows import Span
from stream_dp.workers.history import HistoryWriter
from stream_dp.workers.resume import NewEpoch
from stream_dp.workers.windows import WindowsWriter
from tests.system.batch_headers import batches_of
from tests.system.example_events import event, some_events
from tests.system.streams import Stream, small_stream
from tests.system.ticking import MakeStream, open_epoch
from tests.system.waiting import wait_until

BACKLOG, DIFFERING, EVENTS_OF_A_BARRIER = 1_200, 777, 100
HOUR = 3_600_000
COVERED = {"labels", "counts", "since", "totals", "known", "tag", "found", "first_shown", "low", "high"}
DRAWN_APART = {"nonce", "digest", "id", "key_check", "chain", "previous"}
ENCRYPTED = "hidden"
LARGE = event(*(f"{number:04}" + "x" * 1020 for number in range(780)))
"""An event of 800 kB, of which three items count."""

NOTHING_AND_MUCH = {
    "no items, and 780 long ones": (b"{}", LARGE),
    "an open quote, and megabytes of quotes": (b'"', b"[" * 101 + b'\\"' * 500_000),
}
SETTINGS = {"horizon": 4095, "batch_rounds": 100, "checkpoint_every": "500", "release": "every-3"}


def neighbours(pair: str) -> Iterator[list[Record]]:
    """Logs of events of 700 bytes, of which more than one fetch is needed for all."""
    values = [
        value[:-1] + b', "note": "%b"}' % (b"." * 600) if value else value
        for value in some_events(BACKLOG, 5)
    ]
    for differing in NOTHING_AND_MUCH[pair]:
        values[DIFFERING] = differing
        yield [Record(n, 1_700_000_000_000 + 250 * n, None, value) for n, value in enumerate(values)]


def told(value: Any, stream: str, began: Sequence[int] = ()) -> Any:
    """A record's value, or a part of it, without what is covered or drawn apart, and without the stream's name.

    `began`: see `everything_public`.
    """
    if isinstance(value, dict):
        left_out = COVERED | DRAWN_APART
        return {
            name: len(inner) if name == ENCRYPTED and inner else told(inner, stream, began)
            for name, inner in value.items()
            if name not in left_out
        }
    if isinstance(value, list | tuple):
        return [told(inner, stream, began) for inner in value]
    if value in began or value in map(iso_second, began):
        return "when the worker was started"
    return value.replace(stream, "s") if isinstance(value, str) else value


def everything_public(stream: Stream, starts: int = 1) -> dict[str, Any]:
    """Batches, and of every record its place, time, key, headers and value, by topic and partition.

    When a worker was started that found nothing counted is the one time that a clock gives: an operator's act.  So
    many `starts` were of this kind.
    """
    settings = stream.settings
    topics = {
        settings.releases: 1,
        settings.epochs: 1,
        default_ledger(settings.data_source): 1,
    }
    if settings.data_source == settings.events:  # of a copy by users they are as private as its offsets
        topics[settings.barriers] = 1
    if settings.results in log.topics(settings.kafka):
        topics[settings.results] = 1
    topics = {
        topic: partitions for topic, partitions in topics.items() if topic in log.topics(settings.kafka)
    }
    began = [*dict.fromkeys(record.timestamp for record in raw_records(settings.kafka, settings.epochs, 0))][
        :starts
    ]
    found: dict[str, Any] = {}
    for topic, partitions in topics.items():
        for partition in range(partitions):
            name = f"{topic.replace(settings.stream, 's')}/{partition}"
            found[name] = [
                in_public(record, settings.stream, began)
                for record in raw_records(settings.kafka, topic, partition)
            ]
            found[f"{name} framed"] = told(
                batches_of(settings.kafka, topic, partition), settings.stream, began
            )
    found["sources"] = [
        in_public(record, settings.stream, began)[1:]
        for record in raw_records(settings.kafka, REGISTRY, 0)
        if json.loads(record.value)["name"] == settings.events
    ]
    return found


def in_public(record: Any, stream: str, began: Sequence[int]) -> list[Any]:
    """What anybody may see of a record."""
    key = (record.key or b"").replace(stream.encode(), b"s")
    return [
        record.offset,
        told(record.timestamp, stream, began),
        key,
        record.headers,
        told(json.loads(record.value), stream, began),
    ]


def raw_records(kafka: str, topic: str, partition: int) -> list[Any]:
    """As the client has them."""
    held = log.offsets(kafka, topic, partition)
    batches = log.read_batches(kafka, topic, held.first, held.end, partition)
    return [record for _, batch in batches for record in batch]


def last_round_is(stream: Stream, number: int) -> Callable[[], bool]:
    return lambda: stream.last_round() == number


def check_same(both: list[dict[str, Any]], releases: int = BACKLOG // 3, source: str = "s.events") -> None:
    """That there is something to compare, and that it is the same."""
    one, other = both
    assert len(one["s.releases/0"]) == releases
    assert len(one["s.epochs/0"]) >= 2
    assert one[f"{source}.ledger/0"]
    assert len(one["sources"]) == 1
    for name in one:
        assert one[name] == other[name], name


@pytest.mark.apache("batches")
@pytest.mark.parametrize("pair", NOTHING_AND_MUCH)
def test_all_that_a_worker_makes_public_is_the_same_for_neighbouring_logs(
    pair: str, kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path
) -> None:
    both = []
    for number, records in enumerate(neighbours(pair)):
        with small_stream(kafka, redis_url, f"{topic_prefix}-{number}", tmp_path, **SETTINGS) as stream:
            stream.write(stream.settings.events, records)
            assert stream.run(until_round=BACKLOG) == 0
            stream.check_everything()
            both.append(everything_public(stream))
    check_same(both)


def test_all_that_a_worker_makes_public_is_the_same_where_an_epoch_follows_another(
    kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path
) -> None:
    """When counting got to the horizon follows from what the records cost, so no record tells it."""
    both, rolling = [], SETTINGS | {"horizon": 1023, "at_horizon": "roll"}
    for number, records in enumerate(neighbours("no items, and 780 long ones")):
        with small_stream(kafka, redis_url, f"{topic_prefix}-{number}", tmp_path, **rolling) as stream:
            stream.write(stream.settings.events, records)
            worker = stream.start()
            stream.wait_until_logged("epoch 2, round 0")
            stream.wait_until(last_round_is(stream, BACKLOG - 1023), worker)
            stream.stop(worker)
            both.append(everything_public(stream))
            at_horizon = records[1022].timestamp
            journals = both[-1]["s.epochs/0"] + both[-1]["s.events.ledger/0"]
            assert {record[1] for record in journals} == {"when the worker was started", at_horizon}
    check_same(both)


def test_all_that_a_worker_makes_public_is_the_same_where_barriers_end_rounds(
    kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path
) -> None:
    """Whoever writes them reads no event, so they are the same for both."""
    both, ticks = [], SETTINGS | {"rounds": "ticks", "release": "every-round", "write_barriers": False}
    for number, records in enumerate(neighbours("no items, and 780 long ones")):
        with small_stream(kafka, redis_url, f"{topic_prefix}-{number}", tmp_path, **ticks) as stream:
            worker = stream.start()
            stream.wait_until_logged("epoch 1, round 0")
            stream.stop(worker)
            for start in range(0, BACKLOG, EVENTS_OF_A_BARRIER):
                stream.write(stream.settings.events, records[start : start + EVENTS_OF_A_BARRIER])
                stream.close_rounds(1_700_000_000_000 + start)
            assert stream.run(until_round=BACKLOG // EVENTS_OF_A_BARRIER) == 0
            stream.check_everything()
            both.append(everything_public(stream))
    check_same(both, releases=BACKLOG // EVENTS_OF_A_BARRIER)


def test_all_that_a_worker_makes_public_is_the_same_over_days_where_a_standby_takes_over(
    kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path
) -> None:
    """By users and days, in windows: in one log a user has a day, in the other these events are empty."""
    both, counted = [], 4 * len(DAYS)
    for number, values in enumerate([(b"{}", b"{}"), (by("w", "rare"), by("w", *map(str, range(9_000))))]):
        with small_stream(kafka, redis_url, f"{topic_prefix}-{number}", tmp_path, **BY_DAYS) as stream:
            open_epoch(stream)
            active = stream.start(new_epoch=NewEpoch(recount=True))  # so it counts days that are over
            stream.wait_until_logged("epoch 2, round 0")
            live_days(stream, DAYS[:3], values)
            stream.wait_until_round(counted // 2, active)
            standby = stream.start(standby=True)
            stream.wait_until_logged("it is ready to take over")
            assert active.pid is not None
            os.kill(active.pid, signal.SIGSTOP)
            stream.wait_until_asleep(active)
            live_days(stream, DAYS[3:], values)
            active.kill()
            stream.wait_until_round(counted, standby)
            stream.stop(standby)
            assert "this one takes over" in stream.logged()
            stream.check_everything()
            both.append(everything_public(stream, starts=2))
    check_same(both, releases=counted)


def by(user: str, *items: str) -> bytes:
    return json.dumps({"items": items, "user": user}).encode()


BERLIN = days_of("Europe/Berlin")
DAYS = [BERLIN.at(milliseconds(datetime(2025, 10, 24, 12, tzinfo=UTC))) + number for number in range(6)]
"""One of them has 25 hours."""
DIFFERING_DAY = DAYS[2]
BY_DAYS: dict[str, Any] = {
    "unit": "user-day",
    "items_per_user": 2,
    "time_zone": "Europe/Berlin",
    "rounds": "ticks",
    "write_barriers": False,
    "mechanism": "window",
    "window": 5,
    "epsilon": 20.0,
    "delta": 0.1,
    "checkpoint_every": "3",
}


def live_days(stream: Stream, days: Sequence[int], values: Sequence[bytes]) -> None:
    """Four rounds a day, in two of which there are events; those of one day differ."""
    for day in days:
        begins = BERLIN.begins(day)
        stream.close_rounds(begins)
        for hour, value in zip((9, 17), values, strict=True):
            events = [by("u", "tea", "milk"), by("v", "tea", f"once {day} {hour}")]
            events.append(value if day == DIFFERING_DAY else by("w", "tea"))
            stream.write(stream.settings.events, [Record(0, begins, None, each) for each in events])
            stream.close_rounds(begins + (hour - 1) * HOUR, begins + hour * HOUR)


COPIES, ROUNDS, EVENTS_OF_A_ROUND = 3, 8, 20
BY_USER: dict[str, Any] = {
    "rounds": "ticks",
    "write_barriers": False,
    "unit": "user",
    "items_per_user": 3,
    "horizon": 3,
    "at_horizon": "roll",
    "release": "every-round",
}
JOB = {
    "v": 1,
    "id": "q",
    "job": "histogram",
    "mechanism": "gaussian",
    "epsilon": 4,
    "delta": 1e-6,
    "items_per_user": 3,
}


def copies(with_user: bool) -> Iterator[list[Record]]:
    """A copy by user, round by round, of a log with one user who does or does not have events."""
    moved = 0
    for number in range(ROUNDS):
        found = []
        for place in range(EVENTS_OF_A_ROUND):
            user, source = ("differing" if place < 3 else f"u{place % 9}"), (number + place) % COPIES
            value = json.dumps({"items": ["tea"], "user": user}).encode()
            partition = crc32(user.encode()) % COPIES
            if place < 3 and not with_user:
                moved += partition != source
                value, partition = b"{}", source
            found.append(Record(0, 1_700_000_000_000 + number, None, value, partition))
        yield found
    assert with_user or moved, "no record stands elsewhere"


def answer_a_job(stream: Stream) -> None:
    """Let a worker of jobs read all of the copy, and publish what it found."""
    settings = stream.settings
    log.create_topics(settings.kafka, f"{settings.stream}.jobs", settings.results)
    stream.write(f"{settings.stream}.jobs", [Record(0, 1_700_000_000_000, None, json.dumps(JOB).encode())])
    worker = JobWorker(settings)
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        wait_until(lambda: log.offsets(settings.kafka, settings.results).end == 1, lambda: "no result")
    finally:
        worker.stop()
        thread.join()


def test_all_that_is_public_of_a_copy_by_users_is_the_same_over_rolls_and_jobs(
    kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path
) -> None:
    """In which partition a record stands follows from its user, so no topic may tell the offsets of the copy."""
    both = []
    for number, with_user in enumerate((False, True)):
        name = f"{topic_prefix}-{number}"
        shape = {**BY_USER, "partitions": COPIES, "source": f"{name}-orders"}
        with small_stream(kafka, redis_url, name, tmp_path, **shape) as stream:
            open_epoch(stream)
            for due, records in enumerate(copies(with_user), 1):
                stream.write(stream.settings.events, records)
                stream.close_rounds(1_700_000_000_000 + 1_000 * due)
            worker = stream.start()
            stream.wait_until_logged("epoch 3, round 0")
            stream.wait_until(last_round_is(stream, ROUNDS - 6), worker)
            stream.stop(worker)
            answer_a_job(stream)
            both.append(everything_public(stream))
            opened = EpochJournal(stream.settings, stream.key).opened
            assert sum(opened[2].epoch.offsets) == 6 * EVENTS_OF_A_ROUND, "the worker knows them all the same"
            end = log.offsets(kafka, stream.settings.epochs).end
            barrier = barrier_before_last_epoch(stream.settings, barrier_key(stream.key()), end)
            assert barrier == opened[2].epoch.after_barrier
    assert len(both[0]["s.results/0"]) == 1
    check_same(both, ROUNDS, "s-orders")


def test_what_others_write_follows_from_the_releases_alone(
    make_stream: MakeStream, kafka: str, topic_prefix: str
) -> None:
    """Table, history and windows hold the same where other events, and no state, lie behind the same releases."""
    with make_stream(delta=0.1) as stream:
        events = some_events(40, seed=1)
        stream.write(
            stream.settings.events,
            [Record(0, 1_700_000_000_000 + 1_000 * n, None, value) for n, value in enumerate(events)],
        )
        assert stream.run(until_round=40) == 0
        settings = stream.settings
        topics = [settings.table, settings.history_topic, settings.windows_topic]
        admin = KafkaAdminClient(bootstrap_servers=kafka)

        def written() -> list[list[Any]]:
            words = ["table", "--stream", topic_prefix, "--kafka", kafka, "--once"]
            assert CliRunner().invoke(app, words).exit_code == 0
            with WindowsWriter(settings, [Span.of("7"), Span.of("1m")], "earliest") as writer:
                wait_until(
                    lambda: writer.write(0.2) >= 0 and log.offsets(kafka, topics[-1]).end == 2 * 40,
                    lambda: f"{log.offsets(kafka, topics[-1])}",
                )
            with HistoryWriter(settings, every=0.001) as history:

                def follows() -> bool:
                    history.write(0.2)
                    last = raw_records(kafka, settings.history_topic, 0)[-1:]
                    return [(each.key or b"").split(b".")[1] for each in last] == [b"40"]

                wait_until(follows, lambda: f"{log.offsets(kafka, settings.history_topic)}")
            found = [
                [(each.offset, each.key, each.value) for each in raw_records(kafka, topic, 0)]
                for topic in topics
            ]
            admin.delete_topics(topics)
            wait_until(lambda: not {*topics} & {*log.topics(kafka)}, lambda: "the topics are still there")
            return found

        with closing(admin):
            before = written()
            stream.rewrite(settings.events, [Record(0, 0, None, LARGE)])
            with stream.redis() as redis:
                redis.delete(*stream.redis_keys())
            assert before == written()
            assert all(before)


def test_what_the_theorem_covers_is_all_that_is_left_out() -> None:
    """A release that says how many items its round held would be found."""
    release = {"stream": "x", "round": 1, "labels": ["a"], "counts": [7], "tag": "0" * 32, "items": 3}
    assert told(release, "x") == {"stream": "s", "round": 1, "items": 3}
