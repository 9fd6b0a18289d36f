"""A worker that starts wrongly is refused in one sentence, and the healthy worker of the stream never notices."""

import asyncio
import re
import shlex
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from stream_dp.config.events_section import EventsSection
from stream_dp.config.settings import Settings
from stream_dp.engine import epoch
from stream_dp.epochs.journal import EpochJournal
from stream_dp.epochs.journaled_ledger import JournaledLedger
from stream_dp.errors import Refused
from stream_dp.kafka import rights
from stream_dp.kafka.log import topics
from stream_dp.privacy import keyed_noise
from stream_dp.store import checkpoint_records
from stream_dp.workers.histogram import Worker
from stream_dp.workers.resume import NewEpoch
from tests.system.example_events import some_events
from tests.system.own_redis import PASSWORD, OwnRedis, own_redis_server
from tests.system.streams import Stream, small_stream, status_of
from tests.system.waiting import GIVE_UP_SECONDS

ANOTHER_KEY = "00" * 32
OPERATIONS = Path(__file__).parents[2] / "docs/operations/operations.md"
Change = Callable[[pytest.MonkeyPatch], object]


class WrongStart(NamedTuple):
    """What is wrong with it, and what the refusal says."""

    says: str
    changed: Mapping[str, Any] = MappingProxyType({})
    wish: NewEpoch | None = None
    standby: bool = False
    elsewhere: Change = lambda _: None


def another_version(owner: Any, name: str) -> Change:
    return lambda monkeypatch: monkeypatch.setattr(owner, name, getattr(owner, name) + 1)


def none_to_release(_: object, topics: list[str]) -> dict[str, set[str]]:
    """What Kafka would tell a user who may read everything, and write everywhere but to the releases."""
    read = {"READ", "DESCRIBE", "DESCRIBE_CONFIGS"}
    return {topic: read if topic.endswith(".releases") else read | {"WRITE"} for topic in topics}


FILES = {"labels": ("tea\n", 0o600), "readable.key": (ANOTHER_KEY, 0o644), "short.key": ("abc", 0o600)}
"""What the settings of some name, with the rights that others have."""

WRONG_STARTS = {
    # settings
    "another epsilon": WrongStart("epsilon is 1.0 in the epoch and 2.0", {"epsilon": 2.0}),
    "another delta": WrongStart("delta is", {"delta": 1e-9}),
    "another horizon": WrongStart("horizon is", {"horizon": 255}),
    "another mechanism": WrongStart("mechanism is binary", {"mechanism": "blt"}),
    "more items": WrongStart("items_per_event is 3", {"items_per_event": 4}),
    "other rounds": WrongStart("rounds is per-event", {"rounds": "every-2"}),
    "another schedule": WrongStart("release is every-round", {"release": "every-5"}),
    "another unit": WrongStart("unit is event", {"unit": "user", "items_per_user": 3}),
    "another mapping": WrongStart("opened with other settings", {"mapping": EventsSection(items="lines")}),
    "another source": WrongStart("data_source is", {"source": "elsewhere"}),
    "other known labels": WrongStart("known_labels is", {"known_labels": "file:labels"}),
    "a port that is taken": WrongStart("cannot listen on", {"metrics_address": "taken"}),
    "a standby with other settings": WrongStart(
        "could not take over.*epsilon is 1.0", {"epsilon": 2.0}, standby=True
    ),
    # keys and passwords
    "another key": WrongStart("noise key is not the one", {"noise_key": "env:ANOTHER_KEY"}),
    "a key that others may read": WrongStart("run chmod 600", {"noise_key": "file:readable.key"}),
    "a key that is none": WrongStart("does not hold a noise key", {"noise_key": "file:short.key"}),
    "a key that is not there": WrongStart("cannot read the noise key", {"noise_key": "file:no.key"}),
    "no password for Redis": WrongStart("set redis_password", {"redis": ""}),
    "a wrong password for Redis": WrongStart("redis_password", {"redis": ":guess@"}),
    # rights
    "no right to release": WrongStart(
        r"the right WRITE on the topic '.*\.releases'",
        elsewhere=lambda monkeypatch: monkeypatch.setattr(rights, "_rights_on", none_to_release),
    ),
    "a user of Redis who may not write": WrongStart("does not let this user do", {"redis": "reader:reader@"}),
    # budget
    "no budget for another epoch": WrongStart("no room for another epoch", {"epsilon": 2.0}, NewEpoch()),
    "no budget to count again": WrongStart("no room for another epoch", wish=NewEpoch(recount=True)),
    "a new epoch of another unit": WrongStart(
        "counts per event", {"unit": "user", "items_per_user": 3}, NewEpoch()
    ),
    "a new epoch on another budget": WrongStart(
        "nothing moves to another source", {"source": "elsewhere"}, NewEpoch()
    ),
    # versions
    "a program that draws other noise": WrongStart(
        "draws noise of version", elsewhere=another_version(epoch, "NOISE_VERSION")
    ),
    "a program of another state": WrongStart(
        "holds state of format", elsewhere=another_version(checkpoint_records, "FORMAT")
    ),
    "a machine that draws other noise": WrongStart(
        "this machine draws noise",
        elsewhere=lambda monkeypatch: monkeypatch.setattr(keyed_noise, "_GOLDEN", ""),
    ),
}


@pytest.fixture(scope="module")
def own_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnRedis]:
    with own_redis_server(tmp_path_factory.mktemp("redis")) as redis:
        with redis.client() as client:
            [granted] = re.findall("^redis-cli (ACL SETUSER .*)$", OPERATIONS.read_text(), re.MULTILINE)
            client.execute_command(*shlex.split(granted))
            client.acl_setuser(
                "reader",
                enabled=True,
                passwords=["+reader"],
                keys=["*"],
                channels=["*"],
                categories=["+@read", "+@pubsub", "+@connection", "+@transaction"],
            )
        yield redis


@pytest.fixture(scope="module")
def healthy(kafka: str, own_redis: OwnRedis, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stream]:
    """A stream whose worker runs, and whose budget is spent."""
    folder = tmp_path_factory.mktemp("healthy")
    name = f"healthy-{own_redis.port}"
    url = (
        f"redis://orders:a-long-password@127.0.0.1:{own_redis.port}/0"  # with the rights that are documented
    )
    with small_stream(
        kafka, url, name, folder, epsilon=1.0, unmetered=False, checkpoint_every="100ms"
    ) as stream:
        with stream.redis() as redis:
            JournaledLedger(kafka, redis, stream.settings.data_source).set_budget(1.2, 1e-5, "event")
        stream.feed(some_events(20, seed=1))
        stream.wait_until_round(20, stream.start())
        stream.wait_until_saved(20)
        yield stream
        stream.check_everything()


@pytest.mark.parametrize("name", WRONG_STARTS)
def test_it_is_refused_and_the_healthy_worker_goes_on(
    healthy: Stream,
    own_redis: OwnRedis,
    tmp_path: Path,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    wrong, before = WRONG_STARTS[name], on_record(healthy)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ANOTHER_KEY", ANOTHER_KEY)
    for file, (text, mode) in FILES.items():
        Path(file).write_text(text)
        Path(file).chmod(mode)
    with listening() as port:
        given = {
            "redis": f"redis://{wrong.changed.get('redis')}127.0.0.1:{own_redis.port}/0",
            "metrics_address": f"127.0.0.1:{port}",
        }
        changed = {key: given.get(key, value) for key, value in wrong.changed.items()}
        wrong.elsewhere(monkeypatch)
        told = asyncio.run(refused(replace(healthy.settings, **changed), wrong, caplog))
    assert re.search(wrong.says, told), told
    assert "Task exception" not in caplog.text
    assert PASSWORD not in caplog.text + told
    assert on_record(healthy) == before, "a refusal changes nothing"
    [worker] = healthy.workers
    healthy.feed(some_events(1, seed=len(told)))
    healthy.wait_until_round(len(healthy.events()), worker)
    assert status_of(worker) is None


async def refused(settings: Settings, wrong: WrongStart, caplog: pytest.LogCaptureFixture) -> str:
    """The sentence with which it ends or, standing by, says that it could not take over."""
    if not wrong.standby:
        with pytest.raises(Refused) as refusal:
            async with asyncio.timeout(GIVE_UP_SECONDS):
                await Worker(settings, wrong.wish).run()
        return str(refusal.value)
    worker = Worker(settings, standby=True)
    running = asyncio.create_task(worker.run())
    async with asyncio.timeout(GIVE_UP_SECONDS):
        while "could not take over" not in caplog.text:
            await asyncio.sleep(0.02)
    assert not worker.watch.ready
    worker.stop()
    await running
    return caplog.text


def on_record(stream: Stream) -> tuple[object, ...]:
    """Who holds the stream, which epochs and charges there are, and which topics of others."""
    own = stream.settings
    with stream.redis() as redis:
        name = f"stream_dp:{{{own.stream}}}:"
        charges = JournaledLedger(own.kafka, redis, own.data_source).current().charges()
        held = redis.get(f"{name}fence"), redis.get(f"{name}closing"), redis.get(f"{name}lease")
    others = [each for each in topics(own.kafka) if not each.startswith(f"{own.stream}.")]
    return *held, EpochJournal(own).end, charges, sorted(others)


@contextmanager
def listening() -> Iterator[int]:
    """A port of this machine that is taken."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]
