"""The dashboard's process against a real broker: many viewers, restarts, outages, and what it connects to."""

import asyncio
import json
import random
import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from kafka import KafkaAdminClient

from stream_dp.config.settings import Settings
from stream_dp.dashboard import archive as archive_module
from stream_dp.dashboard.archive import Archive
from stream_dp.dashboard.guarantee import guarantee, protects
from stream_dp.events.record import Record
from stream_dp.kafka import log
from stream_dp.releases.estimates.intervals import whole_intervals
from stream_dp.releases.release import Release, decode_release
from tests.dashboard.running import Running, records, running
from tests.dashboard.viewer import Viewer
from tests.example_releases import release
from tests.releases.topic_in_memory import parts_of
from tests.system.conftest import KafkaOfOneTest
from tests.system.streams import Stream
from tests.system.ticking import MakeStream
from tests.system.waiting import GIVE_UP_SECONDS, wait_until

VIEWERS = 100


@pytest.fixture
def stream(kafka: str, topic_prefix: str, tmp_path: Path) -> Stream:
    found = Stream(Settings(stream=topic_prefix, kafka=kafka), tmp_path)
    found.create_topics()
    return found


@pytest.fixture
def dashboard(stream: Stream, tmp_path: Path) -> Iterator[Running]:
    with running(stream.settings.kafka, stream.settings.stream, tmp_path) as started:
        started.wait_until("/readyz", 200)
        yield started


def many(stream: Stream, first: int, last: int, labels: int = 5) -> list[Release]:
    """Releases of rounds `first` to `last`; every count tells its round."""
    return [
        release(
            number,
            {f"label {rank}": 1_000 * (labels - rank) + number for rank in range(labels)},
            stream.settings.stream,
        )
        for number in range(first, last + 1)
    ]


def told(shown: Release, unmetered: bool = False) -> dict[str, Any]:
    """What the API says of a release."""
    low, high = whole_intervals(shown)
    beside = {"low": low, "high": high, "total_margins": None}
    sentences = {"guarantee": guarantee(shown, unmetered), "protects": protects(shown)}
    return as_dict(shown) | beside | sentences | {"counts_what": shown.counts_what}


def wait_until_unmetered(dashboard: Running) -> None:
    """Return once the page's guarantee says that nothing pays for the epoch, which another topic tells it."""
    wait_until(
        lambda: "UNMETERED" in dashboard.get("/api/v1/release/latest")["guarantee"], dashboard.log.read_text
    )


def wait_until_one_connection(dashboard: Running) -> None:
    """Return once it is connected to Kafka by nothing but its reader; what looks something up is gone soon."""
    wait_until(lambda: len(connections(dashboard.process.pid)[0]) == 1, dashboard.log.read_text)


def as_dict(shown: Release | None) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(shown)
    return found


def connections(process: int | None) -> tuple[list[int], list[int]]:
    """Remote ports of the connections that a process has made, and the ports it listens on."""
    inodes: set[str] = set()
    for link in Path(f"/proc/{process}/fd").iterdir():
        try:
            found = re.fullmatch(r"socket:\[(\d+)\]", str(link.readlink()))
        except FileNotFoundError:
            continue
        inodes.update(found.groups() if found else ())
    rows = [
        line.split()
        for table in ("tcp", "tcp6", "udp", "udp6")
        for line in Path(f"/proc/{process}/net/{table}").read_text().splitlines()[1:]
    ]
    own = [row for row in rows if row[9] in inodes]
    listening = [int(row[1].rpartition(":")[2], 16) for row in own if row[3] == "0A"]
    remote = [
        int(row[2].rpartition(":")[2], 16)
        for row in own
        if row[3] != "0A" and int(row[1].rpartition(":")[2], 16) not in listening
    ]
    return remote, listening


async def watch(port: int, viewer: Viewer, until: int, first: asyncio.Event) -> None:
    """Read the stream of frames until a round."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**24)
    writer.write(b"GET /api/v1/stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
    head = await reader.readuntil(b"\r\n\r\n")
    assert b" 200 " in head.splitlines()[0]
    text = b""
    while viewer.round < until:
        size = int(await reader.readuntil(b"\r\n"), 16)
        text += (await reader.readexactly(size + 2))[:-2]
        *events, text = text.split(b"\n\n")
        for event in events:
            if event.startswith(b"event:"):
                viewer.read(event)
                first.set()
    writer.close()


async def test_a_hundred_viewers_get_few_frames_and_cost_one_reader(
    dashboard: Running, stream: Stream
) -> None:
    releases = many(stream, 1, 301, labels=200)
    stream.write(stream.settings.releases, records(releases[:1]))
    dashboard.wait_until_round(1)
    wait_until_one_connection(dashboard)
    viewers = [Viewer() for _ in range(VIEWERS)]
    ready = [asyncio.Event() for _ in viewers]
    watching = [
        asyncio.create_task(watch(dashboard.port, viewer, 301, first))
        for viewer, first in zip(viewers, ready, strict=True)
    ]
    async with asyncio.timeout(GIVE_UP_SECONDS):
        await asyncio.gather(*(each.wait() for each in ready))
        await asyncio.to_thread(wait_until_one_connection, dashboard)
        began = time.monotonic()
        for start in range(1, 301, 15):
            some = records(releases[start : start + 15])
            await asyncio.to_thread(stream.write, stream.settings.releases, some)
            await asyncio.sleep(0.05)
        await asyncio.gather(*watching)
    elapsed = time.monotonic() - began
    expected = dict(zip(releases[-1].labels, releases[-1].counts, strict=True))
    for viewer in viewers:
        assert viewer.counts == expected
        assert 2 <= viewer.wholes + viewer.updates <= 10 * elapsed + 10


def test_its_connections_lead_to_kafka_only_and_it_listens_on_loopback(
    dashboard: Running, stream: Stream
) -> None:
    stream.write(stream.settings.releases, records(many(stream, 1, 300)))
    dashboard.wait_until_round(300)
    assert dashboard.get("/api/v1/release?round=77")["round"] == 77
    remote, listening = connections(dashboard.process.pid)
    assert set(remote) == {int(stream.settings.kafka.rpartition(":")[2])}
    assert listening == [dashboard.port]
    table = Path(f"/proc/{dashboard.process.pid}/net/tcp").read_text()
    assert f"0100007F:{dashboard.port:04X} 00000000:0000 0A" in table


def test_what_it_shows_is_what_the_topic_holds_also_after_a_restart(
    dashboard: Running, stream: Stream
) -> None:
    releases = many(stream, 1, 500)
    stream.write(stream.settings.releases, records(releases[:400]))
    dashboard.wait_until_round(400)
    before = dashboard.get("/api/v1/history?label=label+1&label=none")
    assert before["rounds"] == list(range(4, 401, 4))
    assert before["series"][0]["counts"] == [4_000 + number for number in before["rounds"]]
    assert dashboard.stop() == 0
    stream.write(stream.settings.releases, records(releases[400:]))
    dashboard.start()
    dashboard.wait_until_round(500)
    assert dashboard.get("/api/v1/release/latest") == told(releases[-1])
    for number in (1, 2, 63, 256, 399, 400, 401, 500):
        assert dashboard.get(f"/api/v1/release?round={number}") == told(releases[number - 1])
    assert dashboard.get("/api/v1/release?at=9999-12-31") == told(releases[-1])
    assert dashboard.status("/api/v1/release?at=0001-01-01") == 404
    dashboard.wait_for_history("label+1", list(range(4, 501, 4)))
    after = dashboard.get("/api/v1/history?label=label+1&label=none")
    assert after["series"][0]["counts"][: len(before["rounds"])] == before["series"][0]["counts"]


@pytest.mark.parametrize("schedule", ["every-7", "every-250ms"])
def test_of_a_stream_that_releases_few_rounds_it_shows_a_trend_and_every_round(
    make_stream: MakeStream, kafka: str, topic_prefix: str, tmp_path: Path, schedule: str
) -> None:
    """A worker, ten to a hundred rounds a second, and a dashboard that comes afterwards."""
    with make_stream(release=schedule) as stream:
        published, rng = 1_769_860_800_000, random.Random(3)
        events = []
        for number, value in enumerate([b'{"items": ["tea"]}'] * 700):
            published += rng.randint(1, 20) * (10 if number % 300 < 100 else 1)
            events.append(Record(0, published, None, value))
        stream.write(stream.settings.events, events)
        assert stream.run(until_round=680) == 0
        releases = {
            each.round: each for each in (decode_release(it.value or b"") for it in stream.releases())
        }
        assert 30 < len(releases) < 300
        with running(kafka, topic_prefix, tmp_path) as dashboard:
            dashboard.wait_until_round(max(releases))
            wait_until_unmetered(dashboard)
            firsts = {number // 8: number for number in sorted(releases, reverse=True)}
            expected = [number for stretch, number in sorted(firsts.items()) if stretch]
            trend = dashboard.wait_for_history("tea", expected)
            histograms = [
                dict(zip(releases[number].labels, releases[number].counts, strict=True))
                for number in expected
            ]
            assert trend["series"][0]["counts"] == [each.get("tea") for each in histograms]
            for asked in (min(releases), *range(33, 41), 355, 699, 1023):
                newest = max(number for number in releases if number <= asked)
                answer = dashboard.get(f"/api/v1/release?round={asked}")
                # One that knows since when labels are shown may tell narrower intervals.
                widest = told(releases[newest], unmetered=True)
                for bound, at_most in (("low", min), ("high", max)):
                    bounds, widest_bounds = answer.pop(bound), widest.pop(bound)
                    assert [
                        at_most(pair) for pair in zip(bounds, widest_bounds, strict=True)
                    ] == widest_bounds
                assert answer == widest
            if min(releases) > 1:
                assert dashboard.status("/api/v1/release?round=1") == 404


def test_a_new_epoch_and_a_topic_made_anew_take_the_place_of_what_was_shown(
    dashboard: Running, stream: Stream
) -> None:
    stream.write(stream.settings.releases, records(many(stream, 1, 50)))
    dashboard.wait_until_round(50)
    second = [msgspec.structs.replace(each, epoch=2, nonce="22" * 16) for each in many(stream, 1, 20)]
    stream.write(stream.settings.releases, records(second))
    dashboard.wait_until_round(20)
    assert dashboard.get("/api/v1/release?round=20") == told(second[-1])
    anew = [msgspec.structs.replace(each, epoch=2, nonce="33" * 16) for each in many(stream, 1, 7)]
    stream.rewrite(stream.settings.releases, records(anew))
    dashboard.wait_until_round(7)
    assert dashboard.get("/api/v1/history?label=label+1")["rounds"] == list(range(1, 8))


def test_results_appear_when_their_topic_does(dashboard: Running, stream: Stream) -> None:
    assert dashboard.get("/api/v1/results") == []
    topic = f"{stream.settings.stream}.results"
    log.create_topics(stream.settings.kafka, topic)
    value = json.dumps({"status": "done", "job": "top-k", "labels": ["a", "b"], "counts": [7, 5]}).encode()
    stream.write(topic, [Record(0, 0, b"job-1", value), Record(0, 0, b"job-2", b"not JSON")])
    wait_until(lambda: bool(dashboard.get("/api/v1/results")), dashboard.log.read_text)
    found = dashboard.get("/api/v1/results")
    assert [(each["id"], each["labels"]) for each in found] == [("job-1", ["a", "b"])]
    stream.write(stream.settings.releases, records(many(stream, 1, 3)))
    dashboard.wait_until_round(3)


def test_it_waits_for_the_topic_and_outlives_the_broker(
    own_kafka: KafkaOfOneTest, topic_prefix: str, tmp_path: Path
) -> None:
    stream = Stream(Settings(stream=topic_prefix, kafka=own_kafka.address), tmp_path)
    with running(own_kafka.address, topic_prefix, tmp_path, as_program=True) as dashboard:
        text = dashboard.log.read_text
        wait_until(lambda: f"waiting for the topic '{topic_prefix}.releases'" in text(), text)
        assert dashboard.status("/readyz") == 503
        with KafkaAdminClient(bootstrap_servers=own_kafka.address) as admin:
            made = [name for name in admin.list_topics() if name.startswith(topic_prefix)]
        assert made == [], "a reader must not make topics"
        stream.create_topics()
        dashboard.wait_until("/readyz", 200)
        stream.write(stream.settings.releases, records(many(stream, 1, 5)))
        dashboard.wait_until_round(5)
        own_kafka.stop()
        dashboard.wait_until("/readyz", 503)
        assert dashboard.get("/api/v1/release/latest")["round"] == 5
        own_kafka.start()
        dashboard.wait_until("/readyz", 200)
        stream.write(stream.settings.releases, records(many(stream, 6, 9)))
        dashboard.wait_until_round(9)
        assert dashboard.get("/api/v1/history?label=label+0")["rounds"] == list(range(1, 10))
        logged = dashboard.log.read_text()
    assert "Kafka does not answer" in logged
    assert "Traceback" not in logged


def test_every_round_and_moment_is_found_and_none_that_is_not_there(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Epoch 1 in up to three parts a round, some of them twice, then epoch 2; a record a second."""
    monkeypatch.setattr(archive_module, "_ANSWER_SECONDS", GIVE_UP_SECONDS)
    first = [part for whole in many(stream, 1, 20, labels=6) for part in parts_of(whole, 1 + whole.round % 3)]
    second = [msgspec.structs.replace(each, epoch=2, nonce="22" * 16) for each in many(stream, 1, 15)]
    parts = [*first[:18], *first[10:], *second[:7], *second[4:]]
    written = [each._replace(timestamp=1_000 * at) for at, each in enumerate(records(parts), start=1)]
    stream.write(stream.settings.releases, written)
    archive = Archive(stream.settings.kafka, stream.settings.releases)
    places = {}
    newest: tuple[int, int] | None = None
    for at, part in enumerate(parts, start=1):
        place = part.epoch, part.round
        if part.part == part.parts and (newest is None or place > newest):
            newest = place
        places[at] = newest
    try:
        for whole in many(stream, 1, 20, labels=6)[::-1]:
            assert as_dict(archive.find(whole.round, 1)) == as_dict(whole)
        for whole in second:
            assert as_dict(archive.find(whole.round)) == as_dict(whole)
        assert [archive.find(*place) for place in ((0, 1), (1, 3))] == [None, None]
        assert as_dict(archive.find(21, 1)) == as_dict(many(stream, 20, 20, labels=6)[0])
        assert as_dict(archive.find(16, 2)) == as_dict(archive.find(16)) == as_dict(second[-1])
        for at, expected in places.items():
            found = archive.find(datetime.fromtimestamp(at, UTC))
            assert (None if found is None else (found.epoch, found.round)) == expected, at
        assert archive.find(datetime.fromtimestamp(0.5, UTC)) is None
        last_of_first = archive.find(datetime.fromtimestamp(10**6, UTC), 1)
        assert last_of_first is not None
        assert last_of_first.round == 20
        late = msgspec.structs.replace(many(stream, 16, 16)[0], epoch=2, nonce="22" * 16)
        stream.write(stream.settings.releases, records([late]))
        assert as_dict(archive.find(16)) == as_dict(late), "what came after the first question is found too"
    finally:
        archive.close()
