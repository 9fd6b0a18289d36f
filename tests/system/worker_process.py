"""A worker in a process of its own, forked from a server that has imported everything: it starts in milliseconds.

`Kill` makes it end itself with SIGKILL at one step of its work, `Pause` makes it sleep there.
The program itself knows nothing of this.
"""

import asyncio
import gc
import inspect
import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

from aiokafka import AIOKafkaProducer

from stream_dp.barriers.process import BarrierProcess
from stream_dp.config.settings import Settings
from stream_dp.counters.discovery_noise import DiscoveryNoise
from stream_dp.engine.discovery_histogram import DiscoveryHistogram
from stream_dp.epochs.journal import EpochJournal
from stream_dp.epochs.journaled_ledger import JournaledLedger
from stream_dp.epochs.lifecycle import Epochs
from stream_dp.epochs.schemas_topic import SchemasTopic
from stream_dp.errors import Refused
from stream_dp.kafka import outages
from stream_dp.operations import stacks
from stream_dp.releases.encoder import ReleaseEncoder
from stream_dp.sinks import sending
from stream_dp.sinks.releases import ReleasesSink
from stream_dp.store import lease
from stream_dp.store.checkpoints import CheckpointStore
from stream_dp.store.ledger import Ledger
from stream_dp.workers import histogram as worker
from stream_dp.workers import resume, session
from stream_dp.workers.events_reader import EventsReader
from stream_dp.workers.resume import NewEpoch

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["pytest", "tests.system.preloaded"])

STEPS: dict[str, tuple[Any, str]] = {
    "take over": (CheckpointStore, "take_over"),
    "load": (CheckpointStore, "load"),
    "get the key": (resume, "noise_key"),
    "open the first epoch": (Epochs, "open_next"),
    "write the epoch down": (EpochJournal, "append"),
    "charge the ledger": (JournaledLedger, "charge"),
    "begin the epoch": (Epochs, "finish_opening"),
    "forget older state": (CheckpointStore, "start_over"),
    "read what is published": (ReleasesSink, "published_since"),
    "compare what is published": (session.Session, "catch_up"),
    "compute": (ReleaseEncoder, "encode"),
    "ask who holds the stream": (CheckpointStore, "check_hold"),
    "hand a batch to the producer": (AIOKafkaProducer, "send_batch"),
    "count a batch": (session.Session, "count"),
    "send a batch": (session.Session, "_send"),
    "wait for the broker": (sending.InFlight, "settle"),
    "prepare a checkpoint": (CheckpointStore, "prepare"),
    "queue the checkpoint's commands": (CheckpointStore, "_write"),
    "write a checkpoint": (CheckpointStore, "commit"),
}
"""The steps of a worker's life by name: the owner and the name of what carries them out."""

STEPS_OF_A_ROLL: dict[str, tuple[Any, str]] = {
    "end the charge in Redis": (Ledger, "close"),
    "end the charge": (JournaledLedger, "close"),
    "charge in Redis": (Ledger, "charge"),
}
"""What is only done where one epoch ends and another one begins."""

STEPS_OF_BARRIERS: dict[str, tuple[Any, str]] = {
    "start the writer of barriers": (BarrierProcess, "_start"),
    "read the log": (EventsReader, "read"),
}
"""What is done where rounds end by ticks."""


STEPS_OF_SCHEMAS: dict[str, tuple[Any, str]] = {"settle schemas": (SchemasTopic, "settle")}
"""What is done where records name schemas."""


STEPS_OF_A_TEST: dict[str, tuple[Any, str]] = {
    "count the test round": (DiscoveryHistogram, "_block"),
    "test": (DiscoveryHistogram, "_test"),
    "keep the test's tweaks": (DiscoveryNoise, "begin_test"),
    "look who may pass": (DiscoveryNoise, "could_reach"),
    "measure": (DiscoveryNoise, "rounded"),
    "show what is found": (DiscoveryHistogram, "_show"),
}
"""What is done where labels are found at tests."""


@dataclass(frozen=True)
class Interruption:
    """A signal to itself before or after the `nth` time (from 1 on) that a worker takes `step`."""

    step: str
    nth: int = 1
    after: bool = False
    signal = signal.SIGKILL


class Kill(Interruption):
    """It dies, as by kill -9."""


class Pause(Interruption):
    """It sleeps until it is sent SIGCONT."""

    signal = signal.SIGSTOP


def run_worker(
    settings: Settings,
    log_file: str,
    interruption: Interruption | None,
    new_epoch: NewEpoch | None = None,
    standby: bool = False,
) -> None:
    """Run the worker until SIGTERM; exits with 2 when it refuses, after logging why.

    Its lease lasts, so that a machine that stands still for a while makes no standby take over.
    """
    begin(log_file)
    lease.LEASE_SECONDS = 600.0
    if interruption is not None:
        arm(interruption)
    try:
        asyncio.run(_run(settings, new_epoch, standby))
    except Refused as refusal:
        logging.error("%s", refusal)
        sys.exit(2)
    except Exception:
        logging.exception("the worker crashed")
        raise


def begin(log_file: str) -> None:
    """In a new process: end with its parent, log to `log_file`, and tell stacks to a file beside it."""
    parent = multiprocessing.parent_process()
    threading.Thread(target=lambda: (parent.join(), os._exit(1)), daemon=True).start()  # type: ignore[union-attr]
    outages.AGAIN_SECONDS = 0.0  # so that a test can wait for a second attempt
    logging.basicConfig(filename=log_file, level="INFO", format="%(message)s", force=True)
    for chatty in ("kafka", "aiokafka"):
        logging.getLogger(chatty).setLevel(logging.CRITICAL)
    os.dup2(os.open(f"{log_file}.{os.getpid()}.stderr", os.O_WRONLY | os.O_APPEND | os.O_CREAT), 2)
    stacks.tell_on_signal()


@dataclass(frozen=True)
class Delay(Interruption):
    """Every time that it takes the step, it first waits for so many seconds."""

    seconds: float = 0.0


async def _run(settings: Settings, new_epoch: NewEpoch | None, standby: bool) -> None:
    running = worker.Worker(settings, new_epoch, standby)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.stop)
    try:
        await running.run()
    finally:
        gc.collect()  # a task whose failure nobody has looked at is told now


def arm(interruption: Interruption) -> None:
    """Replace the step by one that interrupts this process."""
    owner, name = (STEPS | STEPS_OF_A_ROLL | STEPS_OF_BARRIERS | STEPS_OF_SCHEMAS | STEPS_OF_A_TEST)[
        interruption.step
    ]
    setattr(owner, name, _interrupted(getattr(owner, name), interruption))


def _interrupted(step: Callable[..., Any], interruption: Interruption) -> Callable[..., Any]:
    calls = 0

    def count() -> bool:
        nonlocal calls
        calls += 1
        return calls == interruption.nth

    if isinstance(interruption, Delay):

        @wraps(step)
        def slow(*arguments: Any, **named: Any) -> Any:
            time.sleep(interruption.seconds)
            return step(*arguments, **named)

        return slow

    def interrupt() -> None:
        os.kill(os.getpid(), interruption.signal)

    if inspect.iscoroutinefunction(step):

        @wraps(step)
        async def waiting(*arguments: Any, **named: Any) -> Any:
            if not interruption.after and count():
                interrupt()
            result = await step(*arguments, **named)
            if interruption.after and count():
                interrupt()
            return result

        return waiting

    @wraps(step)
    def immediate(*arguments: Any, **named: Any) -> Any:
        if not interruption.after and count():
            interrupt()
        result = step(*arguments, **named)
        if interruption.after and count():
            interrupt()
        return result

    return immediate
