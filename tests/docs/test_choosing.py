"""docs/choosing.md: every figure on the page comes out of the command line again."""

import json
import re
import shlex
from math import e
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from stream_dp.cli import app
from stream_dp.counters import MECHANISMS
from stream_dp.counters.calibration import calibrate
from stream_dp.counters.protocol import LARGEST_HORIZON

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "choosing.md").read_text()
NAMES = ["--epsilon", "--delta", "--horizon", "--items-per-event"]
ROWS = [
    [cell.strip() for cell in row.split("|")] for row in re.findall(r"^\| ([\d.].+) \|$", PAGE, re.MULTILINE)
]


def told(words: list[str]) -> dict[str, Any]:
    result = CliRunner().invoke(app, ["calibrate", "--json", *words])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


COMPARED = re.findall(r"^\| ([a-z -]+) \| ([\d.]+(?: \| [\d.]+)*) \|$", PAGE, re.MULTILINE)


def shown(words: list[str]) -> list[str]:
    """The last three cells of the row for these options."""
    report = told(["--discover", "every-round", *words])
    sd, tau = report["sd"], report["tau"]
    return [f"{sd['mean']:.1f}", f"{tau['mean']:.1f}", str(tau["max"])]


def test_every_row_of_figures_is_checked() -> None:
    in_figures = len(re.findall(r"^\| .*\d \|$", PAGE, re.MULTILINE)) - PAGE.count(
        "\n| idea |"
    )  # which ends in a year
    assert in_figures == len(ROWS) + len(COMPARED) == 25
    assert all(len(row) == 7 for row in ROWS)


def test_the_comparison_is_what_the_command_beside_it_says() -> None:
    words = "--epsilon 1 --delta 1e-6 --horizon 65535 --items-per-event 4"
    assert f"\nstream-dp calibrate {words}\n" in PAGE
    report = told(words.split())
    rows = {"survey": report["survey"], **report["mechanisms"]}
    assert [name for name, _ in COMPARED] == list(rows)
    for name, cells in COMPARED:
        sd, tau, seen = (
            rows[name]["sd"],
            rows[name]["tau"],
            (rows[name]["seen_half"], rows[name]["seen_mostly"]),
        )
        shown = [
            f"{sd['mean']:.1f}",
            f"{sd['max']:.1f}",
            f"{tau['mean']:.1f}",
            *map(str, (tau["max"], *seen)),
        ]
        assert cells.split(" | ") == shown
    assert PAGE.count(f"that is {rows['blt']['seen_mostly']}, which is ") == 1
    assert f"which is {rows['blt']['seen_mostly'] / 65_535:.1%} of 65,535 events" in PAGE
    assert f"with `binary` it is {rows['binary']['seen_mostly']}." in PAGE
    every_round = rows["blt every-round"]["tau"]
    assert every_round["max"] < min(rows[name]["tau"]["mean"] for name in ("survey", "binary"))
    assert rows["blt"]["tau"]["max"] < every_round["mean"] / 2


@pytest.mark.parametrize("row", ROWS, ids=lambda row: ",".join(row[:4]))
def test_every_row_is_what_calibrate_says(row: list[str]) -> None:
    assert row[4:] == shown([word for pair in zip(NAMES, row[:4], strict=True) for word in pair])


def sd(epsilon: str = "1", delta: str = "1e-6", horizon: str = "65535", items: str = "4") -> float:
    return float({tuple(row[:4]): row[4] for row in ROWS}[epsilon, delta, horizon, items])


def test_the_remarks_follow_from_the_tables() -> None:
    steps = [sd(delta=b) / sd(delta=a) for a, b in (("1e-4", "1e-6"), ("1e-6", "1e-8"), ("1e-8", "1e-10"))]
    assert [round(steps[0], 2), round(steps[-1], 2)] == [1.30, 1.15]
    assert steps == sorted(steps, reverse=True)
    assert "costs 15% to 30% more noise" in PAGE
    for epsilon in ("0.5", "1", "2", "4"):
        assert 1.8 < sd(epsilon=epsilon) / sd(epsilon=f"{2 * float(epsilon):g}") < 2
    assert round(sd(horizon="1048575") / sd(), 2) == 1.20
    assert "costs 1.20 times the noise" in PAGE
    assert sd(horizon="65536") == sd()
    assert sd(items="16") / sd() == pytest.approx(2, rel=0.001)
    assert sd(items="8") / sd() == pytest.approx(1.4, abs=0.02)
    assert f"{LARGEST_HORIZON:,} is the largest horizon" in PAGE
    factors = [e**0.5, e, e**2]
    assert [f"{factor:.1f}" for factor in factors] == ["1.6", "2.7", "7.4"]
    assert "At 0.5 the factor is 1.6, at 1 it is 2.7, at 2 it is 7.4, at 4 it is " in PAGE
    assert f"at 4 it is {e**4:.0f} and at 8 it is {e**8:,.0f}." in PAGE


def command(option: str) -> list[str]:
    """The words after `stream-dp calibrate` of the line that holds an option."""
    [line] = re.findall(rf"^stream-dp calibrate (.*{option}.*)$", PAGE, re.MULTILINE)
    return shlex.split(line)


def test_the_two_rounds_are_what_the_shown_command_says() -> None:
    assert told(command("--rounds"))["mechanisms"]["binary"]["tau"]["rounds"] == {"4095": 935, "4096": 209}
    assert "tau is 935 in round 4,095 and 209 in round 4,096" in PAGE


def test_blt_has_the_lowest_threshold_in_all_but_few_rounds() -> None:
    rounds = np.arange(1, 65_536)
    taus = {name: calibrate(1, 1e-6, 65_535, 4, name)[0].taus(rounds) for name in MECHANISMS}
    beaten = {name: int(np.sum(taus[name] < taus["blt"])) for name in MECHANISMS}
    assert max(beaten.values()) == 8
    assert "in all but a few rounds (8 of 65,535 at the settings above)" in PAGE
