"""A checkpoint of a million labels, one in a hundred of them changed: how long it takes, and how long work stalls."""

import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter

import msgspec
from redis import Redis
from rich.console import Console
from rich.table import Table

from stream_dp.config.settings import Settings
from stream_dp.dev import redis_server
from stream_dp.engine.epoch import Epoch
from stream_dp.engine.histogram import HistogramState
from stream_dp.events.record import Record
from stream_dp.pipeline.pipeline import Pipeline, Position
from stream_dp.privacy.keyed_noise import KEY_BYTES, key_check
from stream_dp.store.checkpoints import Checkpoint, CheckpointStore

LABELS, SHOWN, CHANGED = 1_000_000, 5_000, 10_000
TURNS = 5
_SETTINGS = Settings(stream="checkpoint", mechanism="blt", discover="default", horizon=2**20 - 1)


def main(console: Console) -> None:
    """Print the medians of several checkpoints, each after so many events that one label in a hundred has changed."""
    epoch, key = Epoch.open(_SETTINGS, 1, 0), bytes(KEY_BYTES)
    names = [f"label {i}" for i in range(LABELS)]
    state = HistogramState.before_any_round(names)
    state.counts[:SHOWN] = 1_000_000  # the first test finds them
    pipeline = Pipeline(epoch, key, _SETTINGS.events, Position(0), state)
    _change(pipeline, 0)
    stalls, writes = [], []
    with (
        tempfile.TemporaryDirectory() as folder,
        redis_server.running(Path(folder)) as server,
        Redis.from_url(server.url) as redis,
    ):
        store = CheckpointStore(redis, _SETTINGS.stream)
        store.take_over()
        store.load(key)
        for turn in range(TURNS + 1):
            if turn:
                _change(pipeline, turn)
            started = perf_counter()
            place = pipeline.histogram.state(), pipeline.position
            prepared = store.prepare(Checkpoint(epoch, *place, 0, key_check(key), pipeline.intake.pairs))
            ready = perf_counter()
            store.commit(prepared)
            if turn:  # the first one writes everything
                stalls.append(ready - started)
                writes.append(perf_counter() - started)
    table = Table("", "ms", title=f"A checkpoint of {LABELS:,} labels, {CHANGED:,} of them changed")
    table.add_row("work stalls for", f"{median(stalls) * 1e3:.1f}")
    table.add_row("durable after", f"{median(writes) * 1e3:.1f}")
    console.print(table)


def _change(pipeline: Pipeline, turn: int) -> None:
    """Events of four labels each that change one label in a hundred."""
    first = pipeline.position.next_offset
    records = []
    for i in range(CHANGED // 4):
        items = [f"label {(turn + 100 * (4 * i + k)) % LABELS}" for k in range(4)]
        records.append(Record(first + i, 1, None, msgspec.json.encode({"items": items})))
    pipeline.process(records)
