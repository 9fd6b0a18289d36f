"""The command lines that documents show, parsed by the real command line without running anything."""

import shlex
from typing import Any

import typer.main
from typer.core import TyperGroup

from stream_dp.cli import app


class NoSuchCommandLine(Exception):
    """A command, an option or a value that does not exist."""


def commands() -> dict[str, Any]:
    """The registered commands by name."""
    group: Any = typer.main.get_command(app)
    return dict(group.commands)


def parse(words: list[str]) -> str:
    """The full name of the command that `words` (without `stream-dp`) call; raises `NoSuchCommandLine`."""
    command: Any = typer.main.get_command(app)
    name, rest = "stream-dp", list(words)
    while isinstance(command, TyperGroup):
        if not rest or rest[0] in ("--help", "-h", "--version"):
            return name
        if rest[0] not in command.commands:
            raise NoSuchCommandLine(f"{name} {rest[0]}")
        command, name, rest = command.commands[rest[0]], f"{name} {rest[0]}", rest[1:]
    if rest in (["--help"], ["-h"]):
        return name
    try:
        command.make_context(name, list(rest)).close()
    except Exception as error:  # typer brings its own copy of click or uses click's: told by name
        if "UsageError" not in [kind.__name__ for kind in type(error).__mro__]:
            raise
        raise NoSuchCommandLine(f"{name} {' '.join(rest)}: {error}") from None
    return name


def parse_line(line: str) -> str:
    """Like `parse`, for one line as a reader types it."""
    program, *words = shlex.split(line, comments=True)
    assert program.removeprefix(".venv/bin/") == "stream-dp", line
    return parse(words)
