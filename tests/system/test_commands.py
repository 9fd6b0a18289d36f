"""`stream-dp tail` and `stream-dp check` against real servers."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from kafka import KafkaAdminClient, KafkaProducer
from redis import Redis
from typer.testing import CliRunner, Result

from stream_dp.cli import app
from stream_dp.cli.checklist import state
from stream_dp.config.settings import Settings
from stream_dp.dev import redis_server
from stream_dp.engine.epoch import Epoch
from stream_dp.engine.histogram import HistogramState
from stream_dp.epochs.journaled_ledger import JournaledLedger
from stream_dp.kafka import clients, log
from stream_dp.pipeline.pipeline import Position
from stream_dp.privacy.keyed_noise import key_check
from stream_dp.releases.release import Release
from stream_dp.store.checkpoints import Checkpoint, CheckpointStore
from stream_dp.store.ledger import Ledger, LedgerRefused
from stream_dp.store.noise_key import noise_key
from tests.example_releases import release
from tests.system import forked_program
from tests.system.streams import ended
from tests.system.waiting import GIVE_UP_SECONDS, wait_until

COUNTS = {"a": 400, "b": 300, "c": 200}


def run(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


def lines(result: Result) -> list[Release]:
    assert result.exit_code == 0, result.output
    return [msgspec.json.decode(each, type=Release) for each in result.stdout.splitlines()]


def publish(kafka: str, topic: str, values: list[bytes]) -> None:
    with KafkaProducer(bootstrap_servers=kafka, acks="all") as producer:
        for value in values:
            producer.send(topic, value)


def topics(kafka: str) -> set[str]:
    with KafkaAdminClient(bootstrap_servers=kafka) as admin:
        return set(admin.list_topics())


@pytest.fixture
def stream(kafka: str, topic_prefix: str) -> str:
    """A stream whose rounds 1 to 40 are released, each in two parts, the last ten twice."""
    log.create_topics(kafka, f"{topic_prefix}.releases")
    values = []
    for number in [*range(1, 41), *range(31, 41)]:
        whole = release(number, COUNTS, topic_prefix)
        for part, cut in ((1, slice(0, 2)), (2, slice(2, 3))):
            values.append(
                msgspec.json.encode(
                    msgspec.structs.replace(
                        whole, part=part, parts=2, labels=whole.labels[cut], counts=whole.counts[cut]
                    )
                )
            )
    publish(kafka, f"{topic_prefix}.releases", values)
    return topic_prefix


@pytest.mark.apache("roles")
def test_tail_prints_every_release_whole_and_once(kafka: str, stream: str) -> None:
    command = ("tail", "--stream", stream, "--kafka", kafka, "--json")
    assert lines(run(*command, "--from", "earliest", "--rounds", "40")) == [
        release(number, COUNTS, stream) for number in range(1, 41)
    ]
    assert lines(run(*command, "--from", "17", "--rounds", "3")) == [
        release(number, COUNTS, stream) for number in (17, 18, 19)
    ]
    assert lines(run(*command, "--rounds", "1")) == [release(40, COUNTS, stream)]


def test_tail_needs_no_redis(kafka: str, stream: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAM_DP_REDIS", "redis://127.0.0.1:1/0")
    result = run("tail", "--stream", stream, "--kafka", kafka, "--rounds", "1")
    assert result.exit_code == 0, result.output
    assert "round 40 of 65,535  tau 112  a 400±31, b 300±31, c 200±31" in result.stdout


def test_tail_waits_for_the_next_release_until_ctrl_c(kafka: str, stream: str) -> None:
    command = ["tail", "--stream", stream, "--kafka", kafka, "--json"]
    with subprocess.Popen(
        [sys.executable, "-m", "stream_dp.cli", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as tail:
        assert tail.stdout is not None
        assert tail.stderr is not None
        try:
            assert json.loads(tail.stdout.readline())["round"] == 40
            publish(kafka, f"{stream}.releases", [msgspec.json.encode(release(41, {}, stream))])
            assert json.loads(tail.stdout.readline())["round"] == 41
            tail.send_signal(signal.SIGINT)
            assert tail.wait(GIVE_UP_SECONDS) == 0
            assert tail.stderr.read() == ""
        finally:
            tail.kill()


@pytest.mark.apache("topics")
@pytest.mark.parametrize("past", [("--at", "3"), ("--from", "7"), ("--from", "2026-01-31")])
def test_the_past_of_a_stream_that_is_not_there_is_refused_and_nothing_is_made(
    kafka: str, topic_prefix: str, past: tuple[str, str]
) -> None:
    result = run("tail", "--stream", topic_prefix, "--kafka", kafka, *past)
    assert result.exit_code == 2
    assert f"no topic '{topic_prefix}.releases'" in result.stderr
    assert f"{topic_prefix}.releases" not in topics(kafka)


class Tail:
    """`stream-dp tail --json` of a stream in a process of its own, and what it has written."""

    def __init__(self, kafka: str, stream: str, folder: Path, *words: str) -> None:
        command = ("tail", "--stream", stream, "--kafka", kafka, "--json", *words)
        self._out, self._told = folder / "out", folder / "told"
        self.process = forked_program.start_in(folder, command, {}, self._out, self._told)

    def wait_until_it_waits(self, stream: str) -> None:
        sentence = f"Waiting for the topic '{stream}.releases'"
        wait_until(lambda: sentence in self.told().partition("\n")[0], self.told)

    def told(self) -> str:
        return self._told.read_text() if self._told.exists() else ""

    def rounds(self) -> list[int]:
        return [json.loads(line)["round"] for line in self._out.read_text().splitlines()]


@pytest.fixture
def start_tail(kafka: str, tmp_path: Path) -> Iterator[Callable[..., Tail]]:
    started: list[Tail] = []

    def start(stream: str, *words: str) -> Tail:
        started.append(Tail(kafka, stream, tmp_path, *words))
        return started[-1]

    yield start
    for each in started:
        each.process.kill()
        ended(each.process)


@pytest.mark.apache("topics")
def test_a_stream_that_is_not_there_yet_is_waited_for_and_not_made(
    kafka: str, topic_prefix: str, start_tail: Callable[..., Tail]
) -> None:
    tail = start_tail(topic_prefix, "--rounds", "1")
    tail.wait_until_it_waits(topic_prefix)
    assert f"{topic_prefix}.releases" not in topics(kafka)
    log.create_topics(kafka, f"{topic_prefix}.releases")
    publish(kafka, f"{topic_prefix}.releases", [msgspec.json.encode(release(1, COUNTS, topic_prefix))])
    assert (ended(tail.process), tail.told().count("\n")) == (0, 1)
    assert tail.rounds() == [1]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_waits_for_a_stream_that_has_not_begun_can_be_ended(
    number: signal.Signals, topic_prefix: str, start_tail: Callable[..., Tail]
) -> None:
    waiting = start_tail(topic_prefix)
    waiting.wait_until_it_waits(topic_prefix)
    assert waiting.process.pid is not None
    os.kill(waiting.process.pid, number)
    assert (ended(waiting.process), waiting.told().count("\n")) == (0, 1)


def test_tail_passes_over_what_no_worker_wrote_and_says_so(
    kafka: str, stream: str, start_tail: Callable[..., Tail]
) -> None:
    foreign = [b'{"round": 41}', msgspec.json.encode(release(41, COUNTS, "another"))]
    publish(kafka, f"{stream}.releases", [*foreign, msgspec.json.encode(release(42, COUNTS, stream))])
    tail = start_tail(stream, "--from", "39", "--rounds", "3")
    assert ended(tail.process) == 0, tail.told()
    assert tail.rounds() == [39, 40, 42]
    assert (
        f"holds a record at offset 100 of partition 0 that is not a release of stream '{stream}'"
        in tail.told()
    )


@pytest.mark.parametrize(("command", "status"), [("tail", 2), ("check", 1)])
def test_a_kafka_out_of_reach_is_named(command: str, status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "BOOTSTRAP_MILLISECONDS", 50)
    result = run(command, "--stream", "x", "--kafka", "127.0.0.1:1")
    assert result.exit_code == status
    assert "Kafka does not answer at 127.0.0.1:1" in " ".join(result.output.split())
    assert "Traceback" not in result.output


def checklist(*words: str) -> tuple[int, list[dict[str, str]]]:
    result = run("check", *words, "--json")
    told: dict[str, Any] = json.loads(result.stdout)
    assert told["ok"] == (result.exit_code == 0)
    return result.exit_code, told["checks"]


def of(checks: list[dict[str, str]], state: str) -> list[str]:
    return [f"{each['name']}: {each['detail']}" for each in checks if each["state"] == state]


def test_check_passes_a_fresh_stream_and_makes_nothing(
    kafka: str, redis_url: str, topic_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("--stream", topic_prefix, "--kafka", kafka, "--redis", redis_url)
    with monkeypatch.context() as metered:
        metered.delenv("STREAM_DP_UNMETERED", raising=False)
        code, checks = checklist(*words)
        assert (code, [each.partition(":")[0] for each in of(checks, "failed")]) == (1, ["budget"])
        assert "the next epoch would be refused" in of(checks, "failed")[0]
    monkeypatch.setenv("STREAM_DP_UNMETERED", "true")
    code, checks = checklist(*words)
    assert code == 0
    assert of(checks, "failed") == []
    assert {each["name"] for each in checks} == {
        *("settings", "noise", "guarantee", "kafka", "topic", "rights", "redis"),
        *("budget", "state", "noise key"),
    }
    assert not {topic for topic in topics(kafka) if topic.startswith(topic_prefix)}
    with Redis.from_url(redis_url) as redis:
        assert list(redis.scan_iter(f"*{topic_prefix}*")) == []


@pytest.mark.apache("topics")
def test_check_wants_one_partition_of_releases_and_takes_any_number_of_events(
    kafka: str, redis_url: str, topic_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with KafkaAdminClient(bootstrap_servers=kafka) as admin:
        options = {"num_partitions": 2, "replication_factor": 1}
        for kind in ("events", "releases"):
            admin.create_topics({f"{topic_prefix}.{kind}": options}, wait_for_metadata=True)
    monkeypatch.setenv("STREAM_DP_UNMETERED", "true")
    code, checks = checklist("--stream", topic_prefix, "--kafka", kafka, "--redis", redis_url)
    assert code == 1
    (failure,) = of(checks, "failed")
    assert f"{topic_prefix}.releases' has 2 partitions" in failure


@pytest.mark.apache("topics")
def test_check_names_missing_topics_that_the_worker_may_not_make(
    kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path
) -> None:
    file = tmp_path / "stream.toml"
    file.write_text(
        f'stream = "{topic_prefix}"\nkafka = "{kafka}"\nredis = "{redis_url}"\ncreate_topics = false\n'
        "unmetered = true\n"
    )
    code, checks = checklist("--settings", str(file))
    assert code == 1
    missing = ("events", "releases", "dead-letters", "epochs", "events.ledger")
    assert [each.split()[1] for each in of(checks, "failed")] == [
        f"{topic_prefix}.{name}" for name in missing
    ]
    log.create_topics(kafka, *(f"{topic_prefix}.{name}" for name in missing))
    assert of(checklist("--settings", str(file))[1], "failed") == []


@pytest.mark.apache("topics")
def test_a_journal_is_not_made_where_that_is_not_wanted(
    kafka: str, redis_url: str, topic_prefix: str
) -> None:
    log.create_topics(kafka, f"{topic_prefix}.releases")
    with (
        Redis.from_url(redis_url) as redis,
        pytest.raises(LedgerRefused, match=r"events\.ledger' does not exist"),
    ):
        JournaledLedger(kafka, redis, f"{topic_prefix}.events", create_topics=False)
    assert {topic for topic in topics(kafka) if topic.startswith(topic_prefix)} == {
        f"{topic_prefix}.releases"
    }


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[redis_server.RedisServer]:
    with redis_server.running(tmp_path / "redis") as server:
        yield server


def test_check_fails_for_a_redis_that_forgets(
    kafka: str, own_redis: redis_server.RedisServer, topic_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("--stream", topic_prefix, "--kafka", kafka, "--redis", own_redis.url)
    JournaledLedger(kafka, Redis.from_url(own_redis.url), f"{topic_prefix}.events").set_budget(
        1.0, 1e-6, "event"
    )
    [warning] = of(checklist(*words)[1], "warning")
    assert "the noise key is in Redis, and is lost with it" in warning
    with Redis.from_url(own_redis.url) as redis:
        for value in ("no", "everysec"):
            redis.config_set("appendfsync", value)
            code, checks = checklist(*words)
            assert code == 1
            [failure] = of(checks, "failed")
            assert f"appendfsync is {value}" in failure
            assert "use Valkey" not in failure
        monkeypatch.setattr(state, "_TELLS_WHEN_WRITTEN", (99,))
        assert "on its disk: use Valkey, or Redis from 7.2 on" in of(checklist(*words)[1], "failed")[0]
        redis.config_set("appendonly", "no")
        assert "append-only file is off" in of(checklist(*words)[1], "failed")[0]
        redis.config_set("maxmemory-policy", "allkeys-lru")
        code, checks = checklist(*words)
    assert code == 1
    assert "set maxmemory-policy noeviction" in of(checks, "failed")[1]


def test_check_compares_settings_and_key_with_the_running_epoch(
    kafka: str, redis_url: str, topic_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(stream=topic_prefix, kafka=kafka, redis=redis_url)
    words = ("--stream", topic_prefix, "--kafka", kafka, "--redis", redis_url)
    with Redis.from_url(redis_url) as redis:
        store = CheckpointStore(redis, topic_prefix)
        store.take_over()
        key = noise_key("redis", redis, topic_prefix, may_create=True)
        store.load(key)
        state = HistogramState.before_any_round()
        epoch = Epoch.open(settings, 1, 0)
        store.commit(store.prepare(Checkpoint(epoch, state, Position(0), 0, key_check(key))))
        monkeypatch.setenv("STREAM_DP_UNMETERED", "true")
        code, checks = checklist(*words)
        assert code == 0
        assert "epoch 1, round 0 of 65,535" in next(
            each["detail"] for each in checks if each["name"] == "state"
        )
        with monkeypatch.context() as changed:
            changed.setenv("STREAM_DP_EPSILON", "3")
            assert "epsilon is 1.0 in the epoch and 3.0" in of(checklist(*words)[1], "failed")[0]
        monkeypatch.setenv("OTHER_KEY", "00" * 32)
        monkeypatch.setenv("STREAM_DP_NOISE_KEY", "env:OTHER_KEY")
        assert "not the one that epoch 1 was opened with" in of(checklist(*words)[1], "failed")[0]


def test_check_tells_a_ledger_of_another_unit(
    kafka: str, redis_url: str, topic_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("UNIT", "user"), ("ITEMS_PER_USER", "5"), ("ROUNDS", "every-100")):
        monkeypatch.setenv(f"STREAM_DP_{name}", value)
    words = ("--stream", topic_prefix, "--kafka", kafka, "--redis", redis_url)
    code, checks = checklist(*words)
    assert code == 1, "it has no budget"
    assert "privacy unit user, 5 items per user, a round every 100 events" in of(checks, "ok")[0]
    with Redis.from_url(redis_url) as redis:
        Ledger(redis, f"{topic_prefix}.events").set_budget(1.0, 1e-6, "event")
    code, checks = checklist(*words)
    assert (code, len(of(checks, "failed"))) == (1, 1)
    assert 'set unit = "event" instead of "user"' in of(checks, "failed")[0]


def test_check_lists_what_fails_without_a_server_and_keeps_the_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(clients, "BOOTSTRAP_MILLISECONDS", 50)
    words = ("--stream", "x", "--kafka", "127.0.0.1:1", "--redis", "redis://:hush@127.0.0.1:2/0")
    code, checks = checklist(*words)
    assert code == 1
    assert [each["name"] for each in checks if each["state"] == "failed"] == ["kafka", "redis"]
    assert "hush" not in json.dumps(checks)
    assert "hush" not in run("check", *words).output


def test_check_tells_settings_that_cannot_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAM_DP_HORIZN", "7")
    code, checks = checklist("--stream", "x")
    assert code == 1
    assert "did you mean 'horizon'" in checks[0]["detail"]
