"""What ends a command with a sentence, what deserves a stack trace, and how little a command loads to start."""

import subprocess
import sys

import pytest
from kafka.errors import KafkaTimeoutError
from redis.exceptions import ConnectionError as RedisConnectionError

from stream_dp.cli.mistakes import Mistake, sentence
from stream_dp.dev.child_process import ServerFailed
from stream_dp.settings import SettingsError
from stream_dp.worker import REFUSALS


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


def test_help_loads_nothing_heavy() -> None:
    program = (
        "import sys; from stream_dp.cli import app; app(['--help'], standalone_mode=False);"
        "print(sorted({'numpy', 'scipy', 'faust', 'kafka', 'aiokafka', 'redis'} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-1] == "[]"
