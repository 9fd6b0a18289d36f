"""Jobs against a real broker and a real Redis: each request answered once and charged once, whatever happens."""

import gzip
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from kafka import KafkaProducer
from redis import Redis
from typer.testing import CliRunner

from stream_dp import log
from stream_dp.cli import app
from stream_dp.jobs import runner
from stream_dp.jobs.request import JobRequest, decode_request
from stream_dp.jobs.result import JobResult, decode_result, whole
from stream_dp.jobs.steps import Site, compute, prepare
from stream_dp.jobs.store import JobStore
from stream_dp.jobs.worker import JOBS, JobWorker
from stream_dp.journal import JournaledLedger
from stream_dp.privacy.composition import Charge
from stream_dp.settings import Settings
from stream_dp.store import pay_what_you_get
from stream_dp.store.ledger import Ledger
from stream_dp.store.pay_what_you_get import left
from tests.jobs.worker_process import PROCESSES, STEPS, run_worker
from tests.real_events import real_records
from tests.shared import RETAIL
from tests.system.streams import wait_until
from tests.system.worker_process import Kill

UNIT = "user" if RETAIL.exists() else "event"  # flights have no user
TOP = {"job": "top-k", "mechanism": "gumbel", "epsilon": 4, "delta": 1e-6, "k": 5, "unit": UNIT}
UNION = {
    "job": "set-union",
    "mechanism": "sips",
    "epsilon": 4,
    "delta": 1e-6,
    "items_per_user": 10,
    "unit": UNIT,
}
COUNTS = {"job": "histogram", "mechanism": "gaussian", "epsilon": 4, "delta": 1e-6, "items_per_user": 5}
EVENTS = 1_500


class Place:
    """One stream with real events; requests go in, results come out."""

    def __init__(self, kafka: str, redis_url: str, name: str, folder: Path) -> None:
        self.settings = Settings(stream=name, kafka=kafka, redis=redis_url)
        self.redis = Redis.from_url(redis_url)
        self.store = JobStore(self.redis, name)
        self.log_file = folder / "jobs.log"
        self.producer = KafkaProducer(bootstrap_servers=kafka, acks="all")
        log.create_topics(kafka, self.settings.events, f"{name}.jobs", f"{name}.results")

    def feed(self, values: Sequence[bytes]) -> None:
        for value in values:
            self.producer.send(self.settings.events, value)
        self.producer.flush()

    def ask(self, **fields: Any) -> None:
        self.send(json.dumps({"v": 1, **fields}).encode())

    def send(self, value: bytes) -> None:
        self.producer.send(f"{self.settings.stream}.jobs", value).get(30)

    def published(self) -> list[bytes]:
        topic = f"{self.settings.stream}.results"
        offsets = log.offsets(self.settings.kafka, topic)
        return [
            each.value or b"" for each in log.read(self.settings.kafka, topic, offsets.first, offsets.end)
        ]

    def results(self, at_least: int) -> list[JobResult]:
        found: list[bytes] = []

        def enough() -> bool:
            found[:] = self.published()
            return len(found) >= at_least

        wait_until(enough, lambda: f"{len(found)} results instead of {at_least}")
        return [decode_result(value) for value in found]

    def charges(self, source: str | None = None) -> list[Charge]:
        return Ledger(self.redis, source or self.settings.events).charges()

    @contextmanager
    def worker(self, jobs: Sequence[str] = JOBS, folder: Path | None = None) -> Iterator[JobWorker]:
        running = JobWorker(self.settings, jobs, folder)
        thread = threading.Thread(target=running.run)
        thread.start()
        try:
            yield running
        finally:
            running.stop()
            thread.join(60)
            assert not thread.is_alive()

    def answers(self, *requests: dict[str, Any]) -> list[JobResult]:
        """What a worker answers to these requests, one each."""
        before = len(self.published())
        for request in requests:
            self.ask(**request)
        with self.worker():
            return self.results(before + len(requests))[before:]


@pytest.fixture
def place(kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path) -> Iterator[Place]:
    made = Place(kafka, redis_url, topic_prefix, tmp_path)
    made.feed(list(real_records(EVENTS)))
    yield made
    made.producer.close()
    made.redis.close()


def test_jobs_share_one_ledger_and_say_what_they_cost(place: Place) -> None:
    Ledger(place.redis, place.settings.events).set_budget(100, 1e-4, UNIT)
    top, union, counts = place.answers(
        {"id": "top", **TOP}, {"id": "union", **UNION}, {"id": "counts", **COUNTS, "unit": UNIT}
    )
    assert [top.status, union.status, counts.status] == ["done"] * 3
    assert 0 < len(top.labels) <= 5 < len(union.labels)
    assert counts.counts == sorted(counts.counts or [], reverse=True)
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


BAD = {
    "did you mean 'gumbel'": {"mechanism": "gumble"},
    "k must be a whole number": {"k": 0},
    "epsilon must be a number above 0": {"epsilon": -1},
    "is empty": {"source": {"from": 7, "to": 7}},
    "holds the offsets": {"source": {"from": 0, "to": EVENTS + 1}},
    "is no place in a topic": {"source": {"from": "yesterday"}},
    "reads no files": {"source": {"file": "x.csv", "name": "x"}},
    "must name the data source": {"source": {"topic": "elsewhere"}},
    "spend the budget of": {"source": {"name": "elsewhere"}},
    "does not exist": {"source": {"topic": "elsewhere", "name": "elsewhere"}},
    "did you mean 'kbar'": {"kbra": 3},
    "takes no tokens": {"tokens": 3},
    "does not fit the budget": {"epsilon": 40},
    "use the unit": {"unit": "event" if UNIT == "user" else "user"},
}


def test_bad_requests_get_an_error_and_cost_nothing_and_the_worker_lives(place: Place) -> None:
    Ledger(place.redis, place.settings.events).set_budget(10, 1e-4, UNIT)
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


def expected_labels(place: Place, result: JobResult, request: dict[str, Any]) -> list[str]:
    """What the job's key and the log give when nothing interrupts it."""
    decoded = decode_request(json.dumps({"v": 1, **request}).encode())
    plan = place.store.plan(result.id or "")
    assert isinstance(decoded, JobRequest)
    assert plan is not None
    assert result.cost is not None
    settings = place.settings
    prepared = prepare(decoded, Site(settings.kafka, settings.events))
    return compute(prepared, settings.kafka, plan.key, result.cost, lambda done, total: None).labels


def test_killed_at_every_step_a_job_is_charged_once_and_releases_one_result(place: Place) -> None:
    requests: list[dict[str, Any]] = []
    for step in STEPS:
        for after in (False, True):
            if not after:
                kind = TOP if len(requests) % 2 else UNION
                requests.append({"id": f"job-{len(requests)}", **kind, "source": {"from": 0, "to": 600}})
                place.ask(**requests[-1])
            process = PROCESSES.Process(
                target=run_worker, args=(place.settings, str(place.log_file), Kill(step, after=after))
            )
            process.start()
            process.join(60)
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
        assert result.labels == expected_labels(place, result, request)
    assert len(place.charges()) == len(requests) == len({charge.id for charge in place.charges()})
    assert len(place.published()) > len(requests), "no kill fell between publishing and remembering"


def test_another_key_would_give_another_result(place: Place) -> None:
    """What the comparison above relies on: the noise shows in the labels."""
    request = {"id": "union", **UNION}
    [result] = place.answers(request)
    place.redis.delete(f"stream_dp:{{{place.settings.stream}}}:job:union")
    place.store.admit("union", result.digest or "", "set-union", 0, EVENTS, None)
    assert result.labels != expected_labels(place, result, request)


def test_redis_without_the_job_never_releases_twice_for_one_charge(place: Place) -> None:
    """The key is lost, the charge is not: fresh noise would be a second release."""
    request = {"id": "q", **TOP}
    place.answers(request)
    place.redis.delete(f"stream_dp:{{{place.settings.stream}}}:job:q")
    [again] = place.answers(request)
    assert (again.status, len(place.charges())) == ("refused", 1)
    assert "use a new id" in (again.reason or "")


PAID_BY_MARKS = {**TOP, "mechanism": "pay-what-you-get", "budget": "anna", "marks": 30, "queries": 4}


def anna(place: Place) -> tuple[int, int]:
    """The marks and queries left of the one budget that is charged."""
    [charge] = place.charges()
    found = left(Ledger(place.redis, place.settings.events), charge.id)
    return found.marks, found.queries


def marks_of(result: JobResult) -> int:
    assert result.status == "done", result.reason
    return len(result.labels) + bool(result.bottom)


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
    answers = runner.JobRunner(site, place.redis, settings.stream, lambda: None).answer
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
                    answers(decoded)
    result = whole(answers(decoded))
    assert anna(place) == (30 - marks_of(result), 3)
    assert result.labels == expected_labels(place, result, request)


def test_the_command_draws_from_a_budget_and_shows_what_is_left(place: Place) -> None:
    settings = place.settings
    where = ["--stream", settings.stream, "--kafka", settings.kafka, "--redis", settings.redis]
    words = [
        "top-k",
        "--mechanism",
        "pay-what-you-get",
        "--budget",
        "anna",
        "--marks",
        "30",
        "--queries",
        "4",
    ]
    words += ["--epsilon", "4", "-k", "5", "--unit", UNIT, *where]
    told = CliRunner().invoke(app, [*words, "--dry-run"])
    assert told.exit_code == 0, told.output
    assert "all jobs of the budget anna release" in " ".join(told.output.split())
    assert place.charges() == []
    ran = CliRunner().invoke(app, [*words, "--json"])
    assert ran.exit_code == 0, ran.output
    marks = marks_of(decode_result(ran.stdout.encode()))
    assert anna(place) == (30 - marks, 3)
    shown = CliRunner().invoke(app, ["budget", "show", *where[:2], *where[4:]])
    assert f"budget/anna has left: {30 - marks} of 30 marks, 3 of 4 queries" in " ".join(shown.output.split())
    listed = json.loads(CliRunner().invoke(app, ["budget", "show", *where[:2], *where[4:], "--json"]).stdout)
    assert listed["pay_what_you_get"][0]["marks_left"] == 30 - marks
    refused = CliRunner().invoke(app, [*words, "--marks", "31"])
    assert refused.exit_code == 2
    assert "opened with other numbers" in " ".join(refused.stderr.split())


def slow_reading(monkeypatch: pytest.MonkeyPatch, reading: threading.Event) -> None:
    """Make reading wait, so that a cancelling comes in the middle of it."""
    compute_at_once = runner.compute

    def slowly(*arguments: Any) -> JobResult:
        *others, progress = arguments
        reading.set()
        for done in range(400):
            time.sleep(0.05)
            progress(done, 400)
        return compute_at_once(*others, progress)

    monkeypatch.setattr(runner, "compute", slowly)


def test_a_job_is_cancelled_while_it_reads_and_its_charge_stays(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading = threading.Event()
    slow_reading(monkeypatch, reading)
    with place.worker():
        place.ask(id="q", **TOP)
        assert reading.wait(60)
        place.ask(id="q", cancel=True)
        [result, *_] = place.results(1)
    assert (result.status, result.labels, len(place.charges())) == ("cancelled", [], 1)
    assert result.cost is not None


def test_a_job_cancelled_before_its_turn_costs_nothing_and_one_that_is_done_stays_done(place: Place) -> None:
    place.ask(id="q", **TOP)
    place.ask(id="q", cancel=True)
    with place.worker():
        [result, *_] = place.results(1)
        assert (result.status, result.cost, place.charges()) == ("cancelled", None, [])
        place.ask(id="r", **TOP)
        wait_until(lambda: place.store.result("r") is not None, lambda: "no result")
        before = len(place.results(2))
        place.ask(id="r", cancel=True)
        assert place.results(before + 1)[-1].status == "done"


def test_two_workers_share_the_requests_between_them(place: Place) -> None:
    with place.worker(("top-k", "histogram")), place.worker(("set-union",)):
        place.ask(id="top", **TOP)
        place.ask(id="union", **UNION)
        place.send(b"?")
        results = place.results(3)
    assert sorted((result.id or "", result.status) for result in results) == [
        ("", "refused"),
        ("top", "done"),
        ("union", "done"),
    ]


def test_a_schedule_asks_for_every_period_once(place: Place) -> None:
    with place.worker() as running:
        place.ask(id="often", **TOP, every=1, source={"from": 0, "to": 100})
        assert place.results(1)[0].status == "scheduled"
        time.sleep(1.1)
        running.ask_for_due()
        running.ask_for_due()
        place.ask(id="often", cancel=True)
        wait_until(lambda: not place.store.schedules(), lambda: "the schedule goes on")
        results = place.results(3)
    ids = [result.id for result in results if result.status == "done"]
    assert ids
    assert all((job_id or "").startswith("often@") for job_id in ids)
    assert len(set(ids)) == len(ids) == len(place.charges())


@pytest.mark.parametrize(
    ("words", "request_fields"),
    [
        (["-m", "stream_dp.cli", "jobs", "worker", "--json"], TOP),
        (["-m", "faust", "-A", "topologies.top_k", "worker"], TOP),
        (["-m", "faust", "-A", "topologies.set_union", "worker"], UNION),
    ],
)
def test_the_faust_apps_answer_what_waited_for_them_and_end_when_asked(
    place: Place, words: list[str], request_fields: dict[str, Any], tmp_path: Path
) -> None:
    settings = place.settings
    values = {"STREAM": settings.stream, "KAFKA": settings.kafka, "REDIS": settings.redis}
    environment = os.environ | {f"STREAM_DP_{name}": value for name, value in values.items()}
    place.ask(id="q", **request_fields)
    with (tmp_path / "faust.log").open("ab") as output:
        process = subprocess.Popen([sys.executable, *words], stdout=output, stderr=output, env=environment)
        try:
            [result] = place.results(1)
            assert (result.id, result.status) == ("q", "done")
            process.terminate()
            written = (tmp_path / "faust.log").read_text
            assert process.wait(60) == 0, written()
        finally:
            process.kill()
            process.wait()
    if "--json" in words:
        lines = [json.loads(line) for line in written().splitlines()]
        assert {line["stream"] for line in lines} == {settings.stream}
        assert any("job q" in line["event"] for line in lines)


def command(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


def real_file(folder: Path) -> Path:
    """Real events as a file; where they have no users, every flight's number is one."""
    file = folder / "events.jsonl.gz"
    with gzip.open(file, "wb", compresslevel=1) as out:
        for number, value in enumerate(real_records(20_000)):
            event = json.loads(value)
            if UNIT == "event":
                event["user"] = f"passenger {number}"
            out.write(json.dumps(event).encode() + b"\n")
    return file


@pytest.fixture(scope="module")
def events_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return real_file(tmp_path_factory.mktemp("events"))


def true_tops(file: Path, k: int) -> list[str]:
    holders: dict[str, set[str]] = {}
    with gzip.open(file) as lines:
        for line in lines:
            event = json.loads(line)
            if event.get("user"):
                for item in event["items"]:
                    holders.setdefault(item, set()).add(event["user"])
    return sorted(holders, key=lambda item: -len(holders[item]))[:k]


def test_best_sellers_of_a_file_are_found_and_its_source_is_charged(
    redis_url: str, topic_prefix: str, events_file: Path
) -> None:
    words = ("--file", str(events_file), "--source", topic_prefix, "--redis", redis_url)
    result = command("top-k", *words, "-k", "10", "--epsilon", "4", "--json")
    assert result.exit_code == 0, result.output
    labels = decode_result(result.stdout.strip().encode()).labels
    assert len(set(labels) & set(true_tops(events_file, 20))) >= 8
    with Redis.from_url(redis_url) as redis:
        [charge] = Ledger(redis, topic_prefix).charges()
    assert (charge.first_offset, charge.end_offset) == (0, None)


def test_a_set_union_of_a_file_and_a_picture_of_its_counts(
    redis_url: str, topic_prefix: str, events_file: Path, tmp_path: Path
) -> None:
    words = ("--file", str(events_file), "--source", topic_prefix, "--redis", redis_url, "--epsilon", "4")
    union = command("set-union", *words, "--items-per-user", "20")
    assert union.exit_code == 0, union.output
    assert "Whether the data of any one user" in " ".join(union.stdout.split())
    picture = tmp_path / "counts.png"
    counts = command("histogram", *words, "--items-per-user", "10", "--plot", str(picture))
    assert counts.exit_code == 0, counts.output
    assert "█" in counts.stdout
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_topic_is_read_by_command_between_two_times(place: Place) -> None:
    settings = place.settings
    words = ("--stream", settings.stream, "--kafka", settings.kafka, "--redis", settings.redis)
    result = command("top-k", *words, "--unit", UNIT, "--epsilon", "4", "--to", "1200", "--json")
    assert result.exit_code == 0, result.output
    found = decode_result(result.stdout.strip().encode())
    assert (found.first_offset, found.end_offset) == (0, 1200)
    for empty in (["--from", "2100-01-01T00:00:00"], ["--to", "1969-12-31T23:59:59"]):
        told = command("top-k", *words, "--unit", UNIT, *empty)
        assert told.exit_code == 2, told.output
        assert "is empty" in told.stderr
    [charge] = place.charges()
    assert charge.end_offset == 1200
    [result] = place.answers({"id": "old", **TOP, "source": {"from": "1969-07-20T20:17:40Z"}})
    assert (result.status, result.first_offset, result.end_offset) == ("done", 0, EVENTS)


def test_a_dry_run_needs_no_server_and_reads_nothing(tmp_path: Path) -> None:
    nowhere = ("--redis", "redis://127.0.0.1:1/0", "--file", str(tmp_path / "none.csv"), "--source", "x")
    result = command("top-k", *nowhere, "--dry-run", "--json")
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert (told["source"], told["cost"]["delta"]) == ("x", 5e-7)
    assert told["cost"]["epsilon"] == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["top-k"], "the stream has no name"),
        (["top-k", "--file", "no.csv"], "must name the data source"),
        (["top-k", "--file", "no.csv", "--source", "x", "-k", "0"], "k must be a whole number"),
        (["top-k", "--file", "no.csv", "--source", "x", "--plot", "x.png"], "releases no counts to plot"),
        (["top-k", "--file", "no.csv", "--source", "x", "--from", "7"], "read whole"),
        (
            ["set-union", "--file", "no.csv", "--source", "x", "--mechanism", "greedi"],
            "did you mean 'greedy'",
        ),
        (["histogram", "--file", "no.csv", "--source", "x", "--mechanism", "known"], "needs bins"),
        (["histogram", "--file", "no.csv", "--source", "x", "--epsilon", "0"], "epsilon"),
    ],
)
def test_mistakes_are_told_in_one_sentence(words: list[str], told: str) -> None:
    result = command(*words)
    assert result.exit_code == 2
    assert told in " ".join(result.stderr.split())
    assert "Traceback" not in result.output


def test_jobs_are_listed(place: Place) -> None:
    place.answers({"id": "q", **TOP})
    words = ("--stream", place.settings.stream, "--redis", place.settings.redis, "--json")
    told = json.loads(command("jobs", "list", *words).stdout)
    assert told == {"jobs": [{"id": "q", "status": "done", "progress": "done"}], "schedules": []}


def test_a_union_of_many_labels_is_published_in_parts(place: Place) -> None:
    values = [json.dumps({"items": [f"{number:04d}" + "x" * 600]}).encode() for number in range(600)]
    for _ in range(8):
        place.feed(values)
    source = {"from": EVENTS, "to": EVENTS + 8 * 600}
    place.ask(id="many", **{**UNION, "unit": "event", "epsilon": 8}, source=source)
    with place.worker():
        results = place.results(2)
    assert results[0].parts == len(results)
    together = whole(place.published())
    assert len(together.labels) > 500
    assert together == whole(place.store.result("many") or [])
