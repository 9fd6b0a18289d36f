"""A dead-letter topic that cannot be written: releases and checkpoints go on, and no letter is lost that had room."""

from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import TopicAuthorizationFailedError
from kafka import KafkaAdminClient
from kafka.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ResourcePattern,
    ResourceType,
)

from stream_dp.kafka import log
from stream_dp.sinks import sending
from stream_dp.sinks.dead_letters import why_unwritable
from tests.system.example_events import event, some_events
from tests.system.streams import Stream
from tests.system.test_bad_input import is_bad
from tests.system.ticking import MakeStream
from tests.system.waiting import wait_until
from tests.system.worker_process import PROCESSES, run_worker


@pytest.fixture
def stream(make_stream: MakeStream) -> Iterator[Stream]:
    with make_stream(checkpoint_every="200ms") as stream:
        yield stream


def run_refused_worker(withdrawn: str, *arguments: Any) -> None:
    """A worker that a broker would refuse to write dead letters as long as the file `withdrawn` is there."""

    class Refused(AIOKafkaProducer):
        async def send_and_wait(self, topic: str, *arguments: Any, **named: Any) -> Any:
            if topic.endswith(".dead-letters") and Path(withdrawn).exists():
                raise TopicAuthorizationFailedError(topic)
            return await super().send_and_wait(topic, *arguments, **named)

    sending.AIOKafkaProducer = Refused  # type: ignore[attr-defined]
    run_worker(*arguments)


def start_refused(stream: Stream, withdrawn: Path) -> BaseProcess:
    arguments = (str(withdrawn), stream.settings, str(stream.log_file), None)
    worker = PROCESSES.Process(target=run_refused_worker, args=arguments)
    worker.start()
    stream.workers.append(worker)
    return worker


@contextmanager
def right_withdrawn(stream: Stream, broker: str) -> Iterator[Path]:
    """Nobody may write dead letters; the embedded broker knows no rights, so there the client is refused."""
    file = stream.folder / "withdrawn"
    if broker == "embedded":
        file.touch()
        yield file
        file.unlink()
        return
    topic = ResourcePattern(ResourceType.TOPIC, stream.settings.dead_letters)
    kinds = ((ACLOperation.ALL, ACLPermissionType.ALLOW), (ACLOperation.WRITE, ACLPermissionType.DENY))
    acls = [ACL("User:*", "*", operation, permission, topic) for operation, permission in kinds]
    with KafkaAdminClient(bootstrap_servers=stream.settings.kafka) as admin:
        assert admin.create_acls(acls)["failed"] == []
        wait_until(lambda: why_unwritable(stream.settings) is not None, lambda: "the right is not withdrawn")
        assert "the right WRITE" in str(why_unwritable(stream.settings))
        yield file
        anything = ACLFilter(None, None, ACLOperation.ANY, ACLPermissionType.ANY, topic)
        admin.delete_acls([anything])


def check_that_letters_came(stream: Stream) -> None:
    bad = {record.offset for record in stream.events() if is_bad(record)}
    assert len(bad) > 3
    found: set[int] = set()

    def all_there() -> bool:
        found.update(int(letter.headers["offset"]) for letter in stream.dead_letters(at_least=0))
        return found == bad

    wait_until(all_there, lambda: f"letters {sorted(found)} instead of {sorted(bad)}:\n{stream.logged()}")


@pytest.mark.apache("rights")
def test_releases_go_on_while_dead_letters_may_not_be_written(
    stream: Stream, request: pytest.FixtureRequest
) -> None:
    stream.feed(some_events(60, seed=1))
    with right_withdrawn(stream, request.config.getoption("kafka")) as withdrawn:
        worker = start_refused(stream, withdrawn)
        stream.wait_until_round(60, worker)
        stream.wait_until_logged("dead letters cannot be written")
        stream.feed(some_events(60, seed=2))
        stream.wait_until_round(120, worker)
        stream.wait_until_saved(120)
        assert stream.dead_letters(at_least=0) == []
    check_that_letters_came(stream)
    stream.stop(worker)
    stream.check_everything()


@pytest.mark.apache("topics")
def test_releases_go_on_when_the_dead_letter_topic_is_deleted(stream: Stream) -> None:
    stream.feed([event("tea")] * 20)
    worker = stream.start()
    stream.wait_until_round(20, worker)
    topic = stream.settings.dead_letters
    with KafkaAdminClient(bootstrap_servers=stream.settings.kafka) as admin:
        admin.delete_topics([topic])
        wait_until(lambda: topic not in admin.list_topics(), lambda: f"{topic} is not deleted")
    stream.feed(some_events(60, seed=3))
    stream.wait_until_round(80, worker)
    stream.wait_until_saved(80)
    log.create_topics(stream.settings.kafka_address, topic)
    check_that_letters_came(stream)
    stream.stop(worker)
    stream.check_everything()
