"""The kafka service of docker-compose.yml on a real Apache Kafka, by its own settings: who may do what."""

import itertools
import re
import subprocess
import sys
from pathlib import Path

import pytest
from kafka import KafkaConsumer
from kafka.errors import KafkaError

from stream_dp.config.connections import KafkaAddress, kafka_options
from stream_dp.kafka import log
from stream_dp.kafka.rights import rights_on
from tests.apache_kafka.server import Broker, free_ports
from tests.docs.compose import PASSWORD, ROOT, SERVICES, environment

pytestmark = pytest.mark.apache("rights", alone=True)

PUBLIC = ["shop.releases", "shop.epochs", "shop.results"]
PRIVATE = ["shop.events", "shop.dead-letters"]
LOCAL, CONTROLLER, INSIDE, OUTSIDE = PORTS = ["29092", "29093", "19092", "9092"]


def broker_of_the_service(folder: Path) -> tuple[Broker, str]:
    """Not started yet, and the address for the networks.  Only its ports and its folder are those of this machine."""
    ports = dict(zip(PORTS, itertools.chain(free_ports(), free_ports()), strict=True))
    lines = []
    for name, value in environment("kafka").items():
        if name.startswith("KAFKA_") and name in SERVICES["kafka"]["environment"]:
            for port in PORTS:
                value = re.sub(rf"(@|//)(localhost|kafka|):{port}\b", rf"\g<1>127.0.0.1:{ports[port]}", value)
            lines.append(
                f"{name.removeprefix('KAFKA_').lower().replace('_', '.')}={value}\n"
            )  # as the image does
    broker = Broker(folder, "\n" + "".join(lines) + f"log.dirs={folder / 'data'}\n")
    broker.port, broker.address = ports[LOCAL], f"127.0.0.1:{ports[LOCAL]}"
    return broker, f"127.0.0.1:{ports[INSIDE]}"


def login(address: str, user: str, password: str = "env:KAFKA_PASSWORD") -> KafkaAddress:
    return KafkaAddress(address, "SASL_PLAINTEXT", sasl_mechanism="PLAIN", username=user, password=password)


def test_who_comes_in_and_what_they_may_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", PASSWORD)  # the environments of services have one for all
    monkeypatch.setenv("WRONG", PASSWORD[::-1])
    broker, address = broker_of_the_service(tmp_path / "kafka")
    (tmp_path / "stream.toml").write_text((ROOT / "stream.example.toml").read_text())

    def may(user: str, topic: str) -> set[str]:
        return rights_on(login(address, user), topic) or set()

    with broker:
        for topic in (*PUBLIC, *PRIVATE, "shop.table"):
            log.create_topics(broker.address, topic)
        assert may("dashboard", "shop.releases") == set(), "nothing was granted yet"
        granted = subprocess.run(
            [sys.executable, "-m", "stream_dp.cli", *SERVICES["rights"]["command"]],
            cwd=tmp_path,
            env=environment("rights", STREAM_DP_KAFKA=address),
            capture_output=True,
            text=True,
        )
        assert granted.returncode == 0, granted.stdout + granted.stderr
        assert [may("dashboard", topic) for topic in PUBLIC] == [{"READ", "DESCRIBE"}] * len(PUBLIC)
        assert may("subscriber", "shop.releases") == {"READ", "DESCRIBE"}
        users = ("dashboard", "subscriber", "table")
        assert [(user, topic) for user in users for topic in PRIVATE if may(user, topic)] == []
        assert "WRITE" in may("table", "shop.table")
        assert "WRITE" in may("operator", "shop.events")
        strangers = {"bootstrap_servers": address}, kafka_options(login(address, "operator", "env:WRONG"))
        for options in strangers:
            with pytest.raises(KafkaError):
                KafkaConsumer("shop.releases", **options, bootstrap_timeout_ms=2_000)
