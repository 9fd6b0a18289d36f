"""What an engine cannot count is refused by the settings, in one sentence."""

from typing import Any

import pytest

from stream_dp.config.settings import Settings, SettingsError

SPARK = {"engine": "spark", "mechanism": "blt", "discover": "every-4", "at_least": 2, "rounds": "ticks"}


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"rounds": "per-event"}, 'set rounds = "ticks"'),
        ({"mechanism": "binary", "discover": "default", "at_least": 1}, 'or set mechanism = "blt"'),
        ({"discover": "every-round", "at_least": 1}, "an engine finds labels at tests"),
    ],
)
def test_what_an_engine_cannot_count_is_refused(changed: dict[str, Any], says: str) -> None:
    with pytest.raises(SettingsError, match=says):
        Settings(stream="shop", **{**SPARK, **changed})
