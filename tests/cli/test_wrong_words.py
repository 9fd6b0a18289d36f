"""Every option of jobs and every variable that is wrong is named, in a sentence that needs no knowledge of our code."""

import re
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from stream_dp.cli import app
from stream_dp.config.reading import load_settings
from stream_dp.config.settings import Settings, SettingsError
from stream_dp.jobs.request import BadRequest, Source
from stream_dp.jobs.source_file import find_file

_OF_MACHINES = re.compile(
    r"regex|\^\[|\\Z|\$\.|`(str|int|float|object|array|null)|Expected|source\.(user|item|name|file|topic|from|to)"
)
"""What only who wrote the program would understand."""

NOBODY = "redis://127.0.0.1:1/0"
"""Where no server is: what is wrong is told before one is asked."""

LONG = "x" * 5_000
WRONG = {
    "--item": ["", LONG],
    "--user": ["", LONG],
    "--id": ["", "two words", LONG, "-"],
    "--source": ["", "a b", LONG, "ü"],
    "--file": ["", LONG],
    "--mechanism": [LONG],
    "--epsilon": ["-1", "0", "nan", "inf", "much"],
    "--delta": ["2", "0", "-1", "nan", "much"],
    "--unit": ["person"],
    "-k": ["0", "-3", "many", "10000000000"],
    "--kbar": ["1", "0", "many"],
    "--items-per-user": ["0", "many"],
    "--least": ["-4", "many"],
    "--penalty": ["much"],
    "--marks": ["5", "many"],
    "--queries": ["5", "many"],
    "--budget": ["", "a b", LONG],
    "--from": ["5"],
    "--to": ["noon"],
}
"""For a job on a file."""

WRONG_OF_TOPICS = {
    "--topic": ["", "a b", LONG],
    "--from": ["noon", "-3", "", LONG],
    "--to": ["noon", "-3", "", LONG],
    "--user": ["who"],
    "--item": ["what"],
}
NEEDED = {"--least": ["--mechanism", "stable"]}
CASES = [(option, value, True) for option, values in WRONG.items() for value in values]
CASES += [(option, value, False) for option, values in WRONG_OF_TOPICS.items() for value in values]


def shortened(value: object) -> str:
    return repr(value)[:20]


def told(words: list[str]) -> str:
    """The one sentence that a command ends with, or what the parser of options says."""
    ran = CliRunner().invoke(app, [*words, "--redis", NOBODY], env={"COLUMNS": "300"})
    assert ran.exit_code == 2, (ran.exit_code, ran.output, ran.exception)
    assert ran.stdout == ""
    return " ".join(ran.stderr.split())


@pytest.mark.parametrize(("option", "value", "of_file"), CASES, ids=shortened)
def test_an_option_of_a_job_that_is_wrong_is_named(
    tmp_path: Path, option: str, value: str, of_file: bool
) -> None:
    file = tmp_path / "orders.csv"
    file.write_text("user,item\na,tea\nb,milk\n")
    base = {"--file": str(file), "--source": "orders"} if of_file else {"--topic": "orders"}
    options = base | {option: value}
    words = [word for pair in options.items() for word in pair]
    sentence = told(["top-k", *words, *NEEDED.get(option, [])])
    assert option in sentence
    assert not _OF_MACHINES.search(sentence), sentence


@pytest.mark.parametrize(
    ("columns", "option"),
    [
        ({"item": "missing"}, "--item"),
        ({"user": "missing"}, "--user"),
        ({"item": "user"}, "--item"),
        ({"user": "item"}, "--user"),
    ],
)
def test_a_column_that_the_file_does_not_have_is_told_with_its_option(
    tmp_path: Path, columns: dict[str, str], option: str
) -> None:
    lines, table = tmp_path / "orders.csv", tmp_path / "orders.parquet"
    lines.write_text("user,item\na,tea\nb,milk\n")
    pq.write_table(pa.table({"user": ["a"], "item": ["tea"]}), table)
    for file in (lines, table):
        with pytest.raises(BadRequest, match=option):
            find_file(Source(file=str(file), **columns), "user")


@pytest.mark.parametrize(
    "value", ["", "\0 * [", "-1", "x" * 3_000, "nan", "1e400", "{", "true"], ids=shortened
)
@pytest.mark.parametrize("name", [field.encode_name for field in msgspec.structs.fields(Settings)])
def test_a_variable_that_is_wrong_is_named(name: str, value: str) -> None:
    variable = f"STREAM_DP_{name.upper()}"
    try:
        load_settings(None, {"STREAM_DP_STREAM": "shop", variable: value})
    except SettingsError as refused:
        sentence = str(refused)
        assert name in sentence or variable in sentence
        assert not _OF_MACHINES.search(sentence), sentence
        if "is out of range" in sentence:
            assert f"{name} in the variable {variable}" in sentence


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epsilon", "-1"),
        ("epsilon", "nan"),
        ("delta", "0"),
        ("delta", "1"),
        ("horizon", "0"),
        ("metrics_address", "9464"),
    ],
)
def test_a_number_out_of_range_is_told_by_its_variable(name: str, value: str) -> None:
    variable = f"STREAM_DP_{name.upper()}"
    with pytest.raises(
        SettingsError, match=f"^{name} in the variable {variable} is out of range: it has to be [aH]"
    ):
        load_settings(None, {"STREAM_DP_STREAM": "shop", variable: value})
