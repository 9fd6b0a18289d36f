"""The changes topic on real servers: it follows a worker from epoch to epoch, and a writer that died goes on."""

import json

import msgspec
import pytest
from typer.testing import CliRunner

from stream_dp.cli import app
from stream_dp.events.record import Record
from stream_dp.kafka import log
from stream_dp.kafka.clients import producer_client
from stream_dp.releases.changes import Change, ChangesWriter
from stream_dp.releases.release import decode_release
from stream_dp.workers.resume import NewEpoch
from tests.releases.test_changes import applied
from tests.system.example_events import some_events
from tests.system.streams import Stream
from tests.system.ticking import MakeStream
from tests.system.waiting import wait_until


def written(stream: Stream) -> list[Change]:
    records = stream.records(f"{stream.settings.stream}.changes")
    return [msgspec.json.decode(record.value or b"", type=Change) for record in records]


def released(stream: Stream) -> dict[tuple[int, int], dict[str, int]]:
    found = [decode_release(record.value or b"") for record in stream.releases()]
    return {(each.epoch, each.round): dict(zip(each.labels, each.counts, strict=True)) for each in found}


def write_all(writer: ChangesWriter, stream: Stream) -> int:
    """Write until the change to the newest release is there whole; returns how many were written."""
    last, count = max(released(stream)), 0

    def done() -> bool:
        nonlocal count
        count += writer.write(0.2)
        newest = written(stream)[-1:]
        return any((each.epoch, each.round, each.part) == (*last, each.parts) for each in newest)

    wait_until(done, lambda: f"{last} is not written")
    return count + writer.write(0.2)


def check(stream: Stream) -> None:
    """Whoever follows the changes has every release."""
    held: dict[str, int] = {}
    followed = {}
    for change in written(stream):
        held = applied(held, [change])
        if change.part == change.parts:
            followed[change.epoch, change.round] = held
    assert followed == released(stream)


@pytest.mark.apache("roles")
def test_changes_follow_the_releases_and_go_on_after_the_writer_died(
    make_stream: MakeStream, kafka: str
) -> None:
    with make_stream(delta=0.1) as stream:
        stream.feed(some_events(40, seed=1))
        assert stream.run(until_round=40) == 0
        name = stream.settings.stream
        words = ["changes", "--stream", name, "--kafka", kafka, "--rounds", "1", "--json"]
        first = CliRunner().invoke(app, words)
        assert first.exit_code == 0, first.output
        assert json.loads(first.stdout) == {
            "topic": f"{name}.changes",
            "releases": len({change.round for change in written(stream)}),
        }
        check(stream)
        stream.feed(some_events(30, seed=2))
        worker = stream.start(new_epoch=NewEpoch())
        stream.wait_until_logged("epoch 2")
        stream.feed(some_events(20, seed=3))
        stream.wait_until(lambda: (2, 20) in released(stream), worker)
        stream.stop(worker)
        with ChangesWriter(kafka, name) as writer:
            write_all(writer, stream)
        check(stream)
        rounds = [(change.epoch, change.round) for change in written(stream)]
        assert rounds == sorted(set(rounds)), "nothing is written twice by writers that ended in peace"


def test_a_change_of_which_only_a_part_was_written_is_written_again(
    make_stream: MakeStream, kafka: str
) -> None:
    with make_stream(delta=0.1) as stream:
        stream.feed(some_events(40, seed=1))
        assert stream.run(until_round=40) == 0
        name = stream.settings.stream
        with ChangesWriter(kafka, name) as writer:
            write_all(writer, stream)
        whole = written(stream)
        torn = msgspec.structs.replace(whole[-1], part=1, parts=2)
        stream.write(f"{name}.changes", [log_record(torn)])
        with ChangesWriter(kafka, name) as writer:
            assert write_all(writer, stream) == 1
        assert written(stream) == [*whole, torn, whole[-1]]


@pytest.mark.parametrize(
    "value", [b'{"stream":"\xff"}', b'{"unknown":' + b"[" * 100_000], ids=["text", "depth"]
)
def test_a_record_of_others_among_the_changes_is_told_in_one_sentence(
    kafka: str, topic_prefix: str, value: bytes
) -> None:
    log.create_topics(kafka, f"{topic_prefix}.releases", f"{topic_prefix}.changes")
    with producer_client(kafka) as producer:
        producer.send(f"{topic_prefix}.changes", value).get(30)
    found = CliRunner().invoke(app, ["changes", "--stream", topic_prefix, "--kafka", kafka, "--rounds", "1"])
    assert isinstance(found.exception, SystemExit)
    assert found.exit_code != 0
    assert "is not a change" in " ".join(found.stderr.split())


def log_record(change: Change) -> Record:
    return Record(0, 1, b"s", msgspec.json.encode(change))
