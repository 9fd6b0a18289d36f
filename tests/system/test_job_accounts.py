"""Whose budget a job spends, and where its charge is kept, against a real broker and a real Redis."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from redis import Redis
from typer.testing import CliRunner

from stream_dp import log
from stream_dp.cli import app
from stream_dp.jobs.result import JobResult, decode_result
from stream_dp.journaled_ledger import JournaledLedger
from stream_dp.privacy.composition import Charge
from stream_dp.store.ledger import Ledger
from tests.system.job_place import TOP, UNIT, Place, job_place

CHARGE = Charge(
    id="c", what="an epoch", unit=UNIT, rho=0.01, delta=1e-7, first_offset=0, end_offset=None, digest="d"
)


@pytest.fixture
def place(kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path) -> Iterator[Place]:
    with job_place(kafka, redis_url, topic_prefix, tmp_path) as place:
        yield place


def asked(place: Place, job_id: str, folder: Path | None = None, **source: Any) -> JobResult:
    """What a worker answers to one request."""
    before = len(place.published())
    place.ask(**TOP, id=job_id, source=source)
    with place.worker(folder=folder):
        return place.results(before + 1)[-1]


def command(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


def test_a_request_cannot_make_a_ledger_to_spend(place: Place) -> None:
    """Each new name would be a budget of its own for the events of somebody else."""
    settings, fresh = place.settings, f"{place.settings.stream}-fresh"
    other = f"{place.settings.stream}-other.events"
    log.create_topics(settings.kafka, other)
    place.write(other, b'{"items": ["a"], "user": "u"}')
    refused = asked(place, "q1", topic=other, name=fresh)
    assert refused.status == "refused"
    assert f"stream-dp budget set --source {fresh}" in str(refused.reason)
    assert place.charges(fresh) == []
    assert f"{fresh}.ledger" not in log.topics(settings.kafka)

    Ledger(place.redis, fresh).set_budget(5.0, 1e-5, UNIT)
    assert asked(place, "q1", topic=other, name=fresh).status == "done"
    spent = asked(place, "q2", topic=other, name=fresh)
    assert (spent.status, len(place.charges(fresh))) == ("refused", 1)
    assert asked(place, "own").status == "done"  # the stream's own events need no budget


def test_a_topic_spends_its_own_ledger_and_no_other(place: Place) -> None:
    settings, rich = place.settings, f"{place.settings.stream}-rich"
    other = f"{place.settings.stream}-other.events"
    log.create_topics(settings.kafka, other)
    place.write(other, b'{"items": ["a"], "user": "u"}')
    JournaledLedger(settings.kafka, place.redis, other, unmetered=True).charge(CHARGE)
    Ledger(place.redis, other).set_budget(10.0, 1e-5, UNIT)
    Ledger(place.redis, rich).set_budget(1000.0, 1e-5, UNIT)
    refused = asked(place, "q1", topic=other, name=rich)
    assert (refused.status, place.charges(rich)) == ("refused", [])
    assert "is a data source of its own" in str(refused.reason)
    assert asked(place, "q2", topic=other, name=other).status == "done"

    where = ["--kafka", settings.kafka, "--redis", settings.redis, "--unit", UNIT, "--topic", other]
    told = command("top-k", *where, "--source", rich)
    assert (told.exit_code, place.charges(rich)) == (2, [])
    assert f"spends the budget of {other!r}, not of {rich!r}" in " ".join(told.stderr.split())
    assert command("top-k", *where, "--source", other, "--json").exit_code == 0
    assert len(place.charges(other)) == 3


@pytest.mark.same_on_any_broker("what Redis holds")
def test_a_file_of_a_request_spends_a_budget_that_an_operator_has_set(place: Place, tmp_path: Path) -> None:
    name = f"{place.settings.stream}-orders"
    (tmp_path / "x.csv").write_text("user,item\nu,a\n")
    refused = asked(place, "q", tmp_path, file="x.csv", name=name)
    assert (refused.status, place.charges(name)) == ("refused", [])
    Ledger(place.redis, name).set_budget(5.0, 1e-5, UNIT)
    assert asked(place, "q", tmp_path, file="x.csv", name=name).status == "done"


@pytest.mark.parametrize(
    "named_by",
    [
        "option",
        pytest.param("environment", marks=pytest.mark.same_on_any_broker("named otherwise")),
        pytest.param("settings", marks=pytest.mark.same_on_any_broker("named otherwise")),
    ],
)
def test_a_job_on_a_file_is_journaled_wherever_kafka_is_named(
    named_by: str,
    kafka: str,
    redis_url: str,
    topic_prefix: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A Redis that was rolled back gets the charge back before the next job is charged."""
    monkeypatch.chdir(tmp_path)
    Path("x.csv").write_text("user,item\nu,a\n")
    words = ["histogram", "--file", "x.csv", "--source", topic_prefix, "--redis", redis_url, "--json"]
    if named_by == "option":
        words += ["--kafka", kafka]
    elif named_by == "environment":
        monkeypatch.setenv("STREAM_DP_KAFKA", kafka)
    else:
        Path("stream.toml").write_text(f'stream = "{topic_prefix}-stream"\nkafka = "{kafka}"\n')
    first = command(*words)
    assert (first.exit_code, first.stderr) == (0, "")
    with Redis.from_url(redis_url) as redis:
        redis.delete(*redis.keys(f"stream_dp:{{{topic_prefix}}}:*"))
        assert command(*words).exit_code == 0
        assert len(Ledger(redis, topic_prefix).charges()) == 2


@pytest.mark.same_on_any_broker("no broker takes part")
def test_a_job_on_a_file_without_kafka_says_where_its_charge_is(
    redis_url: str, topic_prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x.csv").write_text("user,item\nu,a\n")
    words = ("histogram", "--file", "x.csv", "--source", topic_prefix, "--redis", redis_url, "--json")
    told = command(*words)
    assert decode_result(told.stdout.encode()).status == "done"
    assert f"the charge to {topic_prefix} is in Redis alone" in told.stderr
    Path("stream.toml").write_text(f'stream = "{topic_prefix}"\n')
    assert "is in Redis alone" in command(*words).stderr  # a default is not a name
