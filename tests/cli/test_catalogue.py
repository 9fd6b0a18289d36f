"""The list of commands says what the commands say of themselves, and names the extra that one of them misses."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from stream_dp.cli import app
from stream_dp.cli.catalogue import COMMANDS, PANELS, loaded

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_says_of_itself_what_the_list_says(name: str) -> None:
    command = loaded(name)
    assert command.name == name
    assert (command.help or "").split("\n\n")[0].replace("\n", " ").strip() == COMMANDS[name].summary


def test_the_list_shows_every_command_and_a_wrong_one_is_told() -> None:
    shown = CliRunner().invoke(app, ["--help"]).output
    assert [name for name in COMMANDS if f" {name} " not in shown] == []
    assert sorted(name for names in PANELS.values() for name in names) == sorted(COMMANDS)
    assert [group for group in PANELS if f"─ {group} ─" not in shown] == []
    wrong = CliRunner().invoke(app, ["wrker"])
    assert (wrong.exit_code, "there is no command 'wrker': did you mean worker?" in wrong.output) == (2, True)
