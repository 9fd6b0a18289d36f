"""What `stream-dp check` says of the settings alone."""

import re

import pytest

from stream_dp.cli.checklist import rights
from stream_dp.cli.checklist.guarantee import guarantee
from stream_dp.config.settings import Settings


def test_a_guarantee_is_told_with_what_other_counters_would_show() -> None:
    found = guarantee(Settings(stream="s", epsilon=1.0, horizon=4_095, mechanism="binary"))
    assert found.state == "ok"
    own, *others = map(int, re.findall(r"(\d+) (?:evenly|with)", found.detail))
    assert re.findall(r"with (blt(?: every-round)?)", found.detail) == ["blt", "blt every-round"]
    assert len(others) == 2
    assert max(others) < own < 1_000


def test_the_best_counter_has_none_beside_it() -> None:
    assert (
        "at the same guarantee"
        not in guarantee(Settings(stream="s", horizon=4_095, mechanism="blt", discover="default")).detail
    )


def test_settings_that_no_noise_can_keep_fail() -> None:
    assert guarantee(Settings(stream="s", epsilon=1e-300)).state == "failed"


@pytest.mark.parametrize("shown", ["kept", "each-round"])
def test_each_rule_has_its_sentence(shown: str) -> None:
    told = guarantee(Settings(stream="s", horizon=255, shown=shown)).detail  # type: ignore[arg-type]
    assert ("by the last round" in told) == (shown == "kept")


def test_the_rights_of_the_worker_are_for_its_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rights, "partitions_or_one", lambda settings: 12)
    settings = Settings(stream="s", rounds="ticks", kafka_username="an app")
    told = list(rights.commands(settings))
    users = {each.split("--allow-principal ")[1].split(" --op")[0] for each in told if each[0] != "#"}
    assert users == {
        "'User:an app'",
        *(
            f"User:{name}"
            for name in (
                "table",
                "windows",
                "history",
                "dashboard",
                "subscriber",
                "jobs",
                "one-shot",
                "erase",
            )
        ),
    }
