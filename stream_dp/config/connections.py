"""How to reach Kafka and Redis: one place that turns addresses, TLS and credentials into options of each client.

Passwords are read when a client is made.  The values here only name where they are, so printing them is safe.
"""

import logging
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from stream_dp.config.secret import SettingsError, read_secret

if TYPE_CHECKING:
    from redis import Redis

KafkaSecurity = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
SaslMechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]

_LOGS_OF_FRAMES = ("kafka.net.connection", "kafka.protocol.parser", "aiokafka.conn")
"""Loggers of the clients that show whole requests at the debug level, and so passwords and events."""

_BAD_REDIS_ADDRESS = (
    "the setting redis is not an address: write redis://[user:password@]host:port/number, and "
    "characters like / # ? of a password as %2F %23 %3F"
)


@dataclass(frozen=True)
class TlsFiles:
    """PEM files: who may vouch for the server (default: whom the system trusts), and who we are, if it asks."""

    ca: str | None = None
    client_cert: str | None = None
    client_key: str | None = None


@dataclass(frozen=True)
class KafkaAddress:
    """A Kafka cluster; `servers` is HOST:PORT, or several with commas, and `password` is `env:NAME` or `file:PATH`."""

    servers: str
    security: KafkaSecurity = "PLAINTEXT"
    tls: TlsFiles = TlsFiles()
    sasl_mechanism: SaslMechanism | None = None
    username: str | None = None
    password: str | None = None

    def __str__(self) -> str:
        return self.servers


Kafka = KafkaAddress | str
"""A cluster, or the HOST:PORT of one that asks for neither TLS nor a password."""


@dataclass(frozen=True)
class RedisAddress:
    """A Redis server; `password` is `env:NAME` or `file:PATH`, and what stands in the URL goes above it."""

    url: str
    tls: TlsFiles = TlsFiles()
    password: str | None = None

    def __repr__(self) -> str:
        return "RedisAddress(...)"  # the URL may hold a password


class _Hidden(str):
    """A password that does not show when the options around it are printed, as kafka-python does when debugging."""

    def __repr__(self) -> str:
        return "'...'"


def _above_debug(record: logging.LogRecord) -> bool:
    return record.levelno > logging.DEBUG


def places_of(servers: str) -> list[tuple[str, int]]:
    """Host and port of each Kafka server of `servers`, which have commas between them.  Raises `SettingsError`.

    >>> places_of("broker:9092, [::1]:9093")
    [('broker', 9092), ('::1', 9093)]
    """
    places = []
    for server in servers.split(","):
        host, _, port = server.strip().rpartition(":")
        if not host or not (port.isascii() and port.isdigit() and 0 < int(port[:6]) < 65_536):
            raise SettingsError(
                f"the Kafka address {server!r} is not HOST:PORT: change the setting kafka, or --kafka"
            )
        places.append((host.strip("[]"), int(port)))
    return places


def kafka_options(kafka: Kafka) -> dict[str, Any]:
    """What every client of kafka-python is given.  Raises `SettingsError`."""
    address = KafkaAddress(kafka) if isinstance(kafka, str) else kafka
    places_of(address.servers)
    for name in _LOGS_OF_FRAMES:
        logging.getLogger(name).addFilter(_above_debug)  # the same one again is none more
    options: dict[str, Any] = {
        "bootstrap_servers": [server.strip() for server in address.servers.split(",")],
        "security_protocol": address.security,
    }
    if address.security.endswith("SSL"):
        options["ssl_context"] = tls_context("kafka", address.tls)
    elif address.tls != TlsFiles():
        raise SettingsError(
            "kafka_ca_file, kafka_client_cert and kafka_client_key are for TLS: set kafka_security to SSL or SASL_SSL"
        )
    if address.security.startswith("SASL"):
        if not (address.sasl_mechanism and address.username and address.password):
            raise SettingsError(
                f"kafka_security {address.security} needs kafka_sasl_mechanism, kafka_username and kafka_password"
            )
        options["sasl_mechanism"] = address.sasl_mechanism
        options["sasl_plain_username"] = address.username
        options["sasl_plain_password"] = _Hidden(read_secret("password for Kafka", address.password))
    elif address.sasl_mechanism or address.username or address.password:
        raise SettingsError(
            "kafka_sasl_mechanism, kafka_username and kafka_password are for SASL: set kafka_security to SASL_SSL"
        )
    return options


def aiokafka_options(kafka: Kafka) -> dict[str, Any]:
    """What every client of aiokafka is given, which happens to name these options alike.  Raises `SettingsError`."""
    return kafka_options(kafka)


def redis_client(address: RedisAddress, **options: Any) -> "Redis":
    """A client; `options` are those of redis-py.  Nothing is connected yet.  Raises `SettingsError`."""
    from stream_dp.config.redis_commands import QuietRedis, UncopiedValues

    options["command_packer"] = UncopiedValues()
    if address.password is not None:
        options["password"] = read_secret("password for Redis", address.password)
    if address.url.startswith("rediss://"):
        tls_context("redis", address.tls)  # redis-py would only find out when it connects
        options |= {
            "ssl_ca_certs": address.tls.ca,
            "ssl_certfile": address.tls.client_cert,
            "ssl_keyfile": address.tls.client_key,
        }
    elif address.tls != TlsFiles():
        raise SettingsError(
            "redis_ca_file, redis_client_cert and redis_client_key are for TLS: begin the setting redis with rediss://"
        )
    try:
        return QuietRedis.from_url(address.url, **options)
    except ValueError:  # its text may hold a piece of the password
        raise SettingsError(_BAD_REDIS_ADDRESS) from None


def tls_context(server: str, files: TlsFiles) -> ssl.SSLContext:
    """Verifies the server's certificate and its host name.  Raises `SettingsError`, which names the setting."""
    try:
        context = ssl.create_default_context(cafile=files.ca)
    except (OSError, ValueError):
        raise SettingsError(
            f"{server}_ca_file {files.ca}: there is no file with certificates in PEM form"
        ) from None
    if files.client_key and not files.client_cert:
        raise SettingsError(f"{server}_client_key needs {server}_client_cert too")
    if files.client_cert:
        try:
            # An empty passphrase, because OpenSSL would ask for one on the terminal.
            context.load_cert_chain(files.client_cert, files.client_key, password="")
        except (OSError, ValueError):
            raise SettingsError(
                f"{server}_client_cert and {server}_client_key must name a certificate and its private key, both "
                "in PEM form and without a passphrase"
            ) from None
    return context
