"""What the embedded broker itself promises, asked in single requests: waiting, limits, crashes, refusals."""

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import (
    InvalidPartitionsError,
    OutOfOrderSequenceNumberError,
    TransactionalIdAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from kafka.protocol.consumer import FetchResponse
from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse
from kafka.protocol.producer import InitProducerIdRequest, InitProducerIdResponse

from stream_dp.dev.child_process import ServerFailed, birth_of
from stream_dp.dev.servers import BrokerProcess, embedded, start_broker
from stream_dp.kafka.clients import admin_client
from tests.dev.batches import batch
from tests.dev.line import GIVE_UP_SECONDS, Line, fetch_request, values
from tests.system.waiting import wait_until


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    started = start_broker(tmp_path / "kafka")
    yield started
    started.stop()


def test_a_batch_sent_again_after_a_lost_answer_is_stored_once(tmp_path: Path) -> None:
    """The repeated batch comes on a new connection to a broker that was killed in between."""
    folder = tmp_path / "kafka"
    data = batch([b"once"], producer=(5, 0, 0))
    first = start_broker(folder)
    line = Line(first.port)
    line.create("t")
    assert line.produce("t", data).base_offset == 0
    first.process.kill()
    first.stop()
    second = start_broker(folder)
    again = Line(second.port)
    repeated = again.produce("t", data)
    assert (repeated.error_code, repeated.base_offset) == (0, 0)
    assert (
        again.produce("t", batch([b"gap"], producer=(5, 0, 2))).error_code
        == OutOfOrderSequenceNumberError.errno
    )
    assert again.produce("t", batch([b"next"], producer=(5, 0, 1))).base_offset == 1
    assert values(again.fetch("t", 0).records) == [b"once", b"next"]
    second.stop()


def test_producer_ids_are_never_given_twice(tmp_path: Path) -> None:
    given = []
    for _ in range(3):
        broker = start_broker(tmp_path / "kafka")
        line = Line(broker.port)
        for _ in range(3):
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)
            given.append(line.ask(request, InitProducerIdResponse, 1).producer_id)
        broker.process.kill()
        broker.stop()
    assert len(set(given)) == 9


def test_a_waiting_fetch_is_answered_by_the_record_and_not_by_its_timeout(broker: BrokerProcess) -> None:
    """The fetch may wait far longer than the connection's own time limit lets the test wait."""
    reader, writer = Line(broker.port), Line(broker.port)
    writer.create("t")
    reader.send(fetch_request("t", 0, max_wait_ms=10 * 60_000), 11)
    writer.produce("t", batch([b"came"]))
    part = reader.receive(FetchResponse, 11).responses[0].partitions[0]
    assert values(part.records) == [b"came"]


def test_a_fetch_waits_for_as_many_bytes_as_it_asks_for(broker: BrokerProcess) -> None:
    reader, writer = Line(broker.port), Line(broker.port)
    writer.create("t")
    size = len(batch([b"x"]))
    reader.send(fetch_request("t", 0, max_wait_ms=10 * 60_000, min_bytes=3 * size), 11)
    for _ in range(3):
        writer.produce("t", batch([b"x"]))
    assert len(values(reader.receive(FetchResponse, 11).responses[0].partitions[0].records)) == 3
    assert values(reader.fetch("t", 3, max_wait_ms=1).records) == []


def test_a_fetch_outside_the_log_is_told_so_at_once(broker: BrokerProcess) -> None:
    line = Line(broker.port)
    line.create("t")
    assert line.fetch("t", 1, max_wait_ms=10 * 60_000).error_code == 1
    assert line.fetch("none", 0, max_wait_ms=10 * 60_000).error_code == UnknownTopicOrPartitionError.errno


def test_without_acknowledgement_there_is_no_answer(broker: BrokerProcess) -> None:
    line = Line(broker.port)
    line.create("t")
    line.produce("t", batch([b"unanswered"]), acks=0)
    assert line.produce("t", batch([b"answered"])).base_offset == 1


def test_nonsense_closes_one_connection_and_no_other(broker: BrokerProcess) -> None:
    good = Line(broker.port)
    for nonsense in (b"GET / HTTP/1.1\r\n\r\n", struct.pack(">ihhih", 10, 99, 0, 1, -1), b"\0\0\0\1x"):
        with socket.create_connection(("127.0.0.1", broker.port), timeout=GIVE_UP_SECONDS) as bad:
            bad.sendall(nonsense)
            assert bad.recv(1) == b""
    good.create("t")


def test_a_client_from_the_future_is_told_the_versions(broker: BrokerProcess) -> None:
    line = Line(broker.port)
    line.send(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 4, said=9)
    told = line.receive(ApiVersionsResponse, 0)
    assert told.error_code == 35
    assert {(key.api_key, key.max_version) for key in told.api_keys} >= {(0, 8), (1, 11)}


def test_a_torn_write_at_the_end_is_forgotten(tmp_path: Path) -> None:
    folder = tmp_path / "kafka"
    broker = start_broker(folder)
    line = Line(broker.port)
    line.create("t")
    line.produce("t", batch([b"whole"]))
    broker.process.kill()
    broker.stop()
    with open(folder / "topics" / "t" / "0.log", "ab") as file:
        file.write(batch([b"torn"])[:-1])
    again = start_broker(folder)
    assert Line(again.port).produce("t", batch([b"next"])).base_offset == 1
    assert values(Line(again.port).fetch("t", 0).records) == [b"whole", b"next"]
    again.stop()


def test_two_brokers_never_share_a_folder(broker: BrokerProcess) -> None:
    with pytest.raises(ServerFailed, match="another embedded broker runs on"):
        start_broker(broker.folder)


def test_transactions_are_refused(broker: BrokerProcess) -> None:
    request = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=1000)
    refused = TransactionalIdAuthorizationFailedError.errno
    assert Line(broker.port).ask(request, InitProducerIdResponse, 1).error_code == refused
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.address, "transactional.id": "t"})
    with pytest.raises(confluent_kafka.KafkaException, match="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"):
        producer.init_transactions(GIVE_UP_SECONDS)


def test_embedded_servers_end_with_their_starter_even_on_sigkill(tmp_path: Path) -> None:
    program = """
        import json, sys, time
        from pathlib import Path
        from stream_dp.dev.servers import embedded
        with embedded(Path(sys.argv[1])) as servers:
            print(servers.kafka, flush=True)
            time.sleep(600)
    """
    command = [sys.executable, "-c", textwrap.dedent(program), str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        address = starter.stdout.readline().strip()
        told = json.loads((tmp_path / "kafka" / "broker.json").read_text())
        assert address == f"127.0.0.1:{told['port']}"
        os.kill(starter.pid, signal.SIGKILL)
    wait_until(lambda: birth_of(told["pid"]) is None, lambda: "the broker stays")


def test_embedded_servers_end_with_the_block(tmp_path: Path) -> None:
    with embedded(tmp_path) as servers:
        host, port = servers.kafka.split(":")
        socket.create_connection((host, int(port))).close()
        pid = json.loads((tmp_path / "kafka" / "broker.json").read_text())["pid"]
        assert birth_of(pid) is not None
    assert birth_of(pid) is None


def test_the_broker_starts_without_the_heavy_libraries() -> None:
    """It is started before every demo and test session: scientific and Faust imports would be felt."""
    program = "import sys, stream_dp.dev.broker; print(*sys.modules)"
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in told.stdout.split()}
    assert "kafka" in loaded
    assert not loaded & {"faust", "scipy", "numpy", "typer", "aiokafka", "redis"}


def described(address: str, topic: str) -> tuple[str, int, str]:
    """A topic's identity, its number of partitions and its retention, as an admin client is told them."""
    resource = ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": None})
    with admin_client(address) as admin:
        [told] = admin.describe_topics([topic])
        kept = admin.describe_configs([resource], config_filter="all")["topic"][topic]["retention.ms"][
            "value"
        ]
    return told["topic_id"], len(told["partitions"]), kept


def test_a_topic_keeps_its_identity_while_it_changes_and_a_new_one_has_another(tmp_path: Path) -> None:
    broker = start_broker(tmp_path / "kafka")
    with admin_client(broker.address) as admin:
        admin.create_topics({"t": {"configs": {"retention.ms": "-1"}}})
        first, *shape = described(broker.address, "t")
        assert shape == [1, "-1"]
        admin.create_partitions({"t": 3})
        admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, "t", {"retention.ms": "1000"})])
        with pytest.raises(InvalidPartitionsError):
            admin.create_partitions({"t": 2})
    broker.process.kill()
    broker.stop()
    broker = start_broker(tmp_path / "kafka", broker.port)
    assert described(broker.address, "t") == (first, 3, "1000")
    with admin_client(broker.address) as admin:
        admin.reset_configs([ConfigResource(ConfigResourceType.TOPIC, "t", {"retention.ms": None})])
        assert described(broker.address, "t") == (first, 3, "604800000")
        admin.delete_topics(["t"])
        admin.create_topics({"t": {}})
    again, *shape = described(broker.address, "t")
    assert shape == [1, "604800000"]
    assert again != first
    broker.stop()
