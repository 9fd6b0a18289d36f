"""The cells beside the labels come back from Redis as they were."""

from dataclasses import replace

import pytest
from redis import Redis

from stream_dp.config.settings import Settings
from stream_dp.engine.epoch import Epoch
from stream_dp.pipeline.pipeline import Pipeline
from tests.store.test_checkpoints import KEY, RECORDS, checkpoint_of, held, loaded


@pytest.mark.parametrize("mechanism", ["binary", "blt"])
def test_a_pipeline_goes_on_with_its_cells_from_redis(redis: Redis, mechanism: str) -> None:
    """Both cells beside the labels are restored exactly, and the next epoch finds nothing of them."""
    chosen = Settings(stream="s", horizon=1023, items_per_event=1, mechanism=mechanism, cap_share=True)
    epoch = Epoch.open(chosen, 1, 0)
    whole, pipeline, store = Pipeline(epoch, KEY, "s.events"), Pipeline(epoch, KEY, "s.events"), held(redis)
    expected = [each.value for each in whole.process(RECORDS).releases]
    seen = [each.value for each in pipeline.process(RECORDS[:100]).releases]
    store.commit(store.prepare(replace(checkpoint_of(pipeline), state=pipeline.state())))
    found = loaded(redis)
    again = Pipeline(epoch, KEY, "s.events", found.position, found.state, found.pairs)
    seen += [each.value for each in again.process(RECORDS[100:]).releases]
    assert seen == expected
    store.start_over(KEY)
    assert not [*redis.scan_iter(match="*:cells:*")]
