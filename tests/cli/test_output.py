"""What a program or a file reads is not wrapped; a terminal is as wide as it is."""

import re

import pytest
from rich.console import Console
from rich.table import Table
from typer.testing import CliRunner

from stream_dp.cli import app
from stream_dp.cli.output import output, picture_width


def lines(words: list[str]) -> list[str]:
    ran = CliRunner().invoke(app, words, env={"COLUMNS": "40"})
    assert ran.exit_code == 0, ran.output
    return ran.stdout.splitlines()


def test_a_sentence_stays_on_its_line() -> None:
    [sentence] = [line for line in lines(["calibrate", "--mechanism", "binary"]) if "Taking any" in line]
    assert re.fullmatch(r"Taking any one event .* except with probability 1e-06\.", sentence.strip())


def test_a_row_stays_on_its_line() -> None:
    found = lines(["calibrate"])
    [blt] = [line for line in found if line.startswith("blt  ")]
    [heading] = [line for line in found if line.startswith("mechanism")]
    assert "conversion" in heading
    assert len(blt) > 40


@pytest.mark.parametrize(("is_terminal", "expected"), [(True, 40), (False, 80)])
def test_pictures_are_as_wide_as_a_terminal(is_terminal: bool, expected: int) -> None:
    assert picture_width(Console(force_terminal=is_terminal, width=40)) == expected


def test_on_a_terminal_rows_are_as_wide_as_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    table = Table("a long cell " * 10)
    monkeypatch.setenv("COLUMNS", "40")
    output().print(table)
    assert max(map(len, capsys.readouterr().out.splitlines())) > 100
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert output().width <= 40
