"""Which Kafka the tests meet: the embedded broker (default), or a real Apache Kafka node."""

import gc
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests import second_tries, stacks
from tests.apache_kafka.server import KafkaUnavailableError, apache_kafka, jars
from tests.kafka_connect.worker import parts
from tests.real_events import REAL_EVENTS
from tests.schema_registry.server import unpacked
from tests.shared import NO_INVOICES, RETAIL

# Examples are the same in every run, and a machine that stands still for a while fails no test.
settings.register_profile(
    "tests", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("tests")

# jsonschema would check IRIs with it, of which there are none here, and it takes each process a second to load.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]

SYSTEM = Path(__file__).parent / "system"
LONG = {
    f"test_{name}.py" for name in ("crashes", "found", "long_run", "notebooks", "outages", "redis_outages")
}
"""Small files that take long: they are begun first."""

SHARED_KAFKA = "apache_kafka"
"""Where a process of tests finds the address of the Apache Kafka that it shares, in xdist's `workerinput`."""

_SHARED = pytest.StashKey[tuple[ExitStack, str]]()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """What is loaded now stays until the end: the collector, else an eighth of all work, need not look at it again."""
    gc.disable()
    yield
    gc.freeze()
    gc.enable()
    gc.set_threshold(5_000, 20, 20)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whole systems, which wait, all along among what computes in one process; large files before small ones.

    So no processor is idle while there is something to compute.  What takes long and is begun last would go on alone
    when the others are done.  Tests of a file stay in order.
    """
    sizes = {path: path.stat().st_size for path in {item.path for item in items}}
    turns: dict[Path, float] = {}
    for whole in (True, False):
        group = {path: size for path, size in sizes.items() if path.is_relative_to(SYSTEM) == whole}
        begun, total = 0, sum(group.values())
        for path in sorted(group, key=lambda path: (path.name not in LONG, -sizes[path], path)):
            turns[path] = begun / total
            begun += sizes[path]
    items.sort(key=lambda item: (turns[item.path], item.path))


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
        "markers",
        "apache(what, alone=False): a test whose outcome a broker decides: see tests/system/conftest.py",
    )
    config.addinivalue_line(
        "markers", "counts_clients: a test of tests/system that keeps no clients of Kafka"
    )
    config.pluginmanager.register(stacks)
    config.pluginmanager.register(second_tries)
    if config.getoption("kafka") == "apache":
        try:
            jars()
            parts()
            unpacked()
        except KafkaUnavailableError as error:
            raise pytest.UsageError(str(error)) from error


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Give all processes of tests one Apache Kafka: Java is slow at first, and would be so in each of several."""
    stash = node.config.stash
    if node.config.getoption("kafka") == "apache":
        if _SHARED not in stash:
            stack = ExitStack()
            folder = stack.enter_context(TemporaryDirectory(prefix="apache-kafka-"))
            stash[_SHARED] = stack, stack.enter_context(apache_kafka(Path(folder) / "node"))
        _, node.workerinput[SHARED_KAFKA] = stash[_SHARED]


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop it."""
    if _SHARED in config.stash:
        config.stash[_SHARED][0].close()


def pytest_report_header(config: pytest.Config) -> str:
    return f"kafka: {config.getoption('kafka')}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show how tests failed that passed when they were tried again, and say where no invoices were there."""
    for report in terminalreporter.getreports("rerun"):
        terminalreporter.section(f"failed once: {report.nodeid}")
        terminalreporter.write_line(report.longreprtext)
        for name, text in report.sections:
            terminalreporter.section(name, sep="-")
            terminalreporter.write_line(text)
    if not RETAIL.exists():
        terminalreporter.write_line(
            f"Real events were the {REAL_EVENTS}, and what needs the invoices was skipped: {NO_INVOICES}."
        )


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Whoever asks for tests none of which can run here is not told that all is well."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    outcomes = {} if reporter is None or session.config.getoption("collectonly") else reporter.stats
    if exitstatus == 0 and "skipped" in outcomes and "passed" not in outcomes:
        session.exitstatus = pytest.ExitCode.NO_TESTS_COLLECTED
