"""Windows in shards whose log is gone but for the last three blocks: their state comes back, and nothing wrong does."""

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any

import msgspec
import numpy as np
import pytest
from kafka.admin import KafkaAdminClient
from msgspec.structs import replace

from stream_dp.engine.epoch import EpochRefused
from stream_dp.engine.histogram import HistogramState
from stream_dp.events.record import Record
from stream_dp.kafka import log
from stream_dp.releases.release import decode_release
from stream_dp.store.checkpoints import CheckpointStore, PreparedCheckpoint
from stream_dp.verification.rebuild import rebuild, verify_epoch
from stream_dp.verification.verify import Verdict
from tests.system.sharded import ShardedStream, sharded_stream
from tests.system.streams import ended
from tests.system.test_window import WINDOW, drifting, forget
from tests.system.test_window_restored import FIRST, OWN, ROUNDS, altered, values
from tests.system.waiting import wait_until
from tests.system.worker_process import Kill

SHARDS = 2
PROCESSES = ("worker", "shard", "merge")


@dataclass
class Finished:
    """A stream that has released all rounds and whose processes have ended, and everything as it was then."""

    stream: ShardedStream
    topics: dict[str, list[list[Record]]]
    state: dict[bytes, bytes]

    def put_back(self) -> None:
        """Undo what a test has changed."""
        for topic, records in self.topics.items():
            if records != all_of(self.stream, topic, len(records)):
                self.stream.rewrite(topic, [*chain.from_iterable(records)])
        lose_all_state(self.stream)
        with self.stream.redis() as redis:
            for name, dumped in self.state.items():
                redis.restore(name, 0, dumped)


@pytest.fixture(scope="module")
def finished(kafka: str, redis_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Finished]:
    name, folder = f"windows-{os.urandom(4).hex()}", tmp_path_factory.mktemp("windows")
    with sharded_stream(kafka, redis_url, name, folder, SHARDS, **OWN) as stream:
        stream.feed(drifting(0, ROUNDS))
        stream.finish(ROUNDS, *(stream.run_in_role(role) for role in PROCESSES))
        own = stream.settings
        partitions = {own.events: 1, own.releases: 1, own.frames: SHARDS, own.shard_releases: SHARDS}
        topics = {topic: all_of(stream, topic, number) for topic, number in partitions.items()}
        with stream.redis() as redis:
            state = {name: redis.dump(name) or b"" for name in names_of_state(stream)}
        yield Finished(stream, topics, state)


@pytest.fixture
def stream(finished: Finished) -> Iterator[ShardedStream]:
    yield finished.stream
    finished.stream.stop_all()
    finished.put_back()


def all_of(stream: ShardedStream, topic: str, partitions: int) -> list[list[Record]]:
    return [stream.records_of(topic, number) for number in range(partitions)]


def names_of_state(stream: ShardedStream) -> list[bytes]:
    """What Redis holds of the worker and the shards, but for the key."""
    with stream.redis() as redis:
        found: Any = redis.keys(f"stream_dp:{{{stream.settings.stream}*")
    return [name for name in found if not name.endswith(b":key")]


def held(stream: ShardedStream) -> list[Any]:
    """What Redis says of the worker and the shards, but for where the frames stand."""
    worker = stream.checkpoint()
    found: list[Any] = [worker.position, *plain(worker.state)]
    for shard in range(SHARDS):
        checkpoint = stream.shard_checkpoint(shard)
        assert checkpoint is not None
        position = checkpoint.position
        found += [position.released, position.closed, checkpoint.releases_offset, *plain(checkpoint.state)]
    return found


def plain(state: HistogramState) -> list[Any]:
    columns = [*state.counter.columns, *state.recent]
    cells = [(column.name, np.asarray(column.cells).tolist()) for column in columns]
    return [state.round, state.history, list(state.labels), cells]


def lose_all_state(stream: ShardedStream) -> None:
    with stream.redis() as redis:
        for name in names_of_state(stream):
            redis.delete(name)


def restored(stream: ShardedStream) -> None:
    before = held(stream)
    lose_all_state(stream)
    with stream.redis() as redis:
        rebuild(stream.settings, redis)
    assert held(stream) == before


def goes_on(stream: ShardedStream, events: Sequence[Record], kill: Kill | None = None) -> None:
    """The processes release twenty more rounds; afterwards all is compared, over the log as it was, `events`.

    `kill`: first a worker and then a shard dies there.
    """
    stream.feed(drifting(ROUNDS, ROUNDS + 20))
    if kill is not None:
        assert ended(stream.run_in_role("worker", kill)) == -signal.SIGKILL, stream.logged()
    processes = [stream.run_in_role("worker")]
    if kill is not None:
        assert ended(stream.run_in_role("shard", kill)) == -signal.SIGKILL, stream.logged()
    processes += [stream.run_in_role(role) for role in PROCESSES[1:]]
    stream.wait_until_round(ROUNDS + 20)
    stream.wait_until_saved(ROUNDS + 20)
    for process in processes:
        process.terminate()
        assert ended(process) == 0, stream.logged()
    stream.rewrite(stream.settings.events, [*events, *stream.events()[ROUNDS:]])
    stream.check_everything()


def shard_releases(stream: ShardedStream) -> list[list[Record]]:
    return all_of(stream, stream.settings.shard_releases, SHARDS)


def rewritten(stream: ShardedStream, kept: Sequence[Sequence[Record]]) -> None:
    stream.rewrite(stream.settings.shard_releases, [*chain.from_iterable(kept)])


def test_lost_state_is_rebuilt_as_it_was_and_goes_on_over_kills(stream: ShardedStream) -> None:
    """The last releases of the whole stream are lost too; merge writes them again."""
    events, records = stream.events(), stream.releases()
    forget(stream, 0, FIRST - 1)
    stream.rewrite(stream.settings.releases, records[:-2])
    restored(stream)
    goes_on(stream, events, Kill("write a checkpoint", 1, after=True))
    assert values(stream.releases()[:ROUNDS]) == values(records)
    with stream.redis() as redis:
        assert verify_epoch(stream.settings, redis).certificate.verdict is Verdict.IDENTICAL


def test_where_the_frames_are_lost_too_the_shards_go_on(stream: ShardedStream) -> None:
    events, frames = stream.events(), stream.settings.frames
    forget(stream, 0, FIRST - 1)
    with KafkaAdminClient(bootstrap_servers=stream.settings.kafka) as admin:
        admin.delete_topics([frames])
        wait_until(lambda: frames not in admin.list_topics(), stream.logged)
    log.create_topics(stream.settings.kafka, frames, partitions=SHARDS)
    restored(stream)
    goes_on(stream, events)


def test_edits_of_these_blocks_are_refused_and_earlier_ones_change_nothing(stream: ShardedStream) -> None:
    events, before = stream.events(), stream.redis_keys()
    with stream.redis() as redis:
        for offset in (FIRST - 1, FIRST + WINDOW, ROUNDS - 1):
            edited = [*events]
            edited[offset] = events[offset]._replace(value=b'{"items": ["another"]}')
            stream.rewrite(stream.settings.events, edited)
            with pytest.raises(EpochRefused, match="do not reproduce what the shards have released"):
                rebuild(stream.settings, redis, replace=True)
        unfenced = {name: value for name, value in stream.redis_keys().items() if b":fence" not in name}
        assert unfenced.items() <= before.items()
    edited = [*events]
    edited[FIRST - 2] = events[FIRST - 2]._replace(value=b'{"items": ["another"]}')
    stream.rewrite(stream.settings.events, edited)
    restored(stream)


@pytest.mark.parametrize(
    "change",
    [{"tag": "0" * 32}, {"ts": "2020-01-01T00:00:00.000Z"}, {"counts": 1}],
    ids=["tag", "time", "count"],
)
def test_changed_releases_of_a_shard_are_refused(stream: ShardedStream, change: dict[str, Any]) -> None:
    kept = shard_releases(stream)
    shard, place, found = next(
        (shard, place, found)
        for shard, records in enumerate(kept)
        for place, record in enumerate(records)
        if (found := decode_release(record.value or b"")).round > FIRST + WINDOW and found.labels
    )
    if "counts" in change:
        change = {"counts": [count + 1 for count in found.counts]}
    kept[shard][place] = kept[shard][place]._replace(value=msgspec.json.encode(replace(found, **change)))
    rewritten(stream, kept)
    before = held(stream)
    with stream.redis() as redis, pytest.raises(EpochRefused, match="what the shards have released"):
        rebuild(stream.settings, redis, replace=True)
    assert held(stream) == before


def test_the_last_releases_of_a_shard_that_are_lost_are_released_again(stream: ShardedStream) -> None:
    events, kept = stream.events(), shard_releases(stream)
    forget(stream, 0, FIRST - 1)
    rewritten(stream, [kept[0], kept[1][:-5]])
    lose_all_state(stream)
    with stream.redis() as redis:
        assert rebuild(stream.settings, redis).state.round == ROUNDS - 5
    goes_on(stream, events)
    again = shard_releases(stream)
    assert [values(each[:ROUNDS]) for each in again] == [values(each) for each in kept]


def test_where_earlier_ones_are_lost_the_shards_begin_with_the_epoch_again(stream: ShardedStream) -> None:
    kept = shard_releases(stream)
    rewritten(stream, [kept[0], [*kept[1][: FIRST + WINDOW], *kept[1][FIRST + WINDOW + 1 :]]])
    with stream.redis() as redis:
        assert rebuild(stream.settings, redis, replace=True).state.round == 0
    assert stream.shard_checkpoint(0) is None


def test_labels_that_the_first_block_is_said_to_take_over_are_never_believed_against_releases(
    stream: ShardedStream,
) -> None:
    forget(stream, 0, FIRST - 1)
    first, before = decode_release(stream.releases()[FIRST - 1].value or b""), held(stream)
    for labels in ([], ["never seen"], [*first.labels, "lately 0"]):
        altered(stream, FIRST - 1, replace(first, labels=labels, counts=[9] * len(labels)))
        with stream.redis() as redis, suppress(EpochRefused):
            rebuild(stream.settings, redis, replace=True)
        assert held(stream) == before


@pytest.mark.parametrize("done", range(SHARDS + 1))
def test_a_rebuild_that_dies_may_be_repeated(
    stream: ShardedStream, monkeypatch: pytest.MonkeyPatch, done: int
) -> None:
    before, commit, committed = held(stream), CheckpointStore.commit, list[PreparedCheckpoint]()
    forget(stream, 0, FIRST - 1)
    lose_all_state(stream)

    def dying(store: CheckpointStore, prepared: PreparedCheckpoint) -> None:
        if len(committed) == done:
            raise InterruptedError
        committed.append(prepared)
        commit(store, prepared)

    with stream.redis() as redis:
        monkeypatch.setattr(CheckpointStore, "commit", dying)
        with pytest.raises(InterruptedError):
            rebuild(stream.settings, redis)
        monkeypatch.undo()
        rebuild(stream.settings, redis, replace=True)
    assert held(stream) == before
