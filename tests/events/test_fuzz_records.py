"""Any bytes at all are either an event or a bad record with a reason; and what is accepted can be counted."""

import json
from math import inf, nan
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from stream_dp.config.reading import load_settings
from stream_dp.config.settings import Settings, SettingsError
from stream_dp.counters.calibration import calibrate
from stream_dp.engine.epoch import Epoch
from stream_dp.events.event import LONGEST_LABEL, BadRecord, decode_event
from stream_dp.events.record import Record
from stream_dp.pipeline.pipeline import Pipeline
from stream_dp.releases.release import decode_release

MECHANISM, GUARANTEE = calibrate(20.0, 1e-6, 1023, 4)
EPOCH = Epoch(1, bytes(16), 0, Settings(stream="s").privacy, MECHANISM, GUARANTEE)
KEY = bytes(32)

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from([nan, inf, -inf])
    | st.text(max_size=9)
)
anything = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
)
fields = st.sampled_from(["items", "user", "id", "ts", "other"])
near_events = st.dictionaries(fields, st.lists(anything, max_size=5) | anything, max_size=5).map(json.dumps)


@st.composite
def broken(draw: st.DrawFn) -> bytes:
    """The bytes of something like an event, some of them changed."""
    value = bytearray(draw(near_events).encode("utf-8", "surrogatepass"))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(value)))
        value[at : at + draw(st.integers(0, 3))] = draw(st.binary(max_size=3))
    return bytes(value)


def check_event(value: bytes) -> None:
    try:
        event = decode_event(value)
    except BadRecord as bad:
        reason = str(bad)
    else:
        reason = ""
    if reason:
        assert len(reason) < 200
        assert "\n" not in reason
        return
    assert event.items
    assert all(0 < len(item) <= LONGEST_LABEL for item in event.items)
    for item in event.items:
        assert item.encode().decode() == item


@settings(max_examples=200)
@given(st.binary(max_size=60) | broken())
@example(b'{"items":["\\ud83c"]}')
@example(b'{"items":["a"],"id":' + b"9" * 5000 + b"}")
@example(b'{"items":["a"],"other":1e999999999}')
@example(b'{"items":["a"],"\xed\xa0\x80":1}')
def test_any_bytes_are_an_event_or_a_bad_record(value: bytes) -> None:
    check_event(value)


@settings(max_examples=200)
@given(near_events)
def test_anything_in_json_is_an_event_or_a_bad_record(text: str) -> None:
    check_event(text.encode("utf-8", "surrogatepass"))


@settings(max_examples=80)
@given(
    st.lists(broken() | st.none() | st.binary(max_size=5), min_size=1, max_size=20),
    st.integers(-(2**63), 2**63 - 1),
)
def test_any_log_closes_a_round_per_record_and_gives_readable_releases(
    values: list[bytes | None], timestamp: int
) -> None:
    pipeline = Pipeline(EPOCH, KEY, "s.events")
    output = pipeline.process([Record(at, timestamp, value, value) for at, value in enumerate(values)])
    assert [release.round for release in output.releases] == list(range(1, len(values) + 1))
    for release in output.releases:
        told = decode_release(release.value)
        assert told.round == release.round
        assert json.loads(release.value)["labels"] == told.labels
    for letter in output.dead_letters:
        assert letter.value == values[letter.offset]
        assert all(isinstance(value, bytes) for _, value in letter.headers)


names = st.sampled_from(Settings.__struct_fields__) | st.text(max_size=8)


@settings(max_examples=150)
@given(st.dictionaries(names, anything, max_size=5), st.dictionaries(names, st.text(max_size=9), max_size=3))
def test_any_settings_are_settings_or_a_mistake_in_one_line(
    values: dict[str, Any], environment: dict[str, str]
) -> None:
    variables = {f"STREAM_DP_{name.upper()}": value for name, value in environment.items()}
    options = {name: value for name, value in values.items() if name not in ("file", "environment")}
    try:
        found = load_settings(None, variables, **options)
    except SettingsError:
        return
    assert found.horizon >= 1
    assert found.stream
    assert set(found.privacy) <= set(Settings.__struct_fields__)
