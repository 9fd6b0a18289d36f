"""`stream-dp audit` and the repeated audit: what they print, and their exit status."""

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner, Result

from stream_dp.audit import catalogue
from stream_dp.audit.__main__ import main
from stream_dp.audit.catalogue import pairs
from stream_dp.cli import app

EVERYTHING = pairs()


@pytest.fixture(autouse=True)
def _made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """To calibrate what every pair examines takes half a second each time."""
    monkeypatch.setattr(catalogue, "pairs", lambda: EVERYTHING)


def run(*options: str) -> Result:
    return CliRunner().invoke(app, ["audit", *options])


def test_json_lists_claims_measurements_and_verdicts() -> None:
    result = run("--mechanism", "greedy", "--mechanism", "known-histogram", "--seed", "0a0b", "--json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert (report["seed"], report["good"]) == ("0a0b", True)
    assert {pair["mechanism"] for pair in report["pairs"]} == {"greedy", "known-histogram"}
    for pair in report["pairs"]:
        assert pair["claimed"].keys() == {"epsilon", "delta"}
        measured = pair["measured"]
        assert measured["confidence"] == 1 - 1e-6
        assert isinstance(measured["event"], str)
        assert (measured["epsilon_lower_bound"] > pair["claimed"]["epsilon"]) == pair["control"]
        assert pair["verdict"] == ("caught" if pair["control"] else "passed")
    assert [pair["control"] for pair in report["pairs"]].count(True) == 1


def test_people_get_a_table_a_summary_and_the_seed() -> None:
    result = run("--mechanism", "greedy", "--runs", "40000", "--seed", "01")
    assert result.exit_code == 0, result.output
    assert "Broken on purpose" in result.stdout
    assert "The audit passes: 0 of 4 claims of correct mechanisms refuted, 1 of 1 broken ones caught." in (
        result.stdout
    )
    assert "--seed 01" in result.stdout


def test_a_control_that_is_missed_fails_the_audit() -> None:
    """A thousand runs are too few to see a delta of 0.02."""
    result = run("--mechanism", "greedy", "--runs", "1000", "--seed", "01")
    assert result.exit_code == 1
    assert "The audit FAILS" in result.stdout
    assert "0 of 1 broken ones caught" in result.stdout
    as_json = run("--mechanism", "greedy", "--runs", "1000", "--seed", "01", "--json")
    assert as_json.exit_code == 1
    assert json.loads(as_json.stdout)["pairs"][-1]["verdict"] == "missed"


def test_without_a_seed_every_audit_has_one_of_its_own_and_can_be_repeated() -> None:
    """What comes out may be the same by chance, so that is compared for two seeds that are known to differ."""
    options = ("--mechanism", "known-histogram", "--runs", "1000", "--json")
    one, other = (json.loads(run(*options).stdout) for _ in range(2))
    assert one["seed"] != other["seed"]
    assert json.loads(run(*options, "--seed", one["seed"]).stdout) == one
    given = [json.loads(run(*options, "--seed", seed).stdout) for seed in ("01", "02")]
    assert given[0]["pairs"] != given[1]["pairs"]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--mechanism", "greedi"), "there is no mechanism 'greedi' to audit: choose from running-histogram"),
        (("--seed", "xyz"), "--seed takes 1 to 64 bytes in hexadecimal such as 01ff, not 'xyz'"),
        (("--seed", ""), "--seed takes 1 to 64 bytes"),
    ],
)
def test_mistakes_are_told_in_one_sentence(options: tuple[str, ...], told: str) -> None:
    result = run(*options)
    assert result.exit_code == 2
    assert told in result.stderr
    assert "Traceback" not in result.output


def test_repeated_audits_count_wrong_verdicts(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With as many runs of each pair as show what is broken."""
    monkeypatch.setattr(
        "stream_dp.audit.__main__.pairs",
        lambda names: [replace(pair, runs=40_000) for pair in EVERYTHING if pair.mechanism in names],
    )
    assert main(["--repeat", "2", "--mechanism", "greedy"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("seed 1: 0 of 4 correct pairs flagged")
    assert "1 of 1 controls caught" in lines[1]
    assert lines[2] == "2 audits of 5 pairs: 0 wrong verdicts"
    with pytest.raises(SystemExit):
        main(["--mechanism", "no such"])
