"""stream.example.toml shows every setting with its default."""

import re
import tomllib
from pathlib import Path

from stream_dp.config.events_section import EventsSection
from stream_dp.config.reading import load_settings
from stream_dp.config.settings import Settings

EXAMPLE = Path(__file__).parents[2] / "stream.example.toml"


def test_the_example_settings_show_every_setting_with_its_default() -> None:
    text = EXAMPLE.read_text()
    shown = tomllib.loads(re.sub(r"^# (?=[a-z_]+ = )", "", text, flags=re.MULTILINE))
    defaults = Settings(stream=shown["stream"])
    names = set(Settings.__struct_fields__) - {"mapping"}
    assert shown == {name: getattr(defaults, name) for name in names if getattr(defaults, name) is not None}
    examples = tomllib.loads("\n".join(re.findall(r"^#     (\w+ = .*)", text, flags=re.MULTILINE)))
    assert names == set(shown) | set(examples)
    values = shown | examples | {"unit": "user"}  # where items_per_user takes the place of items_per_event
    del values["items_per_event"]
    assert load_settings(None, {}, stream="shop", mechanism="window", window=values.pop("window")) is not None
    assert load_settings(None, {}, **values) is not None
    assert load_settings(EXAMPLE, {}) == defaults


def test_the_example_settings_show_every_setting_of_the_section_events() -> None:
    text = EXAMPLE.read_text()
    section = tomllib.loads("\n".join(re.findall(r"^#   (\w+ = .*)", text, flags=re.MULTILINE)))
    assert set(section) == set(EventsSection.__struct_fields__)
    assert load_settings(None, {}, stream="shop", events={"items": section["items"], "user": section["user"]})
