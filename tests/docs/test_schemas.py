"""docs/schemas says about records what the decoders do: on examples, on generated records, on real releases."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from jsonschema.protocols import Validator
from jsonschema.validators import extend

from stream_dp.epoch import Epoch
from stream_dp.pipeline import Pipeline
from stream_dp.records import LONGEST_LABEL, BadRecord, DeadLetter, Record, decode_event, decode_release
from stream_dp.settings import Settings

SCHEMAS = Path(__file__).parents[2] / "docs" / "schemas"


def read_schema(name: str) -> dict[str, Any]:
    return json.loads((SCHEMAS / f"{name}.json").read_text())


def _is_written_as_integer(_: object, value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


@cache
def schema(name: str) -> Validator:
    """The schema's validator.  `1.0` is no integer, as both schemas say in words and the decoders in deed."""
    types = Draft202012Validator.TYPE_CHECKER.redefine("integer", _is_written_as_integer)
    return extend(Draft202012Validator, type_checker=types)(read_schema(name))


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
INVALID_EVENTS = [
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


@pytest.mark.parametrize("name", ["event", "release"])
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
    value = {**RELEASES[0], name: content}
    assert is_release(value) or not schema("release").is_valid(value)


def worked_off(*values: bytes | None) -> tuple[list[bytes], list[DeadLetter]]:
    """What the pipeline writes for records of these values, at settings under which labels show at once."""
    settings = Settings(
        stream="shop", epsilon=20.0, delta=0.5, horizon=max(1, len(values)), items_per_event=2
    )
    pipeline = Pipeline(Epoch.open(settings, 1, 0), bytes(32), "shop.events")
    records = [Record(offset, 1_769_860_800_123, None, value) for offset, value in enumerate(values)]
    output = pipeline.process(records)
    return [release.value for release in output.releases], output.dead_letters


def test_every_release_that_is_written_validates_and_has_columns_of_equal_length() -> None:
    releases, dead_letters = worked_off(*[b'{"items": ["tea", "m\\u00e5lk"]}'] * 40, b"{", None)
    decoded = [json.loads(value) for value in releases]
    assert (len(decoded), len(dead_letters)) == (42, 2)
    assert {"tea", "målk"} == {label for value in decoded for label in value["labels"]}
    for value in decoded:
        schema("release").validate(value)
        assert set(value) == set(read_schema("release")["properties"])
        assert len(value["labels"]) == len(value["counts"])
        order = list(zip([-count for count in value["counts"]], value["labels"], strict=True))
        assert order == sorted(order)
        assert all(count >= value["tau"] for count in value["counts"])


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
