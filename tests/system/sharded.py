"""A stream in shards as its users see it: a sequencer, members of the shards' group, and a merge."""

from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np
from kafka import KafkaProducer

from stream_dp.config.settings import Settings
from stream_dp.events.record import Record
from stream_dp.kafka import log
from stream_dp.pipeline.pipeline import Pipeline
from stream_dp.store.checkpoints import Checkpoint, CheckpointStore
from tests.system.shard_process import run_role
from tests.system.streams import AnyWorker, Stream, as_values, ended
from tests.system.waiting import wait_until
from tests.system.worker_process import PROCESSES, Interruption

SESSION_MILLISECONDS = 2_000
"""After which a silent member of a group is replaced: soon, and not whenever a busy machine lets one wait."""


class ShardedStream(Stream):
    """A stream whose worker sequences, with as many shards as its settings say."""

    def run_in_role(self, role: str, interruption: Interruption | None = None, **changed: Any) -> BaseProcess:
        """A "worker", which sequences, a "shard" or a "merge", in a process of its own."""
        settings = Settings(**{**as_values(self.settings), **changed})
        arguments = (role, settings, str(self.log_file), interruption, SESSION_MILLISECONDS)
        process = PROCESSES.Process(target=run_role, args=arguments)
        process.start()
        self.workers.append(process)
        return process

    def records_of(self, topic: str, partition: int) -> list[Record]:
        """What a partition holds."""
        kafka = self.settings.kafka
        held = log.offsets(kafka, topic, partition)
        return list(log.read(kafka, topic, held.first, held.end, partition))

    def append(self, topic: str, partition: int, value: bytes) -> None:
        """Write one record, as somebody may who should not."""
        with KafkaProducer(bootstrap_servers=self.settings.kafka) as producer:
            producer.send(topic, value, partition=partition).get(timeout=30)

    def shard_checkpoint(self, shard: int) -> Checkpoint | None:
        """What Redis holds of a shard."""
        with self.redis() as client:
            return CheckpointStore(client, f"{self.settings.stream}/{shard}").load(self.key())

    def counts(self) -> dict[str, int]:
        """The true counts that all shards hold, each of which has a checkpoint."""
        found: dict[str, int] = {}
        for shard in range(self.settings.shards):
            checkpoint = self.shard_checkpoint(shard)
            assert checkpoint is not None
            state = checkpoint.state
            found |= dict(zip(state.labels, state.counts.tolist(), strict=True))
        return found

    def wait_until_saved(self, round_number: int) -> None:
        """Return when every shard has a checkpoint of this round."""

        def saved() -> list[int]:
            checkpoints = map(self.shard_checkpoint, range(self.settings.shards))
            return [each.state.round if each else 0 for each in checkpoints]

        wait_until(lambda: min(saved()) >= round_number, lambda: f"rounds {saved()}:\n{self.logged()}")

    def finish(self, rounds: int, *processes: AnyWorker) -> None:
        """Wait for the last round, stop everything, and compare."""
        self.wait_until_round(rounds)
        self.wait_until_saved(rounds)
        for process in processes:
            process.terminate()
            assert ended(process) == 0, self.logged()
        self.check_everything()

    def check_state(self, pipeline: Pipeline) -> None:
        """Redis holds the state of `pipeline`: the sequencer's part of it, and each label at one shard."""
        found, expected = self.checkpoint(), pipeline.histogram.state()
        assert (expected.round, expected.history) == (found.state.round, found.state.history)
        assert pipeline.position == found.position
        assert found.state.labels == []
        counts: dict[str, int] = {}
        cells: dict[tuple[str, str], int] = {}
        for shard in range(self.settings.shards):
            checkpoint = self.shard_checkpoint(shard)
            assert checkpoint is not None
            state = checkpoint.state
            assert (expected.round, expected.history) == (state.round, state.history)
            assert checkpoint.position.released == pipeline.position.released
            assert not counts.keys() & set(state.labels)
            counts |= dict(zip(state.labels, state.counts.tolist(), strict=True))
            for column in state.counter.columns:
                cells |= {
                    (column.name, label): cell
                    for label, cell in zip(state.labels, column.cells.tolist(), strict=True)
                }
        assert counts == dict(zip(expected.labels, expected.counts.tolist(), strict=True))
        for column in expected.counter.columns:
            theirs = [cells[column.name, label] for label in expected.labels]
            np.testing.assert_array_equal(theirs, column.cells[: len(theirs)])


@contextmanager
def sharded_stream(
    kafka: str, redis_url: str, name: str, folder: Path, shards: int, **changed: Any
) -> Iterator[ShardedStream]:
    """A stream of small batches and frequent checkpoints, in shards; a label that came 30 times is released."""
    settings: dict[str, Any] = {
        "unmetered": True,  # budgets are for the tests that set one
        "epsilon": 30.0,
        "delta": 1e-2,
        "horizon": 4095,
        "items_per_event": 3,
        "batch_rounds": 8,
        "checkpoint_every": "200ms",
        "shards": shards,
        "mechanism": "binary",
    }
    partitions = changed.pop("partitions", 1)
    stream = ShardedStream(
        Settings(stream=name, kafka=kafka, redis=redis_url, **{**settings, **changed}), folder
    )
    stream.create_topics(partitions)
    try:
        yield stream
    finally:
        stream.stop_all()
