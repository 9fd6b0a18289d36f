"""`stream-dp replay` against a real broker: exactly once through crashes, refused where a promise would break."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from redis import Redis
from typer.testing import CliRunner, Result

from stream_dp.cli import app
from stream_dp.events.record import Record
from stream_dp.events.stored_files import LocalFile
from stream_dp.kafka import log
from stream_dp.store.ledger import Ledger
from tests.system import forked_program
from tests.system.example_events import event
from tests.system.job_place import register_file
from tests.system.streams import Stream, ended, small_stream
from tests.system.waiting import wait_until

NOON = 1_769_860_800_000
New = Callable[..., AbstractContextManager[Stream]]


@pytest.fixture
def new(kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path) -> New:
    """Makes a stream whose name ends as asked."""

    @contextmanager
    def make(name: str, **changed: Any) -> Iterator[Stream]:
        with small_stream(kafka, redis_url, f"{topic_prefix}.{name}", tmp_path, **changed) as stream:
            yield stream

    return make


def command(stream: Stream, *words: str | Path) -> list[str]:
    """`stream-dp replay` with the settings of a stream."""
    settings = stream.folder / f"{stream.settings.stream}.toml"
    names = ("stream", "kafka", "redis", "source")
    values = {name: getattr(stream.settings, name) for name in names}
    settings.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items() if value))
    return ["replay", *map(str, words), "--settings", str(settings)]


def run(stream: Stream, *words: str | Path) -> Result:
    return CliRunner().invoke(app, command(stream, *words))


def done(stream: Stream, *words: str | Path) -> dict[str, Any]:
    result = run(stream, *words, "--json")
    assert result.exit_code == 0, result.output
    told: dict[str, Any] = json.loads(result.stdout)
    return told


def refusal(stream: Stream, *words: str | Path) -> str:
    """What a replay that is refused says; nothing is sent."""
    before = stream.events()
    result = run(stream, *words, "--as-fast-as-possible")
    assert (result.exit_code, stream.events()) == (2, before), result.output
    assert "Traceback" not in result.output
    return " ".join(result.stderr.split())


def written(
    folder: Path, count: int, name: str = "history.jsonl", on_time: int | None = None
) -> tuple[Path, list[bytes]]:
    """A file of events, a second apart, of which every tenth is none; those after `on_time` come half a day later."""
    lines = [
        b"{bad"
        if number % 10 == 9
        else b'{"items": ["%d"], "ts": "2026-01-31T%02d:%02d:%02dZ"}'
        % (number, 12 if number < (on_time or count) else 23, number // 60, number % 60)
        for number in range(count)
    ]
    (folder / name).write_bytes(b"\n".join(lines) + b"\n")
    return folder / name, lines


def values(stream: Stream) -> list[bytes | None]:
    return [record.value for record in stream.events()]


@pytest.mark.apache("roles")
def test_a_file_is_replayed_once_however_often_it_is_asked_for(new: New, tmp_path: Path) -> None:
    file, lines = written(tmp_path, 100)
    with new("shop") as stream:
        words = (file, "--source", stream.settings.events)
        planned = done(stream, *words, "--dry-run")
        assert planned == {
            "into": stream.settings.events,
            "events": 90,
            "bad": 10,
            "untimed": 10,
            "first": "2026-01-31T12:00:00.000Z",
            "last": "2026-01-31T12:01:38.000Z",
            "already": 0,
        }
        assert values(stream) == []
        now = time.time_ns() // 1_000_000
        assert done(stream, *words, "--rate", "1000")["replayed"] == 100
        assert values(stream) == lines
        assert all(record.timestamp >= now for record in stream.events()), "the time of the replay"
        assert done(stream, *words, "--rate", "9") == {
            "into": stream.settings.events,
            "replayed": 0,
            "already": 100,
        }
        assert values(stream) == lines


@pytest.mark.apache("offsets")
@pytest.mark.parametrize("stop", [signal.SIGKILL, signal.SIGINT])
def test_a_replay_that_is_stopped_goes_on_where_it_was(
    new: New, tmp_path: Path, stop: signal.Signals
) -> None:
    file, lines = written(tmp_path, 1_000, on_time=300)  # a replay waits minutes for the others
    with new("shop") as stream:
        words = (file, "--source", stream.settings.events)
        program = command(stream, *words, "--speed", "300", "--public-times")
        process = forked_program.start_in(Path(), program, {}, stream.log_file)
        stream.workers.append(process)
        wait_until(lambda: len(stream.events()) >= 50, stream.logged)
        assert process.pid is not None
        os.kill(process.pid, stop)
        ended(process)
        before = len(stream.events())
        told = done(stream, *words, "--as-fast-as-possible")
        assert before <= told["already"] <= 300, "it was not stopped in the middle"
        assert told["replayed"] == 1_000 - told["already"]
        assert values(stream) == lines


@pytest.mark.apache("times")
def test_a_range_of_a_topic_with_its_keys_and_times(new: New) -> None:
    with new("shop") as source, new("again", source=source_events("shop", new)) as target:
        records = [
            Record(
                0,
                NOON + number,
                b"k%d" % number if number % 3 else None,
                None if number == 7 else event(str(number)),
            )
            for number in range(20)
        ]
        source.write(source.settings.events, records)
        words = (
            "--topic",
            source.settings.events,
            "--as-fast-as-possible",
            "--keep-timestamps",
            "--public-times",
        )
        assert done(target, *words, "--from", "3", "--to", "2026-01-31T12:00:00.012Z")["replayed"] == 9
        expected = [
            (
                record.timestamp,
                b"" if record.key is None and record.value is None else record.key,
                record.value,
            )
            for record in records
        ]
        assert [(each.timestamp, each.key, each.value) for each in target.events()] == expected[3:12]
        assert done(target, *words, "--from", "12")["replayed"] == 8
        assert done(target, *words, "--from", "1") == {
            "into": target.settings.events,
            "replayed": 2,
            "already": 17,
        }
        assert len(target.events()) == 19
        [marks] = {tuple(sorted(each.split(b":")[0] for each in marks_of(target)))}
        assert len(set(marks)) == 1


def source_events(name: str, new: New) -> str:
    """The events topic of the stream of that name, which makes no stream."""
    with new(name) as stream:
        return stream.settings.events


def marks_of(stream: Stream) -> list[bytes]:
    partition = TopicPartition(stream.settings.events, 0)
    with KafkaConsumer(bootstrap_servers=stream.settings.kafka, auto_offset_reset="earliest") as consumer:
        consumer.assign([partition])
        end, found = consumer.end_offsets([partition])[partition], []
        while consumer.position(partition) < end:
            found += consumer.poll(200).get(partition, [])
    return [dict(record.headers)["replay"] for record in found]


def test_a_file_must_name_its_source_and_the_stream_must_be_charged_to_it(new: New, tmp_path: Path) -> None:
    file, _ = written(tmp_path, 3)
    with new("shop") as shop, new("again", source="shop.events") as again:
        assert "a file does not tell whose budget it spends" in refusal(shop, file)
        said = refusal(shop, file, "--source", "other.events")
        assert f"charged to '{shop.settings.events}'" in said
        assert 'put source = "other.events" into the settings' in said
        assert 'put source = "x"' in refusal(again, file, "--source", "x")
        assert done(again, file, "--source", "shop.events", "--as-fast-as-possible")["replayed"] == 3


def test_a_file_that_is_registered_spends_its_source_and_no_other(
    new: New, tmp_path: Path, topic_prefix: str
) -> None:
    """Whatever it is called; a file that differs in a byte is another one."""
    origin = f"{topic_prefix}-origin"
    with new("shop") as shop, new("again", source=origin) as again:
        file, copy, other = (tmp_path / f"{name}.jsonl" for name in ("file", "copy", "other"))
        file.write_bytes(event(topic_prefix))
        copy.write_bytes(file.read_bytes())
        other.write_bytes(event(topic_prefix + "!"))
        with shop.redis() as redis:
            register_file(shop.settings.kafka, redis, LocalFile(file), origin, "event")
        said = refusal(shop, str(copy), "--source", shop.settings.events)
        assert f"the file spends the budget of {origin!r}" in said
        assert f'put source = "{origin}"' in refusal(shop, str(copy))
        assert done(again, str(copy), "--as-fast-as-possible")["replayed"] == 1
        assert (
            done(shop, str(other), "--source", shop.settings.events, "--as-fast-as-possible")["replayed"] == 1
        )


def test_another_streams_topic_is_charged_to_that_stream(new: New) -> None:
    with new("shop") as shop, new("again") as again, new("right", source=shop.settings.events) as right:
        shop.feed([event("tea")] * 5)
        words = ("--topic", shop.settings.events)
        assert f'put source = "{shop.settings.events}"' in refusal(again, *words)
        assert "into itself" in refusal(shop, *words)
        assert shop.run(until_round=5) == 0  # from now on its ledger says that it is a source of its own
        assert "a data source of its own" in refusal(right, *words, "--source", "other.events")
        assert done(right, *words, "--as-fast-as-possible")["replayed"] == 5


def test_a_derived_streams_topic_spends_its_source_and_no_other(new: New) -> None:
    with new("derived", source="origin.events") as derived, new("again", source="origin.events") as again:
        derived.feed([event("tea")] * 5)
        assert derived.run(until_round=5) == 0
        words = ("--topic", derived.settings.events)
        said = refusal(again, *words, "--source", derived.settings.events)
        assert "spends the budget of 'origin.events'" in said
        assert done(again, *words, "--as-fast-as-possible")["replayed"] == 5


def test_an_open_epoch_must_be_on_the_account_of_the_source(new: New, tmp_path: Path) -> None:
    """The setting `source` was changed after the epoch was opened: the events would cost their source nothing."""
    file, lines = written(tmp_path, 3)
    with new("shop") as stream:
        worker = stream.start()
        stream.wait_until_logged("epoch 1, round 0", 1)
        stream.stop(worker)
        words = (file, "--as-fast-as-possible")
        changed = Stream(msgspec.structs.replace(stream.settings, source="origin.events"), stream.folder)
        said = refusal(changed, *words[:1], "--source", "origin.events")
        assert "epoch 1" in said
        assert "was not charged to 'origin.events'" in said
        assert done(stream, *words, "--source", stream.settings.events)["replayed"] == 3
        assert stream.run(until_round=3) == 0
        assert values(stream) == lines
        stream.check_everything()
        assert done(stream, *words, "--source", stream.settings.events)["replayed"] == 0


def test_a_stream_with_events_of_its_own_takes_no_replay(new: New, tmp_path: Path) -> None:
    file, _ = written(tmp_path, 3)
    other, _ = written(tmp_path, 4, "other.jsonl")
    with new("live") as live, new("again", source="shop.events") as again:
        live.feed([event("tea")])
        assert "1 records that are not of this replay" in refusal(
            live, file, "--source", live.settings.events
        )
        done(again, file, "--source", "shop.events", "--as-fast-as-possible")
        assert "3 records that are not of this replay" in refusal(again, other, "--source", "shop.events")


def test_a_replayed_record_is_not_replayed_under_another_name(new: New, tmp_path: Path) -> None:
    file, _ = written(tmp_path, 3)
    with new("shop") as shop, new("again", source=shop.settings.events) as again:
        done(shop, file, "--source", shop.settings.events, "--as-fast-as-possible")
        said = refusal(again, "--topic", shop.settings.events)
        assert "holds a replayed record at offset 0" in said


@pytest.mark.apache("offsets")
def test_a_source_topic_made_anew_is_noticed(new: New) -> None:
    with new("shop") as shop, new("again", source=shop.settings.events) as again:
        shop.feed([event(str(number)) for number in range(5)])
        words = ("--topic", shop.settings.events)
        assert done(again, *words, "--to", "3", "--as-fast-as-possible")["replayed"] == 3
        shop.rewrite(shop.settings.events, [Record(0, NOON, None, event("new")) for _ in range(9)])
        assert "its record at offset 2 is missing or has changed" in refusal(again, *words)


def test_a_topic_that_no_stream_counts_takes_anything(new: New, tmp_path: Path) -> None:
    file, lines = written(tmp_path, 3)
    with new("shop") as shop:
        copy = f"{shop.settings.stream}.copy"
        log.create_topics(shop.settings.kafka, copy)
        with KafkaProducer(bootstrap_servers=shop.settings.kafka, acks="all") as producer:
            producer.send(copy, b"mine")
        assert done(shop, file, "--into", copy, "--as-fast-as-possible")["replayed"] == 3
        assert [each.value for each in log.read(shop.settings.kafka, copy, 0, 4)] == [b"mine", *lines]
        for ours in ("releases", "ledger", "dead-letters", "epochs"):
            said = refusal(shop, file, "--into", f"{shop.settings.stream}.{ours}")
            assert "written by stream_dp alone" in said
        assert "belongs to another stream" in refusal(shop, file, "--into", "other.events", "--source", "x")


def test_wrong_words_say_which_are_right(new: New, tmp_path: Path) -> None:
    file, _ = written(tmp_path, 3)
    with new("shop") as shop:
        for words, says in (
            ((), "either a file, or a topic"),
            ((file, "--topic", "t"), "either a file, or a topic"),
            ((file, "--from", "3"), "leave them out for a file"),
            ((file, "--speed", "2"), "in one way"),
            ((file, "--keep-timestamps"), "add --public-times if the times are public"),
            (("--topic", "nowhere"), "no topic 'nowhere'"),
            (("--topic", "nowhere", "--to", "noon"), "--to takes an offset"),
        ):
            assert says in refusal(shop, *words)
        untimed = tmp_path / "untimed.jsonl"
        untimed.write_bytes(event("tea"))
        words = (untimed, "--source", shop.settings.events)
        for more, says in (
            ((), "say how fast the rows come"),
            (("--rate", "0"), "take a number above 0"),
            (("--speed", "2"), "add --public-times"),
            (("--speed", "2", "--public-times"), "it has no pace"),
        ):
            result = run(shop, *words, *more)
            assert (result.exit_code, says in " ".join(result.stderr.split())) == (2, True), result.stderr


def test_one_replay_into_a_stream_is_on_its_sources_account(new: New, redis_url: str) -> None:
    """From the replay to the ledger: the epoch that counts the events is charged to where they came from."""
    with new("shop") as shop, new("again", source=shop.settings.events) as again:
        shop.feed([event("tea")] * 4)
        assert shop.run(until_round=4) == 0
        assert done(again, "--topic", shop.settings.events, "--as-fast-as-possible")["replayed"] == 4
        assert again.run(until_round=4) == 0
        with Redis.from_url(redis_url) as redis:
            charged = [charge.id.split("/")[0] for charge in Ledger(redis, shop.settings.events).charges()]
        assert charged == [shop.settings.stream, again.settings.stream]
