"""Does a worker that is killed around a test go on with the same bytes, from what Redis holds?"""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest
from redis import Redis

from stream_dp.config.settings import Settings
from stream_dp.engine.epoch import Epoch
from stream_dp.events.record import Record
from stream_dp.pipeline.pipeline import Pipeline
from stream_dp.releases.release import decode_release
from stream_dp.store.checkpoints import Checkpoint, CheckpointStore
from tests.store.test_checkpoints import CHECK, KEY

SETTINGS = Settings(
    stream="found",
    mechanism="blt",
    discover="every-10",
    at_least=2,
    epsilon=20.0,
    delta=0.05,
    horizon=120,
    items_per_event=3,
)
EPOCH = replace(Epoch.open(SETTINGS, 1, 0), nonce=bytes(16))
_DRAW = Random(3)
RECORDS = [
    Record(
        offset,
        1000 + offset,
        None,
        b'{"items": [%s]}' % b", ".join({b'"%d"' % (_DRAW.paretovariate(0.5) % 50) for _ in range(3)}),
    )
    for offset in range(120)
]


def released(pipeline: Pipeline, records: Sequence[Record]) -> list[bytes]:
    return [part.value for part in pipeline.process(records).releases]


def expected() -> list[bytes]:
    return released(Pipeline(EPOCH, KEY, "found.events"), RECORDS)


def test_labels_are_found_at_several_tests() -> None:
    """Or the tests below would say nothing."""
    last = decode_release(expected()[-1])
    assert len({*(last.found or [])}) > 3
    assert len(last.labels) < 50


@pytest.mark.parametrize("step", [1, 3, 10, 11])
def test_a_worker_that_is_killed_goes_on_with_the_same_bytes(step: int, redis: Redis) -> None:
    """Killed after every `step` rounds, so before, at and behind tests; what it did after its checkpoint is lost."""
    store, pipeline = CheckpointStore(redis, "found"), Pipeline(EPOCH, KEY, "found.events")
    store.take_over()
    store.load(KEY)
    found: list[bytes] = []
    for end in range(step, len(RECORDS) + step, step):
        found += released(pipeline, RECORDS[pipeline.round : end])
        saved = Checkpoint(EPOCH, pipeline.state(), pipeline.position, 0, CHECK, pipeline.intake.pairs)
        prepared = store.prepare(saved)
        pipeline.process(RECORDS[pipeline.round : pipeline.round + 12])  # while it is written, over a test
        store.commit(prepared)
        state = CheckpointStore(redis, "found").load(KEY)
        assert state is not None
        pipeline = Pipeline(EPOCH, KEY, "found.events", state.position, state.state, state.pairs)
    assert found == expected()


def test_one_that_is_killed_in_a_test_and_counts_it_again_from_an_earlier_state(redis: Redis) -> None:
    """What was released before the kill comes again, byte for byte, from any state before it."""
    everything = expected()
    for before, end in ((0, 10), (9, 10), (9, 11), (10, 21), (4, 30), (29, 30), (100, 120)):
        pipeline = Pipeline(EPOCH, KEY, "found.events")
        pipeline.process(RECORDS[:before])
        again = Pipeline(EPOCH, KEY, "found.events", pipeline.position, pipeline.state(), b"")
        assert released(again, RECORDS[before:end]) == everything[before:end]
        last = decode_release(everything[end - 1])
        assert again.last_release(last.previous) == [everything[end - 1]]
