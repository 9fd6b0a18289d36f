"""Losing public data costs nothing: what is left is compared, and what is lost is written again, byte for byte."""

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest

from stream_dp.config.settings import Settings
from stream_dp.engine.epoch import EpochRefused
from stream_dp.events.record import Record
from stream_dp.releases.release import decode_release
from stream_dp.verification.rebuild import rebuild
from stream_dp.verification.republish import republish
from stream_dp.workers.resume import NewEpoch
from tests.system.batch_headers import Batch, batches_of
from tests.system.example_events import event, some_events
from tests.system.streams import Stream, ended, small_stream
from tests.system.test_verify_commands import run
from tests.system.ticking import MakeStream

ROUNDS, MORE = 40, 10


@dataclass
class Finished:
    """A stream of 40 rounds in parts of one, whose worker has stopped, and everything as it was then."""

    stream: Stream
    events: list[Record]
    releases: list[Record]
    batches: list[Batch]
    keys: dict[bytes, bytes]

    def put_back(self) -> None:
        """Undo what a test has changed."""
        own = self.stream.settings
        if self.events != self.stream.events():
            self.stream.rewrite(own.events, self.events)
        if self.releases != self.stream.releases():
            self.stream.rewrite(own.releases, self.releases)
        self.stream.restore_keys(self.keys)


@pytest.fixture(scope="module")
def finished(kafka: str, redis_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Finished]:
    """The key is kept in a file, so that it outlives Redis."""
    folder = tmp_path_factory.mktemp("lost")
    key = folder / "key"
    key.write_text(os.urandom(32).hex())
    key.chmod(0o600)
    name = f"lost-{os.urandom(4).hex()}"
    with small_stream(kafka, redis_url, name, folder, noise_key=f"file:{key}") as stream:
        stream.feed(some_events(ROUNDS, seed=1))
        assert stream.run(until_round=ROUNDS) == 0
        batches = batches_of(kafka, stream.settings.releases)
        yield Finished(stream, stream.events(), stream.releases(), batches, stream.redis_keys())


@pytest.fixture
def stream(finished: Finished) -> Iterator[Stream]:
    yield finished.stream
    finished.put_back()


def values(records: Sequence[Record]) -> list[tuple[bytes | None, bytes | None]]:
    return [(record.key, record.value) for record in records]


def goes_on(stream: Stream) -> None:
    """A worker starts and releases what comes, each round once and in order."""
    before = len(stream.releases())
    stream.feed(some_events(MORE, seed=2))
    assert stream.run(until_round=ROUNDS + MORE) == 0
    assert len(stream.releases()) == before + MORE


@pytest.mark.apache("offsets")
@pytest.mark.parametrize("kept", [0, 17])
def test_lost_releases_are_written_again_and_the_worker_goes_on(
    finished: Finished, stream: Stream, monkeypatch: pytest.MonkeyPatch, kept: int
) -> None:
    monkeypatch.setenv("STREAM_DP_BATCH_ROUNDS", str(stream.settings.batch_rounds))
    stream.rewrite(stream.settings.releases, finished.releases[:kept])
    assert "write them again with `stream-dp republish`" in " ".join(stream.refusal().split())
    told = run(stream, "republish", "--dry-run", "--json")
    assert len(stream.releases()) == kept
    written = run(stream, "republish", "--json")
    expected = {"epoch": 1, "first_round": kept + 1, "last_round": ROUNDS, "releases": ROUNDS - kept}
    for result, done in ((told, False), (written, True)):
        assert result.exit_code == 0, result.output
        found = json.loads(result.stdout)
        assert (found["epochs"], found["written"]) == ([expected], done)
    assert stream.releases() == finished.releases, "with the same times"
    if not kept:
        assert batches_of(stream.settings.kafka, stream.settings.releases) == finished.batches
    assert "No release is missing" in run(stream, "republish").stdout
    goes_on(stream)
    assert json.loads(run(stream, "verify", "--json").stdout)["verdict"] == "identical"


def test_what_is_lost_before_others_is_written_to_another_topic_while_the_worker_runs(
    finished: Finished, stream: Stream
) -> None:
    left = [*finished.releases[12:20], *finished.releases[25:]]
    stream.rewrite(stream.settings.releases, left)
    certificate = json.loads(run(stream, "verify", "--json").stdout)
    assert (certificate["verdict"], certificate["sound"]) == ("releases-incomplete", True)
    assert (certificate["missing"], certificate["rounds"]) == (ROUNDS - len(left), ROUNDS)
    refused = run(stream, "republish")
    assert refused.exit_code == 2
    assert "Kafka puts nothing before it" in " ".join(refused.stderr.split())
    worker = stream.start()
    stream.feed(some_events(MORE, seed=2))
    stream.wait_until_round(ROUNDS + MORE, worker)
    topic = f"{stream.settings.stream}.restored-{os.urandom(4).hex()}"
    first = run(stream, "republish", "--to", topic, "--json")
    assert first.exit_code == 0, first.output
    restored = values(stream.records(topic))
    assert restored[:ROUNDS] == values(finished.releases)
    assert restored[ROUNDS:] == values(stream.releases())[len(left) :]
    assert json.loads(run(stream, "republish", "--to", topic, "--json").stdout)["epochs"] == []
    worker.terminate()
    assert ended(worker) == 0, "nobody fenced it off"


def test_nothing_is_written_from_another_log(finished: Finished, stream: Stream) -> None:
    """Not even where no release is left to tell: the last checkpoint does."""
    edited = [*finished.events]
    edited[30] = edited[30]._replace(value=event("another"))
    stream.rewrite(stream.settings.events, edited)
    for left in (finished.releases[:20], []):
        stream.rewrite(stream.settings.releases, left)
        with stream.redis() as redis, pytest.raises(EpochRefused, match="does not hold the records"):
            republish(stream.settings, redis)
        assert values(stream.releases()) == values(left)


def test_a_worker_that_runs_is_fenced_off_before_its_topic_is_written(
    finished: Finished, stream: Stream
) -> None:
    works = "epoch 1, round 40"
    earlier = stream.logged().count(works)  # workers of other tests
    worker = stream.start()
    stream.wait_until_logged(works, times=earlier + 1)
    stream.rewrite(stream.settings.releases, [])
    written = run(stream, "republish")
    assert written.exit_code == 0, written.output
    assert ended(worker) == 2
    assert values(stream.releases()) == values(finished.releases)


def test_state_is_rebuilt_from_the_releases_that_are_left(finished: Finished, stream: Stream) -> None:
    left = [*finished.releases[5:9], *finished.releases[30:]]
    stream.rewrite(stream.settings.releases, left)
    stream.restore_keys({})
    with stream.redis() as redis:
        assert rebuild(stream.settings, redis).state.round == ROUNDS
    goes_on(stream)
    assert values(stream.releases())[: len(left)] == values(left)


def test_state_is_not_rebuilt_from_a_log_that_a_release_which_is_left_contradicts(
    finished: Finished, stream: Stream
) -> None:
    """By its tag: no count shows the edit."""
    edited = [*finished.events]
    edited[2] = edited[2]._replace(value=event("seen once"))
    stream.rewrite(stream.settings.events, edited)
    stream.rewrite(stream.settings.releases, finished.releases[35:])
    stream.restore_keys({})
    with stream.redis() as redis, pytest.raises(EpochRefused, match="do not reproduce what was released"):
        rebuild(stream.settings, redis)


def test_where_no_release_is_left_the_log_must_be_trusted(finished: Finished, stream: Stream) -> None:
    stream.rewrite(stream.settings.releases, [])
    stream.restore_keys({})
    with stream.redis() as redis:
        with pytest.raises(EpochRefused, match="give --trust-log"):
            rebuild(stream.settings, redis)
        with pytest.raises(EpochRefused, match="it is not known how far epoch 1 was released"):
            republish(stream.settings, redis)
    assert run(stream, "rebuild", "--trust-log").exit_code == 0
    assert stream.run(until_round=ROUNDS) == 0
    assert values(stream.releases()) == values(finished.releases)


def test_all_epochs_are_written_in_their_order(make_stream: MakeStream) -> None:
    """Of the closed one nothing is left: no checkpoint shows that its log is the one that was counted."""
    with make_stream() as stream:
        stream.feed(some_events(12, seed=3))
        assert stream.run(until_round=12) == 0
        worker = stream.start(new_epoch=NewEpoch())
        stream.wait_until_logged("epoch 2, round 0")
        stream.feed(some_events(30, seed=4))
        stream.wait_until_round(30, worker)
        stream.stop(worker)
        before = stream.releases()
        assert [decode_release(record.value or b"").epoch for record in before] == [1] * 12 + [2] * 30
        stream.rewrite(stream.settings.releases, [])
        own: Settings = stream.settings
        with stream.redis() as redis:
            with pytest.raises(EpochRefused, match="give --trust-log if you know that it is"):
                republish(own, redis)
            lacking = republish(own, redis, trust_log=True)
        assert [(each.recorded.epoch.number, len(each.rounds)) for each in lacking] == [(1, 12), (2, 30)]
        assert values(stream.releases()) == values(before)
        stream.rewrite(own.releases, before[12:])
        with stream.redis() as redis, pytest.raises(EpochRefused, match="holds round 30 of epoch 2 already"):
            republish(own, redis, trust_log=True)
        stream.feed(some_events(5, seed=5))
        assert stream.run(until_round=35) == 0
