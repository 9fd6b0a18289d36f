"""On a terminal an outage is one line and dots, and Faust's own parts are not told."""

import io
import logging
import logging.config

import pytest

from stream_dp.operations.terminal_log import WAITING_FOR, TerminalLines, terminal_logging


def said(out: io.StringIO) -> list[str]:
    """The lines without the times before them."""
    return [line[9:] for line in out.getvalue().split("\n")]


@pytest.fixture
def out() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def log(out: io.StringIO) -> logging.Logger:
    found = logging.Logger("of a terminal")
    found.addHandler(TerminalLines(out))
    return found


def wait_for(log: logging.Logger, server: str, seconds: float) -> None:
    waiting = f"waiting for {server}"
    log.warning("%s: refused; trying again in %.1f s", waiting, seconds, extra={WAITING_FOR: waiting})


def test_an_outage_is_one_line_and_a_dot_for_each_attempt(log: logging.Logger, out: io.StringIO) -> None:
    log.info("worker of 'shop'")
    for seconds in (0.1, 0.2, 0.4):
        wait_for(log, "Kafka", seconds)
    assert said(out) == ["worker of 'shop'", "waiting for Kafka: refused ..."]


def test_another_outage_and_its_end_begin_a_line_of_their_own(log: logging.Logger, out: io.StringIO) -> None:
    for server in ("Kafka", "Kafka", "Redis", "Kafka"):
        wait_for(log, server, 0.1)
    log.info("released")
    assert said(out) == [
        "waiting for Kafka: refused ..",
        "waiting for Redis: refused .",
        "waiting for Kafka: refused .",
        "released",
        "",
    ]


@pytest.mark.parametrize(("level", "told"), [("info", logging.WARNING), ("debug", logging.DEBUG)])
def test_what_faust_says_of_itself_is_left_out_unless_it_is_asked_for(level: str, told: int) -> None:
    config = terminal_logging(level)
    levels = {name: logging.getLevelName(each["level"]) for name, each in config["loggers"].items()}
    assert levels == dict.fromkeys(("faust", "mode", "topologies.host"), told)
    kind = config["handlers"]["terminal"]["class"]
    assert logging.config.BaseConfigurator({}).resolve(kind) is TerminalLines
