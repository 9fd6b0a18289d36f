"""Recovery: how long a worker takes to be ready when its checkpoint holds a million labels, and how much memory.

The checkpoint is written by the worker's own store into a real server; each step of a start is then timed in a process
of its own, so that its memory is its own too.
"""

import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

import msgspec
import numpy as np
from redis import Redis
from rich.console import Console
from rich.table import Table

from stream_dp.config.settings import Settings
from stream_dp.dev import redis_server
from stream_dp.engine.epoch import Epoch
from stream_dp.events.record import Record
from stream_dp.pipeline.pipeline import Pipeline
from stream_dp.privacy.keyed_noise import key_check
from stream_dp.store.checkpoints import Checkpoint, CheckpointStore

LABELS = 1_000_000
READY_SECONDS = 15.0
_PER_EVENT = 1_000
_KEY = bytes(range(32))
_SETTINGS = Settings(
    stream="recovery", epsilon=30.0, horizon=65_535, items_per_event=_PER_EVENT, mechanism="binary"
)


def main(console: Console) -> None:
    """Print how long each step of a recovery took; exits if the whole took longer than it may."""
    with tempfile.TemporaryDirectory() as folder, redis_server.running(Path(folder)) as server:
        state_bytes = _fill(server.url)
        command = [sys.executable, "-m", "benchmarks.recovery", server.url]
        told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    steps = msgspec.json.decode(told, type=dict[str, float])
    memory, reads, restores = steps.pop("memory"), steps.pop("standby reads"), steps.pop("standby restores")
    total = sum(steps.values())
    table = Table(title=f"{LABELS:,} labels, {state_bytes / 1e6:,.0f} MB in Redis")
    table.add_column("step")
    table.add_column("seconds", justify="right")
    for name, seconds in {**steps, "ready": total}.items():
        table.add_row(name, f"{seconds:.2f}")
    console.print(table)
    console.print(
        f"A standby loads the checkpoint in {reads:.2f} s and restores the histogram in {restores:.2f} s"
    )
    console.print(f"The worker's largest memory: {memory / 1e6:,.0f} MB")
    if total > READY_SECONDS:
        sys.exit(f"recovery took {total:.1f} s, more than {READY_SECONDS:g} s")


def _fill(url: str) -> int:
    """Count a million labels and checkpoint them; returns the bytes that Redis holds then."""
    epoch = Epoch.open(_SETTINGS, 1, 0)
    pipeline = Pipeline(epoch, _KEY, _SETTINGS.events)
    for start in range(0, LABELS, _PER_EVENT):
        items = [f"https://shop.example/article/{number}" for number in range(start, start + _PER_EVENT)]
        pipeline.process([Record(start // _PER_EVENT, 1, None, msgspec.json.encode({"items": items}))])
    with Redis.from_url(url) as redis:
        store = CheckpointStore(redis, _SETTINGS.stream)
        store.take_over()
        store.load(_KEY)
        state = pipeline.histogram.state()
        store.commit(store.prepare(Checkpoint(epoch, state, pipeline.position, 0, key_check(_KEY))))
        return int(redis.info("memory")["used_memory"])


def _recover(url: str) -> dict[str, float]:
    """Seconds of each step of a start, and the largest `memory` in bytes that this process has needed.

    `standby reads`, `standby restores`: seconds of the first two steps where a standby has read the labels before.
    """
    with Redis.from_url(url) as redis:
        store = CheckpointStore(redis, _SETTINGS.stream)
        started = perf_counter()
        checkpoint = store.load(_KEY)
        assert checkpoint is not None
        loaded = perf_counter()
        state = checkpoint.state
        pipeline = Pipeline(checkpoint.epoch, _KEY, _SETTINGS.events, checkpoint.position, state)
        restored = perf_counter()
        event = Record(
            pipeline.position.next_offset, 1, None, b'{"items": ["https://shop.example/article/0"]}'
        )
        output = pipeline.process([event])
        first = perf_counter()
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0
        labels = store.known_labels(checkpoint.epoch.nonce, state.labels)
        earlier = Pipeline(checkpoint.epoch, _KEY, _SETTINGS.events, checkpoint.position, state)
        turn = perf_counter()
        later = store.load(_KEY, labels)
        assert later is not None
        read = perf_counter()
        Pipeline(later.epoch, _KEY, _SETTINGS.events, later.position, later.state, earlier=earlier)
        again = perf_counter()
    assert (pipeline.round, len(state.labels), len(output.releases) > 0) == (
        LABELS // _PER_EVENT + 1,
        LABELS,
        True,
    )
    assert int(np.sum(state.counts)) >= LABELS
    return {
        "load the checkpoint": loaded - started,
        "restore the histogram": restored - loaded,
        "first round": first - restored,
        "memory": memory,
        "standby reads": read - turn,
        "standby restores": again - read,
    }


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(_recover(sys.argv[1])))
