"""The topic of windows on real servers: it follows the releases, and whatever became of its writer, it is whole."""

import json
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from itertools import islice
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

import stream_dp
from stream_dp.cli import app
from stream_dp.config.settings import Settings
from stream_dp.config.times import iso_timestamp, milliseconds, parse_time
from stream_dp.events.record import Record
from stream_dp.kafka import log
from stream_dp.releases.lookup import find_release
from stream_dp.releases.new_labels import NewLabel
from stream_dp.releases.release import LARGEST_PART, Release
from stream_dp.releases.topic import ReleasesTopic
from stream_dp.releases.window_lookup import find_window
from stream_dp.releases.window_readers import Windows
from stream_dp.releases.window_record import WindowRecord, cut_to_fit, record_of
from stream_dp.releases.windows import FALSE_DISCOVERIES, Move, Span, window_between
from stream_dp.workers.windows import WindowsWriter
from tests.docs.schemas import schema
from tests.example_releases import release
from tests.system.example_events import some_events
from tests.system.streams import Stream, ended
from tests.system.ticking import MakeStream
from tests.system.waiting import wait_until

NOON = 1_769_860_800_000
SECOND = 1_000
ROUNDS = 40
SPANS = ["10s", "1m", "7"]


def shown(name: str, number: int) -> Release:
    """Two releases a second, in which milk takes off at the end."""
    counts = {"tea": 2_000 + 3 * number, "milk": 500 + 300 * max(0, number - 30)}
    if number > 20:
        counts["päron"] = 150 + number
    made = release(number, counts, name)
    ts = iso_timestamp(NOON + number * SECOND // 2)
    return msgspec.structs.replace(made, ts=ts, previous=number - 1, shown="kept")


def made(kafka: str, name: str, folder: Path, rounds: int = ROUNDS) -> Stream:
    """A stream without a worker, whose releases are there.  It has no Redis."""
    settings = Settings(stream=name, kafka=kafka, redis="redis://127.0.0.1:1/0")
    stream = Stream(settings, folder)
    log.create_topics(kafka, settings.releases)
    publish(stream, range(1, rounds + 1))
    return stream


def publish(stream: Stream, rounds: range) -> None:
    written = [(shown(stream.settings.stream, number), number) for number in rounds]
    stream.write(
        stream.settings.releases,
        [Record(0, NOON + number * SECOND // 2, b"s", msgspec.json.encode(each)) for each, number in written],
    )


def records(stream: Stream) -> list[Record]:
    topic = stream.settings.windows_topic
    return stream.records(topic) if topic in log.topics(stream.settings.kafka) else []


def windows(found: Sequence[Record]) -> list[WindowRecord]:
    for record in found:
        assert schema("window").is_valid(json.loads(record.value or b""))
    return [msgspec.json.decode(record.value or b"", type=WindowRecord) for record in found]


def write_all(stream: Stream, last: int = ROUNDS, start: str = "earliest", every: float = 1.0) -> None:
    """Write until the windows of the last round are there, which come behind all others."""
    spans = [Span.of(each) for each in SPANS]

    def newest() -> list[WindowRecord]:
        return windows(records(stream)[-len(SPANS) :])

    with WindowsWriter(stream.settings, spans, start, every) as writer:
        wait_until(
            lambda: (
                writer.write(0.2) >= 0
                and {each.window for each in newest() if each.round == last} >= {*SPANS}
            ),
            lambda: str(newest()),
        )
        assert writer.write(0.2) == 0


def bare(found: Sequence[Record], name: str) -> list[tuple[bytes | None, bytes, int]]:
    """Key, value without the stream's name, and time."""
    return [(each.key, (each.value or b"").replace(name.encode(), b"NAME"), each.timestamp) for each in found]


def test_once_a_second_it_says_of_each_window_what_happened_and_who_moved(
    kafka: str, topic_prefix: str, tmp_path: Path
) -> None:
    stream = made(kafka, topic_prefix, tmp_path)
    write_all(stream)
    found = windows(records(stream))
    assert [each.window for each in found] == SPANS * (len(found) // 3)
    assert sorted({each.round for each in found}) == [1, *range(2, ROUNDS + 1, 2)]
    last = {each.window: each for each in found[-3:]}
    assert dict(zip(last["10s"].labels, last["10s"].counts, strict=True)) == {
        "milk": 3_000,
        "tea": 60,
        "päron": 190 - 111,
    }
    assert [each.label for each in last["10s"].new] == ["päron"]
    assert (last["10s"].since_round, last["10s"].moves) == (20, None)
    assert (last["7"].since_round, [each.label for each in last["7"].moves or []]) == (33, ["milk"])
    assert last["1m"].moves is None, "there is no such window before"
    assert not last["1m"].complete
    assert {record.key for record in records(stream)} == {b"10s", b"1m", b"7"}
    assert records(stream)[-1].timestamp == NOON + ROUNDS * SECOND // 2


@pytest.mark.parametrize("written", [1, 2, 3, 31, 32, 33])
def test_a_writer_that_follows_a_dead_one_writes_what_is_missing_and_nothing_else(
    kafka: str, topic_prefix: str, tmp_path: Path, written: int
) -> None:
    whole = made(kafka, f"{topic_prefix}-whole", tmp_path)
    write_all(whole)
    expected = bare(records(whole), whole.settings.stream)
    torn = made(kafka, topic_prefix, tmp_path)
    log.create_topics(kafka, torn.settings.windows_topic)
    begun = [
        each._replace(
            value=(each.value or b"").replace(whole.settings.stream.encode(), topic_prefix.encode())
        )
        for each in records(whole)[:written]
    ]
    torn.write(torn.settings.windows_topic, begun)
    write_all(torn, start="latest")
    assert bare(records(torn), topic_prefix) == expected


def test_where_a_broker_dates_records_itself_a_period_is_still_that_of_its_release(
    kafka: str, topic_prefix: str, tmp_path: Path
) -> None:
    whole = made(kafka, f"{topic_prefix}-whole", tmp_path)
    write_all(whole)
    torn = made(kafka, topic_prefix, tmp_path)
    log.create_topics(kafka, torn.settings.windows_topic)
    torn.write(
        torn.settings.windows_topic,
        [
            each._replace(
                value=(each.value or b"").replace(whole.settings.stream.encode(), topic_prefix.encode()),
                timestamp=each.timestamp + 3_600 * SECOND,
            )
            for each in records(whole)[: 2 * len(SPANS)]  # whole, and another release of its period follows
        ],
    )
    write_all(torn, start="latest")
    expected = [each[:2] for each in bare(records(whole), whole.settings.stream)]
    assert [each[:2] for each in bare(records(torn), topic_prefix)] == expected


def test_killed_again_and_again_the_program_leaves_nothing_out(
    kafka: str, topic_prefix: str, tmp_path: Path
) -> None:
    whole = made(kafka, f"{topic_prefix}-whole", tmp_path, 4 * ROUNDS)
    write_all(whole, 4 * ROUNDS, every=0.1)
    stream = made(kafka, topic_prefix, tmp_path, ROUNDS)
    options = [word for each in SPANS for word in ("--window", each)]
    words = ("windows", "--from", "earliest", "--every", "0.1", *options)
    for part in range(1, 5):
        process = stream.start_command(*words)
        least = 60 * part
        wait_until(
            lambda least=least: len(records(stream)) >= least,  # type: ignore[misc]
            lambda: stream.log_file.read_text(),
        )
        process.kill()
        ended(process)
        if part < 4:
            publish(stream, range(part * ROUNDS + 1, (part + 1) * ROUNDS + 1))
    write_all(stream, 4 * ROUNDS, every=0.1)
    assert bare(records(stream), topic_prefix) == bare(records(whole), whole.settings.stream)


@pytest.mark.apache("roles")
def test_it_follows_a_worker_and_ends_in_peace(make_stream: MakeStream) -> None:
    with make_stream(delta=0.1) as stream:
        process = stream.start_command("windows", "--window", "1h")
        stream.feed(some_events(40, seed=1))
        assert stream.run(until_round=40) == 0
        wait_until(lambda: len(records(stream)) > 0, lambda: stream.log_file.read_text())
        stream.stop(process)
        assert {each.window for each in windows(records(stream))} == {"1h"}


def test_it_begins_with_now_unless_told_otherwise(kafka: str, topic_prefix: str, tmp_path: Path) -> None:
    stream = made(kafka, topic_prefix, tmp_path)
    write_all(stream, start="latest")
    assert {each.round for each in windows(records(stream))} == {ROUNDS}


def test_a_subscriber_tail_and_whoever_looks_one_release_up_have_the_same_windows(
    kafka: str, topic_prefix: str, tmp_path: Path
) -> None:
    releases = ReleasesTopic(kafka, made(kafka, topic_prefix, tmp_path).settings.releases)
    with closing(releases):
        for text in SPANS:
            span = Span.of(text)
            with stream_dp.subscribe(kafka, topic_prefix, "earliest") as subscription:
                windows = subscription.windows(text, false_discoveries=FALSE_DISCOVERIES)
                row = [record_of(window, span) for window in islice(windows, ROUNDS)]
            words = [
                "tail",
                "--stream",
                topic_prefix,
                "--kafka",
                kafka,
                "--from",
                "earliest",
                "--window",
                text,
            ]
            told = CliRunner().invoke(app, [*words, "--rounds", f"{ROUNDS}", "--json"])
            assert [msgspec.json.decode(line, type=WindowRecord) for line in told.stdout.splitlines()] == row
            assert [each.round for each in row] == [*range(1, ROUNDS + 1)]
            with (
                stream_dp.subscribe(kafka, topic_prefix) as other,
                Windows(other.again, span, 0.05) as following,
            ):
                for number in (1, 7, 8, 14, 21, 31, ROUNDS):
                    release = find_release(releases, number)
                    assert release is not None
                    alone = record_of(find_window(releases, release, span), span)
                    assert alone == record_of(following.window(release), span)


def test_the_newest_window_by_time_ends_now_and_empties_while_nothing_is_released(
    kafka: str, topic_prefix: str, tmp_path: Path
) -> None:
    releases = ReleasesTopic(kafka, made(kafka, topic_prefix, tmp_path).settings.releases)
    with closing(releases):
        newest, older = find_release(releases, ROUNDS), find_release(releases, ROUNDS - 3)
        assert newest is not None
        assert older is not None
        ends, before = (milliseconds(parse_time(each.ts)) for each in (newest, older))
        span = Span(milliseconds=5_000)
        at = partial(find_window, releases, newest, span)
        assert record_of(at(now=ends - 1), span) == record_of(at(), span)
        assert at(now=ends + 500).moves is not None, "too short a silence to doubt"
        assert record_of(at(now=before + 5_000), span) == record_of(window_between(newest, older), span)
        for silent in (at(now=ends + 5_000), at(now=ends + 3_600_000)):
            assert (silent.since, silent.labels, silent.moves, silent.complete) == (newest, [], None, True)
        rounds = Span(rounds=5)
        by_rounds = find_window(releases, newest, rounds)
        assert record_of(find_window(releases, newest, rounds, now=ends + 3_600_000), rounds) == record_of(
            by_rounds, rounds
        )


def test_a_topic_of_others_is_refused(kafka: str, topic_prefix: str, tmp_path: Path) -> None:
    stream = made(kafka, topic_prefix, tmp_path)
    log.create_topics(kafka, stream.settings.windows_topic)
    stream.write(stream.settings.windows_topic, [Record(0, NOON, b"customer 7", b"something else")])
    words = ["windows", "--stream", topic_prefix, "--kafka", kafka, "--window", "5m"]
    found = CliRunner().invoke(app, words)
    assert isinstance(found.exception, SystemExit)
    assert "holds a record that is not a window" in " ".join(found.stderr.split())
    assert len(records(stream)) == 1


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--settings", "window.toml"], 'each release of mechanism = "window" is a window already'),
        (["--window", "soon"], "a window is a time such as"),
        (["--window", "5m", "--window", "5m"], "names one twice"),
    ],
)
def test_what_is_no_window_is_told(
    words: list[str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("window.toml").write_text('mechanism = "window"\nwindow = 60\n')
    found = CliRunner().invoke(app, ["windows", "--stream", "shop", *words])
    assert isinstance(found.exception, SystemExit)
    assert told in " ".join(found.output.split())


def test_a_record_that_is_too_large_keeps_the_largest_counts() -> None:
    labels = [f"{number:0100}" for number in range(30_000)]
    window = WindowRecord(
        v=1,
        stream="shop",
        window="5m",
        epoch=1,
        nonce="00" * 16,
        round=7,
        ts="2026-01-31T12:00:00.000Z",
        since_epoch=1,
        since_round=0,
        since=None,
        complete=False,
        sd=1.0,
        labels=labels,
        counts=list(range(30_000, 0, -1)),
        low=[0.0] * 30_000,
        high=[1.0] * 30_000,
        new=[NewLabel(label, 1, None) for label in labels[:10]],
        moves=[Move(labels[0], 9, 1.0, 17.0)],
    )
    found = cut_to_fit(window)
    assert 300_000 < len(msgspec.json.encode(found)) <= LARGEST_PART
    assert found.labels == labels[: len(found.labels)]
    assert len(found.labels) == len(found.counts) == len(found.low) == len(found.high)
    assert found.left_out == 30_000 - len(found.labels)
    assert found.moves == window.moves
    assert cut_to_fit(found) is found
