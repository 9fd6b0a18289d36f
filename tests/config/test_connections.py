"""Settings become options of each client, or a sentence that says which setting to change; passwords never show."""

import logging
import ssl
import threading
from pathlib import Path
from typing import Any

import pytest

from stream_dp.config.connections import KafkaAddress, aiokafka_options, kafka_options, redis_client
from stream_dp.config.settings import Settings, SettingsError

PASSWORD = "s3same"
LOGIN = {
    "kafka_security": "SASL_PLAINTEXT",
    "kafka_sasl_mechanism": "PLAIN",
    "kafka_username": "me",
    "kafka_password": "env:KAFKA_WORD",
}


@pytest.fixture(autouse=True)
def _password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_WORD", PASSWORD)


def settings(**changed: Any) -> Settings:
    return Settings(stream="s", **changed)


def test_an_address_alone_is_plain() -> None:
    expected = {"bootstrap_servers": ["a:1", "b:2"], "security_protocol": "PLAINTEXT"}
    assert kafka_options("a:1, b:2") == kafka_options(KafkaAddress("a:1,b:2")) == expected
    assert aiokafka_options("a:1, b:2") == expected


def test_tls_verifies_certificate_and_name() -> None:
    context = kafka_options(settings(kafka_security="SSL").kafka_address)["ssl_context"]
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)


def test_a_password_is_used_and_never_shown() -> None:
    options = kafka_options(settings(**LOGIN).kafka_address)
    assert options["sasl_plain_password"] == PASSWORD
    assert f"{options['sasl_plain_password']}".encode() == PASSWORD.encode()
    assert PASSWORD not in f"{options} {options!r} {settings(**LOGIN)!r} {settings(**LOGIN).kafka_address!r}"


@pytest.mark.parametrize("name", ["kafka.net.connection", "kafka.protocol.parser", "aiokafka.conn"])
def test_the_clients_do_not_log_the_requests_that_hold_it(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    kafka_options(settings(**LOGIN).kafka_address)
    with caplog.at_level(1, logger=name):
        logging.getLogger(name).debug("Sending %r", f"\0me\0{PASSWORD}")
        logging.getLogger(name).warning("connection lost")
        logging.getLogger(f"{name}.elsewhere").debug("still heard")
    own = [record.getMessage() for record in caplog.records if record.thread == threading.get_ident()]
    assert own == ["connection lost", "still heard"]


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"kafka_ca_file": "ca.pem"}, "kafka_security"),
        ({"kafka_security": "SSL", "kafka_ca_file": "/none.pem"}, "kafka_ca_file"),
        ({"kafka_security": "SSL", "kafka_client_cert": "/none.pem"}, "kafka_client_cert"),
        ({"kafka_security": "SSL", "kafka_client_key": "/none.pem"}, "kafka_client_cert"),
        ({"kafka_username": "me"}, "SASL"),
        (LOGIN | {"kafka_password": None}, "kafka_password"),
        (LOGIN | {"kafka_username": None}, "kafka_username"),
        (LOGIN | {"kafka_sasl_mechanism": None}, "kafka_sasl_mechanism"),
        (LOGIN | {"kafka_password": "env:NOT_SET"}, "NOT_SET"),
        (LOGIN | {"kafka_password": "file:/none"}, "/none"),
        ({"kafka": "broker"}, "not HOST:PORT"),
        ({"kafka": "broker:1,broker:abc"}, "'broker:abc' is not HOST:PORT"),
    ],
)
def test_what_does_not_fit_together_is_said(changed: dict[str, Any], told: str) -> None:
    with pytest.raises(SettingsError, match=told) as refused:
        kafka_options(settings(**changed).kafka_address)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"redis_ca_file": "ca.pem"}, "rediss://"),
        ({"redis": "rediss://h", "redis_ca_file": "/none.pem"}, "redis_ca_file"),
        ({"redis": "rediss://h", "redis_client_cert": "/none.pem"}, "redis_client_cert"),
        ({"redis_password": "env:NOT_SET"}, "NOT_SET"),
        ({"redis": f"redis://:{PASSWORD}#@h:1/0"}, "not an address"),
        ({"redis": f"http://:{PASSWORD}@h"}, "not an address"),
    ],
)
def test_what_does_not_fit_redis_is_said_without_the_password(changed: dict[str, Any], told: str) -> None:
    with pytest.raises(SettingsError, match=told) as refused:
        redis_client(settings(**changed).redis_address)
    assert PASSWORD not in f"{refused.value}{settings(**changed).redis_address!r}"


def test_a_password_file_must_be_for_its_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text(f"{PASSWORD}\n")
    file.chmod(0o640)
    changed = LOGIN | {"kafka_password": f"file:{file}"}
    with pytest.raises(SettingsError, match="chmod 600"):
        kafka_options(settings(**changed).kafka_address)
    file.chmod(0o600)
    assert kafka_options(settings(**changed).kafka_address)["sasl_plain_password"] == PASSWORD


def test_redis_takes_its_password_from_where_the_setting_says() -> None:
    address = settings(redis="redis://me@h:1/3", redis_password="env:KAFKA_WORD").redis_address
    given = redis_client(address).connection_pool.connection_kwargs
    assert (given["username"], given["password"], given["db"]) == ("me", PASSWORD, 3)
