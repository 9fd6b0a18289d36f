"""What a standby has read before its turn is used where it is what Redis has, and a bit that differs is refused."""

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from redis import Redis

from stream_dp.counters.protocol import CounterState
from stream_dp.engine.label_texts import LabelTexts
from stream_dp.privacy.keyed_noise import key_check
from stream_dp.store.checkpoints import Checkpoint, CheckpointStore, KnownLabels, StateDamaged
from stream_dp.store.label_pages import PAGE
from tests.redis_contents import elements
from tests.store.test_checkpoints import KEY
from tests.store.test_damage import (
    believed,
    check_refused,
    contents,
    pipeline_of,
    put,
    save,
    some_records,
    start,
    stopped,
    with_a_bit_flipped,
)

LABELS = "stream_dp:{s}:labels"


def known_of(redis: Redis) -> KnownLabels:
    """As a standby reads them."""
    store = CheckpointStore(redis, "s")
    checkpoint = store.load(KEY)
    assert checkpoint is not None
    return store.known_labels(checkpoint.epoch.nonce, checkpoint.state.labels)


def start_with(redis: Redis, known: KnownLabels) -> Checkpoint:
    """Read all that the start of a standby reads, and what it leaves for later."""
    store = CheckpointStore(redis, "s")
    checkpoint = store.load(KEY, known)
    assert checkpoint is not None
    store.check_unread()
    return checkpoint


@pytest.fixture
def known(redis: Redis) -> KnownLabels:
    """The labels of a checkpoint after which others came."""
    pipeline = pipeline_of("binary")
    pipeline.process(some_records("binary")[:20])
    save(redis, pipeline)
    found = known_of(redis)
    stopped(redis, "binary")
    return found


def test_known_labels_are_not_read_and_the_state_is_the_same(redis: Redis, known: KnownLabels) -> None:
    everything = start(redis)
    assert 0 < len(known.labels) < len(everything.state.labels)
    store = CheckpointStore(redis, "s")
    found = store.load(KEY, known)
    assert found is not None
    assert found.state.labels == everything.state.labels
    redis.lset(LABELS, 0, "another")  # nothing has looked there yet
    with pytest.raises(StateDamaged, match="labels"):
        store.check_unread()
    store.check_unread()  # there is nothing left to look at


def test_what_is_written_later_goes_on_from_known_labels(redis: Redis, known: KnownLabels) -> None:
    pipeline = pipeline_of("binary")
    pipeline.process(some_records("binary"))
    store = CheckpointStore(redis, "s")
    store.take_over()
    store.load(KEY, known)
    place = pipeline.epoch, pipeline.state(), pipeline.position, 7
    store.commit(store.prepare(Checkpoint(*place, key_check(KEY), pipeline.intake.pairs)))
    assert start(redis).state.labels == pipeline.state().labels


def test_labels_that_are_known_otherwise_are_read(redis: Redis, known: KnownLabels) -> None:
    expected = start(redis).state.labels
    others = [
        KnownLabels(known.nonce, LabelTexts(known.labels[::-1]), known.seal.followed_by(b"x")),
        KnownLabels(bytes(16), known.labels, known.seal),
    ]
    for other in others:
        assert start_with(redis, other).state.labels == expected


def test_a_flipped_bit_is_refused_in_every_key(redis: Redis, known: KnownLabels) -> None:
    whole, random, flips = contents(redis), Random(11), 0
    start_with(redis, known)
    for name in [name for name in believed(redis) if not name.endswith((":closing", ":key"))]:
        for _ in with_a_bit_flipped(redis, name, random):
            with pytest.raises(StateDamaged):
                start_with(redis, known)
            flips += 1
        put(redis, whole, name)
    assert flips > 20
    start_with(redis, known)


def test_labels_that_are_gone_are_refused(redis: Redis, known: KnownLabels) -> None:
    redis.ltrim(LABELS, 1, -1)
    with pytest.raises(StateDamaged, match="labels"):
        start_with(redis, known)
    redis.delete(LABELS)
    redis.set(LABELS, "x")
    with pytest.raises(StateDamaged, match="labels"):
        start_with(redis, known)
    check_refused(redis)


def test_labels_of_many_pages_come_with_any_number_of_new_ones(
    redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checkpoints that add nothing, a label, a page to its last byte, and many pages; read at once and by a standby."""
    monkeypatch.setattr("stream_dp.store.label_pages._AT_ONCE", 2)
    texts, pipeline, store = LabelTexts(), pipeline_of("binary"), CheckpointStore(redis, "s")
    pipeline.process(some_records("binary")[:1])
    state = pipeline.state()
    store.take_over()
    store.load(KEY)
    to_page_end = (
        PAGE - 17
    )  # two labels of a header of 6 bytes each are there then, and 5 bytes for the first label
    earlier = list[KnownLabels]()
    for added in (
        ["tea"],
        [],
        ["x" * PAGE],
        ["y" * to_page_end],
        ["z"],
        [f"{n}" * 999 for n in range(999)],
        ["end"],
    ):
        texts.extend([label.encode() for label in added])
        counts = np.zeros(len(texts), np.int32)
        state = replace(state, labels=texts, counts=counts, counter=CounterState(1), shown_since=counts)
        store.commit(store.prepare(Checkpoint(pipeline.epoch, state, pipeline.position, 7, key_check(KEY))))
        pages = elements(redis, LABELS)
        assert {len(page) for page in pages[:-1]} <= {PAGE}
        assert b"".join(pages) == texts.code().tobytes()
        for known in [None, *earlier]:
            reader = CheckpointStore(redis, "s")
            found = reader.load(KEY, known)
            assert found is not None
            assert found.state.labels == texts
            reader.check_unread()
        earlier.append(known_of(redis))
    assert len(pages) > 30
    assert {each.labels.code_bytes for each in earlier} > {2 * PAGE}
