"""Which Kafka the tests meet: the embedded broker (default), or a real Apache Kafka node."""

import signal

import pytest
from hypothesis import HealthCheck, settings

from tests import stacks
from tests.apache_kafka.server import KafkaUnavailableError, jars
from tests.kafka_connect.worker import parts
from tests.real_events import REAL_EVENTS
from tests.schema_registry.server import unpacked
from tests.shared import NO_INVOICES, RETAIL

# Examples are the same in every run, and a machine that stands still for a while fails no test.
settings.register_profile(
    "tests", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("tests")

LONGEST_FIRST = (
    *(
        "test_shards",
        "test_outages",
        "test_redis_outages",
        "test_epochs",
        "test_epoch_charges",
        "test_tls",
        "test_rolling",
    ),
    *("test_new_epoch", "test_log_identity", "test_jobs", "test_replay", "test_crashes", "test_demo"),
    *("test_page", "test_load", "test_running_histogram", "test_rounds_and_users", "test_dashboard_server"),
    *("test_mechanisms", "test_metrics", "test_secrets", "test_fencing"),
)
"""The files that take longest: begun last, one of them would go on alone when the others are done."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first; tests of a file stay together and in order."""
    place = {name: number for number, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: place.get(item.path.stem, len(place)))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--kafka",
        choices=["embedded", "apache"],
        default="embedded",
        help="broker for tests/system: the embedded one (default), or Apache Kafka fetched with Maven",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Fetch the jars before any test's clock runs; what is missing is said in one line.

    A shell ignores Ctrl-C for what it runs in the background, and so would every process that the tests start.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.addinivalue_line(
        "markers", "same_on_any_broker(why): a test of tests/system that a run on Apache Kafka leaves out"
    )
    config.pluginmanager.register(stacks)
    if config.getoption("kafka") == "apache":
        try:
            jars()
            parts()
            unpacked()
        except KafkaUnavailableError as error:
            raise pytest.UsageError(str(error)) from error


def pytest_report_header(config: pytest.Config) -> str:
    return f"kafka: {config.getoption('kafka')}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """A run without the invoices says what it used instead."""
    if not RETAIL.exists():
        terminalreporter.write_line(
            f"Real events were the {REAL_EVENTS}, and what needs the invoices was skipped: {NO_INVOICES}."
        )
