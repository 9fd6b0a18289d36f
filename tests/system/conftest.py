"""Real servers on loopback, one of each for the whole session, and a broker of its own for a test that kills it."""

import re
import uuid
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Protocol

import pytest

from stream_dp.dev import redis_server
from stream_dp.dev.servers import BrokerProcess, Servers, embedded, start_broker
from stream_dp.kafka import clients
from tests.apache_kafka.server import Broker, apache_kafka, free_ports
from tests.conftest import SHARED_KAFKA
from tests.schema_registry.server import Registry
from tests.system.broker_clients import delete_topics_of, leave
from tests.system.partitioned import PARTITIONS
from tests.system.soak import soaks
from tests.system.streams import Stream, small_stream
from tests.system.ticking import TICKS, MakeStream

HERE = Path(__file__).parent
BROKER_DECIDES = {
    "batches": "how records are stored, compressed, limited in size, and acknowledged once",
    "beside": "what runs beside Apache Kafka: its schema registry, Kafka Connect",
    "contract": "what every client gets from a broker, whatever this project makes of it",
    "groups": "which member of a group reads what",
    "logins": "who is let in, and whom a client believes",
    "offsets": "where a topic begins and ends, also after it was re-created, and what is committed",
    "outages": "what clients meet while a broker is gone, frozen or back",
    "retention": "which records are removed: by age, by a key's next record, by hand",
    "rights": "who may do what",
    "roles": "nothing special: each role once, from its start to its end",
    "times": "which record is found for a time, and which times are taken",
    "topics": "how topics are made, configured and extended",
    "transactions": "which records are there for those who read committed ones",
}
"""What `@pytest.mark.apache(...)` names: that which a broker decides, and on which the test's outcome depends.

`make test-kafka` runs the tests that have the mark, `make test` all but those with `alone=True`: the embedded broker
cannot do what they need.  `make soak` runs all of some files on either.
"""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """On Apache Kafka, keep what depends on it; elsewhere, leave out what needs it."""
    apache = config.getoption("kafka") == "apache"

    def is_left_out(item: pytest.Item) -> bool:
        mark = item.get_closest_marker("apache")
        if mark is not None and mark.args[0] not in BROKER_DECIDES:
            raise pytest.UsageError(f"{item.nodeid}: {mark.args[0]!r} is none of {', '.join(BROKER_DECIDES)}")
        if apache:
            return mark is None and not soaks()
        return mark is not None and mark.kwargs.get("alone", False)

    left_out = {item for item in items if item.path.is_relative_to(HERE) and is_left_out(item)}
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]


@pytest.fixture(autouse=True)
def patient_clients(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let what a test does in this process wait for a broker that stands still, as a worker does by trying again.

    And let it keep the clients that it borrows, as a worker does while it starts: to connect takes longest.  Not where
    clients are counted, or their threads (`@pytest.mark.counts_clients`).
    """
    monkeypatch.setattr(clients, "BOOTSTRAP_MILLISECONDS", 60_000)
    with nullcontext() if request.node.get_closest_marker("counts_clients") else clients.kept_clients():
        yield


@pytest.fixture(scope="session")
def servers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """The broker that `--kafka` names and a Redis server, shared by all tests of the session.

    Apache Kafka is shared by those of other processes too.
    """
    folder = tmp_path_factory.mktemp("servers")
    if request.config.getoption("kafka") == "embedded":
        with embedded(folder) as both:
            yield both
            leave(both.kafka)
    else:
        shared = getattr(request.config, "workerinput", {}).get(SHARED_KAFKA)
        own = nullcontext(shared) if shared else apache_kafka(folder / "kafka")
        with own as kafka, redis_server.running(folder / "redis") as redis:
            yield Servers(kafka, redis.url)
            leave(kafka)


@pytest.fixture(scope="session")
def kafka(servers: Servers) -> str:
    """Bootstrap address, "127.0.0.1:port"."""
    return servers.kafka


@pytest.fixture(scope="session")
def redis_url(servers: Servers) -> str:
    """Address of a real Redis-compatible server, "redis://127.0.0.1:port/0"."""
    return servers.redis_url


@pytest.fixture
def topic_prefix(request: pytest.FixtureRequest) -> Iterator[str]:
    """A stream name of this try of this test alone.

    Tests share the servers, but never a topic, a Redis key, the id of a job or the contents of a registered file.
    """
    test = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")[:60]
    stream = f"{test}-{uuid.uuid4().hex[:8]}"
    yield stream
    if "kafka" in request.fixturenames:
        delete_topics_of(request.getfixturevalue("kafka"), stream)


@pytest.fixture
def make_stream(kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path) -> MakeStream:
    """Makes the stream of a test, with settings of its own."""
    return lambda **changed: small_stream(kafka, redis_url, topic_prefix, tmp_path, **changed)


@pytest.fixture
def stream(make_stream: MakeStream) -> Iterator[Stream]:
    """The stream of a test, with the settings of all."""
    with make_stream() as stream:
        yield stream


@pytest.fixture
def ticking(make_stream: MakeStream) -> MakeStream:
    """Streams whose rounds end by barriers, which their workers write."""
    return lambda **changed: make_stream(**{"checkpoint_every": "3", **TICKS, **changed})


@pytest.fixture
def by_hand(ticking: MakeStream) -> MakeStream:
    """Streams whose barriers the test writes."""
    return lambda **changed: ticking(write_barriers=False, **changed)


@pytest.fixture
def spread(make_stream: MakeStream) -> MakeStream:
    """Streams over three partitions, whose barriers the test writes."""
    own = {"partitions": PARTITIONS, "write_barriers": False, "horizon": 4095}
    return lambda **changed: make_stream(**{**own, **changed})


class KafkaOfOneTest(Protocol):
    """A broker that a test may stop, kill (SIGKILL) and start again on the same address and data."""

    address: str

    @property
    def pid(self) -> int: ...
    @property
    def is_started(self) -> bool: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...
    def kill(self) -> None: ...


class EmbeddedKafka:
    """The embedded broker on a fixed port below `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port, _ = free_ports()
        self.address = f"127.0.0.1:{self.port}"
        self._running: BrokerProcess | None = None

    @property
    def pid(self) -> int:
        assert self._running is not None
        return self._running.process.pid

    @property
    def is_started(self) -> bool:
        return self._running is not None

    def start(self) -> None:
        self._running = start_broker(self.folder, self.port)

    def stop(self) -> None:
        if self._running is not None:
            self._running.stop()
            self._running = None

    def kill(self) -> None:
        if self._running is not None:
            self._running.process.kill()
            self.stop()


@pytest.fixture(scope="module")
def kafka_of_one_file(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KafkaOfOneTest]:
    """A broker of the kind that `--kafka` names, for the tests of a file that use `own_kafka`, one after the other."""
    kind = EmbeddedKafka if request.config.getoption("kafka") == "embedded" else Broker
    broker: KafkaOfOneTest = kind(tmp_path_factory.mktemp("kafka"))
    try:
        yield broker
    finally:
        leave(broker.address)
        broker.stop()


@pytest.fixture
def own_kafka(kafka_of_one_file: KafkaOfOneTest) -> KafkaOfOneTest:
    """A started broker that is this test's alone while it runs; the topics of those before it are there."""
    if not kafka_of_one_file.is_started:
        kafka_of_one_file.start()
    return kafka_of_one_file


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    """A schema registry, for the tests of one file."""
    running = Registry(tmp_path_factory.mktemp("registry"))
    running.start()
    try:
        yield running
    finally:
        running.stop()
