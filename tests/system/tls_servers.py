"""Kafka and Redis that are reached over TLS and with passwords only.

With `--kafka embedded`, a Redis that may know no TLS itself stands behind a TLS relay.  With `--kafka apache`, both are
real servers that speak TLS themselves.
"""

import asyncio
import shutil
import ssl
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from string import Template

from stream_dp.dev import redis_server
from stream_dp.dev.child_process import START_SECONDS, spawn, stop_owned, wait_until
from tests.apache_kafka.server import Broker, free_ports
from tests.system.certificates import Authority, Certificate

USER, PASSWORD = "worker", "no-one/guesses:this#one"

_SECURE_LISTENERS = Template("""
listeners=CLIENTS://127.0.0.1:${port},CONTROLLER://127.0.0.1:${controller_port},\
SSL://127.0.0.1:$ssl_port,SASL_SSL://127.0.0.1:$sasl_port
advertised.listeners=CLIENTS://127.0.0.1:${port},SSL://127.0.0.1:$ssl_port,SASL_SSL://127.0.0.1:$sasl_port
listener.security.protocol.map=CLIENTS:PLAINTEXT,CONTROLLER:PLAINTEXT,SSL:SSL,SASL_SSL:SASL_SSL
ssl.keystore.type=PEM
ssl.keystore.location=$certificate
ssl.truststore.type=PEM
ssl.truststore.location=$ca
listener.name.ssl.ssl.client.auth=required
listener.name.sasl_ssl.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512
listener.name.sasl_ssl.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \
user_$user="$password";
listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config=\
org.apache.kafka.common.security.scram.ScramLoginModule required;
""")


@contextmanager
def apache_over_tls(folder: Path, authority: Authority) -> Iterator[dict[str, str]]:
    """Apache Kafka's addresses by security: SSL wants a client's certificate, SASL_SSL wants USER and PASSWORD."""
    ssl_port, sasl_port = free_ports()
    certificate = authority.certify("kafka")
    values = {"ssl_port": ssl_port, "sasl_port": sasl_port, "user": USER, "password": PASSWORD}
    listeners = _SECURE_LISTENERS.safe_substitute(values, certificate=certificate.both, ca=authority.file)
    scram = f"SCRAM-SHA-512=[name={USER},password={PASSWORD}]"
    with Broker(folder, listeners, ["--add-scram", scram]):
        yield {"SSL": f"127.0.0.1:{ssl_port}", "SASL_SSL": f"127.0.0.1:{sasl_port}"}


@contextmanager
def embedded_over_tls(folder: Path, authority: Authority) -> Iterator[dict[str, str]]:
    """The embedded broker, which has no passwords, behind TLS that wants a client's certificate."""
    port, _ = free_ports()
    certificate = authority.certify("kafka")
    folder.mkdir()
    words: list[str | Path] = [authority.file, certificate.cert, certificate.key, str(port), folder / "data"]
    command: list[str | Path] = [sys.executable, Path(__file__).with_name("tls_broker.py"), *words]
    process = spawn(command, folder / "broker.log", owned=True)
    try:
        ready = folder / "data" / "broker.json"
        wait_until(ready.exists, process, folder / "broker.log", "the broker")
        yield {"SSL": f"127.0.0.1:{port}"}
    finally:
        stop_owned(process)


@contextmanager
def redis_behind_relay(folder: Path, authority: Authority) -> Iterator[str]:
    """The address HOST:PORT of a relay that speaks TLS to clients with a certificate, and plainly to a real server."""
    with redis_server.running(folder) as server, _relay(server.port, authority, "redis") as port:
        yield f"127.0.0.1:{port}"


@contextmanager
def redis_with_tls(folder: Path, authority: Authority) -> Iterator[str]:
    """The address HOST:PORT of a real Redis or Valkey that speaks TLS itself, and wants a client's certificate."""
    program = shutil.which("valkey-server") or shutil.which("redis-server")
    assert program, (
        "a Redis with TLS is needed: install Debian's redis-server, or a valkey-server built with TLS"
    )
    folder.mkdir()
    port, _ = free_ports()
    certificate = authority.certify("redis")
    options = {
        "bind": "127.0.0.1",
        "port": "0",
        "tls-port": str(port),
        "tls-cert-file": certificate.cert,
        "tls-key-file": certificate.key,
        "tls-ca-cert-file": authority.file,
        "tls-auth-clients": "yes",
        "dir": folder,
        "appendonly": "yes",
        "appendfsync": "always",
        "save": "",
    }
    words = [str(word) for name, value in options.items() for word in (f"--{name}", value)]
    log = folder / "redis.log"
    process = spawn([program, *words], log, owned=True)
    try:
        wait_until(lambda: b"Ready to accept connections" in log.read_bytes(), process, log, "Redis")
        yield f"127.0.0.1:{port}"
    finally:
        stop_owned(process)


@contextmanager
def _relay(target: int, authority: Authority, name: str) -> Iterator[int]:
    """A TLS port in front of a plain one, in a thread."""
    certificate = authority.certify(name)
    context = _server_context(authority, certificate)
    loop, started = asyncio.new_event_loop(), threading.Event()
    ports: list[int] = []

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        except OSError:
            pass  # the other end hung up
        finally:
            writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", target)
        await asyncio.gather(carry(reader, inner_writer), carry(inner_reader, writer))

    async def listen() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
        ports.append(server.sockets[0].getsockname()[1])
        started.set()

    def run() -> None:
        loop.create_task(listen())
        loop.run_forever()

    threading.Thread(target=run, daemon=True).start()
    assert started.wait(START_SECONDS)
    try:
        yield ports[0]
    finally:
        loop.call_soon_threadsafe(loop.stop)


def _server_context(authority: Authority, certificate: Certificate) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(authority.file))
    context.load_cert_chain(certificate.cert, certificate.key)
    context.verify_mode = ssl.CERT_REQUIRED
    return context
