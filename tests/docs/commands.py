"""The command lines that documents show, parsed by the real command line without running anything."""

import shlex
from typing import Any

from typer.core import TyperGroup

from stream_dp.cli.catalogue import COMMANDS, loaded


class NoSuchCommandLine(Exception):
    """A command, an option or a value that does not exist."""


def commands() -> dict[str, Any]:
    """The commands by name."""
    return {name: loaded(name) for name in COMMANDS}


def parse(words: list[str]) -> str:
    """The full name of the command that `words` (without `stream-dp`) call; raises `NoSuchCommandLine`."""
    command: Any = None
    name, rest = "stream-dp", list(words)
    while command is None or isinstance(command, TyperGroup):
        if not rest or rest[0] in ("--help", "-h", "--version"):
            return name
        if rest[0] not in (COMMANDS if command is None else command.commands):
            raise NoSuchCommandLine(f"{name} {rest[0]}")
        command = loaded(rest[0]) if command is None else command.commands[rest[0]]
        name, rest = f"{name} {rest[0]}", rest[1:]
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
