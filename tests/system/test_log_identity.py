"""The log is part of the state: a worker that meets another log than the one it counted sends nothing.

One stream is left half way, with a checkpoint at round 24 and releases up to round 48.  Every test changes one
thing, starts a worker, and puts everything back.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient, TopicPartition

from stream_dp.events.record import Record
from stream_dp.pipeline.pipeline import Pipeline, ReleasedPart
from stream_dp.workers.resume import NewEpoch
from tests.system.example_events import event, some_events
from tests.system.streams import Stream, small_stream
from tests.system.ticking import MakeStream
from tests.system.worker_process import Kill

CHECKPOINT, PUBLISHED, EVENTS = 24, 48, 60


@dataclass
class HalfWay:
    """A stream that was killed before its second checkpoint, and everything as it was then."""

    stream: Stream
    events: list[Record]
    releases: list[Record]
    keys: dict[bytes, bytes]

    def put_back(self) -> None:
        """Undo what a test has changed, and what its worker has released since."""
        own = self.stream.settings
        if self.events != self.stream.events() or own.events in self.stream.configured:
            self.stream.rewrite(own.events, self.events)
        if self.releases != self.stream.releases() or own.releases in self.stream.configured:
            self.stream.rewrite(own.releases, self.releases)
        self.stream.restore_keys(self.keys)


@pytest.fixture(scope="module")
def half_way(kafka: str, redis_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HalfWay]:
    name = f"half-way-{os.urandom(4).hex()}"
    folder = tmp_path_factory.mktemp("half-way")
    with small_stream(kafka, redis_url, name, folder, delta=0.1) as stream:  # so that most labels show
        stream.feed(some_events(EVENTS, seed=3))
        assert stream.run(Kill("prepare a checkpoint", nth=3)) < 0  # whatever was sent is in the broker then
        assert stream.checkpoint().state.round == CHECKPOINT
        yield HalfWay(stream, stream.events(), stream.releases(), stream.redis_keys())


@pytest.fixture
def stream(half_way: HalfWay) -> Iterator[Stream]:
    yield half_way.stream
    half_way.put_back()


def rewritten(stream: Stream, changed: dict[int, bytes]) -> list[Record]:
    """The events with other values at some offsets."""
    return [record._replace(value=changed.get(record.offset, record.value)) for record in stream.events()]


def replaced(stream: Stream, offset: int, released: int) -> list[Record]:
    """The events with another one at `offset`, which the releases up to round `released` tell.

    Noise may hide it: a histogram of few labels reads the same as another one now and then.
    """
    epoch, key, events = stream.checkpoint().epoch, stream.key(), stream.events()

    def releases(records: list[Record]) -> list[ReleasedPart]:
        return Pipeline(epoch, key, stream.settings.events).process(records[:released]).releases

    for number in range(50):
        other = events[offset]._replace(value=event("tea", "milk", f"another {number}"))
        records = [*events[:offset], other, *events[offset + 1 :]]
        if releases(records) != releases(events):
            return records
    raise AssertionError(f"no release up to round {released} tells what was at offset {offset}")


def test_nothing_changed_goes_on(half_way: HalfWay, stream: Stream) -> None:
    assert len(half_way.releases) == PUBLISHED
    assert stream.run(until_round=EVENTS) == 0
    stream.check_everything()
    assert len(stream.releases()) == EVENTS


@pytest.mark.apache("offsets")
def test_the_same_records_in_a_new_topic_are_the_same_log(stream: Stream) -> None:
    stream.rewrite(stream.settings.events, stream.events())
    told = f"the topic {stream.settings.events!r} was deleted and re-created, or comes from another cluster"
    before = stream.logged().count(told)
    assert stream.run(until_round=EVENTS) == 0
    stream.check_everything()
    assert stream.logged().count(told) == before + 1
    assert stream.run(until_round=EVENTS) == 0
    assert stream.logged().count(told) == before + 1, "the next checkpoint knows the new topic"


@pytest.mark.apache("offsets")
def test_a_new_releases_topic_that_holds_nothing_of_what_was_sent_is_refused(stream: Stream) -> None:
    """However much else it holds."""
    foreign = [Record(0, 1_000, b"s", b"something else")] * (2 * PUBLISHED)
    stream.rewrite(stream.settings.releases, foreign)
    assert "has lost releases that were sent" in stream.refusal()


@pytest.mark.apache("offsets")
def test_a_new_events_topic_is_refused_where_nothing_was_counted_that_could_be_compared(
    make_stream: MakeStream,
) -> None:
    """Its first records would be taken for those that an epoch has counted whose state is lost."""
    with make_stream() as stream:
        stream.feed(some_events(12, seed=1))
        assert stream.run(until_round=12) == 0
        stream.restore_keys({})
        worker = stream.start(new_epoch=NewEpoch())
        stream.wait_until_logged("epoch 2, round 0")
        stream.stop(worker)
        stream.rewrite(stream.settings.events, [Record(0, 1_000, None, event("other"))] * 20)
        assert "nothing shows that its records before offset 12" in stream.refusal()


def test_a_new_topic_with_other_records_is_refused(stream: Stream) -> None:
    stream.rewrite(
        stream.settings.events, [Record(0, 1000, None, value) for value in some_events(EVENTS, seed=4)]
    )
    assert "is not the log that was counted" in stream.refusal()


def test_the_same_events_written_again_at_another_time_are_refused(stream: Stream) -> None:
    stream.rewrite(
        stream.settings.events,
        [record._replace(timestamp=record.timestamp + 1) for record in stream.events()],
    )
    assert "is not the log that was counted" in stream.refusal()


@pytest.mark.apache("retention")
@pytest.mark.parametrize("left", [0, CHECKPOINT - 1])
def test_a_topic_cut_below_the_checkpoint_is_refused(stream: Stream, left: int) -> None:
    stream.rewrite(stream.settings.events, stream.events()[:left])
    assert "is not the log that was counted" in stream.refusal()


@pytest.mark.apache("retention")
def test_a_topic_cut_below_what_was_released_is_refused(stream: Stream) -> None:
    stream.rewrite(stream.settings.events, stream.events()[: PUBLISHED - 1])
    assert f"the releases go up to round {PUBLISHED}" in stream.refusal()


@pytest.mark.apache("offsets")
def test_a_topic_cut_above_what_was_released_goes_on(stream: Stream) -> None:
    """Those records were never counted: their loss is their producer's matter."""
    stream.rewrite(stream.settings.events, stream.events()[: PUBLISHED + 5])
    assert stream.run(until_round=PUBLISHED + 5) == 0
    stream.check_everything()


@pytest.mark.apache("retention")
def test_old_records_deleted_in_front_of_the_log(stream: Stream, request: pytest.FixtureRequest) -> None:
    """Apache Kafka deletes in place; the embedded broker never does, so there the topic starts anew, shifted."""
    events = stream.settings.events
    if request.config.getoption("kafka") == "apache":
        with KafkaAdminClient(bootstrap_servers=stream.settings.kafka) as admin:
            admin.delete_records({TopicPartition(events, 0): CHECKPOINT})
    else:
        stream.rewrite(events, stream.events()[CHECKPOINT:])
    assert "is not the log that was counted" in stream.refusal()


def test_the_last_counted_record_replaced_is_refused(stream: Stream) -> None:
    stream.rewrite(stream.settings.events, rewritten(stream, {CHECKPOINT - 1: event("another")}))
    assert f"at offset {CHECKPOINT - 1}, is missing or has changed" in stream.refusal()


@pytest.mark.parametrize("offset", [CHECKPOINT, PUBLISHED - 1])
def test_a_released_record_replaced_is_refused(stream: Stream, offset: int) -> None:
    stream.rewrite(stream.settings.events, replaced(stream, offset, PUBLISHED))
    assert "was published with other content" in stream.refusal()


def test_released_records_in_another_order_are_refused(stream: Stream) -> None:
    values = [record.value or b"" for record in stream.events()]
    one, two = CHECKPOINT + 1, CHECKPOINT + 2
    assert values[one] != values[two]
    stream.rewrite(stream.settings.events, rewritten(stream, {one: values[two], two: values[one]}))
    assert "was published with other content" in stream.refusal()


@pytest.mark.apache("topics")
@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_a_compacted_topic_is_refused(stream: Stream, policy: str) -> None:
    keyed = [record._replace(key=b"k", value=record.value or b"") for record in stream.events()]
    for topic, records in ((stream.settings.events, keyed), (stream.settings.releases, stream.releases())):
        stream.rewrite(topic, records, **{"cleanup.policy": policy})
        assert f"cleanup.policy={policy}" in stream.refusal()


@pytest.mark.apache("batches")
def test_a_topic_for_small_messages_cannot_hold_releases(stream: Stream) -> None:
    stream.rewrite(stream.settings.releases, stream.releases(), **{"max.message.bytes": "100000"})
    assert "max.message.bytes=100000" in stream.refusal()


FOREIGN = {
    "text": b"hello",
    "nothing": b"",
    "no UTF-8": b'{"v":1,"stream":"\xff"}',
    "another object": b'{"items":["a"]}',
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_a_foreign_record_among_the_releases_is_passed_over(
    half_way: HalfWay, stream: Stream, kind: str
) -> None:
    """At the end of the topic, where the worker goes on, and among those that it compares."""
    foreign = Record(0, 1000, b"k", FOREIGN[kind])
    written = [*half_way.releases[:30], foreign, *half_way.releases[30:], foreign, foreign]
    stream.rewrite(stream.settings.releases, written)
    assert stream.run(until_round=EVENTS) == 0
    assert "at offset 30 of partition 0 that is not a release" in stream.logged()
    found = stream.releases()
    assert [record.value for record in found[: len(written)]] == [record.value for record in written]
    stream.rewrite(stream.settings.releases, [record for record in found if record.value != foreign.value])
    stream.check_everything()


def changed_release(stream: Stream, round_number: int, **changed: Any) -> Record:
    record = stream.releases()[round_number - 1]
    return record._replace(value=json.dumps({**json.loads(record.value or b""), **changed}).encode())


def test_a_release_with_other_content_is_refused(half_way: HalfWay, stream: Stream) -> None:
    releases = half_way.releases
    other = changed_release(stream, PUBLISHED, labels=["tea"], counts=[123456])
    stream.rewrite(stream.settings.releases, [*releases[:-1], other])
    assert f"round {PUBLISHED} was published with other content" in stream.refusal()


def test_a_forged_release_is_noticed_before_and_after_the_true_one(half_way: HalfWay, stream: Stream) -> None:
    releases = half_way.releases
    forged = changed_release(stream, PUBLISHED, labels=["tea"], counts=[123456])
    for written in ([*releases, forged], [*releases[:-1], forged, releases[-1]]):
        stream.rewrite(stream.settings.releases, written)
        assert f"two different releases of round {PUBLISHED}" in stream.refusal()


@pytest.mark.parametrize(
    "changed", [{"round": EVENTS + 1}, {"round": 2000}, {"round": 5, "epoch": 2}, {"part": 2}]
)
def test_a_release_that_the_log_does_not_give_is_refused(stream: Stream, changed: dict[str, int]) -> None:
    stream.write(stream.settings.releases, [changed_release(stream, PUBLISHED, **changed)])
    assert "which the events topic and the key do not reproduce" in stream.refusal()


def test_lost_releases_are_refused(half_way: HalfWay, stream: Stream) -> None:
    stream.rewrite(stream.settings.releases, half_way.releases[: CHECKPOINT - 1])
    assert "has lost releases" in stream.refusal()


def test_a_redis_rolled_back_goes_on_with_the_same_releases(half_way: HalfWay, stream: Stream) -> None:
    assert stream.run(until_round=EVENTS) == 0
    assert stream.checkpoint().state.round == EVENTS
    stream.restore_keys(half_way.keys)
    stream.feed(some_events(10, seed=6))
    assert stream.run(until_round=EVENTS + 10) == 0
    stream.check_everything()
    assert len(stream.releases()) == EVENTS + 10


def test_a_redis_rolled_back_and_an_edited_log_are_refused(half_way: HalfWay, stream: Stream) -> None:
    assert stream.run(until_round=EVENTS) == 0
    stream.restore_keys(half_way.keys)
    stream.rewrite(stream.settings.events, replaced(stream, EVENTS - 1, EVENTS))
    assert f"round {EVENTS} was published with other content" in stream.refusal()


def test_a_wrong_key_is_refused(stream: Stream, tmp_path: Path) -> None:
    wrong = tmp_path / "key"
    wrong.write_text(os.urandom(32).hex())
    wrong.chmod(0o600)
    assert "the noise key is not the one" in stream.refusal(noise_key=f"file:{wrong}")
    with stream.redis() as redis:
        redis.set(f"stream_dp:{{{stream.settings.stream}}}:key", os.urandom(32))
    assert "the noise key is not the one" in stream.refusal()


def test_the_right_key_in_another_place_goes_on(stream: Stream, tmp_path: Path) -> None:
    place = tmp_path / "key"
    place.write_text(stream.key().hex())
    place.chmod(0o600)
    assert stream.run(until_round=EVENTS, noise_key=f"file:{place}") == 0
    stream.check_everything()


def test_a_lost_key_is_refused_and_not_made_again(stream: Stream) -> None:
    name = f"stream_dp:{{{stream.settings.stream}}}:key"
    with stream.redis() as redis:
        redis.delete(name)
        assert "has lost the noise key" in stream.refusal()
        assert not redis.exists(name)


def test_an_emptied_redis_is_refused_while_releases_exist(half_way: HalfWay, stream: Stream) -> None:
    """Nothing is made that would stand in the way of a backup."""
    stream.restore_keys({})
    assert "holds releases but Redis has no state" in stream.refusal()
    assert {name for name in stream.redis_keys() if not name.endswith(b":fence")} == set()
    stream.restore_keys(half_way.keys)
    assert stream.run(until_round=EVENTS) == 0
    stream.check_everything()


def test_changed_settings_are_refused_by_name(stream: Stream) -> None:
    told = stream.refusal(epsilon=31.0, horizon=2047)
    assert "epsilon is 30.0 in the epoch and 31.0 in the settings" in told
    assert "horizon is 1023 in the epoch and 2047 in the settings" in told
