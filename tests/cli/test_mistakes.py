"""What ends a command with a sentence, what deserves a stack trace, and how little a command loads to start."""

import subprocess
import sys
from pathlib import Path

import pytest
from kafka.errors import KafkaTimeoutError
from redis.exceptions import ConnectionError as RedisConnectionError
from typer.testing import CliRunner

from stream_dp.cli import app
from stream_dp.cli.mistakes import Mistake, sentence
from stream_dp.config.settings import SettingsError
from stream_dp.dev.child_process import ServerFailed
from stream_dp.engine.epoch import EpochRefused
from stream_dp.kafka.log import LogRefused
from stream_dp.kafka.record_batches import UnreadableBatch
from stream_dp.privacy.keyed_noise import WrongNoise
from stream_dp.store.checkpoint_records import StateDamaged
from stream_dp.store.fence import Fenced
from stream_dp.store.ledger import LedgerRefused
from stream_dp.store.noise_key import NoKey

REFUSALS = (
    EpochRefused,
    Fenced,
    LedgerRefused,
    LogRefused,
    NoKey,
    StateDamaged,
    UnreadableBatch,
    WrongNoise,
)


@pytest.mark.parametrize("kind", [Mistake, SettingsError, ServerFailed, *REFUSALS])
def test_a_users_mistake_is_told_as_it_is(kind: type[Exception]) -> None:
    assert sentence(kind("change this")) == "change this"


@pytest.mark.parametrize("kind", [KafkaTimeoutError, RedisConnectionError])
def test_a_server_that_fails_is_named(kind: type[Exception]) -> None:
    told = sentence(kind("no answer"))
    assert told is not None
    assert told.startswith("Kafka" if kind is KafkaTimeoutError else "Redis")
    assert "no answer" in told


@pytest.mark.parametrize("defect", [ValueError("x"), KeyError("x"), AssertionError()])
def test_a_defect_keeps_its_stack_trace(defect: Exception) -> None:
    assert sentence(defect) is None


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("verify --stream x --kafka host:abc", "'host:abc' is not HOST:PORT"),
        ("topk", "there is no command 'topk': did you mean top-k?"),
        ("worker --stream x --kafka host", "'host' is not HOST:PORT"),
        ("worker --stream x --kafka host:0", "'host:0' is not HOST:PORT"),
        ("table --stream x --kafka h:1,host:65536", "'host:65536' is not HOST:PORT"),
        ("dashboard --stream x --kafka host:abc", "'host:abc' is not HOST:PORT"),
        ("jobs worker --stream x --kafka host:abc", "'host:abc' is not HOST:PORT"),
        ("tail --stream x --kafka host:abc", "'host:abc' is not HOST:PORT"),
        ("budget show --source x --redis redis://[::1/0", "change the setting redis, or --redis"),
        ("jobs worker --stream x --redis redis://[::1/0", "the setting redis is not an address"),
        ("demo --folder /dev/null/x", "name another one with --folder"),
        ("demo --rate inf", "--rate is a number"),
        (f"dashboard --stream x --host {'a' * 70}", "change --host"),
        ("top-k --stream x --epsilon 1e300 --dry-run", "epsilon must be at most 30"),
        ("histogram --file x.csv --source x --mechanism known --bins /dev/null --epsilon 31", "at most 30"),
    ],
)
def test_what_cannot_be_is_told_in_one_sentence(command: str, told: str) -> None:
    ran = CliRunner().invoke(app, command.split())
    assert ran.exit_code == 2, ran.exception
    assert told in ran.stderr
    assert len(ran.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize("record", ["{", "{}", "[1]", '[{"name": "kafka"}]', "\udcff"])
@pytest.mark.parametrize("command", ["status", "up", "down"])
def test_a_damaged_record_of_servers_is_told(tmp_path: Path, command: str, record: str) -> None:
    (tmp_path / "servers.json").write_text(record, errors="surrogateescape")
    ran = CliRunner().invoke(app, ["dev", command, "--folder", str(tmp_path)])
    assert ran.exit_code == 2, ran.exception
    assert "servers.json is not a record of servers" in ran.stderr


def test_check_tells_an_address_that_cannot_be_one() -> None:
    ran = CliRunner().invoke(
        app, ["check", "--stream", "x", "--kafka", "host:abc", "--redis", "redis://[::1/0"]
    )
    assert ran.exit_code == 1, ran.exception
    told = " ".join(ran.stdout.split())
    assert "is not HOST:PORT" in told
    assert "change the setting redis" in told


def test_help_loads_nothing_heavy() -> None:
    program = (
        "import sys; from stream_dp.cli import app; app(['--help'], standalone_mode=False);"
        "print(sorted({'numpy', 'scipy', 'faust', 'kafka', 'aiokafka', 'redis'} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-1] == "[]"
