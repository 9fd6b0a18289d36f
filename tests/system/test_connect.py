"""`stream-dp connect`: from the name of a topic to a stream that releases, without an editor."""

import json
import threading
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner, Result

from stream_dp.cli import app, connect
from stream_dp.config.events_section import EventsSection
from stream_dp.config.reading import load_settings
from stream_dp.events.mapping.decoder import decoder_of
from stream_dp.events.mapping.mapping import Mapping
from stream_dp.events.record import Record
from stream_dp.kafka import log
from stream_dp.planning.comparison import compared_name
from tests.system.streams import Stream

SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "customer", "type": {"type": "record", "name": "Customer", "fields": [
            {"name": "id", "type": "long"}]}},
        {"name": "lines", "type": {"type": "array", "items": {"type": "record", "name": "Line", "fields": [
            {"name": "sku", "type": "string"}]}}},
    ],
}  # fmt: skip


@pytest.fixture
def orders(kafka: str, topic_prefix: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """A topic of somebody else's, with one partition; the settings file goes to an empty folder."""
    topic = f"{topic_prefix}-orders"
    log.create_topics(kafka, topic)
    monkeypatch.chdir(tmp_path)
    return topic


def run(kafka: str, redis_url: str, topic: str, *words: str, **options: Any) -> Result:
    places = ["--topic", topic, "--kafka", kafka, "--redis", redis_url]
    return CliRunner().invoke(app, ["connect", *places, *words], **options)


def proposed(result: Result) -> dict[str, Any]:
    assert result.exit_code == 0, result.output
    told: dict[str, Any] = json.loads(result.stdout)
    assert tomllib.loads(Path(told["written"]).read_text()) == told["settings"]
    key = Path(told["settings"]["noise_key"].removeprefix("file:"))
    assert (len(bytes.fromhex(key.read_text())), key.stat().st_mode & 0o777) == (32, 0o600)
    return told


def sentence(result: Result) -> str:
    assert result.exit_code == 2, result.output
    return " ".join(result.output.split())


def order(*skus: str) -> bytes:
    return json.dumps({"customer": {"id": 7}, "lines": [{"sku": sku} for sku in skus]}).encode()


@contextmanager
def registry(answer: bytes, status: int = 200) -> Iterator[tuple[str, list[str]]]:
    """A registry that gives this answer to every question, and what it was asked."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(status)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.apache("roles")
def test_from_a_topic_to_releases(kafka: str, redis_url: str, orders: str, tmp_path: Path) -> None:
    result = run(kafka, redis_url, orders, "--items", "lines[*].sku", "--epsilon", "20", "--yes")
    assert result.exit_code == 0, result.output
    assert "1 partition" in result.output
    settings = load_settings(tmp_path / "stream.toml", {})
    stream = Stream(settings, tmp_path)
    stream.write(settings.events, [Record(0, 1_769_860_800_000, b"c7", order("tea", "milk"))] * 150)
    lines = [line.split()[1:] for line in result.output.splitlines() if line.strip().startswith("stream-dp ")]
    assert [words[0] for words in lines] == ["budget", "check", "worker", "dashboard", "table"]
    for words in lines[:2]:
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, done.output
    worker = stream.start()
    stream.wait_until_round(150, worker)  # behind the first test
    stream.stop(worker)
    assert {"tea", "milk"} == set(json.loads(stream.releases()[-1].value or b"")["labels"])


def test_no_file_is_written_over_unless_forced(kafka: str, redis_url: str, orders: str) -> None:
    file = Path("stream.toml")
    file.write_text(f'stream = "old"\nkafka = "{kafka}"\nredis_ca_file = "ca.pem"\n')
    assert "stream.toml exists" in sentence(run(kafka, redis_url, orders, "--items", "sku", "--yes"))
    assert "old" in file.read_text()
    told = proposed(run(kafka, redis_url, orders, "--items", "sku", "--force", "--json"))
    assert told["settings"]["stream"] == orders
    assert told["settings"]["redis_ca_file"] == "ca.pem"


def test_a_registered_schema_is_looked_at_and_no_record(
    kafka: str, redis_url: str, orders: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_may_be_read(*_: object) -> None:
        raise AssertionError("a record was read")

    monkeypatch.setattr(log, "read_batches", none_may_be_read)
    answer = {"subject": "x", "version": 1, "id": 1, "schema": json.dumps(SCHEMA)}
    with registry(json.dumps(answer).encode()) as (address, asked):
        named = run(kafka, redis_url, orders, "--schema-registry", address, "--items", "2", "--json")
        assert asked == [f"/subjects/{orders}-value/versions/latest"]
        told = proposed(named)
        alone = run(kafka, redis_url, orders, "--schema-registry", address, "--yes", "--force")
        gone = run(kafka, redis_url, orders, "--schema-registry", address, "--items", "lines.sku", "--force")
        either = run(kafka, redis_url, orders, "--schema-registry", address, "--items", "new || customer.id",
                     "--force", "--json")  # fmt: skip
    listed = "1: customer.id (number), 2: lines[*].sku (text, several)"
    assert f"with --items and its number or path: {listed}" in sentence(alone)
    assert f"leads to lines.sku, which the registered schema does not have: its fields are {listed}" in (
        sentence(gone)
    )
    assert proposed(either)["settings"]["events"]["items"] == "new || customer.id"
    assert told["fields"] == [
        {"path": "customer.id", "kind": "number", "listed": False},
        {"path": "lines[*].sku", "kind": "text", "listed": True},
    ]
    assert told["settings"]["events"] == {
        "topic": orders,
        "format": "avro",
        "items": "lines[*].sku",
        "schema_registry": address,
    }


@pytest.mark.parametrize(
    ("answer", "status", "words"),
    [
        (b"<html>", 200, "it answers with something that is no JSON"),
        (b'{"schema": "{", "schemaType": "AVRO"}', 200, "it gives something else than a schema"),
        (b"", 401, "it answers with status 401"),
        (b"{}", 200, "it gives none"),
        (b"", 404, "it has no registry under this path; Apicurio's is under /apis/ccompat/v7"),
        (b'{"error_code": 40401}', 404, "has no schema for"),
    ],
)
def test_what_a_registry_does_not_tell_is_a_sentence(
    kafka: str, redis_url: str, orders: str, answer: bytes, status: int, words: str
) -> None:
    with registry(answer, status) as (address, _):
        assert words in sentence(run(kafka, redis_url, orders, "--schema-registry", address, "--yes"))
    assert not Path("stream.toml").exists()


def test_records_are_looked_at_only_where_they_are_public(
    kafka: str, redis_url: str, orders: str, tmp_path: Path
) -> None:
    stream = Stream(load_settings(Path("/dev/null"), {}, stream=orders, kafka=kafka), tmp_path)
    now = 1_769_860_800_000
    stream.write(orders, [Record(0, now, None, order(*map(str, range(7)))), Record(0, now, None, b"{")])
    assert "look at the newest ones with --public" in sentence(run(kafka, redis_url, orders, "--yes"))
    look = ["--public", "--items", "2", "--force", "--json"]
    told = proposed(run(kafka, redis_url, orders, *look))
    assert [each["path"] for each in told["fields"]] == ["customer.id", "lines[*].sku"]
    assert told["settings"]["items_per_event"] == 7
    told = proposed(run(kafka, redis_url, orders, *look, "--unit", "user", "--user", "1"))
    assert (told["settings"]["events"]["user"], told["settings"]["items_per_user"]) == ("customer.id", 4)


@pytest.mark.parametrize(
    ("values", "words", "events", "items_per_event"),
    [
        ([b"7;tea;1.5", b"8;milk;2"], ["--items", "2"],
         {"format": "csv", "items": "columns[1]", "delimiter": ";"}, 1),
        ([b"7,tea", b"8,milk"], ["--header", "id,the sku", "--items", "2"],
         {"format": "csv", "items": '"the sku"', "header": "id,the sku"}, 1),
        ([b"tea", b"milk and sugar"], [], {"format": "text", "items": "@"}, 1),
        ([b'{"op":"c","before":null,"after":{"sku":"tea"}}'], [],
         {"format": "json", "items": "sku", "change_data_capture": "inserts"}, 1),
        ([b'{"boxes":[{"lines":[{"sku":"tea"},{"sku":"milk"}]},{"lines":[{"sku":"salt"}]}]}'], [],
         {"format": "json", "items": "boxes[].lines[].sku"}, 3),
    ],
    ids=["csv", "csv with a header", "text", "changes", "nested"],
)  # fmt: skip
def test_the_shape_of_public_records_is_proposed(
    kafka: str,
    redis_url: str,
    orders: str,
    tmp_path: Path,
    values: list[bytes],
    words: list[str],
    events: dict[str, str],
    items_per_event: int,
) -> None:
    stream = Stream(load_settings(Path("/dev/null"), {}, stream=orders, kafka=kafka), tmp_path)
    stream.write(orders, [Record(0, 1_769_860_800_000, None, value) for value in values])
    told = proposed(run(kafka, redis_url, orders, "--public", *words, "--json"))["settings"]
    assert told["events"] == {"topic": orders, **events}
    assert told["items_per_event"] == items_per_event
    record = Record(0, 0, None, values[0])
    section = msgspec.convert(told["events"], EventsSection)
    assert decoder_of(Mapping.of(section))(record).items


def test_a_password_is_named_and_never_written(kafka: str, redis_url: str, orders: str) -> None:
    secret = ["--redis", "redis://:hunter2@localhost:6379/0"]
    refused = CliRunner().invoke(
        app, ["connect", "--topic", orders, "--kafka", kafka, *secret, "--items", "x"]
    )
    assert "with --redis-password env:NAME or file:PATH" in sentence(refused)
    refused = run(kafka, redis_url, orders, "--schema-registry", "http://me:hunter2@localhost:8081", "--yes")
    assert "--registry-password env:NAME or file:PATH" in sentence(refused)
    assert "hunter2" not in refused.output
    assert not Path("stream.toml").exists()
    named = ["--redis-password", "env:REDIS_PASSWORD", "--redis-ca-file", "ca.pem"]
    told = proposed(run(kafka, redis_url, orders, *named, "--items", "sku", "--json"))["settings"]
    assert (told["redis_password"], told["redis_ca_file"]) == ("env:REDIS_PASSWORD", "ca.pem")


def test_several_partitions_end_rounds_by_a_clock(kafka: str, redis_url: str, orders: str) -> None:
    topic = f"{orders}-12"
    log.create_topics(kafka, topic, partitions=12)
    told = proposed(run(kafka, redis_url, topic, "--items", "sku", "--tick-seconds", "10", "--json"))
    assert (told["topic"]["partitions"], told["settings"]["rounds"]) == (12, "ticks")
    assert told["settings"]["horizon"] == 2**18 - 1
    assert told["takes"] == "one worker, busy for 1% of the time"
    seen = {compared_name(each["mechanism"], each["discover"]): each["seen"] for each in told["costs"]}
    assert seen["blt"] < seen["blt every-round"] < seen["binary"]
    assert told["settings"]["discover"] == "default"
    waits = {each["discover"]: each["rounds"] for each in told["delays"]}
    assert waits == {"every-1d": 8_640, "default": 360, "every-10m": 60, "every-round": 1}
    costs = [each["seen"] for each in told["delays"]]
    assert costs[0] == min(costs)
    assert costs == sorted(costs)
    assert costs[-1] == seen["blt every-round"]
    often = ["--items", "sku", "--tick-seconds", "10", "--discover", "every-10m", "--force", "--json"]
    assert proposed(run(kafka, redis_url, topic, *often))["settings"]["discover"] == "every-10m"


@pytest.mark.apache("topics")
def test_a_compacted_topic_and_one_that_is_not_there_are_refused(
    kafka: str, redis_url: str, orders: str
) -> None:
    log.create_topics(kafka, f"{orders}-c", configs={"cleanup.policy": "compact"})
    assert "cannot be the log of a stream" in sentence(
        run(kafka, redis_url, f"{orders}-c", "--items", "x", "--yes")
    )
    assert f"there is {orders}" in sentence(run(kafka, redis_url, orders[:-1], "--items", "x", "--yes"))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--items", "lines[*"], "lines[*"),
        (["--items", "sku", "--unit", "household"], "unit"),
        (["--items", "sku", "--unit", "user"], "give --user"),
        (["--items", "sku", "--epsilon", "0"], "epsilon"),
        (["--items", "sku", "--discover", "hourly"], "discover"),
        (["--items", "sku", "--discover", "every-1h"], "only ticks take a known time"),
        (["--items", "sku", "--tick-seconds", "0"], "--tick-seconds"),
        (["--items", "sku", "--format", "xml"], "json or avro or protobuf"),
        (["--items", "sku", "--format", "csv", "--delimiter", ";;"], "delimiter"),
        (["--items", "sku", "--header", "a,b"], 'set format = "csv"'),
        (["--items", "sku", "--change-data-capture", "all"], "inserts"),
        (["--items", "sku", "--format", "avro"], "set schema_registry"),
        (["--items", "sku", "--kafka-password", "hunter2"], "env:NAME or file:PATH"),
    ],
)
def test_wishes_that_cannot_be_are_sentences(
    kafka: str, redis_url: str, orders: str, words: list[str], told: str
) -> None:
    assert told in sentence(run(kafka, redis_url, orders, *words, "--yes"))
    assert not Path("stream.toml").exists()


def test_on_a_terminal_it_asks(
    kafka: str, redis_url: str, orders: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connect, "is_terminal", lambda: True)
    refused = run(kafka, redis_url, orders, input="lines[*].sku\nevent\n2\n\nn\n")
    assert (refused.exit_code, Path("stream.toml").exists()) == (1, False)
    done = run(kafka, redis_url, orders, input="lines[*].sku\nuser\n\n2\n2\n\n")
    assert done.exit_code == 0, done.output
    settings = load_settings(Path("stream.toml"), {})
    assert settings.mapping is not None
    assert (settings.mapping.items, settings.mapping.user) == ("lines[*].sku", "$key")
    assert (settings.unit, settings.epsilon) == ("user", 2.0)
    assert settings.discover == "every-512"  # the second row: eight times as often as by default
    assert "a new label stays unseen for at most" in done.output
