"""A worker does not believe what Redis holds: damage ends it with a sentence, and a rebuild brings the same bytes."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from redis import Redis

from stream_dp.epochs.registry import Registry
from stream_dp.releases.release import decode_release
from stream_dp.store.checkpoints import Checkpoint, CheckpointStore, StateDamaged
from stream_dp.verification.rebuild import rebuild
from stream_dp.workers.resume import NewEpoch, resume
from tests.system.example_events import event, some_events
from tests.system.streams import Stream
from tests.system.ticking import MakeStream

ROUNDS = 40
# Far above what noise could hide, and not the same.
COMMON = [event("tea", "milk")] * 30 + [event("tea")] * 10


@pytest.fixture
def stream(make_stream: MakeStream) -> Iterator[Stream]:
    """A stream that has stopped after 40 rounds, all of whose labels are released."""
    with make_stream() as stream:
        stream.feed(COMMON)
        assert stream.run(until_round=ROUNDS) == 0
        yield stream


def start(stream: Stream, redis: Redis) -> None:
    """All that a worker does before it releases anything."""
    store = CheckpointStore(redis, stream.settings.stream)
    resume(stream.settings, store, redis, Registry(stream.settings.kafka_address))


def rewrite(redis: Redis, stream: str, key: bytes, checkpoint: Checkpoint) -> None:
    """Put another state into Redis, with digests that fit it: as a program would that computes it wrongly."""
    store = CheckpointStore(redis, stream)
    store.take_over()
    store.start_over(key)
    store.commit(store.prepare(checkpoint))


def test_damage_is_refused_and_a_rebuild_brings_the_same_bytes(stream: Stream) -> None:
    prefix = f"stream_dp:{{{stream.settings.stream}}}:"
    before, releases = stream.redis_keys(), stream.releases()
    with stream.redis() as redis:
        redis.setbit(f"{prefix}counts", 10, 1)
        told = stream.refusal()
        assert "(counts)" in told
        assert "`stream-dp rebuild --replace`" in told
        assert stream.redis_keys().keys() == before.keys()
        for damage in (
            lambda: redis.lset(f"{prefix}labels", 0, "coffee"),
            lambda: (redis.delete(f"{prefix}counts"), redis.rpush(f"{prefix}counts", "a list")),
            lambda: redis.set(f"{prefix}meta", b"\x80"),
            lambda: (redis.delete(f"{prefix}meta"), redis.sadd(f"{prefix}meta", "a set")),
        ):
            stream.restore_keys(before)
            damage()
            with pytest.raises(StateDamaged, match=r"does not fit together .* `stream-dp rebuild --replace`"):
                start(stream, redis)
        assert rebuild(stream.settings, redis, replace=True).state.round == ROUNDS
    assert stream.releases() == releases
    stream.feed(some_events(20, seed=1))
    assert stream.run(until_round=ROUNDS + 20) == 0
    stream.check_everything()


def test_a_state_that_gives_another_release_than_was_published_is_refused(stream: Stream) -> None:
    """Even with digests that fit: the release of its own round is computed and compared."""
    right, key = stream.checkpoint(), stream.key()
    assert set(decode_release(stream.releases()[-1].value or b"").labels) == {"tea", "milk"}
    counts, labels = right.state.counts, right.state.labels
    wrong = {
        "a count": replace(right.state, counts=counts + np.array([1, 0], np.int32)),
        "a label": replace(right.state, labels=["coffee", *labels[1:]]),
        "two labels": replace(right.state, labels=labels[::-1]),
        "the chain": replace(right.state, history=bytes(32)),
    }
    with stream.redis() as redis:
        for what, state in wrong.items():
            print(f"{what} is changed")  # shown if it goes unnoticed
            rewrite(redis, stream.settings.stream, key, replace(right, state=state))
            with pytest.raises(
                StateDamaged, match=f"what was published in round {ROUNDS}.*rebuild --replace"
            ):
                start(stream, redis)
        rewrite(redis, stream.settings.stream, key, right)
        start(stream, redis)


def test_an_epoch_that_is_not_the_one_on_record_is_refused(stream: Stream) -> None:
    right, key = stream.checkpoint(), stream.key()
    with stream.redis() as redis:
        other = replace(right.epoch, nonce=bytes(16))
        rewrite(redis, stream.settings.stream, key, replace(right, epoch=other))
        with pytest.raises(StateDamaged, match="meta"):
            start(stream, redis)


def test_between_two_releases_their_labels_are_compared(make_stream: MakeStream) -> None:
    with make_stream(release="every-30") as stream:
        stream.feed(COMMON)
        assert stream.run(until_round=30) == 0
        right, key = stream.checkpoint(), stream.key()
        assert right.state.round >= 30
        with stream.redis() as redis:
            state = replace(right.state, labels=["coffee", *right.state.labels[1:]])
            rewrite(redis, stream.settings.stream, key, replace(right, state=state))
            with pytest.raises(StateDamaged, match="what was published in round 30"):
                start(stream, redis)
            rewrite(redis, stream.settings.stream, key, right)
            start(stream, redis)


def test_where_the_release_is_gone_the_log_says_that_nothing_was_compared(
    stream: Stream, caplog: pytest.LogCaptureFixture
) -> None:
    """The topic then holds releases of other epochs alone."""
    nonce = stream.checkpoint().epoch.nonce.hex().encode()
    others = [
        record._replace(value=(record.value or b"").replace(nonce, b"0" * 32)) for record in stream.releases()
    ]
    stream.rewrite(stream.settings.releases, others)
    with stream.redis() as redis:
        start(stream, redis)
    assert f"the state of round {ROUNDS} was not compared with a release" in caplog.text


def test_a_damaged_closing_is_refused_until_a_new_epoch_is_opened(stream: Stream) -> None:
    settings, name = stream.settings, f"stream_dp:{{{stream.settings.stream}}}:closing"
    with stream.redis() as redis:
        redis.set(name, b"anything")
        with pytest.raises(StateDamaged, match=r"closing.* --new-epoch"):
            start(stream, redis)
        store = CheckpointStore(redis, settings.stream)
        again = resume(settings, store, redis, Registry(settings.kafka_address), NewEpoch())
        assert again.pipeline.epoch.number == 2
        assert not redis.exists(name)
