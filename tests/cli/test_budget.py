"""`stream-dp budget` on a real server: what is set is shown, sums are explained, and mistakes end in one sentence."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from typer.testing import CliRunner, Result

from stream_dp.cli import app
from stream_dp.config.times import milliseconds, parse_time
from stream_dp.dev.servers import Servers, embedded
from stream_dp.kafka.clients import admin_client
from stream_dp.privacy.composition import odometer
from stream_dp.privacy.loss import gaussian, pure
from stream_dp.store.ledger import Charge, Ledger, LedgerRefused
from tests import redis_contents

SOURCE = "shop.events"


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with embedded(tmp_path_factory.mktemp("budget")) as both:
        yield both


@pytest.fixture
def ledger(servers: Servers) -> Iterator[Ledger]:
    """An empty ledger, with no journal."""
    with Redis.from_url(servers.redis_url) as client, admin_client(servers.kafka) as admin:
        client.flushall()
        admin.delete_topics([topic for topic in admin.list_topics() if not topic.startswith("__")])
        yield Ledger(client, SOURCE)


@pytest.fixture
def budget(servers: Servers, ledger: Ledger) -> Any:
    """Runs `stream-dp budget` on the source."""

    def run(command: str, *options: str, source: str = SOURCE) -> Result:
        places = ["--redis", servers.redis_url, "--kafka", servers.kafka]
        words = ["budget", command, "--source", source, *places, *options]
        return CliRunner().invoke(app, words, env={"COLUMNS": "160"})

    return run


def told(result: Result) -> dict[str, Any]:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def charge(id_: str, rho: float = 0.005, **more: Any) -> Charge:
    named: dict[str, Any] = {
        "unit": "event",
        "delta": 1e-7,
        "first_offset": 0,
        "end_offset": 100,
        "digest": "d",
        "loss": gaussian(2 * rho),
    }
    return Charge(id=id_, what=f"job {id_}", rho=rho, **(named | more))


def test_a_new_source_has_no_budget_and_says_so(budget: Any) -> None:
    report = told(budget("show", "--json"))
    assert (report["source"], report["unit"], report["budget"], report["charges"]) == (SOURCE, None, None, [])
    assert report["spent"]["epsilon"] == 0
    for command in ("show", "explain"):
        shown = budget(command)
        assert shown.exit_code == 0
        assert "none: new charges are refused unless they are made with --unmetered" in shown.stdout


def test_what_is_set_is_shown(budget: Any, ledger: Ledger) -> None:
    report = told(budget("set", "--epsilon", "1", "--delta", "1e-6", "--json"))
    found = ledger.budget()
    assert found is not None
    assert (found.epsilon, found.delta, found.unit) == (1.0, 1e-6, "event")
    assert report == told(budget("show", "--json"))
    assert report["budget"] == {
        "epsilon": 1.0,
        "delta": 1e-6,
        "rho": found.rule(None).gaussian_rho,
        "charged_delta": 5e-7,
    }
    assert "epsilon 1, delta 1e-06 per event" in budget("show").stdout


def test_it_is_told_what_became_of_epsilon_and_why(budget: Any, ledger: Ledger) -> None:
    said = budget("set", "--epsilon", "4", "--delta", "1e-6").stdout
    found = ledger.budget()
    assert found is not None
    assert "Charges are added up as rho, because the rhos of releases simply add" in said
    assert (
        f"epsilon 4 at delta 1e-06 leaves room for rho {found.rule(None).gaussian_rho:.4g} in all, with 5e-07 of delta"
        in said
    )


def test_a_share_for_own_deltas_is_told_before_anything_is_charged(budget: Any, ledger: Ledger) -> None:
    told_share = ("set", "--epsilon", "1", "--delta", "1e-6", "--own-deltas", "0.05")
    report = told(budget(*told_share, "--json"))
    assert (report["rule"], report["budget"]["charged_delta"]) == ("gaussian", pytest.approx(5e-8))
    assert report["left_everywhere"]["delta"] == pytest.approx(5e-8)
    assert "the sum of their own deltas is at most 5e-08" in " ".join(budget("explain").stdout.split())
    ledger.charge(charge("a", delta=1e-9, loss=pure(0.04)))
    assert told(budget("show", "--json"))["budget"]["charged_delta"] == pytest.approx(5e-8)
    for share in ("0.5", "0"):
        refused = budget("set", "--epsilon", "1", "--delta", "1e-6", "--own-deltas", share)
        assert refused.exit_code == 2
        assert "Traceback" not in refused.output


def test_the_odometer_is_shown_where_it_is_asked_for(budget: Any, ledger: Ledger) -> None:
    ledger.set_budget(1.0, 1e-6, "event")
    ledger.charge(charge("a"))
    told_by = odometer(ledger.charges(), "event", 1e-6)
    assert "odometer" not in told(budget("show", "--json"))
    report = told(budget("show", "--odometer", "--json"))
    assert report["odometer"] == {"epsilon": told_by, "delta": 1e-6}
    assert told_by > report["spent"]["epsilon"]
    assert f"epsilon {told_by:.6g} at delta 1e-06, whenever you choose" in budget("show", "--odometer").stdout


def test_charges_and_what_is_left_are_shown(budget: Any, ledger: Ledger) -> None:
    ledger.set_budget(1.0, 1e-6, "event")
    ledger.charge(charge("a"))
    ledger.charge(charge("b [bold]", first_offset=50, end_offset=None, exact=(0.4, 1e-6)))
    report = told(budget("show", "--json"))
    assert [each["id"] for each in report["charges"]] == ["a", "b [bold]"]
    assert report["spent"]["epsilon"] == ledger.spent().epsilon
    assert (report["spent"]["first_offset"], report["spent"]["end_offset"]) == (50, 100)
    room = ledger.room()
    assert room is not None
    assert report["left_everywhere"] == {
        "rho": room.rho,
        "delta": room.delta,
        "pure_epsilon": room.pure_epsilon,
    }
    shown = budget("show").stdout
    for text in ("job a", "b [bold]", "50 on", "0 to 100", "0.4, 1e-06", "room for"):
        assert text in shown


def test_the_sums_are_explained_range_by_range(budget: Any, ledger: Ledger) -> None:
    ledger.set_budget(1.0, 1e-6, "event")
    ledger.charge(charge("a"))
    ledger.charge(charge("b", first_offset=50, end_offset=None, exact=(0.3, 1e-6)))
    ranges = told(budget("explain", "--json"))["ranges"]
    assert [(each["first_offset"], each["end_offset"], each["charges"]) for each in ranges] == [
        (0, 50, ["a"]),
        (50, 100, ["a", "b"]),
        (100, None, ["b"]),
    ]
    assert [each["by_its_own_guarantee"] for each in ranges] == [False, False, True]
    assert ranges[2]["epsilon"] == 0.3
    for each in ranges:
        room = ledger.room(each["first_offset"], each["end_offset"])
        assert room is not None
        assert (each["left"]["rho"], each["left"]["delta"]) == (room.rho, room.delta)
    shown = budget("explain").stdout
    assert "0.3 (exact)" in shown
    assert "charges add up where they cover the same offset" in " ".join(shown.split())


def test_in_the_user_unit_every_charge_is_in_the_one_range(budget: Any, ledger: Ledger) -> None:
    told(budget("set", "--epsilon", "1", "--delta", "1e-6", "--unit", "user", "--json"))
    ledger.charge(charge("a", unit="user"))
    ledger.charge(charge("b", unit="user", first_offset=500, end_offset=600))
    [only] = told(budget("explain", "--json"))["ranges"]
    assert (only["charges"], only["rho"]) == (["a", "b"], 0.01)
    assert "whatever offsets they read" in " ".join(budget("explain").stdout.split())


def test_a_long_ledger_is_cut_for_people_only(budget: Any, ledger: Ledger) -> None:
    for number in range(45):
        ledger.charge(
            charge(f"q{number}", 0.001 * (1 + number), first_offset=10 * number, end_offset=10 * number + 5)
        )
    assert len(told(budget("explain", "--json"))["ranges"]) == 45
    shown = budget("explain").stdout
    assert "The 40 costliest of 45 ranges" in shown
    assert "q44" in shown
    assert "q4 " not in shown


def test_an_epsilon_without_bound_is_null(budget: Any, ledger: Ledger) -> None:
    ledger.charge(charge("a", delta=0.9))
    assert told(budget("show", "--json"))["spent"]["epsilon"] is None
    assert "epsilon unbounded" in budget("show").stdout


def test_without_a_source_the_streams_own_is_meant(servers: Servers, ledger: Ledger, tmp_path: Path) -> None:
    settings = tmp_path / "stream.toml"
    settings.write_text(f'stream = "shop"\nredis = "{servers.redis_url}"\nkafka = "{servers.kafka}"\n')
    ledger.charge(charge("a"))
    result = CliRunner().invoke(app, ["budget", "show", "--settings", str(settings), "--json"])
    assert [each["id"] for each in told(result)["charges"]] == ["a"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["set", "--epsilon", "0", "--delta", "1e-6"], "epsilon of a budget must lie between"),
        (["set", "--epsilon", "nan", "--delta", "1e-6"], "epsilon of a budget must lie between"),
        (["set", "--epsilon", "1", "--delta", "0"], "delta of a budget must lie between"),
        (["set", "--epsilon", "1"], "--delta"),
        (["set", "--epsilon", "0.1", "--delta", "1e-6"], "with this delta, set epsilon to"),
        (
            ["set", "--epsilon", "9", "--delta", "1e-6", "--unit", "user"],
            "use the unit event instead of user",
        ),
        (["set", "--epsilon", "1", "--delta", "1e-6", "--unit", "week"], "week"),
    ],
)
def test_a_mistake_ends_with_one_sentence_and_status_2(
    budget: Any, ledger: Ledger, words: list[str], sentence: str
) -> None:
    ledger.charge(charge("a"))
    result = budget(*words)
    assert result.exit_code == 2
    assert sentence in result.stderr
    assert "Traceback" not in result.output
    assert ledger.budget() is None


def test_who_set_the_budget_is_shown_and_where_redis_and_the_journal_differ(
    budget: Any, ledger: Ledger, servers: Servers
) -> None:
    told(budget("set", "--epsilon", "10", "--delta", "1e-5", "--by", "the board", "--json"))
    assert "set by the board at 20" in budget("show").stdout
    with Redis.from_url(servers.redis_url) as redis:
        saved = redis_contents.dumps(redis)
        report = told(budget("set", "--epsilon", "1.2", "--delta", "1e-6", "--json"))
        assert [each["epsilon"] for each in report["journal"]["budgets"]] == [10.0, 1.2]
        assert report["journal"]["agrees"]
        for key, value in saved.items():
            redis.restore(key, 0, value, replace=True)
    report = told(budget("show", "--json"))
    assert (report["budget"]["epsilon"], report["journal"]["redis"]["epsilon"]) == (1.2, 10.0)
    shown = " ".join(budget("show").stdout.split())
    assert (
        "Redis has epsilon 10, delta 1e-05, the journal has epsilon 1.2, delta 1e-06, and the lower one"
        in shown
    )
    told(budget("set", "--epsilon", "3", "--delta", "1e-6", "--json"))
    assert told(budget("show", "--json"))["journal"]["agrees"]


def test_what_was_spent_is_shown_over_time(budget: Any, ledger: Ledger) -> None:
    ledger.set_budget(1.0, 1e-6, "event")
    for day, name in (("01", "a"), ("02", "b"), ("03", "c")):
        ledger.charge(charge(name, 0.002), at=milliseconds(parse_time(f"2026-01-{day}")))
    points = told(budget("show", "--json"))["history"]
    assert [(each["at"][:10], each["charge"]) for each in points] == [
        ("2026-01-01", "a"),
        ("2026-01-02", "b"),
        ("2026-01-03", "c"),
    ]
    spent = [each["epsilon"] for each in points]
    assert sorted(spent) == spent
    assert spent[-1] == ledger.spent().epsilon
    days = 2 + 2 * (1.0 - spent[-1]) / (spent[-1] - spent[0])
    end = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=days)
    shown = budget("show").stdout
    assert f"used up around {end:%Y-%m-%d}" in shown
    assert "█" in shown


@pytest.mark.parametrize("rho", [0.0005, 0.008])
def test_what_is_left_is_counted_in_charges_like_the_last_and_exactly_so_many_fit(
    budget: Any, ledger: Ledger, rho: float
) -> None:
    ledger.set_budget(1.0, 1e-6, "event")
    assert "left    all of it" in budget("show").stdout
    ledger.charge(charge("a", rho))
    more = told(budget("show", "--json"))["more_like_the_last"]
    assert f"room for {more} more like the last" in budget("show").stdout
    for copy in range(more):
        ledger.charge(charge(f"b{copy}", rho))
    with pytest.raises(LedgerRefused):
        ledger.charge(charge("one too many", rho))
    assert "room for no more like the last" in budget("show").stdout


def test_without_kafka_no_budget_is_set_and_what_redis_holds_is_shown(
    servers: Servers, ledger: Ledger
) -> None:
    place = ["--source", SOURCE, "--redis", servers.redis_url, "--kafka", "127.0.0.1:1"]
    result = CliRunner().invoke(app, ["budget", "set", *place, "--epsilon", "1", "--delta", "1e-6"])
    assert (result.exit_code, ledger.budget()) == (2, None)
    assert "Kafka does not answer at 127.0.0.1:1" in result.stderr
    shown = CliRunner().invoke(app, ["budget", "show", *place, "--json"])
    assert "the journal was not read" in shown.stderr
    assert json.loads(shown.stdout)["source"] == SOURCE


def test_what_is_no_source_and_what_is_out_of_reach_is_told(budget: Any) -> None:
    assert "names no data source" in budget("show", source="a b").stderr
    unreachable = CliRunner().invoke(
        app, ["budget", "show", "--source", SOURCE, "--redis", "redis://127.0.0.1:1/0"]
    )
    assert unreachable.exit_code == 2
    assert "Redis does not answer at 127.0.0.1:1" in unreachable.stderr
