"""docs/schemas says about records what the decoders do: on examples, on generated records, on real releases."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from stream_dp.config.settings import Settings
from stream_dp.engine.epoch import Epoch
from stream_dp.events.barrier_chain import decode_barrier
from stream_dp.events.dead_letter import DeadLetter
from stream_dp.events.event import LONGEST_LABEL, BadRecord, decode_event
from stream_dp.events.record import Record
from stream_dp.pipeline.pipeline import Pipeline
from stream_dp.releases.release import decode_release
from stream_dp.releases.window_record import WindowRecord
from tests.docs.schemas import SCHEMAS, read_schema, schema


def is_event(value: Any) -> bool:
    try:
        decode_event(json.dumps(value).encode())
    except BadRecord:
        return False
    return True


def is_release(value: Any) -> bool:
    try:
        decode_release(json.dumps(value).encode())
    except msgspec.DecodeError:
        return False
    return True


VALID_EVENTS = [
    *read_schema("event")["examples"],
    {"items": ["x" * LONGEST_LABEL]},
    {"items": ["🍵" * LONGEST_LABEL]},
    {"items": ["\x00", " "]},
    {"items": ["a"] * 2_000},
    {"items": ["a"], "id": 10**30},
    {"items": ["a"], "id": "", "ts": ""},
    {"items": ["a"], "unknown": {"deep": [None, 1.5, {}]}},
]
INVALID_EVENTS: list[Any] = [
    None,
    7,
    "tea",
    ["tea"],
    {},
    {"Items": ["a"]},
    {"items": None},
    {"items": []},
    {"items": "a"},
    {"items": {"a": 1}},
    {"items": ["a", ""]},
    {"items": ["a", None]},
    {"items": ["a", 1]},
    {"items": [["a"]]},
    {"items": ["x" * (LONGEST_LABEL + 1)]},
    {"items": ["a"], "user": ""},
    {"items": ["a"], "user": 7},
    {"items": ["a"], "user": "x" * (LONGEST_LABEL + 1)},
    {"items": ["a"], "id": 1.5},
    {"items": ["a"], "id": 1.0},
    {"items": ["a"], "id": True},
    {"items": ["a"], "id": []},
    {"items": ["a"], "ts": 1769860800},
]


@pytest.mark.parametrize("name", ["event", "release", "barrier"])
def test_schemas_are_schemas(name: str) -> None:
    Draft202012Validator.check_schema(read_schema(name))


@pytest.mark.parametrize("value", VALID_EVENTS)
def test_valid_events_are_valid_for_schema_and_decoder(value: Any) -> None:
    assert (schema("event").is_valid(value), is_event(value)) == (True, True)


@pytest.mark.parametrize("value", INVALID_EVENTS)
def test_invalid_events_are_invalid_for_schema_and_decoder(value: Any) -> None:
    assert (schema("event").is_valid(value), is_event(value)) == (False, False)


text = st.text(st.characters(codec="utf-8"), max_size=4) | st.sampled_from(
    ["x" * LONGEST_LABEL, "x" * (LONGEST_LABEL + 1)]
)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | text
anything = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=6,
)
likely_events = st.fixed_dictionaries(
    {"items": st.lists(text, max_size=3) | anything},
    optional={"user": text | anything, "id": anything, "ts": text | anything, "till": anything},
)


@given(likely_events | anything)
def test_schema_and_decoder_agree_on_any_event(value: Any) -> None:
    assert schema("event").is_valid(value) == is_event(value)


RELEASES = read_schema("release")["examples"]


@pytest.mark.parametrize("value", RELEASES)
def test_example_releases_are_valid_for_schema_and_decoder(value: Any) -> None:
    assert (schema("release").is_valid(value), is_release(value)) == (True, True)


@pytest.mark.parametrize("name", list(RELEASES[0]))
def test_a_release_without_one_of_its_fields_is_invalid_for_both(name: str) -> None:
    value = {field: content for field, content in RELEASES[0].items() if field != name}
    assert (schema("release").is_valid(value), is_release(value)) == (False, False)


@pytest.mark.parametrize("name", list(RELEASES[0]))
@pytest.mark.parametrize("wrong", [None, True, "x", 1.5, {}, [0.5], [None], [[]]])
def test_a_release_with_a_field_of_another_type_is_invalid_for_both(name: str, wrong: Any) -> None:
    declared = decode_release(json.dumps(RELEASES[0]).encode())
    kind = type(getattr(declared, name))
    if type(wrong) is kind and kind is not list:
        wrong = [wrong]  # a string where a string belongs: make it wrong here too
    value = {**RELEASES[0], name: wrong}
    assert (schema("release").is_valid(value), is_release(value)) == (False, False)


@given(st.sampled_from(list(RELEASES[0])), anything)
def test_the_decoder_takes_every_release_that_the_schema_allows(name: str, content: Any) -> None:
    """But for columns of different lengths, which a schema cannot forbid."""
    value = {**RELEASES[0], name: content}
    if schema("release").is_valid(value):
        assert is_release(value) == (len(value["labels"]) == len(value["counts"]))


BARRIER = read_schema("barrier")["examples"][0]
VALID_BARRIERS = [
    BARRIER,
    {name: content for name, content in BARRIER.items() if name != "v"},
    {**BARRIER, "n": 2**63 - 1, "due": 1, "offsets": {"0": 0, "11": 2**63 - 1}},
    {**BARRIER, "offsets": {}},
]
INVALID_BARRIERS = [
    None,
    {},
    *({key: content for key, content in BARRIER.items() if key != name} for name in BARRIER if name != "v"),
    {**BARRIER, "v": 2},
    {**BARRIER, "n": 0},
    {**BARRIER, "n": 2**63},
    {**BARRIER, "n": "17"},
    {**BARRIER, "due": 0},
    {**BARRIER, "answered": 0},
    {**BARRIER, "repeated": {"0": -1}},
    {**BARRIER, "offsets": {"0": -1}},
    {**BARRIER, "offsets": {"00": 1}},
    {**BARRIER, "offsets": {"a": 1}},
    {**BARRIER, "offsets": [1]},
    {**BARRIER, "previous": "0" * 31},
    {**BARRIER, "tag": "G" * 32},
    {**BARRIER, "items": ["tea"]},
]


@pytest.mark.parametrize("value", VALID_BARRIERS + INVALID_BARRIERS)
def test_schema_and_decoder_agree_on_barriers_and_none_is_an_event(value: Any) -> None:
    valid = value in VALID_BARRIERS
    decoded = decode_barrier(json.dumps(value).encode())
    assert (schema("barrier").is_valid(value), decoded is not None) == (valid, valid)
    assert not (valid and is_event(value))


@given(st.sampled_from(list(BARRIER)), anything)
def test_schema_and_decoder_agree_on_any_barrier(name: str, content: Any) -> None:
    value = {**BARRIER, name: content}
    decoded = decode_barrier(json.dumps(value).encode())
    assert schema("barrier").is_valid(value) == (decoded is not None)


def worked_off(*values: bytes | None, **changed: Any) -> tuple[list[bytes], list[DeadLetter]]:
    """What the pipeline writes for records of these values, at settings under which labels show at once."""
    promise: dict[str, Any] = {
        "mechanism": "binary",
        "epsilon": 20.0,
        "delta": 0.5,
        "horizon": max(1, len(values)),
        "items_per_event": 2,
    }
    settings = Settings(stream="shop", **promise | changed)
    pipeline = Pipeline(Epoch.open(settings, 1, 0), bytes(32), "shop.events")
    records = [Record(offset, 1_769_860_800_123, None, value) for offset, value in enumerate(values)]
    output = pipeline.process(records)
    return [release.value for release in output.releases], output.dead_letters


def test_every_release_that_is_written_validates_and_has_columns_of_equal_length() -> None:
    releases, dead_letters = worked_off(*[b'{"items": ["tea", "m\\u00e5lk"]}'] * 40, b"{", None)
    decoded = [json.loads(value) for value in releases]
    assert (len(decoded), len(dead_letters)) == (42, 2)
    assert {"tea", "målk"} == {label for value in decoded for label in value["labels"]}
    first: dict[str, int] = {}
    for value in decoded:
        schema("release").validate(value)
        assert [name for name in value if name not in ("horizon", "tau")] == read_schema("release")[
            "required"
        ]
        assert value["shown"] == "kept"
        assert len(value["labels"]) == len(value["counts"])
        found = {label: first.setdefault(label, value["round"]) for label in value["labels"]}
        assert value["labels"] == sorted(found, key=lambda label: (first[label], label))


def test_releases_in_the_user_unit_say_how_much_of_a_user_counts() -> None:
    releases, dead_letters = worked_off(
        b'{"items": ["tea"], "user": "ann"}', b'{"items": ["tea"]}', unit="user", items_per_user=5
    )
    for value in map(json.loads, releases):
        schema("release").validate(value)
        assert set(value) == {*read_schema("release")["required"], "horizon", "items_per_user", "tau"}
        assert (value["unit"], value["items_per_user"], value["items_per_event"]) == ("user", 5, 5)
    assert [(letter.offset, letter.reason) for letter in dead_letters] == [
        (1, "the event names no user, and the privacy unit of this stream is the user")
    ]


def test_dead_letters_carry_the_headers_that_the_page_lists_and_no_part_of_the_record() -> None:
    page = (SCHEMAS / "dead-letter.md").read_text()
    _, [letter] = worked_off(b'{"items": ["secret", 1234567]}')
    assert [name for name, _ in letter.headers] == [
        line.split("`")[1] for line in page.splitlines() if line.startswith("| header ")
    ]
    assert (letter.key, letter.value) == (None, b'{"items": ["secret", 1234567]}')
    assert "secret" not in letter.reason
    assert "1234567" not in letter.reason
    _, [empty] = worked_off(None)
    assert f"`{empty.reason}`" in page


def test_windows_are_as_their_schema_says() -> None:
    Draft202012Validator.check_schema(read_schema("window"))
    assert set(read_schema("window")["properties"]) == set(WindowRecord.__struct_fields__)
    for value in read_schema("window")["examples"]:
        assert schema("window").is_valid(value)
        assert msgspec.convert(value, WindowRecord)
