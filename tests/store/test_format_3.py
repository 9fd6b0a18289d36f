"""Checkpoints of format 3, which had no digests: they are taken over, and nothing odd in them is used."""

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest
from redis import Redis

from stream_dp.engine.epoch import EpochRefused
from stream_dp.pipeline.pipeline import Pipeline
from stream_dp.store.checkpoints import Checkpoint, CheckpointStore, StateDamaged
from stream_dp.store.fence import Fenced
from tests import redis_contents
from tests.format_3 import KEY, LEFT, put_back

ALONE = [name for name, left in LEFT.items() if "shards" not in left.settings]


def loaded(redis: Redis, stream: str) -> Checkpoint:
    checkpoint = CheckpointStore(redis, stream).load(KEY)
    assert checkpoint is not None
    return checkpoint


@pytest.mark.parametrize("name", ALONE)
def test_a_checkpoint_of_format_3_goes_on_and_becomes_one_of_this_format(redis: Redis, name: str) -> None:
    left = LEFT[name]
    stream = left.settings["stream"]
    put_back(redis, left)
    store = CheckpointStore(redis, stream)
    store.take_over()
    found = store.load(KEY)
    assert found is not None
    straight = Pipeline(left.opened, KEY, f"{stream}.events")
    straight.process(left.records[: left.counted])
    assert found.state.labels == straight.state().labels
    np.testing.assert_array_equal(found.state.counts, straight.state().counts)
    resumed = Pipeline(found.epoch, KEY, f"{stream}.events", found.position, found.state, found.pairs)
    assert resumed.last_release(None) == straight.last_release(None)
    rest = resumed.process(left.records).releases
    assert rest == straight.process(left.records).releases
    assert len(rest) > 0
    place = resumed.epoch, resumed.state(), resumed.position, found.releases_offset + len(rest)
    store.commit(store.prepare(Checkpoint(*place, found.key_check, resumed.intake.pairs)))
    assert b"seal" in redis_contents.value(redis, f"stream_dp:{{{stream}}}:meta")
    again = loaded(redis, stream)
    assert (again.position, again.pairs) == (resumed.position, resumed.intake.pairs)
    np.testing.assert_array_equal(again.state.counts, straight.state().counts)
    redis.setbit(f"stream_dp:{{{stream}}}:counts", 3, 1)
    with pytest.raises(StateDamaged, match="counts"):
        loaded(redis, stream)


def test_shards_and_their_sequencer_are_taken_over(redis: Redis) -> None:
    left = LEFT["shards"]
    stream = left.settings["stream"]
    put_back(redis, left)
    straight = Pipeline(left.opened, KEY, f"{stream}.events")
    straight.process(left.records[: left.counted])
    sequencer, *shards = (loaded(redis, place) for place in (stream, f"{stream}/0", f"{stream}/1"))
    assert sequencer.sharding is not None
    assert sequencer.sharding.shards == 2
    assert {each.state.history for each in (sequencer, *shards)} == {straight.state().history}
    assert sorted(label for shard in shards for label in shard.state.labels) == sorted(
        straight.state().labels
    )


def _with(**changed: Any) -> Callable[[dict[str, Any]], None]:
    return lambda meta: meta.update(changed)


def _in_column(**changed: Any) -> Callable[[dict[str, Any]], None]:
    return lambda meta: meta["columns"][0].update(changed)


ODD: dict[str, Callable[[dict[str, Any]], None]] = {
    "a negative round": _with(round=-1),
    "a negative number of labels": _with(labels=-1),
    "too many labels": _with(labels=2**40),
    "a number where a text belongs": _with(key_check=7),
    "a history of another length": _with(history=bytes(31)),
    "a tweak that is too long": _with(tweaks={32: bytes(33)}),
    "a tweak that is no bytes": _with(tweaks={32: 1}),
    "tweaks that are a list": _with(tweaks=[]),
    "no epoch": _with(epoch=None),
    "an epoch of another mechanism": lambda meta: meta["epoch"]["mechanism"].update(type="none"),
    "cells that are objects": _in_column(dtype="|O"),
    "cells of another width": _in_column(dtype="<f4"),
    "cells of a great width": _in_column(dtype="V1000000000"),
    "more cells than labels": _in_column(rows=2**40),
    "a negative number of cells": _in_column(rows=-1),
    "a version that is none": _in_column(version=-1),
    "a column that is another key": _in_column(name="../../fence"),
    "a column twice": lambda meta: meta["columns"].append(meta["columns"][0]),
    "a block that has no columns": _with(block={"round": 1, "tweaks": {}, "histories": []}),
    "too few pairs": _with(pairs=1),
}


@pytest.mark.parametrize("odd", ODD)
def test_nothing_odd_is_taken_over(redis: Redis, odd: str) -> None:
    left = LEFT["binary"]
    put_back(redis, left)
    name = f"stream_dp:{{{left.settings['stream']}}}:meta"
    meta = msgspec.msgpack.decode(redis_contents.value(redis, name), strict=False)
    ODD[odd](meta)
    redis.set(name, msgspec.msgpack.encode(meta))
    with pytest.raises(StateDamaged, match=r"does not fit together .* `stream-dp rebuild --replace`"):
        loaded(redis, left.settings["stream"])


def test_a_worker_that_was_superseded_cannot_take_over_the_format(redis: Redis) -> None:
    left = LEFT["binary"]
    stream = left.settings["stream"]
    put_back(redis, left)
    older, newer = CheckpointStore(redis, stream), CheckpointStore(redis, stream)
    older.take_over()
    checkpoint = older.load(KEY)
    assert checkpoint is not None
    newer.take_over()
    with pytest.raises(Fenced):
        older.commit(older.prepare(checkpoint))
    with pytest.raises(EpochRefused, match="the noise key is not the one"):
        newer.load(bytes(32))
