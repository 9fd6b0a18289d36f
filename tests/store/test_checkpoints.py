"""A checkpoint is whole or not there, is only ever the newest worker's, and restores the engine exactly."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from redis import Redis
from redis.backoff import NoBackoff
from redis.client import Pipeline as Transaction
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError
from redis.retry import Retry

from stream_dp.config.settings import Settings
from stream_dp.counters.calibration import calibrate
from stream_dp.engine.epoch import Epoch
from stream_dp.events.bounding import PAIR_BYTES
from stream_dp.events.record import Record
from stream_dp.pipeline.pipeline import Pipeline
from stream_dp.privacy.keyed_noise import key_check
from stream_dp.store import checkpoints
from stream_dp.store.checkpoints import (
    Checkpoint,
    CheckpointStore,
    PreparedCheckpoint,
    StateDamaged,
)
from stream_dp.store.fence import Fenced
from tests import redis_contents
from tests.nodes import live_nodes
from tests.system.example_events import some_events

SETTINGS = Settings(stream="s", epsilon=30.0, horizon=1023, items_per_event=3, mechanism="binary")
KEY = bytes(range(32))
EPOCH = replace(Epoch.open(SETTINGS, 1, 0), nonce=bytes(16))
RECORDS = [
    Record(offset, 1000 + offset, None, value) for offset, value in enumerate(some_events(300, seed=5))
]
CHECK = key_check(KEY)
PROMISE = (30.0, 1e-6, 1023, 3)
USERS_RECORDS = [
    Record(n, n, None, b'{"items": ["item %d", "item %d"], "user": "user %d"}' % (n % 90, n % 7, n * n % 50))
    for n in range(300)
]


def pipeline_at(rounds: int, state: Checkpoint | None = None) -> Pipeline:
    """The stream after so many rounds: from its start, or from a checkpoint."""
    if state is None:
        pipeline = Pipeline(EPOCH, KEY, "s.events")
    else:
        pipeline = Pipeline(state.epoch, KEY, "s.events", state.position, state.state, state.pairs)
    pipeline.process(RECORDS[:rounds])
    return pipeline


def checkpoint_of(pipeline: Pipeline) -> Checkpoint:
    return Checkpoint(
        pipeline.epoch,
        pipeline.histogram.state(),
        pipeline.position,
        7 * pipeline.round,
        CHECK,
        pipeline.intake.pairs,
    )


def save(store: CheckpointStore, pipeline: Pipeline) -> PreparedCheckpoint:
    prepared = store.prepare(checkpoint_of(pipeline))
    store.commit(prepared)
    return prepared


def loaded(redis: Redis) -> Checkpoint:
    found = CheckpointStore(redis, "s").load(KEY)
    assert found is not None
    return found


def check_equal(found: Checkpoint, pipeline: Pipeline) -> None:
    """Every cell of the checkpoint is the pipeline's."""
    expected = checkpoint_of(pipeline)
    labels = len(expected.state.labels)
    assert (expected.epoch, expected.position) == (found.epoch, found.position)
    assert (expected.releases_offset, expected.key_check) == (found.releases_offset, found.key_check)
    assert expected.pairs == found.pairs
    assert expected.state.round == found.state.round
    assert expected.state.history == found.state.history
    assert expected.state.labels == found.state.labels
    np.testing.assert_array_equal(found.state.counts, expected.state.counts)
    assert [(node.round, node.tweak) for node in live_nodes(expected.state)] == [
        (node.round, node.tweak) for node in live_nodes(found.state)
    ]
    for ours, theirs in zip(live_nodes(expected.state), live_nodes(found.state), strict=True):
        np.testing.assert_array_equal(theirs.sums, ours.sums[:labels])
        np.testing.assert_array_equal(theirs.noise, ours.noise[:labels])


def of_users(redis: Redis, cut: int) -> Pipeline:
    """A stream whose privacy unit is the user, after so many records, from the checkpoint that Redis holds."""
    state = CheckpointStore(redis, "s").load(KEY)
    epoch = (
        state.epoch if state else Epoch(1, bytes(16), 0, SETTINGS.privacy, *calibrate(*PROMISE, unit="user"))
    )
    resumed = (state.position, state.state, state.pairs) if state else ()
    pipeline = Pipeline(epoch, KEY, "s.events", *resumed)
    pipeline.process(USERS_RECORDS[:cut])
    return pipeline


def held(redis: Redis) -> CheckpointStore:
    """A store that has taken the stream over and loaded what there is."""
    store = CheckpointStore(redis, "s")
    store.take_over()
    store.load(KEY)
    return store


def test_there_is_no_checkpoint_before_the_first(redis: Redis) -> None:
    assert CheckpointStore(redis, "s").load(KEY) is None


@pytest.mark.parametrize(
    "cuts", [[300], [0, 1, 2, 3, 4, 5, 6, 7, 8, 300], [127, 128, 129, 255, 256, 300], [40] * 3]
)
def test_what_is_loaded_is_what_was_saved_whatever_was_saved_before(
    redis: Redis, cuts: Sequence[int]
) -> None:
    """Columns of nodes that live on are only appended to, others replaced, dead ones removed."""
    store, pipeline = held(redis), Pipeline(EPOCH, KEY, "s.events")
    for cut in cuts:
        pipeline.process(RECORDS[:cut])
        save(store, pipeline)
        check_equal(loaded(redis), pipeline_at(cut))


def test_a_new_worker_at_every_checkpoint_ends_where_one_worker_ends(redis: Redis) -> None:
    save(held(redis), Pipeline(EPOCH, KEY, "s.events"))
    for cut in range(10, 301, 10):
        store = CheckpointStore(redis, "s")
        store.take_over()
        state = store.load(KEY)
        assert state is not None
        save(store, pipeline_at(cut, state))
    check_equal(loaded(redis), pipeline_at(300))


def test_what_users_have_brought_is_kept_and_only_what_is_new_is_written(redis: Redis) -> None:
    written = 0
    for cut in (0, 5, 6, 100, 300):
        store = held(redis)
        pipeline = of_users(redis, cut)
        prepared = store.prepare(checkpoint_of(pipeline))
        assert len(prepared.new_pairs) == len(pipeline.intake.pairs) - written
        written = len(pipeline.intake.pairs)
        store.commit(prepared)
        store.commit(prepared)  # its answer was lost
        assert loaded(redis).pairs == pipeline.intake.pairs
    redis.flushall()
    whole = of_users(redis, 300)
    assert whole.intake.pairs == pipeline.intake.pairs
    assert written == PAIR_BYTES * int(whole.histogram.state().counts.sum()) > 0
    np.testing.assert_array_equal(whole.histogram.state().counts, pipeline.histogram.state().counts)


def test_many_pairs_come_in_pieces(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "_LARGEST_PIECE", 500)
    save(held(redis), of_users(redis, 300))
    assert redis.llen("stream_dp:{s}:pairs") > 2
    redis_holds = loaded(redis)
    save(held(redis), of_users(redis, 300))
    assert loaded(redis).pairs == redis_holds.pairs


def test_a_new_epoch_forgets_the_users_of_the_last(redis: Redis) -> None:
    store = held(redis)
    save(store, of_users(redis, 300))
    store.start_over(KEY)
    assert not redis.exists("stream_dp:{s}:pairs")
    save(store, of_users(redis, 10))
    assert loaded(redis).pairs == of_users(redis, 10).intake.pairs


def test_streams_whose_names_begin_alike_do_not_share_keys(redis: Redis) -> None:
    save(held(redis), pipeline_at(30))
    before = redis_contents.dumps(redis)
    other = CheckpointStore(redis, "s.2")
    other.take_over()
    assert other.load(KEY) is None
    save(other, pipeline_at(60))
    assert before.items() <= redis_contents.dumps(redis).items()


def test_only_the_worker_that_took_over_last_can_write(redis: Redis) -> None:
    older = held(redis)
    save(older, pipeline_at(10))
    newer = held(redis)
    before = redis_contents.dumps(redis)
    with pytest.raises(Fenced):
        save(older, pipeline_at(20))
    with pytest.raises(Fenced):
        older.take_over()
    assert before == redis_contents.dumps(redis)
    save(newer, pipeline_at(30))
    check_equal(loaded(redis), pipeline_at(30))


def test_a_worker_may_renew_its_own_hold(redis: Redis) -> None:
    store = held(redis)
    save(store, pipeline_at(10))
    store.take_over()
    save(store, pipeline_at(20))
    check_equal(loaded(redis), pipeline_at(20))


class Interrupted(CheckpointStore):
    """A store that does `meanwhile` when its transaction is queued but not yet executed."""

    meanwhile: Any = None

    def _write(self, transaction: Transaction, prepared: PreparedCheckpoint) -> None:
        super()._write(transaction, prepared)
        if self.meanwhile:
            meanwhile, self.meanwhile = self.meanwhile, None
            meanwhile(transaction)


@pytest.fixture
def interrupted(redis: Redis) -> Interrupted:
    """A store in the middle of its stream, at round 10."""
    store = Interrupted(redis, "s")
    store.take_over()
    store.load(KEY)
    save(store, pipeline_at(10))
    return store


def test_a_takeover_between_look_and_write_wins(redis: Redis, interrupted: Interrupted) -> None:
    interrupted.meanwhile = lambda _: held(redis)
    before = redis_contents.dumps(redis)
    with pytest.raises(Fenced):
        save(interrupted, pipeline_at(20))
    assert before.keys() == redis_contents.dumps(redis).keys()
    check_equal(loaded(redis), pipeline_at(10))


def test_a_takeover_and_a_checkpoint_between_look_and_write_win(
    redis: Redis, interrupted: Interrupted
) -> None:
    interrupted.meanwhile = lambda _: save(held(redis), pipeline_at(15))
    with pytest.raises(Fenced):
        save(interrupted, pipeline_at(20))
    check_equal(loaded(redis), pipeline_at(15))


def test_a_connection_lost_before_the_transaction_runs_is_no_takeover(
    redis: Redis, interrupted: Interrupted
) -> None:
    """The client library reports both in the same way."""

    def drop(transaction: Transaction) -> None:
        redis.client_kill_filter(_id=_client_id(transaction), skipme=False)

    interrupted.meanwhile = drop
    save(interrupted, pipeline_at(20))
    check_equal(loaded(redis), pipeline_at(20))


def _client_id(transaction: Transaction) -> str:
    connection = transaction.connection
    assert connection is not None
    connection.send_command("CLIENT", "ID")
    return str(connection.read_response())


def test_a_commit_whose_answer_was_lost_may_be_repeated(redis: Redis) -> None:
    store = held(redis)
    save(store, pipeline_at(10))
    prepared = store.prepare(checkpoint_of(pipeline_at(20)))
    store.commit(prepared)
    written = redis_contents.dumps(redis)
    store.commit(prepared)
    assert written == redis_contents.dumps(redis)
    save(store, pipeline_at(30))
    check_equal(loaded(redis), pipeline_at(30))


def test_a_repeated_commit_does_not_undo_the_newer_ones(redis: Redis) -> None:
    store = held(redis)
    first = save(store, pipeline_at(10))
    save(store, pipeline_at(20))
    with pytest.raises(Fenced):
        store.commit(first)
    check_equal(loaded(redis), pipeline_at(20))


def test_a_rolled_back_redis_does_not_let_two_workers_write(redis: Redis) -> None:
    """A counter would give the same number to the worker from before and to the one from after the roll-back."""
    first = held(redis)
    save(first, pipeline_at(10))
    old = redis_contents.dumps(redis)
    paused = held(redis)
    save(paused, pipeline_at(20))
    redis.flushall()
    for name, value in old.items():
        redis.restore(name, 0, value)
    newer = held(redis)
    save(newer, pipeline_at(40))
    before = redis_contents.dumps(redis)
    with pytest.raises(Fenced):
        save(paused, pipeline_at(30))
    assert before == redis_contents.dumps(redis)


def test_a_worker_whose_redis_was_emptied_stops_instead_of_writing_half_a_state(redis: Redis) -> None:
    store = held(redis)
    save(store, pipeline_at(10))
    redis.flushall()
    with pytest.raises(Fenced, match="lost its state"):
        save(store, pipeline_at(20))
    assert redis_contents.dumps(redis) == {}


def test_a_full_redis_keeps_the_last_checkpoint_whole(redis: Redis) -> None:
    store = held(redis)
    save(store, pipeline_at(10))
    before = redis_contents.dumps(redis)
    redis.config_set("maxmemory", 1)
    try:
        with pytest.raises(RedisError, match="maxmemory") as full:
            save(store, pipeline_at(20))
        assert "Command" not in str(full.value), "what was asked has labels and noise in it"
        assert before == redis_contents.dumps(redis)
    finally:
        redis.config_set("maxmemory", 0)
    save(store, pipeline_at(20))
    check_equal(loaded(redis), pipeline_at(20))


def test_memory_per_label_stays_within_16_bytes_and_its_text_and_count(redis: Redis) -> None:
    """At most 16 bytes a label and live level; what is kept is 8: a sum and its noise.  And since when it is shown."""
    pipeline = pipeline_at(255)
    save(held(redis), pipeline)
    state = pipeline.histogram.state()
    labels = len(state.labels)
    columns = [name for name in redis.keys("*") if b":column:" in name]
    columns.remove(b"stream_dp:{s}:column:shown")
    assert redis.strlen("stream_dp:{s}:column:shown") == 4 * labels
    assert len(columns) == 2 * len(live_nodes(state)) == 16
    assert {8 * labels * len(live_nodes(state)) // 16} == {redis.strlen(name) for name in columns}
    assert redis.strlen("stream_dp:{s}:counts") == 4 * labels


DAMAGES = {
    "a column is gone": lambda redis: redis.delete("stream_dp:{s}:column:sums:0"),
    "a column is short": lambda redis: redis.set("stream_dp:{s}:column:noise:0", b"1234"),
    "a column is no whole number of cells": lambda redis: redis.append("stream_dp:{s}:column:noise:0", b"x"),
    "the counts are gone": lambda redis: redis.delete("stream_dp:{s}:counts"),
    "labels are missing": lambda redis: redis.rpop("stream_dp:{s}:labels"),
    "labels are too many": lambda redis: redis.rpush("stream_dp:{s}:labels", "one more"),
    "labels and counts are gone": lambda redis: redis.delete("stream_dp:{s}:labels", "stream_dp:{s}:counts"),
    "pairs are too many": lambda redis: redis.rpush("stream_dp:{s}:pairs", bytes(PAIR_BYTES)),
    "a label is no text": lambda redis: redis.lset("stream_dp:{s}:labels", 0, b"\xff"),
    "the meta key is cut off": lambda redis: redis.set(
        "stream_dp:{s}:meta", redis.getrange("stream_dp:{s}:meta", 0, 40)
    ),
    "the meta key is no record": lambda redis: redis.set("stream_dp:{s}:meta", b"garbage"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_state_is_refused_in_one_sentence(redis: Redis, damage: str) -> None:
    save(held(redis), pipeline_at(255))
    DAMAGES[damage](redis)
    with pytest.raises(StateDamaged, match="does not fit together"):
        CheckpointStore(redis, "s").load(KEY)


def test_state_of_a_later_format_is_not_guessed_at(redis: Redis) -> None:
    redis.set("stream_dp:{s}:meta", b"\x82\xa6format\x63\xa3new\x01")
    with pytest.raises(StateDamaged, match="format 99"):
        CheckpointStore(redis, "s").load(KEY)


def test_an_unreachable_redis_is_an_outage_and_no_refusal() -> None:
    with pytest.raises(RedisConnectionError):
        CheckpointStore(Redis(port=1, retry=Retry(NoBackoff(), 0)), "s").take_over()
