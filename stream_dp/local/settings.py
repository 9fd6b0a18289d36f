"""Settings of a histogram in your own program: those of a stream, without what is about servers."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stream_dp.config.reading import load_settings, settings_of
from stream_dp.config.secret import SettingsError
from stream_dp.config.settings import Settings
from stream_dp.events.rounds import TICKS

Source = str | Path | Mapping[str, Any] | None
"""Where settings come from: a file such as stream.toml, or a dictionary."""

_NAME = "histogram"


def local_settings(source: Source, overrides: Mapping[str, Any]) -> Settings:
    """The settings of a histogram that ends at no server.  Raises `SettingsError`."""
    if isinstance(source, str | Path):
        found = load_settings(Path(source), {}, **overrides)
    else:
        found = settings_of({"stream": _NAME, **(source or {}), **overrides})
    if found.rounds == TICKS:
        raise SettingsError(
            'rounds = "ticks" needs the clock of a worker: set rounds = "per-event" or "every-N" here'
        )
    if found.at_horizon != "stop":
        raise SettingsError("a histogram in your program ends at its horizon: leave at_horizon out")
    if found.mapping is not None and (found.mapping.format != "json" or found.mapping.schema_registry):
        raise SettingsError('events in your program are read as format = "json", without a registry')
    return found
