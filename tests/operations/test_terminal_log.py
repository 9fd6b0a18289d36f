"""On a terminal, Faust's own parts are not told."""

import logging
import logging.config

import pytest

from stream_dp.operations.terminal_log import terminal_logging


@pytest.mark.parametrize(("level", "told"), [("info", logging.WARNING), ("debug", logging.DEBUG)])
def test_what_faust_says_of_itself_is_left_out_unless_it_is_asked_for(level: str, told: int) -> None:
    config = terminal_logging(level)
    levels = {name: logging.getLevelName(each["level"]) for name, each in config["loggers"].items()}
    assert levels == dict.fromkeys(("faust", "mode", "topologies.host"), told)
