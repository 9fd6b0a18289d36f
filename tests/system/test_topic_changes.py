"""Topics that change under a running worker: it stops within seconds and says what has changed."""

from collections.abc import Callable
from multiprocessing.process import BaseProcess

import pytest
from kafka.admin import ConfigResource, ConfigResourceType

from stream_dp.kafka.clients import admin_client
from tests.apache_kafka.server import free_ports
from tests.operations.test_metrics import TOKEN
from tests.system.example_events import some_events
from tests.system.streams import Stream, ended, wake_up
from tests.system.test_metrics import get
from tests.system.test_running_log import asleep
from tests.system.waiting import wait_until

pytestmark = pytest.mark.apache("topics")

REFUSED = 2
Change = Callable[[Stream, str], None]


def exists(stream: Stream, topic: str) -> bool:
    with admin_client(stream.settings.kafka) as admin:
        return topic in admin.list_topics()


def delete(stream: Stream, topic: str) -> None:
    with admin_client(stream.settings.kafka) as admin:
        admin.delete_topics([topic])
    wait_until(lambda: not exists(stream, topic), lambda: f"{topic} is not deleted")


def add_a_partition(stream: Stream, topic: str) -> None:
    with admin_client(stream.settings.kafka) as admin:
        admin.create_partitions({topic: len(admin.describe_topics([topic])[0]["partitions"]) + 1})


def configure(stream: Stream, topic: str, **settings: str) -> None:
    values = {name.replace("_", "."): value for name, value in settings.items()}
    with admin_client(stream.settings.kafka) as admin:
        admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, values)])


def forget_after_a_week(stream: Stream, topic: str) -> None:
    configure(stream, topic, retention_ms=str(7 * 86_400_000))


def compact(stream: Stream, topic: str) -> None:
    configure(stream, topic, cleanup_policy="compact")


def at_work(stream: Stream) -> BaseProcess:
    """A worker that has released 30 rounds."""
    stream.feed(some_events(30, seed=1))
    worker = stream.start()
    stream.wait_until_round(30, worker)
    return worker


def test_the_worker_stops_when_a_topic_changes(stream: Stream) -> None:
    worker, topic = at_work(stream), stream.settings.epochs
    delete(stream, topic)
    assert ended(worker) == REFUSED
    last = stream.logged().splitlines()[-1]
    assert last.startswith(f"the topic {topic!r}")
    assert "may lack epochs that were opened or closed: it was deleted while" in last


def test_a_worker_whose_releases_go_nowhere_stops_and_makes_no_topic(stream: Stream) -> None:
    """It waits for the broker's answer to a batch, which never comes: no client makes the topic anew."""
    worker, releases = at_work(stream), stream.settings.releases
    delete(stream, releases)
    stream.feed(some_events(30, seed=2))
    assert ended(worker) == REFUSED
    told = f"the topic {releases!r} may lack releases that were sent: it was deleted while this process ran"
    assert told in stream.logged().splitlines()[-1]
    assert not exists(stream, releases)


def test_operators_are_told_before_the_worker_ends(stream: Stream) -> None:
    """By a metric, which is gone with the worker: it waits until it was read."""
    address = f"127.0.0.1:{free_ports()[0]}"
    stream.feed(some_events(30, seed=1))
    worker = stream.start_command("worker", operator_address=address, operator_token=TOKEN)
    stream.wait_until_round(30)
    add_a_partition(stream, stream.settings.events)
    stream.wait_until_logged("it got 2 partitions instead of 1")
    labels = f'stream="{stream.settings.stream}",topic="{stream.settings.events}"'
    metric = f"stream_dp_operator_topic_changes_total{{{labels}}} 1.0"
    assert metric in get(address, "/metrics", TOKEN)[1]
    assert ended(worker) == REFUSED


def test_releases_that_are_made_anew_are_noticed(stream: Stream) -> None:
    worker = at_work(stream)
    asleep(stream, worker)
    stream.rewrite(stream.settings.releases, stream.releases())
    wake_up(worker)
    assert ended(worker) == REFUSED
    assert "may lack releases that were sent: it was deleted and re-created" in stream.logged()
    stream.feed(some_events(30, seed=2))
    assert stream.run(until_round=60) == 0, "all of them are there"
    stream.check_everything()


def test_what_takes_nothing_away_stops_nobody(stream: Stream) -> None:
    """Keeping more, or losing the dead letters, is no reason to hold up releases."""
    own = stream.settings
    forget_after_a_week(stream, own.releases)
    worker = at_work(stream)
    configure(stream, own.releases, retention_ms="-1")
    delete(stream, own.dead_letters)
    stream.wait_until_logged(f"the topic {own.dead_letters!r} may lack dead letters: it was deleted")
    with admin_client(own.kafka) as admin:
        topic = {"configs": {"retention.ms": "-1"}}
        admin.create_topics({own.dead_letters: topic}, wait_for_metadata=True)
    stream.feed([b"{}", b"{", b'{"items": ["tea"]}'])
    stream.wait_until_round(33, worker)
    stream.stop(worker)
    stream.check_everything()
    assert stream.logged().count("may lack dead letters") == 1
