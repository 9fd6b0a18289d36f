"""A stream as its users see it, for the system tests: feed events, run and kill workers, read what came out.

Expected releases come from driving the pipeline in this process with the key and the epoch that Redis holds: no
checkpoint, no broker and no restart takes part in them.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Union

import numpy as np
from redis import Redis

from stream_dp.barriers.key import barrier_key
from stream_dp.config.settings import Settings
from stream_dp.engine.epoch import Epoch
from stream_dp.epochs.journal import known_labels_of
from stream_dp.epochs.schemas_topic import schema_records
from stream_dp.events.barrier_chain import Barrier, BarrierChain, named
from stream_dp.events.merged_log import LogEntry, merged
from stream_dp.events.record import Record
from stream_dp.events.rounds import events_of
from stream_dp.pipeline.pipeline import Output, Pipeline
from stream_dp.releases.release import decode_release
from stream_dp.store.checkpoints import Checkpoint, CheckpointStore
from stream_dp.workers.resume import NewEpoch
from tests import redis_contents
from tests.system import forked_program
from tests.system.broker_clients import end_of
from tests.system.stream_topics import StreamTopics
from tests.system.waiting import wait_until
from tests.system.worker_process import PROCESSES, Interruption, run_worker

Part = tuple[int, int]
AnyWorker = Union[BaseProcess, "subprocess.Popen[bytes]"]


@dataclass
class Stream(StreamTopics):
    """The workers, the topics and the Redis keys of one stream."""

    folder: Path
    workers: list[AnyWorker] = field(default_factory=list)

    @property
    def log_file(self) -> Path:
        """What every worker of this stream has logged."""
        return self.folder / f"{self.settings.stream}.log"

    def start(
        self,
        interruption: Interruption | None = None,
        new_epoch: NewEpoch | None = None,
        standby: bool = False,
        **changed: Any,
    ) -> BaseProcess:
        """A worker without Faust, in a process of its own; it is interrupted where `interruption` says."""
        settings = Settings(**{**as_values(self.settings), **changed})
        arguments = (settings, str(self.log_file), interruption, new_epoch, standby)
        worker = PROCESSES.Process(target=run_worker, args=arguments)
        worker.start()
        self.workers.append(worker)
        return worker

    def start_faust(
        self, *command: str, terminal: int | None = None, **changed: Any
    ) -> "subprocess.Popen[bytes]":
        """The Faust app in a process of its own: `stream-dp worker`, or what `command` (after `python`) says.

        What it says is logged, or shown on a terminal.
        """
        values = {**as_values(self.settings), **changed}
        if values["unit"] != "event":
            del values["items_per_event"]  # it would bound nothing, and is refused
        environment = {name: value for name, value in os.environ.items() if not name.startswith("STREAM_DP_")}
        environment |= {
            f"STREAM_DP_{name.upper()}": ",".join(value) if isinstance(value, list) else str(value)
            for name, value in values.items()
            if value is not None
        }
        words = command or ("-c", "from stream_dp.cli import main; main()", "worker")
        with self.log_file.open("ab") as log_file:
            output = log_file if terminal is None else terminal
            worker = subprocess.Popen([sys.executable, *words], stdout=output, stderr=output, env=environment)
        self.workers.append(worker)
        return worker

    def start_command(
        self,
        *words: str,
        interruption: Interruption | None = None,
        terminal: str = os.devnull,
        **changed: Any,
    ) -> BaseProcess:
        """`stream-dp` with these words and settings, forked from what has imported it; what it prints is logged.

        `interruption` and `terminal`: see `forked_program.start_in`.
        """
        given = forked_program.environment_of({**as_values(self.settings), **changed})
        options = None, interruption, terminal
        process = forked_program.start_in(Path(), words, given, self.log_file, *options)
        self.workers.append(process)
        return process

    def run(
        self, interruption: Interruption | None = None, until_round: int | None = None, **changed: Any
    ) -> int:
        """Run a worker until it ends, or has released `until_round` and stops when asked; returns its exit status.

        It is not asked before it works, though that round may have been released by another one.
        """
        works, before = f"stream {self.settings.stream}: epoch ", self.logged()
        worker = self.start(interruption, **changed)
        if until_round is not None:
            self.wait_until(lambda: works in self.logged()[len(before) :], worker)
            self.wait_until_round(until_round, worker)
            worker.terminate()
        return ended(worker)

    def refusal(self, **changed: Any) -> str:
        """The sentence with which a worker that has to refuse ends; nothing is released meanwhile."""
        before = self.releases()
        assert self.run(**changed) == 2, self.logged()
        assert before == self.releases()
        return self.logged().splitlines()[-1]

    def logged(self) -> str:
        """Everything that this stream's workers have logged."""
        return self.log_file.read_text() if self.log_file.exists() else ""

    def wait_until(self, condition: Callable[[], bool], worker: AnyWorker) -> None:
        """Return once `condition()`; fail when `worker` ends before."""

        def enough() -> bool:
            over = status_of(worker) is not None
            found = condition()
            assert found or not over, f"the worker ended too early:\n{self.logged()}"
            return found

        wait_until(enough, lambda: f"it takes too long:\n{self.logged()}")

    def wait_until_round(self, round_number: int, worker: AnyWorker | None = None) -> None:
        """Return when the release of `round_number` is in the topic; fails if the worker ends or stands still."""
        last, end = 0, -1

        def further() -> bool:
            nonlocal last, end
            over, before = worker is not None and status_of(worker) is not None, last
            now = end_of(self.settings.kafka, self.settings.releases)
            if now != end:
                last, end = max(last, self.last_round()), now
            assert last >= round_number or not over, (
                f"round {round_number} was not released:\n{self.logged()}"
            )
            return last > before or last >= round_number

        while last < round_number:
            wait_until(further, lambda: f"round {last} instead of {round_number}:\n{self.logged()}")

    def wait_until_asleep(self, worker: BaseProcess) -> None:
        """Return when a worker that pauses itself has done so."""
        state = Path(f"/proc/{worker.pid}/stat")
        wait_until(lambda: state.read_text().rpartition(")")[2].split()[0] == "T", self.logged)

    def wait_until_logged(self, text: str, times: int = 1) -> None:
        """Return when the workers have logged `text` so many times."""
        wait_until(lambda: self.logged().count(text) >= times, lambda: f"{text!r} in:\n{self.logged()}")

    def wait_until_saved(self, round_number: int) -> None:
        """Return when Redis holds this round: that it is released says nothing of that where Redis was away."""
        wait_until(lambda: self.checkpoint().state.round == round_number, self.logged)

    @contextmanager
    def redis(self) -> Iterator[Redis]:
        """A client of this stream's Redis, the same one each time."""
        yield self._redis

    @cached_property
    def _redis(self) -> Redis:
        return Redis.from_url(self.settings.redis)

    def checkpoint(self) -> Checkpoint:
        """What Redis holds."""
        checkpoint = CheckpointStore(self._redis, self.settings.stream).load(self.key())
        assert checkpoint is not None
        return checkpoint

    def key(self) -> bytes:
        """The noise key that Redis holds."""
        key = self._redis.get(f"stream_dp:{{{self.settings.stream}}}:key")
        assert isinstance(key, bytes)
        return key

    def redis_keys(self) -> dict[bytes, bytes]:
        """Every Redis key of this stream, as DUMP gives it."""
        with self.redis() as client:
            return redis_contents.dumps(client, f"stream_dp:{{{self.settings.stream}}}:*")

    def restore_keys(self, dumped: dict[bytes, bytes]) -> None:
        """Put Redis back to what `redis_keys` returned."""
        with self.redis() as client:
            for name in client.keys(f"stream_dp:{{{self.settings.stream}}}:*"):
                client.delete(name)
            for name, value in dumped.items():
                client.restore(name, 0, value)

    def uninterrupted(self) -> tuple[Pipeline, Output]:
        """What one worker that never stops would have made of the log: its state and its output."""
        epoch = self.checkpoint().epoch
        pipeline = self.pipeline(epoch)
        return pipeline, pipeline.process(self.log_of(epoch))

    def pipeline(self, epoch: Epoch) -> Pipeline:
        """That of an epoch at its beginning, with the labels that it knew."""
        known = known_labels_of(self.settings, epoch)
        pipeline = Pipeline(epoch, self.key(), self.settings.events, known=known)
        pipeline.intake.schemas.take(*schema_records(self.settings))
        return pipeline

    def log_of(self, epoch: Epoch) -> list[LogEntry]:
        """The events topic, with the barriers of the epoch and those after it among the events that they close."""
        if epoch.after_barrier is None:
            return list(self.events())
        chain = BarrierChain(barrier_key(self.key()), self.settings.stream, epoch.after_barrier)
        ends = self.ends()
        by_events = events_of(self.settings.rounds) is not None
        return list(
            merged(
                chain,
                self.barrier_records(),
                lambda number: [(ends[number], self.events(number))],
                *epoch.offsets,
                barriers_first=by_events,
            )
        )

    def barrier(self) -> Barrier:
        """The barrier that closed the last round of the checkpoint, or the one before the epoch."""
        found = self.checkpoint().position.barrier
        assert found is not None
        return found

    def chain(self, after: Barrier | None = None) -> BarrierChain:
        """What writes the next barrier, behind `after` or behind all that the topic holds."""
        known = BarrierChain(barrier_key(self.key()), self.settings.stream, after or self.barrier())
        if after is None:
            for offset, value in self.barrier_records():
                known.take(offset, value)
        return known

    def writers(self) -> list[int]:
        """The ids of the processes that write barriers for this stream's workers."""
        words = [b"stream_dp.barriers", self.settings.stream.encode(), b""]
        found = []
        for line in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):  # it has ended meanwhile
                if line.read_bytes().split(b"\0")[-3:] == words:
                    found.append(int(line.parent.name))
        return found

    def wait_until_no_writer(self) -> None:
        """Return when no process writes barriers any more: that of a worker that was killed ends by itself."""
        wait_until(lambda: not self.writers(), lambda: f"{self.writers()} go on:\n{self.logged()}")

    def close_rounds(self, *dues: int) -> None:
        """Write barriers behind all events of this moment, due at these times, as a writer would."""
        ends = named(self.ends())
        for due in dues:
            self.write(self.settings.barriers, [Record(0, due, None, self.chain().encode(due, ends))])

    def check_everything(self) -> None:
        """The topics and Redis hold exactly what one worker that never stops would have made of the log."""
        self.check_state(self.check_releases())

    def check_releases(self) -> Pipeline:
        """The topic holds what one worker that never stops would have made of the log; returns its pipeline.

        Every round is there, in order; one that is there twice is the same twice; no event counted twice.
        """
        pipeline, output = self.uninterrupted()
        expected = {(release.round, release.part): release.value for release in output.releases}
        seen: dict[Part, bytes] = {}
        due = {
            after: number for number, after in pairwise([*dict.fromkeys(number for number, _ in expected), 0])
        }
        last = next(iter(expected))[0]
        for record in self.releases():
            release = decode_release(record.value or b"")
            part = (release.round, release.part)
            assert release.round <= last or due[release.round] == last, "a round was passed over"
            last = max(last, release.round)
            assert record.value == expected[part], f"round {release.round} differs"
            assert record.key == self.settings.stream.encode()
            seen[part] = record.value or b""
        assert list(expected) == sorted(seen)
        return pipeline

    def check_state(self, pipeline: Pipeline) -> None:
        """Redis holds the state of `pipeline`, cell by cell."""
        found, expected = self.checkpoint(), pipeline.histogram.state()
        labels = len(expected.labels)
        assert (expected.round, expected.history) == (found.state.round, found.state.history)
        assert pipeline.position == found.position
        assert pipeline.intake.pairs == found.pairs
        assert expected.labels == found.state.labels
        np.testing.assert_array_equal(found.state.counts, expected.counts)
        assert expected.counter.tweaks == found.state.counter.tweaks
        for ours, theirs in zip(expected.counter.columns, found.state.counter.columns, strict=True):
            assert (ours.name, ours.version) == (theirs.name, theirs.version)
            np.testing.assert_array_equal(theirs.cells, ours.cells[:labels])
        assert len(expected.recent) == len(found.state.recent)
        for ours, theirs in zip(expected.recent, found.state.recent, strict=True):
            assert (ours.name, ours.version) == (theirs.name, theirs.version)
            np.testing.assert_array_equal(theirs.cells, ours.cells)
        shown, kept = expected.shown, found.state.shown
        assert (shown is None) == (kept is None)
        if shown is not None and kept is not None:
            np.testing.assert_array_equal(kept.rows, shown.rows)
            np.testing.assert_array_equal(kept.tests, shown.tests)
            np.testing.assert_array_equal(kept.counts, shown.counts)
            for ours, theirs in zip(shown.counter.columns, kept.counter.columns, strict=True):
                assert (ours.name, ours.version) == (theirs.name, theirs.version)
                np.testing.assert_array_equal(theirs.cells, ours.cells)

    def stop(self, worker: AnyWorker) -> None:
        """Ask a worker to end, which it does in peace."""
        worker.terminate()
        assert ended(worker) == 0, self.logged()

    def stop_all(self) -> None:
        """End what a test left running."""
        for worker in self.workers:
            worker.kill()
            ended(worker)
        self._redis.close()


def as_values(settings: Settings) -> dict[str, Any]:
    """The settings by name."""
    return {name: getattr(settings, name) for name in settings.__struct_fields__}


def status_of(worker: AnyWorker) -> int | None:
    """The exit status, negative for the signal that ended it; None while it runs."""
    return worker.exitcode if isinstance(worker, BaseProcess) else worker.poll()


def wake_up(worker: BaseProcess) -> None:
    """Continue a worker that has paused itself."""
    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGCONT)


def ended(worker: AnyWorker) -> int:
    """The exit status of a worker that is about to end."""
    wait_until(lambda: status_of(worker) is not None, lambda: "the worker does not end")
    status = status_of(worker)
    assert status is not None
    return status


@contextmanager
def small_stream(kafka: str, redis_url: str, name: str, folder: Path, **changed: Any) -> Iterator[Stream]:
    """A stream of small batches and frequent checkpoints: a short one takes every step many times.

    `changed` are settings, and `partitions` of its events topic.
    """
    partitions = changed.pop("partitions", 1)
    settings: dict[str, Any] = {
        "unmetered": True,  # budgets are for the tests that set one
        "epsilon": 30.0,
        "horizon": 1023,
        "items_per_event": 3,
        "batch_rounds": 8,
        "checkpoint_every": "20",
        "mechanism": "binary",
    }
    stream = Stream(Settings(stream=name, kafka=kafka, redis=redis_url, **{**settings, **changed}), folder)
    stream.create_topics(partitions)
    try:
        yield stream
    finally:
        stream.stop_all()
