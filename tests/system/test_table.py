"""The table on real servers: whatever became of its writer, its rows end as the newest release."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread

import msgspec
import pytest
from kafka import KafkaAdminClient
from kafka.errors import KafkaError
from typer.testing import CliRunner, Result

import stream_dp
from stream_dp.cli import app
from stream_dp.config.settings import Settings
from stream_dp.events.record import Record
from stream_dp.kafka import log
from stream_dp.releases.release import Release, decode_release
from stream_dp.releases.table_row import removal, rows_of
from stream_dp.releases.table_topic import COMPACTED
from stream_dp.releases.topic import LONGEST_REPETITION
from stream_dp.releases.whole_release import WholeRelease
from stream_dp.workers.resume import NewEpoch
from stream_dp.workers.table import TableWriter, corrections, keep_table
from tests.example_releases import release
from tests.system.example_events import some_events
from tests.system.streams import Stream, ended
from tests.system.ticking import MakeStream
from tests.system.waiting import wait_until

TIME = 1_769_860_800_000


@pytest.fixture
def stream(kafka: str, topic_prefix: str, tmp_path: Path) -> Iterator[Stream]:
    """A stream without a worker: the tests write its releases.  It has no Redis."""
    settings = Settings(stream=topic_prefix, kafka=kafka, redis="redis://127.0.0.1:1/0")
    made = Stream(settings, tmp_path)
    log.create_topics(kafka, settings.releases)
    try:
        yield made
    finally:
        made.stop_all()


def publish(stream: Stream, *releases: Release | bytes) -> None:
    values = [each if isinstance(each, bytes) else msgspec.json.encode(each) for each in releases]
    stream.write(stream.settings.releases, [Record(0, TIME, b"s", value) for value in values])


def shown(where: Stream, number: int, histogram: dict[str, int], **fields: object) -> Release:
    made = release(number, histogram, where.settings.stream)
    return msgspec.structs.replace(made, **fields)


def records(stream: Stream) -> list[Record]:
    return stream.records(stream.settings.table)


def table(stream: Stream) -> dict[bytes | None, bytes]:
    """The table as any tool reads it: the last value of each key."""
    last = {record.key: record.value for record in records(stream)}
    return {key: value for key, value in last.items() if value is not None}


def counts_in(stream: Stream) -> dict[str, int]:
    rows = {key: json.loads(value) for key, value in table(stream).items()}
    assert {row["label"].encode() for row in rows.values()} == set(rows)
    return {row["label"]: row["count"] for row in rows.values()}


def write_once(stream: Stream, table_format: str = "json") -> int:
    with TableWriter(stream.settings, table_format) as writer:
        return writer.write()


@pytest.mark.apache("roles")
def test_the_table_follows_a_worker_into_the_next_epoch(
    make_stream: MakeStream, kafka: str, topic_prefix: str
) -> None:
    with make_stream(delta=0.1) as stream:
        stream.feed(some_events(40, seed=1))
        assert stream.run(until_round=40) == 0
        words = ["table", "--stream", topic_prefix, "--kafka", kafka, "--once"]
        assert CliRunner().invoke(app, words).exit_code == 0
        newest = decode_release(stream.releases()[-1].value or b"")
        assert newest.labels
        assert counts_in(stream) == dict(zip(newest.labels, newest.counts, strict=True))
        assert {json.loads(value)["round"] for value in table(stream).values()} == {40}
        assert {record.timestamp for record in records(stream)} == {stream.releases()[-1].timestamp}
        stream.feed(some_events(1, seed=2))
        worker = stream.start(new_epoch=NewEpoch())
        stream.wait_until_logged("epoch 2")
        stream.feed(some_events(1, seed=3))
        stream.wait_until(lambda: decode_release(stream.releases()[-1].value or b"").epoch == 2, worker)
        stream.stop(worker)
        assert CliRunner().invoke(app, words).exit_code == 0
        newest = decode_release(stream.releases()[-1].value or b"")
        assert newest.epoch == 2
        assert counts_in(stream) == dict(zip(newest.labels, newest.counts, strict=True))
        assert all(json.loads(value)["epoch"] == 2 for value in table(stream).values())


@pytest.mark.apache("retention")
def test_what_is_not_shown_any_more_is_removed_and_what_is_there_not_written_again(stream: Stream) -> None:
    publish(stream, shown(stream, 1, {"tea": 230, "milk": 140, "salt": 120}))
    assert write_once(stream) == 3
    assert write_once(stream) == 0
    publish(stream, shown(stream, 2, {"tea": 231, "päron": 150}))
    assert write_once(stream) == 4
    assert counts_in(stream) == {"tea": 231, "päron": 150}
    publish(stream, shown(stream, 1, {}, epoch=2, nonce="01" * 16))
    assert write_once(stream) == 2
    assert table(stream) == {}
    assert write_once(stream) == 0


@pytest.mark.parametrize("written", [0, 1, 2, 3, 4])
def test_a_snapshot_of_which_only_the_beginning_was_written_is_made_whole(
    stream: Stream, written: int
) -> None:
    publish(stream, shown(stream, 1, {"tea": 230, "milk": 140, "salt": 120}))
    write_once(stream)
    newer = {"tea": 231, "milk": 141}
    publish(stream, shown(stream, 2, newer))
    whole = msgspec.convert(msgspec.to_builtins(shown(stream, 2, newer)), type=WholeRelease)
    wanted = rows_of(whole, "json")
    left = list(corrections({key: value for key, value in table(stream).items() if key}, wanted).items())
    assert len(left) == 3
    before = [Record(0, TIME, key, value) for key, value in left[:written]]
    stream.write(stream.settings.table, before)
    assert write_once(stream) == max(0, 3 - written)
    assert counts_in(stream) == newer


def test_a_release_counts_once_all_its_parts_are_there_however_many_came_before(stream: Stream) -> None:
    with_rest = [
        shown(stream, number, {"tea": number + 200}) for number in range(1, LONGEST_REPETITION + 500)
    ]
    publish(stream, *with_rest)
    last = len(with_rest) + 1
    with TableWriter(stream.settings) as writer:
        writer.write()
        assert counts_in(stream) == {"tea": last - 1 + 200}
        publish(stream, shown(stream, last, {"tea": 300}, parts=2))
        assert writer.write() == 0
        publish(stream, shown(stream, last, {"milk": 299}, part=2, parts=2))
        assert writer.write() == 2
    assert counts_in(stream) == {"tea": 300, "milk": 299}
    assert write_once(stream) == 0


def test_hostile_labels_are_rows_like_others(stream: Stream) -> None:
    keys = {"": 9, "\x1f": 8, "x" * 2_600: 7, '"\\\n': 6, "🍵" * 650: 5}
    labels = keys | {"\x00": 4, "x" * 2_601: 3}
    publish(stream, shown(stream, 1, labels))
    write_once(stream, table_format="connect")
    assert set(table(stream)) == {label.encode() for label in keys}
    write_once(stream)
    assert counts_in(stream) == labels
    with stream_dp.read_table(stream.settings.kafka, stream.settings.stream) as found:
        assert {label: row.count for label, row in found.rows().items()} == labels
        publish(stream, shown(stream, 2, {"": 10}))
        write_once(stream)
        assert found.catch_up() == len(labels)
        assert {label: row.count for label, row in found.rows().items()} == {"": 10}


@pytest.mark.parametrize("removed", [0, 1, 2])
def test_with_a_schema_a_removed_label_is_told_to_sinks_and_then_to_kafka(
    stream: Stream, removed: int
) -> None:
    """Also by the writer that follows one which died after `removed` of these two records."""
    publish(stream, shown(stream, 1, {"tea": 230}))
    write_once(stream, table_format="connect")
    publish(stream, shown(stream, 2, {}))
    both = removal("connect")
    stream.write(stream.settings.table, [Record(0, TIME, b"tea", value) for value in both[:removed]])
    assert write_once(stream, table_format="connect") == (0 if removed == 2 else 2)
    assert [record.value for record in records(stream)][-2:] == list(both)
    assert table(stream) == {}


@pytest.mark.parametrize(
    "foreign",
    [
        lambda stream: b"{",
        lambda stream: shown(stream, 2, {"planted": 9}, stream="another"),
        lambda stream: shown(stream, 2, {"planted": 9}, counts=[]),
        lambda stream: shown(stream, 2, {"planted": 9}, ts="tomorrow"),
    ],
    ids=["no JSON", "another stream", "no counts", "no time"],
)
def test_a_foreign_record_among_the_releases_changes_nothing(
    stream: Stream, foreign: Callable[[Stream], Release | bytes]
) -> None:
    publish(stream, shown(stream, 1, {"tea": 230}))
    with TableWriter(stream.settings) as writer:
        assert writer.write() == 1
        publish(stream, foreign(stream))
        assert writer.write() == 0
        assert counts_in(stream) == {"tea": 230}
        publish(stream, shown(stream, 3, {"tea": 232}))
        assert writer.write() == 1


def test_foreign_rows_are_removed_with_a_sentence(stream: Stream, caplog: pytest.LogCaptureFixture) -> None:
    publish(stream, shown(stream, 1, {"tea": 230, "salt": 229}))
    write_once(stream)
    row = table(stream)[b"tea"]
    stream.write(
        stream.settings.table,
        [Record(0, TIME, b"planted", b"{"), Record(0, TIME, b"milk", row), Record(0, TIME, b"tea", None)],
    )
    write_once(stream)
    assert counts_in(stream) == {"tea": 230, "salt": 229}
    assert "held 2 records that are not rows, and they are removed" in caplog.text


def refusal(stream: Stream) -> str:
    words = ["table", "--stream", stream.settings.stream, "--kafka", stream.settings.kafka]
    found: Result = CliRunner().invoke(app, words)
    assert found.exit_code == 2, found.output
    return " ".join(found.stderr.split())


def test_a_topic_of_others_is_refused_and_left_as_it_is(stream: Stream) -> None:
    log.create_topics(stream.settings.kafka, stream.settings.table, configs=COMPACTED)
    stream.write(stream.settings.table, [Record(0, TIME, b"customer 7", b"something else")])
    publish(stream, shown(stream, 1, {"tea": 230}))
    assert "holds 1 records and none is a row of a table" in refusal(stream)
    assert table(stream) == {b"customer 7": b"something else"}


@pytest.mark.apache("topics")
@pytest.mark.parametrize(
    ("partitions", "policy", "sentence"),
    [
        (1, "delete", "has cleanup.policy=delete, which removes rows that are still shown"),
        (1, "compact,delete", "which removes rows that are still shown"),
        (3, "compact", "has 3 partitions, and a table is written to one"),
    ],
)
def test_a_topic_that_cannot_be_a_table_is_refused(
    stream: Stream, partitions: int, policy: str, sentence: str
) -> None:
    configs = {"cleanup.policy": policy}
    log.create_topics(stream.settings.kafka, stream.settings.table, partitions=partitions, configs=configs)
    publish(stream, shown(stream, 1, {"tea": 230}))
    assert sentence in refusal(stream)
    assert records(stream) == []


@pytest.mark.apache("topics")
def test_a_table_that_may_not_be_made_is_refused(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAM_DP_CREATE_TOPICS", "false")
    publish(stream, shown(stream, 1, {"tea": 230}))
    assert "does not exist: create it with one partition and cleanup.policy=compact" in refusal(stream)
    assert stream.settings.table not in log.topics(stream.settings.kafka)


@contextmanager
def kept(stream: Stream) -> Iterator[None]:
    """The table is kept by a thread of this process."""
    stopping = Event()
    keeper = Thread(target=keep_table, args=(stream.settings, stopping, 0.1))
    keeper.start()
    try:
        yield
    finally:
        stopping.set()
        keeper.join()


def until_shown(stream: Stream, counts: dict[str, int]) -> None:
    found: dict[str, int] = {}

    def done() -> bool:
        with suppress(KafkaError):  # the topic is not there, or not there any more
            found.clear()
            found.update(counts_in(stream))
        return found == counts

    wait_until(done, lambda: f"{counts} instead of {found}")


@pytest.mark.apache("offsets")
def test_releases_that_were_made_anew_are_followed_from_their_beginning(stream: Stream) -> None:
    publish(stream, *(shown(stream, number, {"tea": 230, "milk": 200}, epoch=3) for number in (1, 2, 3)))
    with kept(stream):
        until_shown(stream, {"tea": 230, "milk": 200})
        again = [shown(stream, number, {"tea": 100 + number}) for number in range(1, 8)]
        stream.rewrite(
            stream.settings.releases, [Record(0, TIME, b"s", msgspec.json.encode(each)) for each in again]
        )
        until_shown(stream, {"tea": 107})


@pytest.mark.apache("offsets")
def test_a_table_that_was_deleted_is_written_again(stream: Stream) -> None:
    publish(stream, shown(stream, 1, {"tea": 230}))
    with kept(stream):
        until_shown(stream, {"tea": 230})
        with KafkaAdminClient(bootstrap_servers=stream.settings.kafka) as admin:
            admin.delete_topics([stream.settings.table])
        until_shown(stream, {"tea": 230})


def test_the_command_may_be_killed_and_ends_in_peace(stream: Stream) -> None:
    command = "table", "--every", "0.1"
    publish(stream, shown(stream, 1, {"tea": 230, "milk": 200}))
    killed = stream.start_command(*command)
    until_shown(stream, {"tea": 230, "milk": 200})
    killed.kill()
    assert ended(killed) == -9
    publish(stream, shown(stream, 2, {"salt": 140}))
    writer = stream.start_command(*command)
    until_shown(stream, {"salt": 140})
    stream.stop(writer)


@pytest.mark.parametrize(
    ("policy", "state", "sentence"),
    [("compact", "ok", "keeps the newest row of each label"), ("delete", "failed", "cleanup.policy=delete")],
)
def test_check_looks_at_the_table_where_there_is_one(
    stream: Stream, policy: str, state: str, sentence: str
) -> None:
    log.create_topics(stream.settings.kafka, stream.settings.table, configs={"cleanup.policy": policy})
    words = ["check", "--stream", stream.settings.stream, "--kafka", stream.settings.kafka]
    found = CliRunner().invoke(app, [*words, "--redis", stream.settings.redis, "--json"])
    [told] = [each for each in json.loads(found.stdout)["checks"] if stream.settings.table in each["detail"]]
    assert (told["state"], sentence in told["detail"]) == (state, True)
