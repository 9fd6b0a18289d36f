"""A stream as its users see it, for the system tests: feed events, run and kill workers, read what came out.

Expected releases come from driving the pipeline in this process with the key and the epoch that Redis holds: no
checkpoint, no broker and no restart takes part in them.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Union

import msgspec
import numpy as np
from kafka import KafkaAdminClient
from kafka.consumer.fetcher import ConsumerRecord
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
from stream_dp.kafka import log
from stream_dp.pipeline.pipeline import Output, Pipeline
from stream_dp.releases.release import decode_release
from stream_dp.store.checkpoints import Checkpoint, CheckpointStore
from stream_dp.workers.resume import NewEpoch
from tests import redis_contents
from tests.system.broker_clients import all_records, end_of, new_producer, producer_of
from tests.system.waiting import GIVE_UP_SECONDS, wait_until
from tests.system.worker_process import PROCESSES, Interruption, run_worker

Part = tuple[int, int]
AnyWorker = Union[BaseProcess, "subprocess.Popen[bytes]"]


@dataclass
class DeadLetterRecord:
    """One record of the dead-letter topic with its headers."""

    key: bytes | None
    value: bytes | None
    headers: dict[str, str]


@dataclass
class Stream:
    """The topics and the Redis keys of one stream, with its three topics made."""

    settings: Settings
    folder: Path
    workers: list[AnyWorker] = field(default_factory=list)
    configured: set[str] = field(default_factory=set)

    @property
    def log_file(self) -> Path:
        """What every worker of this stream has logged."""
        return self.folder / f"{self.settings.stream}.log"

    def create_topics(self, partitions: int = 1) -> None:
        """What a worker does at its first start; here so that events can be fed before it."""
        own = self.settings
        log.create_topics(own.kafka, own.events, partitions=partitions)
        log.create_topics(own.kafka, own.releases, own.dead_letters)

    def feed(self, values: Sequence[bytes | None], key: bytes | None = None, partition: int = 0) -> None:
        """Append events to a partition, and wait until the broker has them."""
        now = time.time_ns() // 1_000_000
        self.write(self.settings.events, [Record(0, now, key, value, partition) for value in values])

    def spread(self, values: Sequence[bytes | None], partitions: int) -> None:
        """Append events to so many partitions in turn."""
        now = time.time_ns() // 1_000_000
        records = [Record(0, now, None, value, number % partitions) for number, value in enumerate(values)]
        self.write(self.settings.events, records)

    def write(self, topic: str, records: Sequence[Record]) -> None:
        """Append records with their keys, values and timestamps to their partitions.

        This client can send what others cannot: a record without key and value.
        """
        producer, failed = producer_of(self.settings.kafka), []

        def delivered(error: object, _: object) -> None:
            if error is not None:
                failed.append(error)

        for record in records:
            producer.produce(
                topic,
                record.value,
                record.key,
                timestamp=record.timestamp,
                partition=record.partition,
                headers=list(record.headers),
                on_delivery=delivered,
            )
            producer.poll(0)
        assert (producer.flush(GIVE_UP_SECONDS), failed) == (0, [])

    def rewrite(self, topic: str, records: Sequence[Record], **configs: str) -> None:
        """Delete the topic and make it again with these records from offset 0 on; they are kept whatever their age."""
        # The old one would go on counting where the old topic ended, or make the topic itself when it looks for it.
        new_producer(self.settings.kafka)
        with KafkaAdminClient(bootstrap_servers=self.settings.kafka) as admin:
            admin.delete_topics([topic])
            wait_until(lambda: topic not in admin.list_topics(), lambda: f"{topic} is not deleted")
            kept = {"retention.ms": "-1", **configs}
            partitions = 1 + max((record.partition for record in records), default=0)
            options = {"num_partitions": partitions, "replication_factor": 1, "configs": kept}
            admin.create_topics({topic: options})
            admin.wait_for_topics([topic], int(1000 * GIVE_UP_SECONDS))
        self.configured = self.configured - {topic} | ({topic} if configs else set())
        self.write(topic, records)

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
        self, *command: str, stdin: int | None = None, **changed: Any
    ) -> "subprocess.Popen[bytes]":
        """The Faust app in a process of its own: `stream-dp worker`, or what `command` (after `python`) says."""
        values = {**as_values(self.settings), **changed}
        environment = {name: value for name, value in os.environ.items() if not name.startswith("STREAM_DP_")}
        environment |= {
            f"STREAM_DP_{name.upper()}": ",".join(value) if isinstance(value, list) else str(value)
            for name, value in values.items()
            if value is not None
        }
        words = command or ("-c", "from stream_dp.cli import main; main()", "worker")
        with self.log_file.open("ab") as output:
            worker = subprocess.Popen(
                [sys.executable, *words], stdin=stdin, stdout=output, stderr=output, env=environment
            )
        self.workers.append(worker)
        return worker

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

    def events(self, partition: int = 0) -> list[Record]:
        """A partition of the events topic."""
        return self._read(self.settings.events, partition)

    def releases(self) -> list[Record]:
        """The releases topic."""
        return self._read(self.settings.releases)

    def _read(self, topic: str, partition: int = 0) -> list[Record]:
        return [Record.of(record) for record in all_records(self.settings.kafka, topic, partition=partition)]

    def dead_letters(self, at_least: int) -> list[DeadLetterRecord]:
        """The dead-letter topic with its headers, once it holds `at_least` records."""
        records: list[ConsumerRecord] = []

        def enough() -> bool:
            records[:] = all_records(self.settings.kafka, self.settings.dead_letters)
            return len(records) >= at_least

        wait_until(enough, lambda: f"{len(records)} dead letters instead of {at_least}")
        return [
            DeadLetterRecord(
                record.key, record.value, {name: value.decode() for name, value in record.headers}
            )
            for record in records
        ]

    def wait_until(self, condition: Callable[[], bool], worker: AnyWorker) -> None:
        """Return once `condition()`; fail when `worker` ends before."""

        def enough() -> bool:
            over = status_of(worker) is not None
            found = condition()
            assert found or not over, f"the worker ended too early:\n{self.logged()}"
            return found

        wait_until(enough, lambda: f"it takes too long:\n{self.logged()}")

    def last_round(self) -> int:
        """That of the record at the end of the releases topic; 0 where there is none."""
        held = all_records(self.settings.kafka, self.settings.releases, last_only=True)
        return max(map(_round, held), default=0)

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

    @contextmanager
    def redis(self) -> Iterator[Redis]:
        """A client of this stream's Redis."""
        with Redis.from_url(self.settings.redis) as client:
            yield client

    def checkpoint(self) -> Checkpoint:
        """What Redis holds."""
        with self.redis() as client:
            checkpoint = CheckpointStore(client, self.settings.stream).load(self.key())
        assert checkpoint is not None
        return checkpoint

    def key(self) -> bytes:
        """The noise key that Redis holds."""
        with self.redis() as client:
            key = client.get(f"stream_dp:{{{self.settings.stream}}}:key")
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

    def add_partition(self) -> None:
        """Give the events topic one partition more."""
        topic = self.settings.events
        with KafkaAdminClient(bootstrap_servers=self.settings.kafka) as admin:
            wanted = len(admin.describe_topics([topic])[0]["partitions"]) + 1
            admin.create_partitions({topic: wanted})
            wait_until(
                lambda: len(admin.describe_topics([topic])[0]["partitions"]) == wanted,
                lambda: f"{topic} gets no partition",
            )
        new_producer(self.settings.kafka)  # the old one would hear of it only later

    def ends(self) -> list[int]:
        """Where each partition of the events topic ends."""
        return [held.end for held in log.offsets_of_all(self.settings.kafka, self.settings.events)]

    def barrier_records(self) -> list[tuple[int, bytes | None]]:
        """The barriers topic: all that anybody wrote there, with its offsets."""
        return [(record.offset, record.value) for record in self._read(self.settings.barriers)]

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
        """The topics and Redis hold exactly what one worker that never stops would have made of the log.

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
        self.check_state(pipeline)

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
        block, stored = expected.block, found.state.block
        assert (block is None) == (stored is None)
        if block is not None and stored is not None:
            assert block.histories == stored.histories
            np.testing.assert_array_equal(stored.rows, block.rows)
            for ours, theirs in zip(block.counter.columns, stored.counter.columns, strict=True):
                np.testing.assert_array_equal(theirs.cells, ours.cells)

    def stop_all(self) -> None:
        """End what a test left running."""
        for worker in self.workers:
            worker.kill()
            ended(worker)


def _round(record: ConsumerRecord) -> int:
    """The round of a release; 0 for a record that is none."""
    try:
        return decode_release(record.value or b"").round
    except (msgspec.DecodeError, UnicodeError):
        return 0


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
        "checkpoint_rounds": 20,
        "checkpoint_seconds": 100,
    }
    stream = Stream(Settings(stream=name, kafka=kafka, redis=redis_url, **{**settings, **changed}), folder)
    stream.create_topics(partitions)
    try:
        yield stream
    finally:
        stream.stop_all()
