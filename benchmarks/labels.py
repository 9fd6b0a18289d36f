"""Memory for labels that were seen and are not shown: bytes a label, the peak of a recovery, and ten million of them.

Each figure comes from a worker's pipeline in a process of its own, and checkpoints go to a real Redis.
"""

import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter, process_time
from typing import NamedTuple

import msgspec
import numpy as np
from rich.console import Console
from rich.table import Table

from stream_dp.config.connections import RedisAddress, redis_client
from stream_dp.config.settings import Settings
from stream_dp.dev import redis_server
from stream_dp.engine.discovery_histogram import DiscoveryHistogram
from stream_dp.engine.epoch import Epoch
from stream_dp.events.event import LONGEST_LABEL
from stream_dp.events.record import Record
from stream_dp.pipeline.pipeline import Pipeline
from stream_dp.privacy.keyed_noise import key_check
from stream_dp.store.checkpoints import Checkpoint, CheckpointStore

VISIBLE = 5_000
MOST = 10_000_000
_FEW = 5
_PER_EVENT = 1_000
_AT_ONCE, _ITEMS = 500, 4
_ROUNDS = 2_048  # after all labels have come
_SHOWN_COUNT = 10_000_000  # the first test finds labels with so many events
_KEY = bytes(range(32))
_SETTINGS = Settings(
    stream="labels",
    epsilon=30.0,
    horizon=2**20 - 1,
    items_per_event=_PER_EVENT,
    mechanism="blt",
    discover="default",
    release="every-100",
)


class Kind(NamedTuple):
    """Labels made of a number each, and how many of them to count."""

    names: str
    labels: int


_PAGE = "https://shop.example/article/{:09d}"
KINDS = {
    "a page of a shop": Kind(_PAGE, 1_000_000),
    "the same but for the last bytes": Kind("x" * 91 + "{:09d}", 1_000_000),
    "the longest": Kind("x" * (LONGEST_LABEL - 9) + "{:09d}", 100_000),
}


class Told(msgspec.Struct):
    """What a process found, in bytes resident.

    `few`: with as many labels as one of `_FEW` parts has, which take a share of what does not grow with them.  `after`:
    with all of them, when some rounds were counted; `peak`: the most until then, and `checkpoint_peak` with a
    checkpoint after it.
    `rounds_per_second` are of processor time, `seconds` those of a start.
    """

    few: float
    after: float
    peak: float
    checkpoint_peak: float
    rounds_per_second: float
    seconds: float = 0.0


def main(console: Console) -> None:
    """Print memory for labels of each kind, their recovery, and ten million labels of a shop."""
    table = Table(
        *("labels", "number", "text of each", "beside it", "worker, MB", "with checkpoints, MB", "Redis, MB"),
        *("recovery, MB", "seconds", "rounds per processor second"),
    )
    for kind, (names, labels) in KINDS.items():
        with tempfile.TemporaryDirectory() as folder, redis_server.running(Path(folder)) as server:
            filled = _told("fill", server.url, labels, kind)
            with redis_client(RedisAddress(server.url)) as redis:
                redis_bytes = int(redis.info("memory")["used_memory"])
            recovered = _told("recover", server.url, labels, kind)
        text = len(names.format(0))
        table.add_row(
            kind,
            f"{labels:,}",
            f"{text:,} bytes",
            f"{(filled.after - filled.few) / (labels - labels // _FEW) - text:.0f} bytes",
            f"{filled.after / 1e6:,.0f}",
            f"{filled.checkpoint_peak / 1e6:,.0f}",
            f"{redis_bytes / 1e6:,.0f}",
            f"{(recovered.peak - recovered.after) / 1e6:+,.0f}",
            f"{recovered.seconds:.1f}",
            f"{filled.rounds_per_second:,.0f}",
        )
    console.print(table)
    console.print(
        "Recovery: the most that a start takes above what the worker holds when it has counted some rounds."
    )
    with tempfile.TemporaryDirectory() as folder, redis_server.running(Path(folder)) as server:
        many = _told("fill", server.url, MOST, next(iter(KINDS)))
        again = _told("recover", server.url, MOST, next(iter(KINDS)))
    console.print(
        f"{MOST:,} labels, {VISIBLE:,} visible: {many.after / 1e6:,.0f} MB, at most {many.peak / 1e6:,.0f} MB while "
        f"they come and {many.checkpoint_peak / 1e6:,.0f} MB with checkpoints; {many.rounds_per_second:,.0f} rounds "
        f"per processor second; a recovery takes {(again.peak - again.after) / 1e6:+,.0f} MB"
    )


def _told(*arguments: object) -> Told:
    command = [sys.executable, "-m", "benchmarks.labels", *map(str, arguments)]
    return msgspec.json.decode(subprocess.run(command, check=True, capture_output=True).stdout, type=Told)


def _resident() -> float:
    status = Path("/proc/self/status").read_text()
    return 1024.0 * int(status.partition("VmRSS:")[2].split()[0])


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0


def _event(pipeline: Pipeline, items: list[str], at: int = 0) -> Record:
    return Record(pipeline.position.next_offset + at, 1, None, msgspec.json.encode({"items": items}))


def _save(store: CheckpointStore, pipeline: Pipeline) -> None:
    state = pipeline.histogram.state()
    place = pipeline.position, 0, key_check(_KEY), pipeline.intake.pairs
    store.commit(store.prepare(Checkpoint(pipeline.epoch, state, *place)))


def _rounds(pipeline: Pipeline, kind: Kind, labels: int) -> float:
    """Count events of some visible labels and one of all; returns the rounds done in a processor second."""
    rng, seconds, names = np.random.default_rng(0), 0.0, kind.names
    for begin in range(0, _ROUNDS, _AT_ONCE):
        number = min(_AT_ONCE, _ROUNDS - begin)
        popular = rng.integers(0, VISIBLE, (number, _ITEMS - 1)).tolist()
        others = rng.integers(0, labels, number).tolist()
        records = [
            _event(pipeline, [names.format(i) for i in (*some, other)], at)
            for at, (some, other) in enumerate(zip(popular, others, strict=True))
        ]
        began = process_time()
        pipeline.process(records)
        seconds += process_time() - began
    return _ROUNDS / seconds


def _fill(url: str, labels: int, name: str) -> Told:
    """Count labels up to so many, with a checkpoint now and then, and then rounds of events."""
    kind = KINDS[name]
    names, epoch = kind.names, Epoch.open(_SETTINGS, 1, 0)
    pipeline = Pipeline(epoch, _KEY, _SETTINGS.events)
    few = 0.0
    with redis_client(RedisAddress(url)) as redis:
        store = CheckpointStore(redis, _SETTINGS.stream)
        store.take_over()
        store.load(_KEY)
        for start in range(0, labels, _PER_EVENT):
            items = [names.format(number) for number in range(start, start + _PER_EVENT)]
            if start == labels // _FEW:
                few = _resident()
            pipeline.process([_event(pipeline, items)])
            if start + _PER_EVENT == VISIBLE:
                assert isinstance(pipeline.histogram, DiscoveryHistogram)
                pipeline.histogram._counts[:VISIBLE] += _SHOWN_COUNT  # in place of as many events
            if start % 500_000 == 0:
                _save(store, pipeline)
        rounds_per_second = _rounds(pipeline, kind, labels)
        peak, after = _peak(), _resident()
        _save(store, pipeline)
    return Told(few, after, peak, _peak(), rounds_per_second)


def _recover(url: str, labels: int, name: str) -> Told:
    """Go on from the checkpoint."""
    with redis_client(RedisAddress(url)) as redis:
        began = perf_counter()
        checkpoint = CheckpointStore(redis, _SETTINGS.stream).load(_KEY)
        assert checkpoint is not None
        place = checkpoint.position, checkpoint.state
        pipeline = Pipeline(checkpoint.epoch, _KEY, _SETTINGS.events, *place)
        del checkpoint, place
        seconds = perf_counter() - began
    rounds_per_second = _rounds(pipeline, KINDS[name], labels)
    return Told(0.0, _resident(), _peak(), _peak(), rounds_per_second, seconds)


if __name__ == "__main__":
    run = {"fill": _fill, "recover": _recover}[sys.argv[1]]
    sys.stdout.buffer.write(msgspec.json.encode(run(sys.argv[2], int(sys.argv[3]), sys.argv[4])))
