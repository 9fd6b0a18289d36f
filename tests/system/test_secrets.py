"""No key, nothing made from it and no password reaches a log, a release, a journal, a certificate or an error.

A whole system runs at the highest log level, with outages, refusals and mistakes; then all that it wrote is searched.
"""

import base64
import shutil
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from redis import Redis

from stream_dp.dev import redis_server
from stream_dp.kafka import log
from stream_dp.privacy.keyed_noise import subkey
from stream_dp.store.noise_key import noise_key
from tests.apache_kafka.server import free_ports
from tests.system.example_events import some_events
from tests.system.leaks import LOUD, leaks
from tests.system.streams import Stream, ended, small_stream

PASSWORD, WRONG_PASSWORD, KAFKA_PASSWORD = "gr33n/t:a#leaf", "bl@ck/t:a#leaf", "o0long+t/a=leaf"
PURPOSES = (b"label id", b"tweak", b"history", b"bits", b"check", b"log")


@dataclass
class Witnessed:
    """What a system wrote, by place, and what must not be in it."""

    secrets: dict[str, bytes]
    places: dict[str, bytes] = field(default_factory=dict)


@pytest.fixture(scope="module")
def witnessed(kafka: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Witnessed]:
    """Everything that a system which met every kind of trouble has written."""
    folder = tmp_path_factory.mktemp("secrets")
    key_file = folder / "noise.key"
    system = _System(kafka, folder, key_file)
    with closing(system), system.stream() as stream:
        system.run(stream)
        key = noise_key(f"file:{key_file}", Redis(), stream.settings.stream, may_create=False)
        passwords = {"Redis": PASSWORD, "wrong": WRONG_PASSWORD, "Kafka": KAFKA_PASSWORD}
        secrets = {"noise key": key} | {f"sub-key {name!r}": subkey(key, name) for name in PURPOSES}
        secrets |= {f"password ({name})": value.encode() for name, value in passwords.items()}
        yield Witnessed(secrets, {"logs": stream.log_file.read_bytes()} | _topics(stream))


class _System:
    """A Redis with a password, a key file and a stream on them."""

    def __init__(self, kafka: str, folder: Path, key_file: Path) -> None:
        self.kafka, self.folder, self.key_file = kafka, folder, key_file
        port, _ = free_ports()  # nobody else takes it while the server is down
        self.server = redis_server.start(folder / "redis", port=port)
        self.lock()

    def close(self) -> None:
        self.server.stop()

    def lock(self) -> None:
        with Redis(port=self.server.port) as client:
            client.config_set("requirepass", PASSWORD)

    def url(self, password: str = PASSWORD) -> str:
        return f"redis://:{quote(password, safe='')}@127.0.0.1:{self.server.port}/0"

    def stream(self) -> AbstractContextManager[Stream]:
        name = f"secrets-{self.server.port}"
        return small_stream(self.kafka, self.url(), name, self.folder, noise_key=f"file:{self.key_file}")

    def run(self, stream: Stream) -> None:
        """Make the key, count, meet an outage, be refused for every reason, and check and rebuild in between."""
        _command(stream, 0, "key", "new", "--file", str(self.key_file))
        stream.feed(some_events(60, seed=1))
        self._outage(stream)
        stream.feed(some_events(30, seed=2))
        host = stream.start_command("worker", "--log-level", "debug")
        stream.wait_until_round(120, host)
        host.terminate()
        ended(host)
        for words in (
            ("verify", "--show-difference"),
            ("verify", "--json"),
            ("rebuild", "--replace"),
            ("check", "--json"),
            ("budget", "show", "--json"),
        ):
            _command(stream, 0, *words)
        self._refusals(stream)
        self._mistakes(stream)

    def _outage(self, stream: Stream) -> None:
        """Redis goes while a worker runs, comes back without a password, then with it."""
        worker = stream.start_command(LOUD)
        stream.wait_until_round(60, worker)
        self.server.stop()
        stream.feed(some_events(30, seed=3))
        stream.wait_until_logged("waiting for Redis")
        self.server = redis_server.start(self.folder / "redis", port=self.server.port)
        self.lock()
        stream.wait_until_round(90, worker)
        stream.stop(worker)

    def _refusals(self, stream: Stream) -> None:
        other, open_to_all = self.folder / "other.key", self.folder / "open.key"
        _command(stream, 0, "key", "new", "--file", str(other))
        shutil.copy(self.key_file, open_to_all)
        open_to_all.chmod(0o644)
        half = self.folder / "half.key"
        half.touch(0o600)
        half.write_text(self.key_file.read_text()[:62])
        changes: list[dict[str, Any]] = [
            {"noise_key": f"file:{other}"},
            {"noise_key": f"file:{open_to_all}"},
            {"noise_key": f"file:{half}"},
            {"epsilon": 29.0},
            {"items_per_event": 2},
        ]
        for changed in changes:
            assert ended(stream.start_command(LOUD, **changed)) == 2, changed
        with stream.redis() as client:
            client.set(f"stream_dp:{{{stream.settings.stream}}}:meta", b"damaged")
        assert ended(stream.start_command(LOUD)) == 2

    def _mistakes(self, stream: Stream) -> None:
        """Wrong passwords, and addresses that a password has broken."""
        password = self.folder / "kafka.password"
        password.touch(0o600)
        password.write_text(KAFKA_PASSWORD)
        login: dict[str, Any] = {
            "kafka_sasl_mechanism": "PLAIN",
            "kafka_username": "me",
            "kafka_password": f"file:{password}",
        }
        assert ended(stream.start_command(LOUD, redis=self.url(WRONG_PASSWORD))) == 2
        before = stream.logged().count("waiting for Kafka")
        worker = stream.start_command(LOUD, kafka_security="SASL_PLAINTEXT", **login)
        stream.wait_until_logged("waiting for Kafka", times=before + 1)
        worker.kill()
        ended(worker)
        broken = (f"redis://:{PASSWORD}@127.0.0.1:1/0", f"redis:{PASSWORD}", f"rediss//{PASSWORD}@host")
        for address in broken:
            assert ended(stream.start_command(LOUD, redis=address)) != 0
        for words in (("check",), ("worker",), ("verify",), ("budget", "show")):
            _command(stream, None, *words, redis=broken[0])
        _command(stream, 2, "worker", kafka_password=KAFKA_PASSWORD)
        _command(stream, 2, "worker", redis_password=PASSWORD)
        _command(stream, 2, "worker", noise_key=self.key_file.read_text().strip())


def _command(stream: Stream, status: int | None, *words: str, **changed: Any) -> None:
    """A command of the command line, with what it prints in the stream's log; a `status` of None is any failure."""
    found = ended(stream.start_command(*words, **changed))
    assert found == status if status is not None else found != 0, (words, stream.logged()[-2000:])


def _topics(stream: Stream) -> dict[str, bytes]:
    own = stream.settings
    names = (own.events, own.releases, own.epochs, own.dead_letters, f"{own.data_source}.ledger")
    return {name: b"\n".join(_values(stream, name)) for name in names}


def _values(stream: Stream, topic: str) -> Iterable[bytes]:
    held = log.offsets(stream.settings.kafka_address, topic)
    for record in log.read(stream.settings.kafka_address, topic, held.first, held.end):
        yield (record.key or b"") + b" " + (record.value or b"")


def test_nothing_that_is_written_holds_a_secret(witnessed: Witnessed) -> None:
    assert leaks(witnessed.secrets, witnessed.places) == []


def test_there_was_much_to_search(witnessed: Witnessed) -> None:
    """The logs come from every library, and tell of every trouble that was made."""
    logs = witnessed.places["logs"].decode(errors="replace")
    for told in (
        "kafka.",
        "aiokafka",
        "asyncio",
        "waiting for Redis",
        "waiting for Kafka",
        "chmod 600",
        "verdict",
    ):
        assert told in logs, told
    assert "does not fit together" in logs
    assert all(witnessed.places.values())


@pytest.mark.parametrize("form", ["raw", "hex", "HEX", "base64", "python"])
@pytest.mark.parametrize("place", ["logs", "releases"])
def test_a_secret_that_was_written_would_be_found(witnessed: Witnessed, form: str, place: str) -> None:
    """The same search, after every secret in turn was put into the middle of what was written."""
    (name,) = (name for name in witnessed.places if name.endswith(place))
    for secret, value in witnessed.secrets.items():
        shown = {
            "raw": value,
            "hex": value.hex().encode(),
            "HEX": value.hex().upper().encode(),
            "base64": base64.b64encode(value),
            "python": repr(value).encode(),
        }[form]
        text = witnessed.places[name]
        planted = text[: len(text) // 2] + b"\nkey=" + shown + b"\n" + text[len(text) // 2 :]
        assert (secret, name) in leaks({secret: value}, {name: planted})


def test_events_are_no_secret_to_the_search(witnessed: Witnessed) -> None:
    """It does find what is there: a label of the events topic."""
    (name,) = (name for name in witnessed.places if name.endswith(".events"))
    assert ("an item", name) in leaks({"an item": b"rare 7"}, witnessed.places)
