"""`stream-dp calibrate`: exact means, what the documents say of the numbers, and mistakes in one sentence."""

import json
import math
from pathlib import Path
from statistics import mean
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from stream_dp.cli import app
from stream_dp.config.settings import Settings
from stream_dp.counters import COMPARED, MECHANISMS
from stream_dp.counters.calibration import calibrate
from stream_dp.engine.epoch import Epoch
from stream_dp.planning.comparison import calibrate_each, compared_name, visibility
from stream_dp.privacy.charge import Unit
from stream_dp.privacy.wording import for_viewers, of_units

BINARY = ("--mechanism", "binary")


def run(*options: str) -> Result:
    return CliRunner().invoke(app, ["calibrate", *options], env={"COLUMNS": "200"})


def told(*options: str, mechanism: str | None = "binary") -> dict[str, Any]:
    chosen = [] if mechanism is None else ["--mechanism", mechanism]
    result = run(*chosen, *options, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_windows_have_no_horizon_and_tell_their_noise_and_thresholds() -> None:
    words = ("--window", "12", "--epsilon", "2", "--delta", "1e-6", "--items-per-event", "3")
    report = told(*words, mechanism="window")
    mechanism, _ = calibrate(2, 1e-6, 12, 3, "window")
    rounds = range(13, 25)
    for value, values in (
        ("sd", list(map(mechanism.sd, rounds))),
        ("tau", list(map(mechanism.tau, rounds))),
    ):
        assert report[value]["max"] == pytest.approx(max(values))
        assert report[value]["mean"] == pytest.approx(mean(values))
    assert report["mechanism"] == "window"
    assert report["window"] == 12
    assert "horizon" not in report
    assert told(*words, mechanism=None) == report
    printed = run(*words).stdout
    assert "12 rounds, for ever" in printed
    assert f"{report['sd']['mean']:.2f} on average, at most {report['sd']['max']:.2f}" in printed
    assert f"{report['tau']['mean']:.1f} on average, at most {report['tau']['max']}" in printed


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--mechanism", "window"), "such as --window 60"),
        (("--mechanism", "blt", "--window", "60"), "leave --window or --mechanism blt out"),
    ],
)
def test_what_windows_cannot_be_combined_with_is_told(options: tuple[str, ...], sentence: str) -> None:
    found = run(*options)
    assert found.exit_code == 2
    assert sentence in " ".join(found.stderr.split())


@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize("horizon", [1, 2, 6, 100, 1023, 1024])
def test_means_and_maxima_are_over_all_rounds(name: str, horizon: int) -> None:
    options = ["--epsilon", "2", "--delta", "1e-6", "--horizon", str(horizon), "--items-per-event", "3"]
    every_round = ["--discover", "every-round"] if name == "blt" else []
    report = told(*options, *every_round, mechanism=name)
    mechanism, guarantee = calibrate(2, 1e-6, horizon, 3, mechanism=name)
    rounds = range(1, horizon + 1)
    for value, values in (
        ("sd", list(map(mechanism.sd, rounds))),
        ("tau", list(map(mechanism.tau, rounds))),
    ):
        assert report[value]["mean"] == pytest.approx(mean(values), rel=1e-12)
        assert report[value]["max"] == max(values)
    assert (report["epsilon"], report["delta"]) == (2, 1e-6)
    assert (report["rho"], report["conversion"]) == (mechanism.rho, guarantee.conversion)
    compared = told(*options, mechanism=None)["mechanisms"][compared_name(name, report["discover"])]
    assert compared["tau"] == report["tau"]


def test_without_a_name_all_mechanisms_are_compared_under_the_surveys_statement() -> None:
    report = told(mechanism=None)
    assert list(report["mechanisms"]) == list(COMPARED)
    result = run("--rounds", "4096")
    assert result.exit_code == 0
    rows = {
        words[0].strip(): words[1].split()
        for line in result.stdout.splitlines()
        if len(words := line.split("  ", 1)) == 2
    }
    for name, expected in {"survey": report["survey"], **report["mechanisms"]}.items():
        sd, tau = expected["sd"], expected["tau"]
        in_round = tau["max"]
        if name != "survey":
            [(counter, _)], _ = calibrate_each(1, 1e-6, 65_535, 4, [name])
            in_round = counter.tau(4096)
        shown = [f"{sd['mean']:,.1f}", f"{sd['max']:,.1f}", f"{tau['mean']:,.1f}", f"{tau['max']:,}"]
        assert rows[name][:5] == [*shown, f"{in_round:,}"]
        assert rows[name][5:7] == [f"{expected['seen_half']:,}", f"{expected['seen_mostly']:,}"]


def test_the_whole_comparison_is_there_at_the_longest_horizon() -> None:
    """Beyond 2^18 rounds so many of them are looked at."""
    assert set(told("--horizon", str(2**24), mechanism=None)["mechanisms"]) == set(COMPARED)


def test_without_options_the_default_settings_are_calibrated() -> None:
    options = ["--epsilon", "1", "--delta", "1e-6", "--horizon", "65535", "--items-per-event", "4"]
    assert told() == told(*options)
    assert told(mechanism=None) == told(*options, mechanism=None)


def test_the_unit_says_whom_the_promise_protects() -> None:
    event, user = told(), told("--unit", "user")
    assert (event.pop("unit"), user.pop("unit")) == ("event", "user")
    assert event == user
    result = run(*BINARY, "--unit", "user")
    assert "items per user" in result.stdout
    assert "Taking any one user, with all of their events, out of" in " ".join(result.stdout.split())


def test_people_see_the_papers_threshold_and_conversion_beside_ours() -> None:
    result = run("--mechanism", "binary", "--shown", "each-round")
    assert result.exit_code == 0
    for number in ("682.2", "972", "1,001", "1,256", "rho + 2 sqrt(rho ln(1/delta))"):  # the worked example
        assert number in result.stdout


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--epsilon", "-1"], "epsilon must be above 0"),
        (["--delta", "2"], "delta must be between"),
        (["--epsilon", "0", "--delta", "1e-6"], "epsilon must be above 0"),
        (["--epsilon", "nan", "--delta", "1e-6"], "epsilon must be above 0"),
        (["--horizon", "0"], "horizon must be between"),
        (["--items-per-event", "0"], "items_per_event must be between"),
        (["--rounds", "1,zwei"], "--rounds takes whole numbers"),
        (["--rounds", "0"], "round 0 is not between 1 and the horizon"),
        (["--rounds", "65536"], "change --rounds or --horizon"),
        (["--mechanism", "unary"], "mechanism must be one of binary"),
    ],
)
def test_a_mistake_ends_with_one_sentence_and_status_2(options: list[str], sentence: str) -> None:
    result = run(*options)
    assert result.exit_code == 2
    assert sentence in result.stderr
    assert "Traceback" not in result.output


def test_a_users_day_is_told_with_the_week_and_the_month_as_the_page_and_the_docs_say_it() -> None:
    """Group privacy by a sum of its own, and the same sentence in every place."""
    settings = ("--unit", "user-day", "--epsilon", "1", "--delta", "1e-6")
    report = told(*settings)
    for name, days in (("week", 7), ("month", 30)):
        lost = 1e-6 * sum(math.exp(step) for step in range(days))
        assert report[name] == {"epsilon": days, "delta": pytest.approx(min(1.0, lost), rel=1e-12)}
    compared = told(*settings, mechanism=None)
    assert (compared["week"], compared["month"]) == (report["week"], report["month"])
    assert "week" not in told("--unit", "user", "--epsilon", "1", "--delta", "1e-6")
    in_docs = Path("docs/guarantee.md").read_text()
    [sentence] = [line[2:] for line in in_docs.splitlines() if line.startswith("> That is for one day")]
    assert for_viewers("user-day", 1.0, 1e-6).endswith(f" {sentence}"), "what the page and tail say"
    for mechanism in (BINARY, ()):
        printed = " ".join(run(*mechanism, *settings).output.split())
        assert sentence in printed
        assert sentence not in " ".join(run(*mechanism, *settings[2:]).output.split())


@pytest.mark.parametrize(("epsilon", "delta"), [(100.0, 1e-12), (1e-3, 1e-9), (5.0, 0.0)])
def test_what_many_days_have_together_never_overflows(epsilon: float, delta: float) -> None:
    total, lost = of_units(epsilon, delta, 30)
    assert total == 30 * epsilon
    assert lost == (0.0 if not delta else 1.0 if epsilon == 100.0 else pytest.approx(30.44e-9, rel=1e-3))


@pytest.mark.parametrize(
    ("horizon", "best", "discover"), [(65_535, "blt", "default"), (15, "blt every-round", "every-round")]
)
@pytest.mark.parametrize("unit", ["event", "user"])
def test_it_picks_the_settings_that_show_the_most_labels(
    horizon: int, best: str, discover: str, unit: Unit
) -> None:
    """Every round looks for labels where tests come too late: an epoch of these settings is what was compared."""
    words = ("--horizon", f"{horizon}", "--unit", unit)
    found = told(*words, mechanism=None)
    assert (found["best"], found["settings"]) == (best, {"mechanism": "blt", "discover": discover})
    assert f'mechanism = "blt"\n  discover = "{discover}"\n' in run(*words).stdout
    size = {"items_per_user": found["items_per_event"]} if unit == "user" else {}
    epoch = Epoch.open(
        Settings(stream="picked", horizon=horizon, unit=unit, **size, **found["settings"]), 1, 0
    )
    seen = visibility(epoch.mechanism, epoch.guarantee).seen_mostly
    assert seen == min(each["seen_mostly"] for each in found["mechanisms"].values())
