"""A member of the shards' group, or a merge, in a process of its own; see worker_process.py."""

import asyncio
import logging
import signal
import sys
from typing import Any

from aiokafka import AIOKafkaProducer

from stream_dp.config.settings import Settings
from stream_dp.errors import Refused
from stream_dp.pipeline import coordinator, partition_counts, partition_intake, sequencer
from stream_dp.sinks import sending
from stream_dp.sinks.frames import FramesSink
from stream_dp.store.checkpoints import CheckpointStore
from stream_dp.workers import group, heads_reader, intake, owned_shard, rekey
from stream_dp.workers import histogram as worker
from stream_dp.workers import merge as merge_worker
from stream_dp.workers import shard as shard_worker
from tests.system.worker_process import Interruption, _interrupted, begin

ROLES = {
    "worker": worker.Worker,
    "shard": shard_worker.ShardWorker,
    "intake": intake.IntakeWorker,
    "merge": merge_worker.MergeWorker,
    "rekey": rekey.Rekeyer,
}
_OF_ALL: dict[str, tuple[Any, str]] = {
    "take over": (CheckpointStore, "take_over"),
    "load": (CheckpointStore, "load"),
    "ask who holds it": (CheckpointStore, "check_hold"),
    "prepare a checkpoint": (CheckpointStore, "prepare"),
    "queue the checkpoint's commands": (CheckpointStore, "_write"),
    "write a checkpoint": (CheckpointStore, "commit"),
}
STEPS: dict[str, dict[str, tuple[Any, str]]] = {
    "worker": {
        **_OF_ALL,
        "read what is published": (FramesSink, "published_since"),
        "compute": (sequencer.Sequencer, "process"),
        "hand a batch to the producer": (AIOKafkaProducer, "send_batch"),
        "hear that a partition has it": (sending, "offset_after"),
    },
    "sealing worker": {
        **_OF_ALL,
        "read what is published": (FramesSink, "published_since"),
        "seal": (coordinator.Coordinator, "process"),
        "read heads": (heads_reader.HeadsReader, "read"),
        "hear that a partition has it": (sending, "offset_after"),
    },
    "intake": {
        **_OF_ALL,
        "count": (partition_intake.PartitionIntake, "close"),
        "hand a batch to the producer": (AIOKafkaProducer, "send_batch"),
        "wait for the broker": (sending.InFlight, "settle"),
        "hear that the broker has it": (sending, "offset_after"),
    },
    "intake of counts": {
        **_OF_ALL,
        "take a record in": (partition_counts.PartitionCounts, "add"),
        "count": (partition_counts.PartitionCounts, "close"),
        "hand a batch to the producer": (AIOKafkaProducer, "send_batch"),
        "wait for the broker": (sending.InFlight, "settle"),
        "hear that the broker has it": (sending, "offset_after"),
    },
    "shard": {
        **_OF_ALL,
        "read what is published": (owned_shard.OwnedShard, "_published_since"),
        "begin an epoch": (owned_shard.OwnedShard, "_begin_epoch"),
        "compute": (owned_shard.OwnedShard, "_missing"),
        "wait for the broker": (sending.InFlight, "settle"),
        "hear that the broker has it": (sending, "offset_after"),
    },
    "rekey": {
        "read how far it is": (rekey.Rekeyer, "_copied_by_now"),
        "copy": (rekey.Rekeyer, "_copy"),
        "hand a record to the producer": (AIOKafkaProducer, "send"),
        "commit": (AIOKafkaProducer, "commit_transaction"),
    },
    "merge": {
        "find where to go on": (merge_worker, "_go_on"),
        "merge": (merge_worker, "_next_batch"),
        "hear that the broker has it": (sending, "offset_after"),
    },
}
"""The steps of the lives of all parts of a divided stream, by name: the owner and the name of what does them."""


def run_role(
    role: str, settings: Settings, log_file: str, interruption: Interruption | None, session: int
) -> None:
    """Run it until SIGTERM; exits with 2 when it refuses, after logging why.

    `session`: milliseconds after which the group takes a silent member for dead.
    """
    begin(log_file)
    group.SESSION_MILLISECONDS = session
    group._HEARTBEAT_MILLISECONDS = 100
    if interruption is not None:
        owner, name = STEPS[_life_of(role, settings)][interruption.step]
        setattr(owner, name, _interrupted(getattr(owner, name), interruption))
    try:
        asyncio.run(_run(role, settings))
    except Refused as refusal:
        logging.error("%s", refusal)
        sys.exit(2)
    except Exception:
        logging.exception("the %s crashed", role)
        raise


def _life_of(role: str, settings: Settings) -> str:
    """Which of `STEPS` a process in this role takes."""
    if role == "worker" and settings.is_divided:
        return "sealing worker"
    return "intake of counts" if role == "intake" and settings.intake == "counts" else role


async def _run(role: str, settings: Settings) -> None:
    running = ROLES[role](settings)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.stop)
    await running.run()
