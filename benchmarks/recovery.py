"""Recovery: how long a worker takes to be ready when its checkpoint holds ten million labels, and how much memory.

Of half as many, once with labels that are found at tests, and once with all of them drawn for in every round: of ten
million of those, a checkpoint would be one transaction of nearly a gigabyte.  Each is written by the worker's own
store into a real server; each step of a start is then timed in a process of its own, so that its memory is its own too.
All of them start in turns.
"""

import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from time import perf_counter

import msgspec
import numpy as np
from redis import Redis
from rich.console import Console
from rich.table import Table

from benchmarks.measure import most_memory
from stream_dp.config.settings import Settings
from stream_dp.dev import redis_server
from stream_dp.engine.epoch import Epoch
from stream_dp.engine.histogram import KNOWN, HistogramState
from stream_dp.events.record import Record
from stream_dp.pipeline.pipeline import Pipeline, Position
from stream_dp.privacy.keyed_noise import key_check
from stream_dp.store.checkpoints import Checkpoint, CheckpointStore

LABELS, SHOWN = 10_000_000, 5_000
TURNS = 3
_KEY = bytes(range(32))
_PAGE = "https://shop.example/article/{:09d}"
_EVENT = b'{"items": ["https://shop.example/article/000000000"]}'


def main(console: Console, labels: int = LABELS, turns: int = TURNS) -> None:
    """Print the median of each step of a recovery by either rule, and the most memory that any of them took."""
    cases = ("default", labels), ("default", labels // 2), ("every-round", labels // 2)
    told: list[list[dict[str, float]]] = [[] for _ in cases]
    with ExitStack() as stack:
        servers = []
        for rule, number in cases:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            servers.append(stack.enter_context(redis_server.running(folder)).url)
            subprocess.run(_command("fill", servers[-1], rule, str(number)), check=True)
        for _ in range(turns):
            for (rule, _), url, runs in zip(cases, servers, told, strict=True):
                run = subprocess.run(_command("recover", url, rule), check=True, capture_output=True)
                runs.append(msgspec.json.decode(run.stdout, type=dict[str, float]))
    table = Table("", *(f"{rule}, {number:,}" for rule, number in cases), title=f"{SHOWN:,} labels are shown")
    for name in told[0][0]:
        figures = [[run[name] for run in runs] for runs in told]
        if name == "memory, MB":
            table.add_row(name, *(f"{max(each) / 1e6:,.0f}" for each in figures))
        else:
            table.add_row(name, *(f"{median(each):.2f}" for each in figures))
    console.print(table)


def _command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "benchmarks.recovery", *arguments]


def _settings(rule: str) -> Settings:
    return Settings(stream="recovery", horizon=2**20 - 1, mechanism="blt", discover=rule)


def _fill(url: str, rule: str, labels: int) -> None:
    """Count a round of an epoch that knows so many labels, and checkpoint it."""
    settings = _settings(rule)
    epoch = Epoch.open(settings, 1, 0)
    state = HistogramState.before_any_round([_PAGE.format(i) for i in range(labels)])
    assert state.shown_since is not None
    state.shown_since[:SHOWN] = KNOWN
    state.counts[:] = 1
    pipeline = Pipeline(epoch, _KEY, settings.events, Position(0), state)
    pipeline.process([Record(0, 1, None, _EVENT)])
    with Redis.from_url(url) as redis:
        store = CheckpointStore(redis, settings.stream)
        store.take_over()
        store.load(_KEY)
        place = pipeline.state(), pipeline.position
        store.commit(store.prepare(Checkpoint(epoch, *place, 0, key_check(_KEY))))


def _recover(url: str, rule: str) -> dict[str, float]:
    """Seconds of each step of a start, and the most `memory` in bytes that it has needed.

    `a standby reads`, `a standby restores`: seconds of the first two steps where a standby has read the labels before.
    """
    settings = _settings(rule)
    with Redis.from_url(url) as redis:
        store = CheckpointStore(redis, settings.stream)
        started = perf_counter()
        checkpoint = store.load(_KEY)
        assert checkpoint is not None
        loaded = perf_counter()
        place = checkpoint.position, checkpoint.state
        epoch = checkpoint.epoch
        pipeline = Pipeline(epoch, _KEY, settings.events, *place)
        del checkpoint, place
        restored = perf_counter()
        output = pipeline.process([Record(pipeline.position.next_offset, 1, None, _EVENT)])
        first = perf_counter()
        memory = most_memory()
        labels = store.known_labels(epoch.nonce, pipeline.state().labels)
        turn = perf_counter()
        later = store.load(_KEY, labels)
        assert later is not None
        read = perf_counter()
        Pipeline(epoch, _KEY, settings.events, later.position, later.state, earlier=pipeline)
        again = perf_counter()
    assert pipeline.round == 2
    assert output.releases
    assert np.count_nonzero(later.state.counts) == len(later.state.labels)
    return {
        "load the checkpoint": loaded - started,
        "restore the histogram": restored - loaded,
        "first round": first - restored,
        "ready": first - started,
        "memory, MB": memory,
        "a standby reads": read - turn,
        "a standby restores": again - read,
    }


if __name__ == "__main__":
    if sys.argv[1] == "fill":
        _fill(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    else:
        sys.stdout.buffer.write(msgspec.json.encode(_recover(sys.argv[2], sys.argv[3])))
