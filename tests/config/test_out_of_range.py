"""A wrong setting is told by where it was said and by what it has to be, never by a regular expression."""

from pathlib import Path

import msgspec
import pytest

from stream_dp.config.events_section import EventsSection
from stream_dp.config.reading import load_settings
from stream_dp.config.settings import Settings, SettingsError
from stream_dp.config.wrong_values import wanted
from stream_dp.jobs.request import Cancel, JobRequest, Source


def refusal(file: str = "", environment: dict[str, str] | None = None, **options: object) -> str:
    Path("stream.toml").write_text(file)
    with pytest.raises(SettingsError) as refused:
        load_settings(None, environment or {}, **{"stream": "shop"} | options)
    return str(refused.value)


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_it_is_told_where_it_was_said() -> None:
    wanted = "is out of range: it has to be a number > 0, not 'much'"
    assert refusal('epsilon = "much"') == f"epsilon in stream.toml {wanted}"
    assert (
        refusal(environment={"STREAM_DP_EPSILON": "much"})
        == f"epsilon in the variable STREAM_DP_EPSILON {wanted}"
    )
    assert (
        refusal('epsilon = "x"', {"STREAM_DP_EPSILON": "y"}, epsilon="much")
        == f"epsilon in the option --epsilon {wanted}"
    )


@pytest.mark.parametrize(
    ("file", "told"),
    [
        ("horizon = 0", "horizon in stream.toml is out of range: it has to be a whole number >= 1, not 0"),
        ('unit = "person"', "unit in stream.toml is out of range: it has to be event or user or user-day, "
         "not 'person'"),
        ('release = "often"', "release in stream.toml is out of range: it has to be every-round, every-N rounds such "
         "as every-10, or every so many milliseconds such as every-500ms, not 'often'"),
        ('mechanism = "unary"', "mechanism in stream.toml is out of range: it has to be binary or "
         "blt or window, not 'unary'"),
        ('shown = "all"', "shown in stream.toml is out of range: it has to be kept or each-round, not 'all'"),
        ("unmetered = 7", "unmetered in stream.toml is out of range: it has to be true or false, not 7"),
        ('[events]\ntopic = "a b"', "topic in [events] is out of range: it has to be at most 249 letters, digits, "
         "dots, dashes and underscores, not 'a b'"),
        ('[events]\nformat = "xml"', "format in [events] is out of range: it has to be json or avro or protobuf or "
         "json-schema or csv or text, not 'xml'"),
        ('[events]\niitems = "sku"', "unknown setting 'iitems' in [events]; did you mean 'items'?"),
        ("[events]\nhorizon = 3", "horizon is not a setting of [events]: move it above the line [events]"),
    ],
)  # fmt: skip
def test_it_is_told_what_it_has_to_be(file: str, told: str) -> None:
    assert refusal(file) == told


def test_a_stream_of_no_name_is_told_by_its_option() -> None:
    assert (
        refusal(stream="a b")
        == "stream in the option --stream is out of range: it has to be at most 201 letters, digits, dots, dashes and "
        "underscores, the first one a letter or a digit, not 'a b'"
    )


def test_what_may_be_a_secret_is_not_repeated() -> None:
    assert refusal('kafka_password = "hunter2"') == (
        "kafka_password in stream.toml is out of range: it has to be env:NAME or file:PATH"
    )


@pytest.mark.parametrize("struct", [Settings, EventsSection, JobRequest, Source, Cancel])
def test_no_pattern_is_without_its_form_in_words(struct: type[msgspec.Struct]) -> None:
    for field in msgspec.structs.fields(struct):
        if "pattern=" in repr(field.type) and field.name != "families":
            assert wanted(field.type) not in ("text", "a list of text"), field.name
