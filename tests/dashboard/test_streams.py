"""Several streams by one server: the index, the page of each below it, and nothing that is in between."""

from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from stream_dp.dashboard.app import Dashboard
from stream_dp.dashboard.guarantee import protects
from stream_dp.dashboard.protection import CONTENT_SECURITY_POLICY
from stream_dp.dashboard.streams import Streams
from tests.dashboard.test_app import STATIC, Topic, of_form

NAMES = ("shop", "news", "a.b-c_1")
LIST = {"type": "array", "items": {"$ref": "#/components/schemas/StreamSummary"}}


@pytest.fixture
def topics() -> dict[str, Topic]:
    return {name: Topic(name) for name in NAMES}


@pytest.fixture
def streams(topics: dict[str, Topic]) -> Streams:
    return Streams([Dashboard(each) for each in topics.values()])  # type: ignore[arg-type]


@pytest.fixture
def client(streams: Streams, topics: dict[str, Topic]) -> Iterator[TestClient]:
    with TestClient(streams.app(embedders=["https://a.example"]), follow_redirects=False) as client:
        assert all(each.running for each in topics.values())
        yield client
    assert not any(each.running for each in topics.values())


def test_the_index_says_how_each_stream_is(topics: dict[str, Topic], client: TestClient) -> None:
    made = topics["shop"].release(7, {"tea": 300, "milk": 200, "rye": 190, "oats": 180})
    topics["news"].board.set_state("no-topic")
    told = client.get("/api/v1/streams").json()
    of_form(LIST).validate(told)
    shop, news, other = told
    assert [each["stream"] for each in told] == list(NAMES)
    assert [each["address"] for each in told] == [f"streams/{name}/" for name in NAMES]
    assert (shop["state"], news["state"], other["state"]) == ("open", "no-topic", "connecting")
    assert (shop["release"]["round"], shop["released"]) == (7, 4)
    assert shop["largest"] == ["tea", "milk", "rye"]
    assert (shop["rounds"], shop["counts"]) == ([7], [300])
    assert (news["rounds"], news["counts"]) == ([], [])
    assert shop["protects"] == protects(made)
    assert (news["release"], news["released"], news["largest"], news["protects"]) == (None, None, [], None)


def test_it_tells_nothing_that_the_page_of_a_stream_does_not(
    topics: dict[str, Topic], client: TestClient
) -> None:
    """Every field is one of a frame, of the release, or made of the release's labels."""
    topics["shop"].release(7, {"tea": 300})
    told = client.get("/api/v1/streams").json()[0]
    frame = topics["shop"].board.release
    of_frame = {"stream", "state", "age", "delay", "behind", "release", "protects"}
    assert told.keys() == of_frame | {"address", "released", "largest", "rounds", "counts", "unmetered"}
    assert (
        told["counts"] == client.get("/streams/shop/api/v1/history?label=tea").json()["series"][0]["counts"]
    )
    assert frame is not None
    assert told["largest"] == frame.labels
    assert "labels" not in told["release"]


def test_each_has_below_its_name_what_it_has_as_the_only_one(
    topics: dict[str, Topic], client: TestClient
) -> None:
    for count, name in enumerate(NAMES, start=1):
        topics[name].release(count, {name: 300})
    for count, name in enumerate(NAMES, start=1):
        place = f"/streams/{name}"
        assert client.get(f"{place}/api/v1/release/latest").json()["labels"] == [name]
        assert client.get(f"{place}/api/v1/release?round={count}").json()["round"] == count
        assert client.get(f"{place}/api/v1/history?label={name}").json()["rounds"] == [count]
        assert client.get(f"{place}/api/v1/results").json() == []
        assert [each["stream"] for each in client.get(f"{place}/api/v1/streams").json()] == [name]
        for file in ("dashboard.js", "protection.html", "openapi.json", "vendor/uplot/uPlot.esm.js"):
            assert client.get(f"{place}/{file}").content == (STATIC / file).read_bytes()
        assert client.get(f"{place}/readyz").status_code == 200


def test_the_page_of_one_of_several_leads_back(client: TestClient) -> None:
    page = (STATIC / "index.html").read_text()
    placed = client.get("/streams/shop/").text
    assert placed == page.replace('<html lang="en">', '<html lang="en" data-place="one-of-several">')
    assert (
        client.get("/streams/shop/", headers={"Accept-Encoding": "gzip"}).headers["content-encoding"]
        == "gzip"
    )


def test_a_link_without_its_last_slash_keeps_what_it_asks_for(client: TestClient) -> None:
    """The address is relative, so that it leads below any path that a proxy adds."""
    answer = client.get("/streams/shop?label=tea&round=7")
    assert (answer.status_code, answer.headers["location"]) == (307, "shop/?label=tea&round=7")


def test_what_is_no_stream_is_not_there(client: TestClient) -> None:
    for path in (
        "/streams/",
        "/streams/none/",
        "/streams/none",
        "/streams/sho/",
        "/streams/aXb-c_1/",
        "/embed",
    ):
        assert client.get(path).status_code == 404, path
    for path in ("/api/v1/release/latest", "/streams/none/api/v1/release/latest", "/api/v1/stream"):
        assert client.get(path).status_code == 404, path
    assert client.get("/streams/shop/../../app.py").status_code == 404
    assert (
        client.get("/index.html").content == client.get("/").content == (STATIC / "streams.html").read_bytes()
    )


def test_every_answer_is_safe_and_only_the_embedded_pages_may_be_framed(client: TestClient) -> None:
    for path in (
        "/",
        "/streams.js",
        "/api/v1/streams",
        "/streams/shop/",
        "/streams/shop/dashboard.js",
        "/none",
    ):
        assert client.get(path).headers["content-security-policy"] == CONTENT_SECURITY_POLICY, path
    framed = client.get("/streams/shop/embed").headers["content-security-policy"]
    assert "frame-ancestors 'self' https://a.example" in framed
    for path in ("/stream-dp-chart.js", "/streams/shop/stream-dp-chart.js"):
        assert client.get(path).headers["access-control-allow-origin"] == "*"


def test_one_password_is_in_front_of_all_of_it(streams: Streams) -> None:
    with TestClient(streams.app(("anna", "secret"))) as client:
        for path in (
            "/",
            "/api/v1/streams",
            "/streams/shop/",
            "/streams/shop/api/v1/release/latest",
            "/streams/shop",
        ):
            assert client.get(path).status_code == 401, path
            assert client.get(path, auth=("anna", "secret")).status_code != 401, path
        assert client.get("/livez").status_code == client.get("/readyz").status_code == 200


def test_a_stream_that_is_not_there_takes_the_others_from_nobody(
    topics: dict[str, Topic], client: TestClient
) -> None:
    topics["news"].ready = False
    assert client.get("/readyz").status_code == 200
    assert client.get("/streams/news/readyz").status_code == 503
    for each in topics.values():
        each.ready = False
    assert client.get("/readyz").status_code == 503
    assert client.get("/livez").status_code == 200
