"""Does a checkpoint keep all that a histogram needs to go on, whichever counter it has?"""

import pytest
from msgspec import structs
from redis import Redis

from stream_dp.counters import MECHANISMS
from stream_dp.engine.histogram import RunningHistogram
from stream_dp.pipeline.pipeline import Position
from stream_dp.privacy.shown import Shown
from stream_dp.store.checkpoints import Checkpoint, CheckpointStore
from tests.engine.crafted import HORIZON, LABELS, Releases, mechanism, noise, releases
from tests.store.test_checkpoints import CHECK, EPOCH, KEY


@pytest.mark.parametrize("shown", ["kept", "each-round"])
@pytest.mark.parametrize("name", MECHANISMS)
def test_a_saved_state_goes_on_as_if_nothing_had_happened(name: str, shown: Shown, redis: Redis) -> None:
    """Saved after rounds of all kinds, through Redis, with labels that come late."""
    calibrated = structs.replace(mechanism(name, 13), shown=shown)
    rounds = [LABELS[: 1 + i // 6][-3:] + LABELS[:1] for i in range(HORIZON)]
    expected = releases(RunningHistogram(calibrated, noise()), rounds)
    assert sum(map(len, expected.values())) > 50
    writer = CheckpointStore(redis, "saved")
    writer.take_over()
    writer.load(KEY)
    histogram = RunningHistogram(calibrated, noise())
    found: Releases = {}
    for end in (1, 5, 8, 9, 15, 16, 17, 40, 41, 63):
        found |= releases(histogram, rounds[histogram.round : end])
        saved = Checkpoint(EPOCH, histogram.state(), Position(end), 0, CHECK)
        prepared = writer.prepare(saved)
        histogram.observe([LABELS] * min(2, histogram.rounds_left))  # goes on while the checkpoint is written
        writer.commit(prepared)
        loaded = CheckpointStore(redis, "saved").load(KEY)
        assert loaded is not None
        assert loaded.state.round == end
        histogram = RunningHistogram(calibrated, noise(), loaded.state)
    assert expected == found
