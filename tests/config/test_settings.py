"""Settings come from a file, the environment and the command line, and a mistake is named with what to change."""

import re
from pathlib import Path
from typing import Any

import pytest

from stream_dp.config.reading import load_settings
from stream_dp.config.setting_values import LARGEST_BATCH_ROUNDS
from stream_dp.config.settings import PRIVACY, Settings, SettingsError
from stream_dp.releases.topic import LONGEST_REPETITION
from stream_dp.sinks.sending import ON_THEIR_WAY


@pytest.fixture(autouse=True)
def no_file_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def written(tmp_path: Path, text: str, name: str = "own.toml") -> Path:
    file = tmp_path / name
    file.write_text(text)
    return file


def test_later_sources_win(tmp_path: Path) -> None:
    file = written(tmp_path, 'stream = "file"\nhorizon = 7\nkafka = "file:1"\n')
    environment = {"STREAM_DP_HORIZON": "15", "STREAM_DP_KAFKA": "environment:1", "PATH": "/bin"}
    found = load_settings(file, environment, kafka="option:1", redis=None)
    assert (
        found.stream,
        found.horizon,
        found.kafka,
        found.redis,
    ) == ("file", 15, "option:1", "redis://localhost:6379/0")


def test_stream_toml_is_read_where_it_exists(tmp_path: Path) -> None:
    (tmp_path / "stream.toml").write_text('stream = "here"')
    assert load_settings(environment={}).stream == "here"
    assert load_settings(written(tmp_path, 'stream = "there"'), {}).stream == "there"


def test_topics_begin_with_the_stream() -> None:
    found = Settings(stream="shop")
    assert [
        found.events,
        found.releases,
        found.dead_letters,
    ] == ["shop.events", "shop.releases", "shop.dead-letters"]


def test_what_an_epoch_freezes_is_all_that_decides_the_guarantee() -> None:
    frozen = Settings(stream="s").privacy
    assert set(PRIVACY) == set(frozen)
    assert {"stream", "unit", "mechanism", "epsilon", "delta", "horizon", "items_per_event"} <= set(frozen)


@pytest.mark.parametrize(
    ("name", "suggested"),
    [("epsilonn", "epsilon"), ("item_per_event", "items_per_event"), ("reddis", "redis")],
)
def test_an_unknown_setting_is_refused_with_the_nearest_known_name(
    tmp_path: Path, name: str, suggested: str
) -> None:
    for file, environment in (
        (written(tmp_path, f'stream = "s"\n{name} = 1\n'), {}),
        (written(tmp_path, 'stream = "s"\n', "other.toml"), {f"STREAM_DP_{name.upper()}": "1"}),
    ):
        with pytest.raises(SettingsError, match=f"did you mean '{suggested}'"):
            load_settings(file, environment)


def test_arrays_in_arrays_are_refused_in_one_sentence(tmp_path: Path) -> None:
    deep = "[" * 5_000 + "]" * 5_000
    file = tmp_path / "stream.toml"
    file.write_text(f"events = {deep}")
    with pytest.raises(SettingsError, match="nested too deep"):
        load_settings(file, {})
    file.unlink()
    with pytest.raises(SettingsError, match="STREAM_DP_EVENTS is not a TOML table"):
        load_settings(environment={"STREAM_DP_STREAM": "s", "STREAM_DP_EVENTS": deep})


@pytest.mark.parametrize(
    "mistake",
    [
        "horizon = 0",
        "horizon = -1",
        "horizon = 1.5",
        'horizon = "many"',
        "items_per_event = 0",
        'epsilon = "small"',
        "epsilon = []",
        'unit = "household"',
        'mechanism = "magic"',
        'noise_key = "s3cret"',
        'noise_key = "env:"',
        'metrics_address = "9464"',
        'metrics_address = "127.0.0.1:65536"',
        'checkpoint_every = "0s"',
        "batch_rounds = 0",
        "batch_rounds = 501",
        'create_topics = "perhaps"',
    ],
)
def test_a_value_out_of_range_is_refused_in_one_sentence_that_names_it(tmp_path: Path, mistake: str) -> None:
    name, _, value = mistake.partition(" = ")
    with pytest.raises(SettingsError, match=name) as refused:
        load_settings(written(tmp_path, f'stream = "s"\n{mistake}\n'), {})
    assert "\n" not in str(refused.value)
    assert "s3cret" not in str(refused.value)
    assert value


def test_what_is_sent_again_is_no_more_than_readers_of_the_releases_look_back() -> None:
    """A worker that falls asleep sends one batch while others are on their way, and its successor sends its first."""
    assert (1 + ON_THEIR_WAY + 1) * LARGEST_BATCH_ROUNDS <= LONGEST_REPETITION


@pytest.mark.parametrize("stream", ["", ".", "..", "-x", "a b", "a/b", "a{b}", "é", "x" * 202])
def test_a_stream_name_that_topics_cannot_carry_is_refused(stream: str) -> None:
    with pytest.raises(SettingsError, match="stream"):
        load_settings(environment={}, stream=stream)


def test_the_longest_stream_name_leaves_room_for_the_longest_topic() -> None:
    found = load_settings(environment={}, stream="x" * 201)
    assert max(len(found.events), len(found.releases), len(found.dead_letters)) <= 249


def test_a_missing_stream_is_asked_for() -> None:
    with pytest.raises(SettingsError, match="the stream has no name"):
        load_settings(environment={})


def test_a_file_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"none\.toml: No such file"):
        load_settings(tmp_path / "none.toml", {})
    with pytest.raises(SettingsError, match="cannot read"):
        load_settings(tmp_path, {})
    with pytest.raises(SettingsError, match="not valid TOML"):
        load_settings(written(tmp_path, "stream = "), {})
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe")
    with pytest.raises(SettingsError, match="not valid TOML"):
        load_settings(binary, {})


def test_the_user_unit_needs_its_bound_and_only_its_own() -> None:
    user = {"STREAM_DP_STREAM": "s", "STREAM_DP_UNIT": "user"}
    found = load_settings(None, user | {"STREAM_DP_ITEMS_PER_USER": "7"})
    assert (found.unit, found.items_per_unit) == ("user", 7)
    assert Settings(stream="s", items_per_event=3).items_per_unit == 3
    with pytest.raises(SettingsError, match="set items_per_user"):
        load_settings(None, user)
    with pytest.raises(SettingsError, match='set unit = "user"'):
        load_settings(None, {"STREAM_DP_STREAM": "s", "STREAM_DP_ITEMS_PER_USER": "7"})
    with pytest.raises(SettingsError, match="items_per_event bounds nothing"):
        load_settings(None, user | {"STREAM_DP_ITEMS_PER_USER": "7", "STREAM_DP_ITEMS_PER_EVENT": "4"})


@pytest.mark.parametrize(
    "rounds", ["every-0", "every-1", "every-", "every-1.5", "every-10000000", "tick", "hourly", ""]
)
def test_rounds_end_in_three_ways_only(rounds: str) -> None:
    for known in ("per-event", "every-2", "every-10", "every-9999999", "ticks"):
        assert load_settings(None, {"STREAM_DP_STREAM": "s", "STREAM_DP_ROUNDS": known}).rounds == known
    with pytest.raises(SettingsError, match="rounds"):
        load_settings(None, {"STREAM_DP_STREAM": "s", "STREAM_DP_ROUNDS": rounds})


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"window": None}, "say how many, such as window = 60"),
        ({"mechanism": "blt"}, 'set mechanism = "window", or leave window out'),
        ({"unit": "user", "items_per_user": 3}, 'takes unit = "event"'),
        ({"shown": "each-round"}, "shown means nothing"),
        ({"known_labels": "file:labels.txt"}, "known_labels means nothing"),
        ({"at_horizon": "roll"}, "there is no horizon"),
    ],
)
def test_a_window_without_end_refuses_what_it_has_no_use_for(changed: dict[str, Any], told: str) -> None:
    settings: dict[str, Any] = {"stream": "shop", "mechanism": "window", "window": 60}
    assert load_settings(None, {}, **settings).calibrated_rounds == 60
    with pytest.raises(SettingsError, match=re.escape(told)):
        Settings(**{**settings, **changed})


@pytest.mark.parametrize(
    ("changed", "discover"),
    [
        ({}, "default"),
        ({"rounds": "ticks"}, "default"),
        ({"discover": "every-2048"}, "every-2048"),
        ({"discover": "every-round"}, "every-round"),
        ({"mechanism": "binary"}, "every-round"),
        ({"mechanism": "window", "window": 60}, "every-round"),
        ({"shown": "each-round"}, "every-round"),
    ],
)
def test_labels_are_found_at_tests_unless_something_asks_for_every_round(
    changed: dict[str, Any], discover: str
) -> None:
    """What an epoch freezes is what it does, whatever the settings call it."""
    found = load_settings(environment={}, stream="s", **changed)
    assert found.privacy["discover"] == discover
    assert bool(found.tests(found.horizon)) == found.finds_at_tests == (discover != "every-round")
