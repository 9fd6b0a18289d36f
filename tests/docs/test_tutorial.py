"""docs/tutorial.md: its command lines exist, its figures come out again, and its steps lead where it says."""

import json
import re
import shlex
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from stream_dp.cli import app
from stream_dp.config.reading import load_settings
from stream_dp.dev.servers import embedded
from stream_dp.events.event import decode_event
from tests.docs.commands import parse_line
from tests.docs.shown import await_topic, blocks, run_line, running_line

PAGE = (Path(__file__).parents[2] / "docs" / "tutorial.md").read_text()
PART = PAGE[PAGE.index("## Without a topic of your own") :]
"""What needs no Kafka; tests/system/test_ten_minutes.py goes the way before it."""

LINES = [line for block in blocks(PAGE, "sh") for line in block.splitlines() if line.startswith("stream-dp")]
TALK = [line for line in re.findall(r"`(stream-dp[^`]*)`", PAGE) if line not in LINES]
INTERACTIVE = ("stream-dp dev", "stream-dp worker", "stream-dp dashboard")
EVENTS = 2_048  # the largest carrier has 386 flights by then, and the threshold of tests is 48


@pytest.mark.parametrize("line", [*LINES, *TALK])
def test_every_command_line_exists(line: str) -> None:
    assert parse_line(line).startswith("stream-dp ")


def test_the_way_is_complete() -> None:
    first = list(dict.fromkeys(parse_line(line).split()[1] for line in LINES))
    steps = [
        "connect",
        "budget",
        "check",
        "worker",
        "dashboard",
        "table",
        "dev",
        "calibrate",
        "replay",
        "tail",
        "verify",
        "top-k",
        "source",
    ]
    assert first == steps


def test_every_settings_file_loads(tmp_path: Path) -> None:
    names = []
    for block in blocks(PAGE, "toml"):
        file = tmp_path / "stream.toml"
        file.write_text(block)
        settings = load_settings(file, {})
        assert {name: getattr(settings, name) for name in tomllib.loads(block)} == tomllib.loads(block)
        names.append(settings.stream)
    assert names == ["flights", "retail"]


def test_the_event_shown_is_one() -> None:
    [block] = blocks(PAGE, "json")
    assert len(decode_event(block.encode()).items) == 2


def test_the_costs_are_those_of_the_settings() -> None:
    for line, sentence in (
        ("--items-per-event 3", "The threshold is {mean:.1f} on average and at most {max}"),
        (
            "--items-per-event 20",
            "The threshold is {mean:.1f} on average, and {max:,} in the test where it is highest",
        ),
    ):
        [words] = [shlex.split(each) for each in LINES if "calibrate" in each and line in each]
        result = CliRunner().invoke(app, [*words[1:], "--json"])
        assert result.exit_code == 0, result.output
        assert sentence.format(**json.loads(result.stdout)["tau"]) in PAGE


def test_the_tests_shown_are_those_of_the_settings() -> None:
    for block, shown in zip(blocks(PAGE, "toml"), ("20,000 of 65,535", "20,480 of 32,767"), strict=True):
        settings = load_settings(environment={}, **tomllib.loads(block))
        number = int(shown.split()[0].replace(",", ""))
        [due] = re.findall(rf"round {shown}  next test in round ([\d,]+)  ", PAGE)
        tests = settings.tests(settings.horizon)
        assert int(due.replace(",", "")) == min(each for each in tests if each > number)
        assert (
            settings.stream != "flights"
            or f"`stream-dp tail --at {due.replace(',', '')}` too: it is a test" in PAGE
        )


def test_the_steps_lead_where_the_tutorial_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All steps with the flights, in order, with fewer of them and with the addresses of this machine."""
    monkeypatch.chdir(tmp_path)
    [snippet] = blocks(PART, "python")
    exec(snippet.replace("20_000", str(EVENTS)), {})
    assert len(Path("flights.jsonl").read_bytes().splitlines()) == EVENTS
    flights = PART[: PART.index("## The same with baskets")]
    lines = [
        line.replace("--at 20000", f"--at {EVENTS}")
        for block in blocks(flights, "sh")
        for line in block.splitlines()
        if line.startswith("stream-dp ") and not line.startswith(INTERACTIVE) and line != "stream-dp tail"
    ]
    start = next(number for number, line in enumerate(lines) if "replay" in line)
    told: dict[str, str] = {}
    with embedded(tmp_path / "servers") as servers:
        [settings, _] = blocks(PAGE, "toml")
        places = f'kafka = "{servers.kafka}"\nredis = "{servers.redis_url}"\n'
        Path("stream.toml").write_text(f"{settings}\n{places}")
        for line in lines[:start]:
            told[line] = run_line(line)
        with running_line("stream-dp worker --log-level error", tmp_path) as worker:
            await_topic(servers.kafka, "flights.releases", worker)
            for line in lines[start:]:
                told[line] = run_line(line)
                if "replay flights" in line and "--dry-run" not in line:
                    seen = run_line(f"stream-dp tail --from earliest --rounds {EVENTS} --json")
                    assert json.loads(seen.splitlines()[-1])["round"] == EVENTS
    [looked_up] = [told[line] for line in told if "--at" in line]
    planned, asked = (told[line] for line in told if "top-k" in line)
    assert f"round {EVENTS:,} of 65,535" in looked_up
    assert "carrier:UA" in looked_up
    assert "Every release follows from the log and the key, byte for byte." in told["stream-dp verify"]
    assert ("carrier:UA" in planned, "carrier:UA" in asked) == (False, True)
