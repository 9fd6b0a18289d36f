"""A log that is made anew while a worker runs is noticed before anything of it is checkpointed."""

import os
import signal
from multiprocessing.process import BaseProcess

import msgspec
import pytest
from kafka import KafkaAdminClient, TopicPartition

from stream_dp.config.settings import Settings
from stream_dp.events.record import Record
from stream_dp.workers import counted_log, session
from tests.system.example_events import some_events
from tests.system.streams import Stream, ended, wake_up
from tests.system.waiting import GIVE_UP_SECONDS
from tests.system.worker_process import PROCESSES, run_worker

pytestmark = pytest.mark.apache("offsets")

REFUSED = 2


def run_patient_worker(settings: Settings, log_file: str) -> None:
    """Run a worker that takes no silence of a slow broker for an answer."""
    counted_log._ANSWER_SECONDS = session._CONFIRM_ANSWER_SECONDS = GIVE_UP_SECONDS
    run_worker(settings, log_file, None)


def asleep(stream: Stream, worker: BaseProcess) -> None:
    """Send the worker to sleep."""
    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGSTOP)
    stream.wait_until_asleep(worker)


def made_anew(stream: Stream, worker: BaseProcess, records: list[Record]) -> None:
    """Write the events topic anew while the worker sleeps: it would notice that the topic is missing meanwhile."""
    asleep(stream, worker)
    stream.rewrite(stream.settings.events, records)
    wake_up(worker)


@pytest.mark.parametrize("options", [{}, {"checkpoint_every": "1000"}])
def test_a_topic_made_anew_with_more_records_is_refused_by_the_worker_that_runs(
    stream: Stream, options: dict[str, object]
) -> None:
    """Its next offset is there, so for the client that reads it the topic just goes on."""
    stream.feed(some_events(30, seed=1))
    settings = msgspec.structs.replace(stream.settings, **options)
    worker = PROCESSES.Process(target=run_patient_worker, args=(settings, str(stream.log_file)))
    worker.start()
    stream.workers.append(worker)
    stream.wait_until_round(30, worker)
    others = [Record(0, 1000, None, value) for value in some_events(60, seed=2)]
    made_anew(stream, worker, others)
    assert ended(worker) == REFUSED
    assert "is not the log that was counted" in stream.logged().splitlines()[-1]
    assert stream.checkpoint().state.round <= 30
    told = stream.refusal()  # which of the two depends on whether anything was checkpointed
    assert "is not the log that was counted" in told or "was published with other content" in told


def test_the_same_records_in_a_topic_made_anew_are_the_same_log(stream: Stream) -> None:
    stream.feed(some_events(30, seed=3))
    worker = stream.start()
    stream.wait_until_round(30, worker)
    more = [Record(0, 1000, None, value) for value in some_events(30, seed=4)]
    made_anew(stream, worker, stream.events() + more)
    assert ended(worker) == REFUSED, "nobody knows what else is gone"
    assert "was deleted and re-created while this process ran" in stream.logged().splitlines()[-1]
    assert stream.run(until_round=60) == 0
    stream.check_everything()


@pytest.mark.apache("retention", alone=True)
def test_records_that_retention_removes_after_they_were_counted_stop_nobody(stream: Stream) -> None:
    stream.feed(some_events(30, seed=5))
    worker = stream.start()
    stream.wait_until_round(30, worker)
    with KafkaAdminClient(bootstrap_servers=stream.settings.kafka) as admin:
        admin.delete_records({TopicPartition(stream.settings.events, 0): 30})
    stream.feed(some_events(30, seed=6))
    stream.wait_until_round(60, worker)
    stream.stop(worker)
