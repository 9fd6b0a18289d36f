"""`stream-dp advise`: only public logs, every mechanism, the truth beside it, and mistakes in one sentence."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from stream_dp.batch.result import Outcome
from stream_dp.cli import app
from stream_dp.jobs.comparison import recall

USERS = 900


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every user holds twenty labels that all hold, and one that only this user holds."""
    file = tmp_path_factory.mktemp("log") / "made-up.csv"
    rows = [f"u{user},top-{item}" for user in range(USERS) for item in range(20)]
    file.write_text("\n".join(["user,item", *rows, *(f"u{user},own-{user}" for user in range(USERS))]))
    return file


def run(*options: str) -> Result:
    return CliRunner().invoke(app, ["advise", *options], env={"COLUMNS": "200"})


def told(*options: str) -> dict[str, Any]:
    ran = run(*options, "--public", "--runs", "1", "--json")
    assert ran.exit_code == 0, ran.output
    return json.loads(ran.stdout)


def test_every_mechanism_that_names_labels_is_tried_once_with_every_bound(log: Path) -> None:
    report = told("top-k", "--file", str(log), "-k", "20", "--items-per-user", "10,40", "--epsilon", "8")
    asked = [(each["mechanism"], str(each["parameters"])) for each in report["found"]]
    assert len(set(asked)) == len(asked)
    assert {"stable-gaussian", "ptr-laplace", "ptr-gaussian"} <= {mechanism for mechanism, _ in asked}
    sets = [each["parameters"] for each in report["found"] if each["mechanism"] == "stable"]
    assert [(each["least"], each["penalty"]) for each in sets] == [(1, 0.0), (1, 0.5), (1, 2.0), (10, 0.0)]
    tried = [(each["mechanism"], each["parameters"].get("items_per_user")) for each in report["found"]]
    assert {("laplace", 10), ("laplace", 40), ("gaussian", 50), ("gumbel", None)} <= set(tried)
    assert "gap" not in {mechanism for mechanism, _ in tried}
    [default] = [each for each in report["found"] if each["is_default"]]
    assert (default["mechanism"], default["recall"], default["labels"]) == ("fitted", 1.0, 20)
    assert report["best"] == default  # nothing finds more than all, and of equals it is the default
    assert {each["error"] is None for each in report["found"] if each["mechanism"] == "gaussian"} == {False}


def test_a_bound_below_what_users_hold_is_seen_in_the_error(log: Path) -> None:
    report = told("histogram", "--file", str(log), "--items-per-user", "5,21", "--epsilon", "20")
    found = {
        each["parameters"]["items_per_user"]: each
        for each in report["found"]
        if each["mechanism"] == "gaussian"
    }
    assert found[5]["error"] > 0.6
    assert found[21]["error"] < 0.1
    assert found[21]["labels"] == 20
    assert (found[5]["over_cap"], found[21]["over_cap"]) == (1.0, 0.0)


def test_the_bound_that_most_users_keep_is_proposed_and_tried(tmp_path: Path) -> None:
    """Of ten users nine hold up to 3 labels and one holds 8, so 3 is the least bound that one in ten exceeds."""
    file = tmp_path / "made-up.csv"
    held = [1, 1, 2, 2, 3, 3, 3, 3, 3, 8] * 40
    rows = [f"u{user},top-{item}" for user, most in enumerate(held) for item in range(most)]
    file.write_text("\n".join(["user,item", *rows]))
    report = told("histogram", "--file", str(file), "--items-per-user", "5")
    assert report["bound_of_most"] == 3
    [tried] = [
        each
        for each in report["found"]
        if (each["mechanism"], each["parameters"].get("items_per_user")) == ("gaussian", 3)
    ]
    assert tried["over_cap"] == 0.1
    ran = run("histogram", "--file", str(file), "--public", "--runs", "1")
    assert "--items-per-user 3 is the least bound that at most a tenth of users exceed." in ran.stdout


def test_people_read_which_options_to_give(log: Path) -> None:
    ran = run("set-union", "--file", str(log), "--public", "--runs", "1", "--epsilon", "8")
    assert ran.exit_code == 0, ran.output
    assert "fitted (default)" in ran.stdout
    assert "--items-per-user 300" in ran.stdout
    assert "default" in ran.stdout.splitlines()[-1]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["top-k"], "add --public if everybody may see"),
        (["top-k", "--public", "-k", "0"], "k must be a whole number"),
        (["top-k", "--public", "--epsilon", "0"], "epsilon must be a number above 0"),
        (["top-k", "--public", "--items-per-user", "few"], "takes numbers such as 1,2,4"),
        (["top-k", "--public", "--user", "who"], "no single column 'who'"),
    ],
)
def test_mistakes_are_told_in_one_sentence(words: list[str], sentence: str, log: Path) -> None:
    ran = run(*words, "--file", str(log))
    assert ran.exit_code == 2
    assert sentence in " ".join(ran.stderr.split())


def test_a_log_of_nothing_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("user,item\n")
    ran = run("top-k", "--public", "--file", str(tmp_path / "x.csv"))
    assert (ran.exit_code, "holds no rows that count" in ran.stderr) == (2, True)


def test_labels_that_tie_at_the_end_of_the_top_stand_for_each_other() -> None:
    true = np.array([9, 5, 5, 5, 1, 0])
    assert recall(Outcome(np.array([0, 3])), true, 2) == 1.0
    assert recall(Outcome(np.array([0, 4])), true, 2) == 0.5
    assert recall(Outcome(np.array([1, 2, 3])), true, 2) == 1.0
    assert recall(Outcome(np.array([4])), true, 9) == 0.2
    assert recall(Outcome(np.empty(0, np.int64)), np.zeros(3, np.int64), 2) == 1.0
