"""Where settings come from: one `stream.toml`, environment variables `STREAM_DP_<NAME>` above it, and options."""

import os
import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

from stream_dp.config.events_section import EventsSection
from stream_dp.config.settings import Settings, SettingsError
from stream_dp.config.wrong_values import Wrong, first_wrong, short

ENVIRONMENT_PREFIX = "STREAM_DP_"
OPERATOR_TOKEN = "STREAM_DP_OPERATOR_TOKEN"
"""The one variable of that prefix that is no setting: a secret, so it has no place in stream.toml."""

_NOWHERE: Mapping[str, str] = MappingProxyType({})


def load_settings(
    file: Path | None = None, environment: Mapping[str, str] = os.environ, **overrides: Any
) -> Settings:
    """Settings from `file` (default: `stream.toml` where it exists), the environment and `overrides`, later ones win.

    Overrides of None count as not given.  Raises `SettingsError`.
    """
    values: dict[str, Any] = {}
    if file is None and Path("stream.toml").exists():
        file = Path("stream.toml")
    if file is not None:
        values.update(_read(file))
    origins = dict.fromkeys(values, f"in {file}")
    for variable, value in environment.items():
        if variable.startswith(ENVIRONMENT_PREFIX) and variable != OPERATOR_TOKEN:
            name = variable.removeprefix(ENVIRONMENT_PREFIX).lower()
            values[name], origins[name] = value, f"in the variable {variable}"
    given = {name: value for name, value in overrides.items() if value is not None}
    origins.update((name, f"in the option --{name.replace('_', '-')}") for name in given)
    return settings_of(values | given, origins)


def settings_of(values: Mapping[str, Any], origins: Mapping[str, str] = _NOWHERE) -> Settings:
    """Settings from their values by name; one in text is read as in the environment.

    `origins` says by name where each was found.  Raises `SettingsError`.
    """
    values = dict(values)
    known = {field.encode_name: field for field in msgspec.structs.fields(Settings)}
    for name in values:
        if name not in known:
            raise SettingsError(f"unknown setting {name!r}{_suggestion(name, list(known))}")
    if isinstance(values.get("events"), str):
        values["events"] = _table(values["events"])
    if isinstance(values.get("events"), dict):
        _check_section(values["events"], known)
    if values.get("unit") in ("user", "user-day") and "items_per_event" in values:
        raise SettingsError(
            f"items_per_event bounds nothing where the privacy unit is the {values['unit']}: leave it out, "
            "items_per_user takes its place"
        )
    wrong = first_wrong(Settings, values, strict=False)
    if wrong is None:
        return msgspec.convert(values, Settings, strict=False)
    if wrong.path == "stream" and wrong.missing:
        raise SettingsError(
            'the stream has no name: give --stream NAME, or put stream = "NAME" into stream.toml'
        )
    raise SettingsError(_in_words(wrong, origins))


_SECRET = ("password", "key", "redis", "kafka", "registry")


def _in_words(wrong: Wrong, origins: Mapping[str, str]) -> str:
    """One sentence.  `origins`: by name, where it was said: in an option, a variable or a file."""
    name, _, inside = wrong.path.partition(".")
    origin = f"{name} {origins[name]}" if name in origins else f"the setting {name}"
    told = f"{origin}{inside and f' ({inside})'} is out of range: it has to be {wrong.wanted}"
    is_secret = any(part in name for part in _SECRET)
    return told if inside or is_secret else f"{told}, not {short(wrong.value)}"


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text())
    except OSError as error:
        raise SettingsError(f"cannot read {file}: {error.strerror}") from None
    except RecursionError:
        raise SettingsError(f"{file} has arrays or tables that are nested too deep for any setting") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{file} is not valid TOML: {error}") from None


def _table(text: str) -> Any:
    """The section `[events]` as one line of TOML, as the environment has it: `{ topic = "orders", ... }`."""
    try:
        return tomllib.loads(f"events = {text}")["events"]
    except (tomllib.TOMLDecodeError, RecursionError):
        raise SettingsError(
            f"{ENVIRONMENT_PREFIX}EVENTS is not a TOML table: write it as "
            '{ topic = "orders", items = "lines[*].sku" }'
        ) from None


def _check_section(section: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    """Raise `SettingsError` for a name or a value that cannot stand in `[events]`."""
    known = [field.encode_name for field in msgspec.structs.fields(EventsSection)]
    for name in section:
        if name in settings and name not in known:
            raise SettingsError(f"{name} is not a setting of [events]: move it above the line [events]")
        if name not in known:
            raise SettingsError(f"unknown setting {name!r} in [events]{_suggestion(name, known)}")
    wrong = first_wrong(EventsSection, section)
    if wrong is not None:
        raise SettingsError(_in_words(wrong, dict.fromkeys(section, "in [events]")))


def _suggestion(name: str, known: list[str]) -> str:
    close = get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; known are {', '.join(known)}"
