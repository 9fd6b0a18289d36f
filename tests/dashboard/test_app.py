"""The HTTP side: what is answered, in which form, to whom, and under which protection."""

import asyncio
import base64
import json
import time
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from jsonschema import Draft202012Validator, ValidationError
from kafka.errors import KafkaTimeoutError
from msgspec import convert, to_builtins
from msgspec.structs import replace
from starlette.testclient import TestClient

from stream_dp.dashboard import windows
from stream_dp.dashboard.app import MOST_LABELS, Dashboard
from stream_dp.dashboard.board import Board
from stream_dp.dashboard.guarantee import guarantee, protects
from stream_dp.dashboard.results import read_result
from stream_dp.kafka.log import LogRefused
from stream_dp.releases.estimates.intervals import whole_intervals
from stream_dp.releases.release import Release
from stream_dp.releases.whole_release import WholeRelease
from stream_dp.releases.window_record import WindowRecord, record_of
from stream_dp.releases.windows import Span, window_between
from tests.dashboard.viewer import Viewer
from tests.example_releases import release

STATIC = Path(__file__).parents[2] / "stream_dp" / "dashboard" / "static"
SCRIPTS = sorted(STATIC.glob("*.js"))
API: dict[str, Any] = json.loads((STATIC / "openapi.json").read_text())


class Topic:
    """In place of the reader: a board, and releases of the past in a dictionary."""

    def __init__(self, stream: str = "shop") -> None:
        self.stream = stream
        self.board = Board()
        self.archive = self
        self.held: dict[int, Release] = {}
        self.ready, self.running = True, False
        self.broken: Exception | None = None
        self.looks: list[tuple[int, str]] = []
        self.nows: list[int] = []

    def start(self) -> None:
        self.running = True

    def stop(self) -> None:
        self.running = False

    def is_ready(self) -> bool:
        return self.ready

    def find(self, at: int | datetime, epoch: int | None = None) -> Release | None:
        """The newest that is held up to a round; of a moment, the round of its minute."""
        if self.broken is not None:
            raise self.broken
        asked = at if isinstance(at, int) else at.minute
        held = [number for number in self.held if number <= asked]
        return self.held[max(held)] if held and epoch in (None, 1) else None

    def find_near(self, round_number: int, epoch: int) -> Release | None:
        """The first that is held from a round on."""
        return next((self.held[number] for number in sorted(self.held) if number >= round_number), None)

    def window(self, made: Release, span: Span, now: int = 0) -> WindowRecord:
        """That from the round before."""
        self.nows.append(now)
        if self.broken is not None:
            raise self.broken
        self.looks.append((made.round, str(span)))
        whole = [
            convert(to_builtins(self.held[number]), WholeRelease) for number in (made.round - 1, made.round)
        ]
        return record_of(window_between(whole[1], whole[0]), span)

    def release(self, round_number: int, counts: dict[str, int]) -> Release:
        self.held[round_number] = release(round_number, counts)
        self.board.take(self.held[round_number], 1_000.0, 0.0, 0, 0.0, True)
        return self.held[round_number]


@pytest.fixture
def topic() -> Topic:
    return Topic()


class DescribedClient(TestClient):
    """Every answer of the API that a test asks for is one that its description knows."""

    def get(self, url: Any, **options: Any) -> Any:
        answer = super().get(url, **options)
        path = urlsplit(str(url)).path
        if path in API["paths"]:
            check_form(path, answer)
        return answer


@pytest.fixture
def client(topic: Topic) -> Any:
    with DescribedClient(Dashboard(topic).app()) as client:  # type: ignore[arg-type]
        assert topic.running
        yield client
    assert not topic.running


def check_form(path: str, answer: Any) -> None:
    """The description of the API names this status, and the form of this body."""
    described = API["paths"][path]["get"]["responses"][str(answer.status_code)]
    if "$ref" in described:
        described = API["components"]["responses"][described["$ref"].rpartition("/")[2]]
    if "content" in described:
        [(media_type, form)] = described["content"].items()
        assert answer.headers["content-type"] == media_type
        of_form(form["schema"]).validate(answer.json())


def of_form(schema: dict[str, Any]) -> Any:
    """Fields that the description does not know are refused too."""
    components = json.loads(json.dumps(API["components"]))
    for each in components["schemas"].values():
        each["additionalProperties"] = False
    return Draft202012Validator(schema | {"components": components})


@pytest.mark.parametrize("body", [{}, {"error": 3}, {"error": "why", "more": 1}])
def test_an_answer_of_another_form_would_be_noticed(body: object) -> None:
    with pytest.raises(ValidationError):
        of_form({"$ref": "#/components/schemas/Problem"}).validate(body)


def test_releases_history_and_results_are_answered_as_described(topic: Topic, client: TestClient) -> None:
    first, second = topic.release(1, {"a": 300}), topic.release(2, {"a": 310, "b": 120})
    found = read_result(b"j", b'{"status": "done", "labels": ["x"], "counts": [4], "cost": {"epsilon": 1}}')
    assert found is not None
    topic.board.take_result(found)
    for path, query, expected in [
        ("/api/v1/release/latest", "", second),
        ("/api/v1/release", "?round=1", first),
        ("/api/v1/release", "?round=1&epoch=1", first),
        ("/api/v1/release", "?at=2026-01-31T12:01:00Z", first),
        ("/api/v1/release", "?at=2026-01-31T12:02", second),
        ("/api/v1/release", "?at=2026-01-31T13:02:00%2B01:00&epoch=1", second),
    ]:
        told = client.get(path + query).json()
        assert (told.pop("guarantee"), told.pop("protects")) == (guarantee(expected), protects(expected))
        assert (told.pop("low"), told.pop("high")) == whole_intervals(expected)
        assert told.pop("total_margins") is None
        assert told.pop("counts_what") == expected.counts_what
        assert told == to_builtins(expected)
    told = client.get("/api/v1/history?label=a&label=b").json()
    assert [each["counts"] for each in told["series"]] == [[300, 310], [None, 120]]
    told = client.get("/api/v1/results").json()
    assert told[0]["labels"] == ["x"]


def test_earlier_epochs_have_histories_too(topic: Topic, client: TestClient) -> None:
    topic.held = {number: release(number, {"a": 300 + number}) for number in (3, 7)}
    topic.board.take(replace(release(5, {"a": 1}), epoch=2, nonce="22" * 16), 1_000.0, 0.0, 0, 0.0, True)
    told = client.get("/api/v1/history?label=a&epoch=1").json()
    assert (told["rounds"], told["series"][0]["counts"]) == ([3, 7], [303, 307])
    newest = client.get("/api/v1/history?label=a").json()
    assert newest["rounds"] == [5]
    assert client.get("/api/v1/history?label=a&epoch=2").json() == newest
    told = client.get("/api/v1/history?label=a&epoch=3")
    assert (told.status_code, told.json()) == (404, {"error": "epoch 3 has not begun: the newest is 2"})
    topic.board.take(replace(release(1, {}), epoch=3, nonce="33" * 16), 1_000.0, 0.0, 0, 0.0, True)
    assert client.get("/api/v1/history?label=a&epoch=2").json()["rounds"] == []
    topic.broken = KafkaTimeoutError("gone")
    assert client.get("/api/v1/history?label=a&epoch=1").status_code == 503


def test_windows_are_answered_as_described_and_the_newest_is_found_once(
    topic: Topic, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert client.get("/api/v1/window?span=5m").status_code == 404
    for number in range(1, 4):
        topic.release(number, {"a": 300 + 10 * number, "b": 120})
    for _ in range(3):
        told = client.get("/api/v1/window?span=5m").json()
        assert (told["window"], told["since_round"], told["round"]) == ("5m", 2, 3)
        assert dict(zip(told["labels"], told["counts"], strict=True)) == {"a": 10, "b": 0}
    assert topic.looks == [(3, "5m")]
    topic.release(4, {"a": 400, "b": 120})
    assert client.get("/api/v1/window?span=5m").json()["round"] == 3, "half a second has not passed"
    monkeypatch.setattr(windows, "_SECONDS_BETWEEN", 0.0)
    assert client.get("/api/v1/window?span=5m").json()["round"] == 4
    past = client.get("/api/v1/window?span=1h&round=2&epoch=1").json()
    assert (past["window"], past["since_round"], past["round"]) == ("1h", 1, 2)
    assert client.get("/api/v1/window?span=1h&round=2&epoch=7").status_code == 404
    assert [now > time.time() * 1_000 - 60_000 for now in topic.nows] == [True, True, False]
    monkeypatch.setattr(windows, "_SHARE_OF_SPAN", 0.0)
    topic.looks.clear()
    for span in ("5m", "1", "5m", "1"):
        client.get(f"/api/v1/window?span={span}")
    assert topic.looks == [(4, "5m"), (4, "1"), (4, "5m")], "one by time begins later as time goes by"


@pytest.mark.parametrize(
    "asked", ["", "span=", "span=soon", "span=5m&round=0", "span=5m&round=1&at=2026-01-31"]
)
def test_what_is_no_window_is_told(topic: Topic, client: TestClient, asked: str) -> None:
    topic.release(1, {"a": 300})
    answer = client.get(f"/api/v1/window?{asked}")
    assert answer.status_code == 400
    assert topic.looks == []


def test_without_kafka_there_is_no_window_and_the_next_question_looks_again(
    topic: Topic, client: TestClient
) -> None:
    for number in (1, 2):
        topic.release(number, {"a": 300})
    topic.broken = KafkaTimeoutError()
    assert client.get("/api/v1/window?span=5m").status_code == 503
    topic.broken = LogRefused("there is no such topic")
    assert client.get("/api/v1/window?span=5m").status_code == 404
    topic.broken = None
    assert client.get("/api/v1/window?span=5m").status_code == 200


async def test_few_different_windows_are_looked_for_at_once_and_all_who_ask_for_one_wait_for_it(
    topic: Topic,
) -> None:
    for number in (1, 2):
        topic.release(number, {"a": 300})
    found = windows.Windows(topic.board, topic)  # type: ignore[arg-type]
    many = [asyncio.create_task(found.newest(Span.of("5m"))) for _ in range(100)]
    others = [asyncio.create_task(found.newest(Span.of(number))) for number in range(1, 20)]
    answers = await asyncio.gather(*many, *others, return_exceptions=True)
    assert len(set(answers[:100])) == 1
    refused = [each for each in answers[100:] if isinstance(each, windows.TooManySpans)]
    assert len(refused) == 19 - 7
    assert len(topic.looks) == 8


def test_the_description_is_openapi_and_names_every_address(client: TestClient) -> None:
    assert client.get("/openapi.json").json() == API
    served = {route.path for route in Dashboard(Topic()).app().routes}  # type: ignore[arg-type, attr-defined]
    files = ""  # everything in the folder `static`, and nothing else
    assert served == API["paths"].keys() | {files}
    names = {"index.html", "streams.html", "protection.html", "dashboard.css", "openapi.json"} | {
        file.name for file in SCRIPTS
    }
    assert {file.name for file in STATIC.iterdir()} == names | {"vendor"}
    for name in names:
        assert client.get(f"/{name}").content == (STATIC / name).read_bytes()
    assert client.get("/").content == (STATIC / "index.html").read_bytes()
    assert client.get("/chart.js").headers["content-encoding"] == "gzip"
    for outside in ("/../app.py", "/%2e%2e/app.py", "/..%2fapp.py", "//etc/passwd"):
        assert client.get(outside).status_code == 404
    for schema in API["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)


async def test_frames_are_as_described(topic: Topic) -> None:
    dashboard = Dashboard(topic)  # type: ignore[arg-type]
    seen = 0
    for step in range(3):
        if step:
            topic.release(step, {"a": 300 + step, "b": 200})
            dashboard.frames._make()
        seen, frame = await dashboard.frames.next(seen)
        data = json.loads(frame.decode().split("data: ", 1)[1])
        of_form({"$ref": "#/components/schemas/Frame"}).validate(data)


def test_the_stream_begins_with_the_whole_picture(topic: Topic) -> None:
    """The test client reads answers whole, so the server is made to stop after its first frame."""
    dashboard = Dashboard(topic)  # type: ignore[arg-type]
    topic.release(7, {"<script>": 300})
    first = dashboard.frames.next

    async def once(seen: int) -> tuple[int, bytes]:
        return await first(seen) if not seen else (seen, b"")

    dashboard.frames.next = once  # type: ignore[method-assign]
    with TestClient(dashboard.app()) as client:
        answer = client.get("/api/v1/stream")
    assert answer.headers["content-type"].startswith("text/event-stream")
    retry, event, _ = answer.text.split("\n\n")
    assert retry == "retry: 1000"
    viewer = Viewer()
    viewer.read(event.encode())
    assert (viewer.round, viewer.counts) == (7, {"<script>": 300})
    assert dashboard.frames.viewers == 0


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/v1/release/latest", 404),
        ("/api/v1/release?round=1", 404),
        ("/api/v1/release?at=2026-01-31T12:00:00Z", 404),
        ("/api/v1/release", 400),
        ("/api/v1/release?round=1&at=2026-01-31", 400),
        ("/api/v1/release?round=x", 400),
        ("/api/v1/release?round=0", 400),
        ("/api/v1/release?round=" + "9" * 30, 400),
        ("/api/v1/release?round=1&epoch=-1", 400),
        ("/api/v1/release?at=noon", 400),
        ("/api/v1/release?at=1000", 400),
        ("/api/v1/release?at=2026-01-31T13:02:00+01:00", 400),
        ("/api/v1/history", 400),
        ("/api/v1/history?label=a&epoch=0", 400),
        ("/api/v1/history?" + "&".join(["label=a"] * (MOST_LABELS + 1)), 400),
    ],
)
def test_a_question_that_cannot_be_answered_gets_one_sentence(
    client: TestClient, path: str, status: int
) -> None:
    answer = client.get(path)
    assert answer.status_code == status
    assert set(answer.json()) == {"error"}


def test_rounds_that_are_gone_or_to_come_and_a_silent_broker(topic: Topic, client: TestClient) -> None:
    topic.release(5, {})
    assert client.get("/api/v1/release?round=5").status_code == 200
    assert client.get("/api/v1/release?round=6").json()["round"] == 5
    told = client.get("/api/v1/release?round=4").json()
    assert told == {"error": "the topic does not hold a release of round 4 or before"}
    told = client.get("/api/v1/release?at=2026-01-31T12:07&epoch=2").json()["error"]
    assert told == "the topic does not hold a release of 2026-01-31T12:07:00+00:00 or before of epoch 2"
    topic.broken = KafkaTimeoutError("gone")
    assert client.get("/api/v1/release?round=5").status_code == 503
    topic.broken = LogRefused("Kafka has no topic")
    assert client.get("/api/v1/release?at=2026-01-31").json() == {"error": "Kafka has no topic"}


def test_probes_mean_it(topic: Topic, client: TestClient) -> None:
    assert (client.get("/livez").status_code, client.get("/readyz").status_code) == (200, 200)
    topic.ready = False
    assert (client.get("/livez").status_code, client.get("/readyz").status_code) == (200, 503)


def test_with_a_password_only_probes_are_open(topic: Topic) -> None:
    with TestClient(Dashboard(topic).app(("anna", "päss:word"))) as client:  # type: ignore[arg-type]
        for path in (
            "/",
            "/dashboard.js",
            "/api/v1/stream",
            "/api/v1/release/latest",
            "/openapi.json",
            "/nowhere",
        ):
            for given in (
                "",
                "Basic",
                "Basic !!",
                "Bearer x",
                "Basic " + coded("anna:wrong"),
                "Basic " + coded("anna"),
            ):
                answer = client.get(path, headers={"Authorization": given} if given else {})
                assert answer.status_code == 401, (path, given)
                assert answer.headers["www-authenticate"].startswith("Basic ")
                assert "content-security-policy" in answer.headers
        assert client.get("/livez").status_code == 200
        assert (
            client.get("/", headers={"Authorization": "Basic " + coded("anna:päss:word")}).status_code == 200
        )


def coded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def test_every_answer_forbids_what_the_page_does_not_need(client: TestClient) -> None:
    for path in ("/", "/dashboard.css", "/api/v1/results", "/nowhere", "/livez"):
        headers = client.get(path).headers
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
        assert "unsafe" not in policy
        assert "http" not in policy
        assert headers["x-content-type-options"] == "nosniff"
    assert client.post("/api/v1/results").status_code == 405


def test_a_file_that_has_not_changed_is_not_sent_again(client: TestClient) -> None:
    answer = client.get("/dashboard.js")
    again = client.get("/dashboard.js", headers={"If-None-Match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert answer.headers["cache-control"] == again.headers["cache-control"] == "no-cache"
    assert answer.headers["content-type"].partition(";")[0] in ("text/javascript", "application/javascript")
