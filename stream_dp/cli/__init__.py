"""`stream-dp`: one command for every tool.  Each command lives in the module of its name (see catalogue.py)."""

import json
import logging
from difflib import get_close_matches
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape
from typer.core import TyperCommand, TyperGroup

from stream_dp import __version__
from stream_dp.cli.catalogue import COMMANDS, PANELS, loaded
from stream_dp.cli.mistakes import JSON_LINES, Mistake, sentence
from stream_dp.config.times import clock, iso_second
from stream_dp.operations import stacks


class Commands(TyperGroup):
    """The commands of the catalogue; a user's mistake in any of them ends it with one sentence and status 2."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Their names."""
        return [name for names in PANELS.values() for name in names]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """An entry of the list of commands: a name and a line, under a heading."""
        for panel, names in PANELS.items():
            if cmd_name in names:
                return TyperCommand(cmd_name, help=COMMANDS[cmd_name].summary, rich_help_panel=panel)
        return None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that is called; only now its module is imported."""
        near = get_close_matches(args[0], self.list_commands(ctx), 1)
        if near and not args[0].startswith("-") and args[0] not in COMMANDS:
            raise Mistake(f"there is no command {args[0]!r}: did you mean {near[0]}?")
        name, _, rest = super().resolve_command(ctx, args)
        return name, name and loaded(name), rest

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was asked for."""
        try:
            return super().invoke(ctx)
        except Exception as error:
            told = None if isinstance(error, typer.Exit | typer.Abort) else sentence(error)
            if told is None:
                raise
            if ctx.meta.get(JSON_LINES):
                line = {"time": iso_second(clock()), "level": "error", "event": told}
                typer.echo(json.dumps(line), err=True)
            else:
                Console(stderr=True).print(
                    f"[bold red]error:[/] {escape(told)}", highlight=False, soft_wrap=True
                )
            raise typer.Exit(2) from None


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="""Differentially private streaming histograms over labels nobody listed in advance.

    [bold]Examples[/]

      stream-dp demo

      stream-dp worker --stream shop

      stream-dp tail --stream shop
    """,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def _root(version: bool = typer.Option(False, "--version", help="Print the version and exit.")) -> None:
    logging.getLogger("kafka").setLevel(logging.CRITICAL)  # commands name what they cannot reach themselves
    if version:
        typer.echo(__version__)
        raise typer.Exit


def main() -> None:
    """Run the command line."""
    stacks.tell_on_signal()
    app()
