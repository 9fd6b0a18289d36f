"""Groups of options: the fields of a dataclass are options in its place, and the command gets it whole."""

from dataclasses import dataclass
from typing import Annotated

import typer
from typer.testing import CliRunner

from stream_dp.cli import options


@dataclass(frozen=True)
class Base:
    stream: options.Stream = None


@dataclass(frozen=True)
class Group(Base):
    rounds: Annotated[int, typer.Option("--rounds", "-r", min=1, help="How many.")] = 3


app = typer.Typer()


@app.command()
@options.grouped
def command(
    *, must: Annotated[str, typer.Option(help="First.")], group: Group, as_json: options.Json = False
) -> None:
    """What it does."""
    typer.echo(f"{must} {group} {as_json}")


def run(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, list(words))
    return result.exit_code, result.output


def test_a_group_arrives_whole_with_its_defaults_and_with_what_was_given() -> None:
    assert run("--must", "x") == (0, f"x {Group()} False\n")
    assert run("--json", "-r", "5", "--must", "x", "--stream", "shop") == (0, f"x {Group('shop', 5)} True\n")


def test_its_options_are_checked_and_explained_in_their_place() -> None:
    status, told = run("--must", "x", "--rounds", "0")
    assert (status, "--rounds" in told) == (2, True)
    assert run("--stream", "shop")[0] == 2
    status, told = run("--help")
    assert status == 0
    assert "What it does." in told
    places = [told.index(word) for word in ("--must", "--stream", "--rounds", "--json")]
    assert places == sorted(places)
