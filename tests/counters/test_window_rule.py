"""What an event can show beyond its block's Gaussian: all noise of two blocks, every prefix that a reader can know."""

import pytest

from stream_dp.audit.exact_windows import DELTA, WindowCase, window_cases, worst


def test_no_moment_and_no_knowledge_gives_more_than_is_promised() -> None:
    assert DELTA / 4 < worst() <= DELTA


@pytest.mark.parametrize(
    "case", [each for each in window_cases() if each.broken], ids=lambda case: case.broken
)
def test_a_wrong_rule_is_found(case: WindowCase) -> None:
    assert case.worst() > DELTA


def test_four_rules_are_wrong() -> None:
    assert sum(bool(each.broken) for each in window_cases()) == 4
