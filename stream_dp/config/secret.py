"""Secrets that settings only name: `env:<NAME>` or `file:<path>`.  They are never logged and never part of an error."""

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import msgspec

from stream_dp.config.wrong_values import Form
from stream_dp.errors import Refused

SecretPlace = Annotated[str, msgspec.Meta(pattern=r"^(env|file):.+$"), Form("env:NAME or file:PATH")]

REDIS_LOGIN = (
    "set redis_password to env:NAME or file:PATH, and name the user in the setting redis, as "
    "redis://USER@HOST:PORT/0, unless it is the default one"
)
"""What to change if Redis does not let somebody in."""


class SettingsError(Refused):
    """A setting that cannot be used; the message says which and what to change."""


def read_secret(what: str, source: str, environment: Mapping[str, str] = os.environ) -> str:
    """The text of the secret `what` at `source`, without white space around it.  Raises `SettingsError`."""
    kind, _, place = source.partition(":")
    if kind == "file":
        return read_private(what, Path(place)).strip()
    if place not in environment:
        raise SettingsError(f"the environment variable {place} should hold the {what} but is not set")
    return environment[place].strip()


def read_private(what: str, path: Path) -> str:
    """The text of a file that only its owner may open.  Raises `SettingsError`."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            mode = os.fstat(file.fileno()).st_mode
            if mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise SettingsError(f"others may read the {what} in {path}: run chmod 600 on it")
            return file.read()
    except OSError as error:
        raise SettingsError(f"cannot read the {what} from {path}: {error.strerror}") from None
