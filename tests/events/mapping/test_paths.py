"""Compiled expressions give what JMESPath's own interpreter gives, and cost time in proportion to the record."""

import json
from typing import Any

import jmespath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jmespath.exceptions import JMESPathError

from stream_dp.config.secret import SettingsError
from stream_dp.events.event import BadRecord, json_text
from stream_dp.events.mapping.decoder import decoder_of
from stream_dp.events.mapping.json_values import json_reader, whole
from stream_dp.events.mapping.mapping import Mapping
from stream_dp.events.mapping.paths import compiled, fields_read, parsed
from stream_dp.events.record import Record
from tests.events.hostile_records import HostileRecord
from tests.events.test_hostile_records import grows_linearly

names = st.sampled_from(["a", "b", "c"])
scalars = st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from([0.5, 1.0, "", "a", "b", "xa"])
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=12,
)
records = st.dictionaries(names, values, max_size=3) | values
_CALLS = (
    "length({})",
    "to_string({})",
    "keys({})",
    "to_array({})",
    "not_null({}, a)",
    "contains({}, 'a')",
    "sum({})",
)
_AROUND = (
    *("{}.a", "{}.b", "{}[*]", "{}[*].a", "{}[0]", "{}[-1]", "{}[]", "{}.*", "{}[1:]", "{}[::-1]", "!{}"),
    *(
        "[{}, b]",
        "{{a: {}, c: c}}",
        "{} | a",
        "{} | [0]",
        "({} || b)",
        "({} && c)",
        "{} == b",
        "{} != `1`",
        "{} < `1`",
    ),
    *("{}[?a == 'a']", "{}[?b].c", "{}[?length(a || '') > `0`].b", *_CALLS),
)
expressions = st.recursive(
    names | st.just("@"),
    lambda inner: st.builds(lambda around, one: around.format(one), st.sampled_from(_AROUND), inner),
)


def outcome(evaluate: Any, record: Any) -> Any:
    try:
        return "given", evaluate(record)
    except (BadRecord, JMESPathError, TypeError, ValueError):
        return "refused", None


@settings(max_examples=600)
@given(expressions, records)
def test_compiled_expressions_give_what_the_interpreter_gives(expression: str, record: Any) -> None:
    try:
        interpreter = jmespath.compile(expression)
    except JMESPathError:
        with pytest.raises(SettingsError):
            parsed(expression)
        return
    expected, found = outcome(interpreter.search, record), outcome(compiled(parsed(expression)), record)
    compares_text_with_numbers = (
        "<" in expression and expected[0] == "refused"
    )  # Python cannot, and we say null
    assert found == expected or compares_text_with_numbers


@settings(max_examples=600)
@given(expressions, records)
def test_what_is_skipped_while_decoding_never_changes_what_an_expression_gives(
    expression: str, record: Any
) -> None:
    try:
        tree = parsed(expression)
    except SettingsError:
        return
    value = json.dumps(record).encode()
    path, read = compiled(tree), json_reader(fields_read([tree]))
    assert outcome(lambda each: path(read(each)), value) == outcome(
        lambda each: path(whole(json_text(each))), value
    )


TRICKY = (
    *(
        b'{"a":[{"b":1}],"x":%b}' % each
        for each in (b"1e999", b"9" * 5000, b"-0", b"01", b"NaN", b"1.", b'"\\ud800"')
    ),
    *(
        b'{"a":[{"b":%b}]}' % each
        for each in (b"1e999", b"9" * 5000, b"9" * 4000, b"-0", b"1E400", b'"\\ud83d\\ude00"')
    ),
    b'{"a":[{"b":1}],"a":null}',
    b'{"a":null,"a":[{"b":1,"b":2},null,3,[{"b":4}]]}',
    b'{"\\u0061":[{"\\u0062":"t"}]}',
    b'{"a":[{"b":1}],"x":"\xff"}',
    b'{"a":[{"b":1}]}\x00',
    b"\xef\xbb\xbf{}",
    b"[]",
    b'"a"',
    b'{"a":[{"b":"x","y":' + b"[" * 150 + b"]" * 150 + b"}]}",
)


def plainly(value: bytes) -> list[str]:
    """The items by definition: all of the record is read, and then mapped by the interpreter of JMESPath."""
    found = jmespath.search("a[*].b", whole(json_text(value)))
    mapped = decoder_of(Mapping(items="not_null(@)"))  # an expression that reads all of a record
    return mapped(Record(0, 0, None, json.dumps(found).encode())).items


@pytest.mark.parametrize("value", TRICKY)
def test_the_fast_way_and_the_general_one_accept_the_same_bytes(value: bytes) -> None:
    fast = decoder_of(Mapping(items="a[*].b"))

    def items(each: bytes) -> list[str]:
        return fast(Record(0, 0, None, each)).items

    ours, theirs = outcome(items, value), outcome(plainly, value)
    assert ours == theirs


@given(st.binary(max_size=40), st.integers(0, 60), st.sampled_from(TRICKY))
def test_they_do_for_any_bytes(junk: bytes, at: int, value: bytes) -> None:
    changed = value[:at] + junk + value[at + len(junk) // 2 :]
    fields = fields_read([parsed("a[*].b"), parsed("c")])
    path = compiled(parsed("[a[*].b, c]"))
    read = json_reader(fields)
    assert outcome(lambda each: path(read(each)), changed) == outcome(
        lambda each: path(whole(json_text(each))), changed
    )


@pytest.mark.parametrize(
    ("expression", "told"),
    [
        ("a[", "cannot use the expression 'a['"),
        ("sort(a)", "cannot use the function sort"),
        ("map(&b, a)", "cannot use the function map"),
        ("max_by(a, &b)", "cannot use the function max_by"),
        ("join(a, b)", "must give join its separator as text"),
        ("length(a, b)", "gives the function length 2 arguments"),
        ("nothing(a)", "cannot use the function nothing"),
        ("a[::0]", "a slice with the step 0"),
        ("$offset", "beside the value there are"),
    ],
)
def test_what_could_cost_more_than_the_record_is_refused_and_so_is_what_is_no_path(
    expression: str, told: str
) -> None:
    with pytest.raises(SettingsError) as refused:
        decoder_of(Mapping(items=expression))
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)


COSTLY = (
    "a[*].b",
    "a[?contains(b, 'aaaaaaab')].b",
    "join('-', a[].to_string(@))",
    "[to_string(@), to_string(a)]",
    "a[?b == b && !(c == b)].b[]",
    "reverse(a[*].b || keys(@))",
    "max(a[*].b) || min(a[*].c)",
    "merge(@, @).*[]",
)
_UNITS = (
    b'{"b":"aaaaaaaa"},',
    b'{"b":[1,2],"c":[1,3]},',
    b"[[[[]]]],",
    b'"aaaaaaaaaaaaaaa",',
    b"123456789,",
    b'{"\\u00e9":{}},',
)


@pytest.mark.parametrize("expression", COSTLY)
def test_no_record_makes_an_expression_cost_more_than_its_size(expression: str) -> None:
    decode = decoder_of(Mapping(items=expression))

    def counted(value: bytes) -> object:
        return outcome(lambda each: decode(Record(0, 0, None, each)), value)

    family = [HostileRecord(b'{"a":[', unit, b'0],"b":1}') for unit in _UNITS]
    family.append(HostileRecord(b'{"a":[{"b":"', b"a", b'"}]}'))
    assert not [record for record in family if not grows_linearly(counted, record, 4 << 10)]


def test_a_separator_out_of_the_record_would_and_is_found_out() -> None:
    joined = jmespath.compile("join(b, a)")

    def half_and_half(value: bytes) -> object:
        text = joined.search({"b": "b" * len(value), "a": [""] * (len(value) // 4)})
        return sum(1 for _ in text)  # copying alone costs what memory costs just then

    assert not grows_linearly(half_and_half, HostileRecord(b"", b"a", b""), 512, tries=3)
