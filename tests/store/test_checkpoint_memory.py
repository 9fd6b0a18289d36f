"""What a checkpoint takes in memory while it is written, and that it is written as it was when it was begun."""

import tracemalloc
from typing import Any

import msgspec
import pytest
from redis.connection import HiredisRespSerializer

from stream_dp.config.connections import RedisAddress, redis_client
from stream_dp.config.redis_commands import LARGE, UncopiedValues
from stream_dp.config.settings import Settings
from stream_dp.dev.redis_server import RedisServer
from stream_dp.engine.epoch import Epoch
from stream_dp.events.record import Record
from stream_dp.pipeline.pipeline import Pipeline, Position
from stream_dp.planning.release_sizes import far_along
from stream_dp.privacy.keyed_noise import KEY_BYTES, key_check
from stream_dp.store.checkpoints import Checkpoint, CheckpointStore, PreparedCheckpoint
from tests.system.waiting import GIVE_UP_SECONDS

LABELS, BLOCK = 40_000, 256
KEY = bytes(KEY_BYTES)
SETTINGS = Settings(stream="s", mechanism="blt", discover="every-round", horizon=2**20 - 1)
BESIDE = 1.2  # the meta record, the connection, and what else is small


def go_on(pipeline: Pipeline, rounds: int) -> None:
    """Count events of four known labels each."""
    first = pipeline.position.next_offset
    names = [[f"label {(4 * i + k) * 7919 % LABELS}" for k in range(4)] for i in range(rounds)]
    records = [
        Record(first + i, 1, None, msgspec.json.encode({"items": items})) for i, items in enumerate(names)
    ]
    pipeline.process(records)


def prepared_by(store: CheckpointStore, pipeline: Pipeline) -> PreparedCheckpoint:
    place = pipeline.histogram.state(), pipeline.position
    return store.prepare(Checkpoint(pipeline.epoch, *place, 0, key_check(KEY), pipeline.intake.pairs))


def test_a_checkpoint_takes_what_it_writes_once(server: RedisServer) -> None:
    """The client must not pack copies of columns; those that `prepare` makes stay as they are while work goes on."""
    epoch = Epoch.open(SETTINGS, 1, 0)
    state = far_along(epoch.mechanism, epoch.noise(KEY), [f"label {i}" for i in range(LABELS)], 10)
    pipeline = Pipeline(epoch, KEY, SETTINGS.events, Position(state.round), state)
    with redis_client(RedisAddress(server.url), socket_timeout=GIVE_UP_SECONDS) as redis:
        redis.flushall()
        store = CheckpointStore(redis, "s")
        store.take_over()
        store.load(KEY)
        store.commit(prepared_by(store, pipeline))
        go_on(pipeline, 2 * BLOCK + 7)
        tracemalloc.start()
        try:
            prepared = prepared_by(store, pipeline)
            store.commit(prepared)
            most = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        written = sum(len(write.cells) for write in prepared.writes)
        assert written > 12 * LABELS
        assert most < BESIDE * written

        go_on(pipeline, 3)
        prepared = prepared_by(store, pipeline)
        expected = {write.name: write.cells[:] for write in prepared.writes}
        whole = {write.name for write in prepared.writes if not write.start}
        live = pipeline.histogram.state().counts.tobytes()
        assert expected["counts"] == live
        go_on(pipeline, BLOCK)
        assert pipeline.histogram.state().counts.tobytes() != live
        store.commit(prepared)
        assert "counts" in whole
        for name in whole:
            assert redis.get(f"stream_dp:{{s}}:{name}") == expected[name]


@pytest.mark.parametrize("size", [0, 1, LARGE - 1, LARGE, LARGE + 1, 5 * LARGE])
@pytest.mark.parametrize(
    "begin", [("SET", "key"), ("SETRANGE", b"key", 12), ("CONFIG SET", "name"), ("PING",)]
)
def test_commands_are_the_bytes_that_redis_py_sends(begin: tuple[Any, ...], size: int) -> None:
    """And a large value is not copied."""
    value: Any = bytes(range(256)) * (size // 256) + bytes(size % 256)
    pieces = UncopiedValues().pack(*begin, value)
    assert b"".join(pieces) == b"".join(HiredisRespSerializer().pack(*begin, value))
    assert any(piece is value for piece in pieces) == (size >= LARGE)


def test_commands_without_values_are_packed_too() -> None:
    for command in (("PING",), ("MULTI",), ("GET", "key"), ("SET", "key", "ü" * LARGE), (b"EXEC",)):
        assert UncopiedValues().pack(*command) == HiredisRespSerializer().pack(*command)
