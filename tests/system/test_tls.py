"""Kafka and Redis over TLS, with certificates and passwords: everything works, and nobody else gets in or is believed.

With `--kafka apache`, Kafka and Redis are real servers that speak TLS themselves.
"""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
import redis
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError

from stream_dp.config.connections import kafka_options, redis_client
from stream_dp.config.reading import load_settings
from stream_dp.config.settings import Settings
from stream_dp.kafka import log
from stream_dp.releases.release import decode_release
from tests.system.certificates import Authority
from tests.system.example_events import event
from tests.system.forked_program import start
from tests.system.leaks import LOUD, leaks
from tests.system.streams import as_values, ended, status_of
from tests.system.tls_servers import (
    PASSWORD,
    USER,
    apache_over_tls,
    embedded_over_tls,
    redis_behind_relay,
    redis_with_tls,
)
from tests.system.waiting import GIVE_UP_SECONDS, wait_until

EVENTS = 40
SECRET = "PASSWORD_OF_THE_TEST"
PATIENT = {"retry": None, "socket_timeout": GIVE_UP_SECONDS, "socket_connect_timeout": GIVE_UP_SECONDS}
"""Options of a Redis client whose one attempt ends by an answer, however late."""


@dataclass(frozen=True)
class Site:
    """Both servers: Kafka's addresses by security, and the files and passwords that open them."""

    folder: Path
    kafka: dict[str, str]
    redis: str
    authority: Authority
    stranger: Authority
    keys: dict[str, str]

    def settings(self, stream: str, access: str = "SSL", **changed: Any) -> Settings:
        """The settings of a stream, as a stream.toml would give them."""
        security, _, mechanism = access.partition(" ")
        values: dict[str, Any] = {
            "stream": stream,
            "kafka": self.kafka[security],
            "kafka_security": security,
            "kafka_ca_file": str(self.authority.file),
            "redis": f"rediss://{USER}@{self.redis}/0",
            "redis_ca_file": str(self.authority.file),
            "redis_client_cert": self.keys["client_cert"],
            "redis_client_key": self.keys["client_key"],
            "redis_password": f"env:{SECRET}",
            "epsilon": 30.0,
            "horizon": 1023,
        }
        if mechanism:
            login = {"kafka_sasl_mechanism": mechanism, "kafka_username": USER}
            values |= login | {"kafka_password": f"file:{self.keys['password']}"}
        else:
            values |= {f"kafka_{name}": self.keys[name] for name in ("client_cert", "client_key")}
        return load_settings(None, {}, **{**values, **changed})


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Apache Kafka knows passwords too; the embedded broker only knows TLS, which stands around it.

    Which password it would be makes no difference to a certificate that is not believed.
    """
    passwords = ["SASL_SSL PLAIN", "SASL_SSL SCRAM-SHA-512"]
    if metafunc.config.getoption("kafka") != "apache":
        passwords = []
    if "server" in metafunc.fixturenames:
        kafka = [(access, "kafka") for access in ("SSL", *passwords[:1])]
        metafunc.parametrize(("access", "server"), [("SSL", "redis"), *kafka])
    elif "access" in metafunc.fixturenames:
        metafunc.parametrize("access", ["SSL", *passwords])


@pytest.fixture(scope="module")
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("tls")
    authority, stranger = Authority(folder), Authority(folder, "stranger")
    client = authority.certify("client")
    password = folder / "password"
    password.touch(0o600)
    password.write_text(f"{PASSWORD}\n")
    keys = {"client_cert": str(client.cert), "client_key": str(client.key), "password": str(password)}
    apache = request.config.getoption("kafka") == "apache"
    with ExitStack() as stack:
        kafka = (apache_over_tls if apache else embedded_over_tls)(folder / "kafka", authority)
        cache = (redis_with_tls if apache else redis_behind_relay)(folder / "redis", authority)
        made = Site(folder, stack.enter_context(kafka), stack.enter_context(cache), authority, stranger, keys)
        with redis.Redis.from_url(f"rediss://{made.redis}", **_redis_files(made)) as administrator:
            administrator.acl_setuser(
                USER, enabled=True, passwords=[f"+{PASSWORD}"], keys="*", commands=["+@all"]
            )
            administrator.acl_setuser("default", enabled=False)
        yield made


@pytest.fixture(autouse=True)
def _password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SECRET, PASSWORD)


def _redis_files(site: Site) -> dict[str, str]:
    cert, key = site.keys["client_cert"], site.keys["client_key"]
    return {"ssl_ca_certs": str(site.authority.file), "ssl_certfile": cert, "ssl_keyfile": key}


def logged(log_file: Path) -> str:
    return log_file.read_text() if log_file.exists() else ""


@contextmanager
def running(settings: Settings, log_file: Path, *words: str) -> Iterator[BaseProcess]:
    """`stream-dp`, or the worker `LOUD`, with these settings until the block ends, printing into `log_file`."""
    process = start(as_values(settings), log_file, *words, **{SECRET: PASSWORD})
    try:
        yield process
    finally:
        process.terminate()
        ended(process)


def output(settings: Settings, folder: Path, *words: str) -> tuple[int, str]:
    """The exit status of a command that ends, and what it printed."""
    printed = folder / f"{words[0]}.log"
    status = ended(start(as_values(settings), printed, *words, **{SECRET: PASSWORD}))
    return status, logged(printed)


def feed(settings: Settings) -> None:
    log.create_topics(settings.kafka_address, settings.events)
    with KafkaProducer(**kafka_options(settings.kafka_address), acks="all") as producer:
        for number in range(EVENTS):
            producer.send(settings.events, event("tea", "milk" if number % 2 else "bread"))
        producer.flush()


def last_round(settings: Settings) -> int:
    held = log.offsets(settings.kafka_address, settings.releases)
    records = list(
        log.read(settings.kafka_address, settings.releases, max(held.first, held.end - 1), held.end)
    )
    return decode_release(records[-1].value or b"").round if records else 0


@pytest.mark.apache("logins")
def test_a_whole_system_runs_over_tls(site: Site, topic_prefix: str, access: str, tmp_path: Path) -> None:
    """Given a budget, checked, counted, verified, lost, rebuilt and read, by the commands that a user would run."""
    settings = site.settings(topic_prefix, access)
    status, budget = output(settings, tmp_path, "budget", "set", "--epsilon", "100", "--delta", "1e-5")
    assert status == 0, budget
    feed(settings)
    log.create_topics(settings.kafka_address, settings.releases)
    told = tmp_path / "worker.log"
    with running(settings, told, LOUD) as worker:
        wait_until(
            lambda: last_round(settings) == EVENTS or status_of(worker) is not None, lambda: logged(told)
        )
    assert last_round(settings) == EVENTS, logged(told)
    status, checked = output(settings, tmp_path, "check")
    assert status == 0, checked
    status, certificate = output(settings, tmp_path, "verify", "--json")
    assert status == 0, certificate
    assert json.loads(certificate.splitlines()[-1])["rounds"] == EVENTS
    assert output(settings, tmp_path, "rebuild", "--replace", "--json")[0] == 0
    status, releases = output(settings, tmp_path, "tail", "--from", "1", "--rounds", "3", "--json")
    assert (status, len(releases.splitlines())) == (0, 3), releases
    assert "aiokafka" in logged(told)
    assert leaks({"password": PASSWORD.encode()}, {"logs": told.read_bytes()}) == []
    assert PASSWORD not in releases + certificate


@pytest.mark.apache("logins")
def test_kafka_lets_nobody_in_without_what_it_asks_for(site: Site, access: str) -> None:
    """The fixture is what it says: else the tests above would prove nothing."""
    settings = site.settings("s", access)
    with KafkaConsumer(**kafka_options(settings.kafka_address)) as welcome:
        welcome.topics()
    bare = {"security_protocol": "PLAINTEXT", "ssl_context": None}
    lacking = {"kafka_client_cert": None, "kafka_client_key": None} if access == "SSL" else {}
    for options in (
        kafka_options(settings.kafka_address) | bare,
        kafka_options(site.settings("s", access, **lacking).kafka_address)
        | ({} if lacking else {"sasl_plain_password": "another"}),
    ):
        with pytest.raises(KafkaError):
            KafkaConsumer(**options, bootstrap_timeout_ms=2_000).topics()


def test_redis_lets_nobody_in_without_what_it_asks_for(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    for changed in (
        {"redis_client_cert": None, "redis_client_key": None},
        {"redis_password": None},
        {"redis": f"redis://{USER}@{site.redis}/0"} | dict.fromkeys(_REDIS_FILES),
    ):
        address = site.settings("s", **changed).redis_address
        with pytest.raises(redis.RedisError), redis_client(address, **PATIENT) as client:
            client.ping()
    monkeypatch.setenv(SECRET, "another")
    with pytest.raises(redis.AuthenticationError) as refused:
        redis_client(site.settings("s").redis_address, **PATIENT).ping()
    assert "another" not in str(refused.value)


_REDIS_FILES = ("redis_ca_file", "redis_client_cert", "redis_client_key")


@pytest.mark.apache("logins")
def test_a_server_that_cannot_prove_who_it_is_gets_nothing(
    site: Site, topic_prefix: str, access: str, server: str, tmp_path: Path
) -> None:
    """Another authority's certificate is not believed, and the worker says so instead of going on without TLS."""
    settings = site.settings(topic_prefix, access, **{f"{server}_ca_file": str(site.stranger.file)})
    log_file = tmp_path / "worker.log"
    with running(settings, log_file, "worker") as worker:
        wait_until(
            lambda: "waiting for" in logged(log_file) or status_of(worker) is not None,
            lambda: logged(log_file),
        )
    told = logged(log_file)
    assert f"waiting for {server.capitalize()}" in told, told
    assert PASSWORD not in told


@pytest.mark.apache("logins")
def test_a_certificate_for_another_address_is_not_believed(site: Site) -> None:
    """TLS without a look at the name would let in everybody whom the authority has ever certified."""
    elsewhere = site.redis.replace("127.0.0.1", "localhost")
    address = site.settings("s", redis=f"rediss://{USER}@{elsewhere}/0").redis_address
    with pytest.raises(redis.ConnectionError, match=r"(?i)hostname mismatch|certificate"):
        redis_client(address, **PATIENT).ping()
    kafka = site.kafka["SSL"].replace("127.0.0.1", "localhost")
    settings = site.settings("s", kafka=kafka)
    with pytest.raises(KafkaError):
        KafkaConsumer(**kafka_options(settings.kafka_address), bootstrap_timeout_ms=2_000).topics()
