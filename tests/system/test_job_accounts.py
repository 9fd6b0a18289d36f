"""Whose budget a job spends, and where its charge is kept, against a real broker and a real Redis."""

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner, Result

from stream_dp.cli import app
from stream_dp.epochs.journaled_ledger import JournaledLedger
from stream_dp.epochs.registry import Registry
from stream_dp.jobs import steps
from stream_dp.jobs.result import JobResult
from stream_dp.kafka import log
from stream_dp.store.ledger import LedgerRefused
from tests.system.broken_ledgers import believed
from tests.system.job_place import TOP, UNIT, Place, job_place


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


@pytest.fixture
def metered(place: Place) -> Place:
    """A stream whose jobs need a budget."""
    place.settings = msgspec.structs.replace(place.settings, unmetered=False)
    return place


def where(place: Place) -> list[str]:
    return ["--kafka", place.settings.kafka, "--redis", place.settings.redis]


def other_topic(place: Place, name: str) -> str:
    """Another topic with one event."""
    topic = f"{place.settings.stream}-{name}"
    log.create_topics(place.settings.kafka, topic)
    place.write(topic, b'{"items": ["a"], "user": "u"}')
    return topic


def sentence(result: Result) -> str:
    assert result.exit_code == 2, result.output
    return " ".join(result.stderr.split())


def test_a_topic_that_nobody_registered_is_refused_with_the_command_that_does_it(metered: Place) -> None:
    """A request that named a source of its own made a budget of its own for the events of somebody else."""
    place = metered
    bank, scratch = other_topic(place, "bank.events"), f"{place.settings.stream}-scratch"
    JournaledLedger(place.settings.kafka, place.redis, scratch).set_budget(100.0, 1e-4, UNIT)
    sources: list[dict[str, Any]] = [
        {"topic": bank, "name": scratch},
        {"topic": bank, "name": bank},
        {"topic": bank},
    ]
    for asked_for in sources:
        refused = asked(place, f"q{len(asked_for)}", **asked_for)
        assert refused.status == "refused"
        assert f"stream-dp source register --topic {bank}" in str(refused.reason)
    words = ["top-k", "--topic", bank, "--epsilon", "30", *where(place)]
    for more in ([], ["--source", scratch], ["--unmetered"]):
        assert f"`stream-dp source register --topic {bank}`" in sentence(command(*words, *more))
    assert (place.charges(scratch), place.charges(bank)) == ([], [])
    assert f"{bank}.ledger" not in log.topics(place.settings.kafka)


def test_a_derived_topic_spends_the_source_that_it_comes_from(metered: Place) -> None:
    """Read on another source, it gave what the budget of its own had no room for."""
    place = metered
    master, derived = other_topic(place, "master.events"), other_topic(place, "derived.events")
    rich = f"{place.settings.stream}-rich"
    for source in (master, rich):
        words = ["budget", "set", "--source", source, "--unit", UNIT, "--epsilon", "4.5", "--delta", "1e-4"]
        assert command(*words, *where(place)).exit_code == 0
    assert command("source", "register", "--topic", derived, "--source", master, *where(place)).exit_code == 0
    assert asked(place, "q1", topic=master).status == "done"  # and the budget is used up
    assert asked(place, "q2", topic=derived).status == "refused"
    assert asked(place, "q3", topic=derived, name=rich).status == "refused"
    words = ["top-k", "--topic", derived, "--epsilon", "4", *where(place)]
    assert "does not fit the budget" in sentence(command(*words))
    assert f"spends the budget of {master!r}, not of {rich!r}" in sentence(command(*words, "--source", rich))
    for more in (["--source", rich], []):  # nor does it move
        told = command("source", "register", "--topic", derived, *more, *where(place))
        assert f"belongs to the data source {master!r}" in sentence(told)
    assert "belongs to the data source" in sentence(
        command("budget", "set", "--source", derived, "--epsilon", "9", "--delta", "1e-4", *where(place))
    )
    assert (len(place.charges(master)), place.charges(rich)) == (1, [])


@pytest.mark.parametrize(
    "bypass",
    [
        test_a_topic_that_nobody_registered_is_refused_with_the_command_that_does_it,
        test_a_derived_topic_spends_the_source_that_it_comes_from,
    ],
)
def test_a_ledger_that_believes_what_a_request_says_is_caught(
    bypass: Callable[[Place], None], metered: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "owner_of", believed)
    with pytest.raises(AssertionError):
        bypass(metered)


def test_the_streams_own_events_spend_what_the_registry_says_and_no_settings(metered: Place) -> None:
    place, own = metered, metered.settings.events
    rich = f"{place.settings.stream}-rich"
    JournaledLedger(place.settings.kafka, place.redis, rich).set_budget(100.0, 1e-4, UNIT)
    place.settings = msgspec.structs.replace(place.settings, source=rich)
    refused = asked(place, "q")
    assert (refused.status, place.charges(rich)) == ("refused", [])
    assert f"{own!r} has no budget" in str(refused.reason)
    JournaledLedger(place.settings.kafka, place.redis, own).set_budget(5.0, 1e-5, UNIT)
    assert asked(place, "q").status == "done"  # the same request, now that there is a budget
    assert len(place.charges(own)) == 1


def test_a_request_without_a_unit_has_that_of_its_source(metered: Place) -> None:
    place, own = metered, metered.settings.events
    JournaledLedger(place.settings.kafka, place.redis, own).set_budget(50.0, 1e-4, UNIT)
    bare = {name: value for name, value in TOP.items() if name != "unit"}
    [result] = place.answers({"id": "q", **bare})
    assert (result.status, result.unit) == ("done", UNIT)
    other = "event" if UNIT == "user" else "user"
    [refused] = place.answers({"id": "r", **bare, "unit": other})
    assert f"leave the unit out of the request, or give {UNIT} instead of {other}" in str(refused.reason)


def test_a_job_that_was_not_metered_says_so(place: Place) -> None:
    [result] = place.answers({"id": "q", **TOP})
    assert result.cost is not None
    assert result.cost.unmetered
    assert "UNMETERED: the source had no budget when this was charged" in str(result.guarantee)


def test_a_file_of_a_request_spends_the_budget_it_was_registered_for(metered: Place, tmp_path: Path) -> None:
    place, name = metered, f"{metered.settings.stream}-orders"
    (tmp_path / "x.csv").write_text(f"user,item\nu,{name}\n")
    assert "source register --file x.csv" in str(asked(place, "q", tmp_path, file="x.csv", name=name).reason)
    file = ["--file", str(tmp_path / "x.csv")]
    words = ["source", "register", *file, "--source", name, "--unit", UNIT]
    assert command(*words, *where(place)).exit_code == 0
    assert "has no budget" in str(asked(place, "q", tmp_path, file="x.csv").reason)
    JournaledLedger(place.settings.kafka, place.redis, name).set_budget(5.0, 1e-5, UNIT)
    assert asked(place, "q", tmp_path, file="x.csv").status == "done"
    shown = json.loads(command("source", "show", *file, *where(place), "--json").stdout)
    assert (shown["source"], shown["called"], shown["unit"]) == (name, "x.csv", UNIT)
    listed = json.loads(command("source", "list", *where(place), "--json").stdout)
    assert shown in listed
    assert "x.csv" in command("source", "list", *where(place)).stdout


def test_whoever_registers_first_is_right_and_all_agree_on_it(place: Place) -> None:
    topic, names = other_topic(place, "both.events"), [f"{place.settings.stream}-{name}" for name in "abcd"]

    def claim(name: str) -> str:
        try:
            return Registry(place.settings.kafka).register("topic", topic, name, UNIT).source
        except LedgerRefused:
            return "taken"

    with ThreadPoolExecutor(4) as threads:
        said = list(threads.map(claim, names))
    found = Registry(place.settings.kafka).owner("topic", topic)
    assert found is not None
    assert [name for name in said if name != "taken"] == [found.source]
