"""Jobs against a real broker and a real Redis: each request answered once and charged once, whatever happens."""

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stream_dp.config.times import iso_second
from stream_dp.epochs.journaled_ledger import JournaledLedger, look
from stream_dp.epochs.registry import default_ledger
from stream_dp.jobs import runner
from stream_dp.jobs.books import ServedBooks
from stream_dp.jobs.request import JobRequest, decode_request
from stream_dp.jobs.result import JobResult, whole
from stream_dp.jobs.steps import Site, compute, prepare
from stream_dp.jobs.store import JobStore
from stream_dp.kafka import log
from stream_dp.store import pay_what_you_get
from stream_dp.store.ledger import Ledger
from tests import redis_contents
from tests.jobs.worker_process import STEPS, run_worker
from tests.real_events import real_records
from tests.system.job_place import (
    COUNTS,
    EVENTS,
    PAID_BY_MARKS,
    TOP,
    UNION,
    UNIT,
    Place,
    anna,
    job_place,
    marks_of,
)
from tests.system.waiting import GIVE_UP_SECONDS, wait_until
from tests.system.worker_process import PROCESSES, Kill


@pytest.fixture
def place(kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path) -> Iterator[Place]:
    with job_place(kafka, redis_url, topic_prefix, tmp_path) as place:
        yield place


@pytest.mark.apache("roles")
def test_jobs_share_one_ledger_and_say_what_they_cost(place: Place) -> None:
    Ledger(place.redis, place.settings.events).set_budget(100, 1e-4, UNIT)
    top, union, counts = place.answers(
        {"id": "top", **TOP, "epsilon": 10}, {"id": "union", **UNION}, {"id": "counts", **COUNTS}
    )
    assert [top.status, union.status, counts.status] == ["done"] * 3
    assert 0 < len(top.labels) <= 5 < len(union.labels)
    assert counts.counts
    assert counts.counts == sorted(counts.counts, reverse=True)
    for result, charge in zip((top, union, counts), place.charges(), strict=True):
        assert result.cost is not None
        assert charge.id == f"job/{place.settings.stream}/{result.id}"
        assert (charge.rho, charge.delta, charge.unit) == (result.cost.rho, result.cost.delta, UNIT)
        assert (
            (charge.first_offset, charge.end_offset)
            == (result.first_offset, result.end_offset)
            == (0, EVENTS)
        )
        assert result.cost.at_delta == 1e-4
        assert f"any one {UNIT}" in (result.guarantee or "")


def test_a_request_that_comes_again_gets_the_stored_result_and_is_charged_once(place: Place) -> None:
    request = {"id": "q", **TOP}
    first, again, other = place.answers(request, request, {**request, "k": 6})
    assert first == again
    assert (other.status, len(place.charges())) == ("refused", 1)
    assert "used before with other parameters" in (other.reason or "")
    place.feed(list(real_records(10)))
    assert place.answers(request) == [first]


BAD: dict[str, dict[str, Any]] = {
    "did you mean 'gumbel'": {"mechanism": "gumble"},
    "k must be a whole number": {"k": 0},
    "epsilon must be a number above 0": {"epsilon": -1},
    "is empty": {"source": {"from": 7, "to": 7}},
    "holds the offsets": {"source": {"from": 0, "to": EVENTS + 1}},
    "is not a place in a topic": {"source": {"from": "yesterday"}},
    "reads no files": {"source": {"file": "x.csv", "name": "x"}},
    "source register --topic elsewhere": {"source": {"topic": "elsewhere", "name": "elsewhere"}},
    "spends the budget of": {"source": {"name": "elsewhere"}},
    "does not exist": {"source": {"topic": "not-made-yet"}},
    "did you mean 'kbar'": {"kbra": 3},
    "takes no tokens": {"tokens": 3},
    "does not fit the budget": {"epsilon": 29},
    "leave the unit out": {"unit": "event" if UNIT == "user" else "user"},
}


def test_bad_requests_get_an_error_and_cost_nothing_and_the_worker_lives(place: Place) -> None:
    Ledger(place.redis, place.settings.events).set_budget(10, 1e-4, UNIT)
    place.register("not-made-yet")
    asked = [{"id": f"bad-{number}", **TOP, **wrong} for number, wrong in enumerate(BAD.values())]
    place.send(b"{")
    place.send(b'{"v": 2, "id": "old"}')
    for request in (*asked, {"id": "good", **TOP}):
        place.ask(**request)
    with place.worker():
        nothing, old, *bad, good = place.results(len(asked) + 3)
    assert (nothing.id, nothing.status, old.id, old.status) == (None, "refused", "old", "refused")
    for result, request, expected in zip(bad, asked, BAD, strict=True):
        assert (result.id, result.status) == (request["id"], "refused")
        assert expected in (result.reason or "")
        assert result.cost is None
    assert good.status == "done"
    assert [charge.id for charge in place.charges()] == [f"job/{place.settings.stream}/good"]


def released(result: JobResult) -> tuple[list[str], list[int] | None]:
    return result.labels, result.counts


def expected(place: Place, result: JobResult, request: dict[str, Any]) -> JobResult:
    """What the job's key and the log give when nothing interrupts it."""
    decoded = decode_request(json.dumps({"v": 1, **request}).encode())
    plan = place.store.plan(result.id or "")
    assert isinstance(decoded, JobRequest)
    assert plan is not None
    assert result.cost is not None
    settings = place.settings
    site = Site(settings.kafka, settings.events)
    prepared = prepare(decoded, site, ServedBooks(settings.kafka, place.redis))
    return compute(prepared, site, plan.key, result.cost, lambda done, total: None)


@pytest.mark.apache("offsets")
def test_killed_at_every_step_a_job_is_charged_once_and_releases_one_result(place: Place) -> None:
    requests: list[dict[str, Any]] = []
    for step in STEPS:
        for after in (False, True):
            if not after:
                kind = COUNTS if len(requests) % 2 else UNION
                requests.append({"id": f"job-{len(requests)}", **kind, "source": {"from": 0, "to": 600}})
                place.ask(**requests[-1])
            process = PROCESSES.Process(
                target=run_worker, args=(place.settings, str(place.log_file), Kill(step, after=after))
            )
            process.start()
            process.join(GIVE_UP_SECONDS)
            assert process.exitcode == -signal.SIGKILL, f"{step} was never reached"
    with place.worker():
        wait_until(
            lambda: {result.id for result in place.results(0)} >= {request["id"] for request in requests},
            lambda: "not all jobs were answered",
        )
    seen: dict[str, JobResult] = {}
    for result in place.results(0):
        assert seen.setdefault(result.id or "", result) == result
    for request in requests:
        result = seen[request["id"]]
        assert result.status == "done"
        assert released(result) == released(expected(place, result, request))
    assert len(place.charges()) == len(requests) == len({charge.id for charge in place.charges()})
    assert len(place.published()) > len(requests), "no kill fell between publishing and remembering"


def test_another_key_would_give_another_result(place: Place) -> None:
    """What the comparison above relies on: the noise shows in the counts."""
    request = {"id": "counts", **COUNTS}
    [result] = place.answers(request)
    assert released(result) == released(expected(place, result, request))
    place.redis.delete(f"stream_dp:{{{place.settings.stream}}}:job:counts")
    place.store.admit("counts", result.digest or "", "histogram", 0, EVENTS, None)
    assert released(result) != released(expected(place, result, request))


LOSSES: dict[str, Callable[[Place, dict[bytes, bytes]], object]] = {
    "the job is lost": lambda place, _: place.redis.delete(*job_keys(place)),
    "rolled back to before the charge": lambda place, before: put_back(place, before),
    "a bit of the result is flipped": lambda place, _: flipped(place, "result"),
    "a bit of the plan is flipped": lambda place, _: flipped(place, "plan"),
}


def job_keys(place: Place) -> list[bytes]:
    return list(place.redis.scan_iter(f"stream_dp:{{{place.settings.stream}}}:*"))


def put_back(place: Place, before: dict[bytes, bytes]) -> None:
    """Restore all that Redis held of the stream and its source."""
    place.redis.delete(*redis_contents.dumps(place.redis, f"stream_dp:{{{place.settings.stream}*"), "none")
    for name, dumped in before.items():
        place.redis.restore(name, 0, dumped)


def flipped(place: Place, field: str) -> None:
    name = f"stream_dp:{{{place.settings.stream}}}:job:q"
    value = bytearray(redis_contents.fields(place.redis, name)[field.encode()])
    value[-40] ^= 1
    place.redis.hset(name, field, bytes(value))


@pytest.mark.parametrize("loss", LOSSES)
def test_what_is_published_is_answered_the_same_whatever_becomes_of_redis(place: Place, loss: str) -> None:
    """Neither a refusal nor another result follows a finished one, and a job that was cancelled stays so."""
    before = redis_contents.dumps(place.redis, f"stream_dp:{{{place.settings.stream}*")
    request = {"id": "q", **COUNTS}
    place.ask(id="never", **TOP)
    place.ask(id="never", cancel=True)
    place.ask(**request)
    with place.worker():
        published = {result.id: result for result in place.results(3)}
    assert (published["never"].status, published["q"].status) == ("cancelled", "done")
    LOSSES[loss](place, before)
    again = place.answers(request, {"id": "never", **TOP}, {"id": "q", "cancel": True})
    assert {result.id for result in again} == published.keys()  # without Redis, to the first requests too
    assert [result for result in again if result != published[result.id]] == []
    books = look(place.settings.kafka, place.redis, place.settings.events)
    assert [charge.id for charge in books.charges()] == [f"job/{place.settings.stream}/q"]


@pytest.mark.parametrize("loss", LOSSES)
def test_what_is_not_published_is_never_released_with_other_noise(place: Place, loss: str) -> None:
    """The key is lost, the charge is not: fresh noise would be a second release."""
    before = redis_contents.dumps(place.redis, f"stream_dp:{{{place.settings.stream}*")
    request = {"id": "q", **COUNTS}
    place.answers(request)
    place.remake("results")
    LOSSES[loss](place, before)
    [again] = place.answers(request)
    assert (again.status, len(place.charges())) == ("refused", 1)
    assert ("with noise that Redis has lost" in (again.reason or "")) == ("flipped" not in loss)


@pytest.mark.apache("offsets")
def test_requests_in_a_topic_that_was_re_created_are_all_answered(place: Place) -> None:
    """While no worker runs, and under a running one; the new topic may hold more or fewer requests than the old one."""
    small = {**TOP, "source": {"from": 0, "to": 100}}
    [first, *_] = place.answers(*({"id": f"old-{number}", **small} for number in range(3)))
    place.remake("jobs")
    place.ask(id="old-0", **small)
    place.ask(id="new-1", **small)
    with place.worker():
        again, new = place.results(5)[3:]
        assert (again, new.id, new.status) == (first, "new-1", "done")
        place.remake("jobs")
        for number in range(2, 6):
            place.ask(id=f"new-{number}", **small)
        wait_until(
            lambda: {result.id for result in place.results(0)} >= {f"new-{number}" for number in range(1, 6)},
            lambda: "not all requests were answered",
        )


def test_jobs_that_draw_from_one_budget_are_charged_once_and_pay_for_what_they_return(place: Place) -> None:
    first, second = place.answers(
        {"id": "a", **PAID_BY_MARKS},
        {"id": "b", **PAID_BY_MARKS, "k": 3, "source": {"from": 0, "to": 600}},
    )
    assert 0 < marks_of(first) <= 5
    assert anna(place) == (30 - marks_of(first) - marks_of(second), 2)
    [charge] = place.charges()
    assert (charge.id, charge.first_offset, charge.end_offset) == ("budget/anna", 0, None)
    assert first.cost == second.cost
    assert first.cost is not None
    assert (first.cost.rho, first.cost.delta) == (charge.rho, charge.delta)
    before = anna(place)
    assert place.answers({"id": "a", **PAID_BY_MARKS}) == [first]
    refused = place.answers(
        {"id": "c", **PAID_BY_MARKS, "epsilon": 5}, {"id": "d", **PAID_BY_MARKS, "k": 29, "kbar": 40}
    )
    assert [each.status for each in refused] == ["refused"] * 2
    assert "opened with other numbers" in (refused[0].reason or "")
    assert f"has {before[0]} marks left" in (refused[1].reason or "")
    assert anna(place) == before
    place.redis.delete(f"stream_dp:{{{place.settings.stream}}}:job:a")
    place.remake("results")
    [again] = place.answers({"id": "a", **PAID_BY_MARKS})
    assert anna(place) == (before[0] - marks_of(again), 1), "fresh noise, its key being lost, is paid for"


def test_killed_at_every_step_a_job_takes_its_marks_once(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each step of a payment is cut off before it and after it, and the request is answered again."""

    class Cut(Exception):
        pass

    request = {"v": 1, "id": "a", **PAID_BY_MARKS, "source": {"from": 0, "to": 600}}
    decoded = decode_request(json.dumps(request).encode())
    assert isinstance(decoded, JobRequest)
    settings = place.settings
    site = Site(settings.kafka, settings.events, settings.data_source)
    books = ServedBooks(settings.kafka, place.redis, unmetered=True)
    answers = runner.JobRunner(site, books, settings.stream, lambda: None).answer
    for owner, name in (
        (JournaledLedger, "charge"),
        (pay_what_you_get, "reserve"),
        (JournaledLedger, "note_query"),
        (runner, "compute"),
        (JobStore, "keep"),
        (runner, "settle"),
        (pay_what_you_get, "spend"),
    ):
        whole_step = getattr(owner, name)
        for after in (False, True):

            def cut(*given: Any, step: Any = whole_step, after: bool = after, **named: Any) -> None:
                if after:
                    step(*given, **named)
                raise Cut

            with monkeypatch.context() as patched:
                patched.setattr(owner, name, cut)
                with pytest.raises(Cut):
                    answers(decoded, 0)
    result = whole(answers(decoded, 0))
    assert anna(place) == (30 - marks_of(result), 3)
    assert released(result) == released(expected(place, result, request))


def test_no_record_of_a_job_tells_how_long_it_took(place: Place) -> None:
    """Not the results, the charge, nor the marks that are given back once the result is known."""
    asked = {"one": 1_700_000_000_000, "two": 1_700_000_009_000}
    for name, at in asked.items():
        place.ask(at=at, id=name, **PAID_BY_MARKS)
    with place.worker():
        assert [each.status for each in place.results(2)] == ["done"] * 2
    for topic in (f"{place.settings.stream}.results", default_ledger(place.settings.data_source)):
        held = log.offsets(place.settings.kafka, topic)
        records = list(log.read(place.settings.kafka, topic, 0, held.end))
        assert {record.timestamp for record in records} == set(asked.values()), topic
    [made] = Ledger(place.redis, place.settings.data_source).state().in_order()
    assert made.at == iso_second(asked["one"])


@pytest.mark.apache("batches")
def test_a_union_of_many_labels_is_published_in_parts(place: Place) -> None:
    events = [
        {"items": [f"{number % 300:04d}" + "x" * 600], "user": f"u{number}"} for number in range(8 * 300)
    ]
    place.feed([json.dumps(event).encode() for event in events])
    source = {"from": EVENTS, "to": EVENTS + 8 * 300}
    place.ask(id="many", **{**UNION, "epsilon": 8}, source=source)
    with place.worker():
        results = place.results(1)
    assert results[0].parts == len(results) > 1
    together = whole(place.published())
    assert len(together.labels) > 250
    assert together == whole(place.store.result("many") or [])


def test_a_job_whose_key_is_damaged_is_refused_and_the_next_one_is_answered(place: Place) -> None:
    place.redis.set(f"stream_dp:{{{place.settings.stream}}}:job:lost", b"something else")
    lost, sound = place.answers({"id": "lost", **TOP}, {"id": "sound", **TOP})
    assert (lost.status, sound.status) == ("refused", "done")
    assert "is damaged, and its log says more" in (lost.reason or "")
    assert [charge.id for charge in place.charges()] == [f"job/{place.settings.stream}/sound"]
