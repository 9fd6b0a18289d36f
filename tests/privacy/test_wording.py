"""Whoever reads of the guarantee, in a release, a result, a terminal or on the page, reads the same sentence."""

import io
import re
from math import exp

import msgspec
import pytest
from rich.console import Console

from stream_dp.cli.histogram_view import picture
from stream_dp.counters.calibration import calibrate
from stream_dp.dashboard.guarantee import guarantee as on_page
from stream_dp.dashboard.guarantee import protects
from stream_dp.jobs import mechanisms
from stream_dp.jobs.result import guarantee
from stream_dp.privacy.wording import UNMETERED, for_viewers, in_words, odds, unit_in_words
from tests.example_releases import release
from tests.jobs.test_request import request_for


@pytest.mark.parametrize(
    ("unit", "items", "said"),
    [
        ("event", None, "one event"),
        ("event", 1, "one event (up to 1 label)"),
        ("event", 1_200, "one event (up to 1,200 labels)"),
        ("user", None, "one user, with all of their events,"),
        ("user", 5, "one user, with all of their events (up to 5 labels),"),
    ],
)
def test_a_unit_is_named_with_what_counts_of_it(unit: str, items: int | None, said: str) -> None:
    assert unit_in_words(unit, items) == said


def test_the_sentence_says_what_is_protected_by_how_much_and_how_often_not() -> None:
    assert in_words("one event", "all rounds together show", 0.5, 1e-6) == (
        "Taking any one event out of the data changes the probability of anything that all rounds together show by at "
        "most a factor of e^0.5 (about 1.6), except with probability 1e-06."
    )


def test_pure_guarantees_have_no_exception_and_huge_factors_are_not_spelt_out() -> None:
    said = in_words("one event", "this job releases", 12, 0.0)
    assert said.endswith("by at most a factor of e^12.")


def test_terminal_page_calibration_and_result_say_it_with_the_same_words() -> None:
    shown = msgspec.structs.replace(release(7, {"tea": 300}), epsilon=1.0)
    console = Console(width=1_000, file=io.StringIO(), record=True)
    console.print(picture(shown, 1_000, 10))
    factor = "by at most a factor of e^1 (about 2.7), except with probability 1e-06."
    of_rounds = (
        "Taking any one event (up to 3 labels) out of the data changes the probability of anything that all"
    )
    assert f"{of_rounds} rounds together show {factor}" in console.export_text()
    assert on_page(shown) == f"{of_rounds} 65,535 rounds together show {factor}"
    assert on_page(shown, unmetered=True) == f"{on_page(shown)}{UNMETERED}"
    assert calibrate(1.0, 1e-6, 1_023, 3)[1].sentence == (
        "Taking any one event out of the data changes the probability of anything that all rounds together show "
        f"{factor}"
    )
    job = mechanisms.calibrate(request_for("top-k", "gumbel"))
    assert guarantee("event", job).replace("this job releases", "all rounds together show") == (
        calibrate(1.0, job.delta, 1_023, 3)[1].sentence
    )


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0, 2.0, 4.0, 6.0, 10.0])
def test_the_odds_that_everybody_is_told_are_those_of_the_guarantee(epsilon: float) -> None:
    larger, smaller = re.findall(r"[\d.]+", odds(epsilon))
    last_digit = 10.0 ** -len(smaller.partition(".")[2])
    assert float(larger) + float(smaller) == pytest.approx(100)
    assert float(smaller) == pytest.approx(100 / (1 + exp(epsilon)), abs=last_digit / 2)
    assert float(smaller) > 0, "nobody is told that a guess becomes certain"


def test_who_is_not_hidden_is_said_beside_who_is() -> None:
    assert for_viewers("event", 1.0, 0.0) == (
        "Each single event is hidden: what is shown here can turn a 50:50 guess about it into about 73:27 at most. "
        "Someone with many events is not hidden as a person."
    )
    assert "not hidden" not in for_viewers("user", 1.0, 0.0)
    assert for_viewers("user", 5.0, 0.0).endswith("above 4 the proof means little by itself.")
    assert "near certainty" in for_viewers("event", 30.0, 0.0)


def test_terminal_and_page_tell_everybody_the_same() -> None:
    shown = release(7, {"tea": 300})
    console = Console(width=1_000, file=io.StringIO(), record=True)
    console.print(picture(shown, 1_000, 10))
    assert protects(shown) in console.export_text()
    assert protects(shown) == for_viewers("event", 2.0, 1e-6)
