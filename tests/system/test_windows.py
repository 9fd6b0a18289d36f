"""What happened lately, by a subscriber and by `stream-dp tail --window`, from the releases that a worker wrote."""

import json
from contextlib import closing
from itertools import islice
from pathlib import Path

from typer.testing import CliRunner

import stream_dp
from stream_dp.cli import app
from stream_dp.events.record import Record
from stream_dp.releases.lookup import find_release
from stream_dp.releases.release import decode_release
from stream_dp.releases.topic import ReleasesTopic
from stream_dp.releases.window_lookup import find_window
from stream_dp.releases.window_readers import Windows
from stream_dp.releases.window_record import record_of
from stream_dp.releases.windows import FALSE_DISCOVERIES, Span
from tests.system.example_events import event
from tests.system.streams import Stream, small_stream

ROUNDS = 120
SECOND = 1_000


def fed(stream: Stream) -> None:
    """An event every ten seconds: tea in all of them, milk in the later half."""
    items = (("tea",) if number < ROUNDS // 2 else ("tea", "milk") for number in range(ROUNDS))
    records = [Record(0, 10 * SECOND * (1 + number), None, event(*each)) for number, each in enumerate(items)]
    stream.write(stream.settings.events, records)


def tail(stream: Stream, *words: str) -> list[str]:
    where = ["--stream", stream.settings.stream, "--kafka", stream.settings.kafka]
    found = CliRunner().invoke(app, ["tail", *where, "--from", "earliest", "--rounds", str(ROUNDS), *words])
    assert found.exit_code == 0, found.exception
    return found.stdout.splitlines()


def test_windows_by_time_and_by_rounds_are_differences_of_releases(
    kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path
) -> None:
    with small_stream(kafka, redis_url, topic_prefix, tmp_path, shown="kept") as stream:
        fed(stream)
        assert stream.run(until_round=ROUNDS) == 0
        releases = [decode_release(record.value or b"") for record in stream.releases()]
        counts = [dict(zip(each.labels, each.counts, strict=True)) for each in releases]
        assert set(counts[-1]) == {"tea", "milk"}
        windows = [json.loads(line) for line in tail(stream, "--window", "5m", "--json")]
        for window in windows:
            now, since = counts[window["round"] - 1], max(0, window["round"] - 30)
            assert window["since_round"] == since
            before = counts[since - 1] if since else dict.fromkeys(now, 0)
            expected = {label: count - before[label] for label, count in now.items() if label in before}
            new = {each["label"] for each in window["new"]}
            assert new == set(now) - set(before)
            assert set(window["labels"]) == set(now)
            found = dict(zip(window["labels"], window["counts"], strict=True))
            assert {label: count for label, count in found.items() if label not in new} == expected
        with stream_dp.subscribe(kafka, topic_prefix, "earliest") as subscription:
            by_rounds = [window.histogram for window in islice(subscription.windows(30), ROUNDS)]
        assert by_rounds == [dict(zip(each["labels"], each["counts"], strict=True)) for each in windows]
        assert tail(stream, "--window", "30")[-1].startswith("rounds 91 to 120, since 1970-01-01T00:15:00Z: ")


def test_one_release_alone_has_the_same_window_as_in_a_row(
    kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path
) -> None:
    with small_stream(kafka, redis_url, topic_prefix, tmp_path, shown="kept") as stream:
        fed(stream)
        assert stream.run(until_round=ROUNDS) == 0
        releases = ReleasesTopic(stream.settings.kafka_address, stream.settings.releases)
        with closing(releases), stream_dp.subscribe(kafka, topic_prefix, "earliest") as subscription:
            for span in ("5m", "30", "1h"):
                with Windows(subscription.again, Span.of(span), FALSE_DISCOVERIES) as windows:
                    for number in (1, 20, 30, 31, 75, ROUNDS):
                        release = find_release(releases, number)
                        assert release is not None
                        alone = find_window(releases, release, Span.of(span))
                        row = windows.window(release)
                        assert record_of(alone, Span.of(span)) == record_of(row, Span.of(span))


def test_what_is_no_window_is_a_mistake() -> None:
    found = CliRunner().invoke(app, ["tail", "--stream", "shop", "--window", "a while"])
    assert found.exit_code == 2
    assert "--window: a window is a time such as 90s, 5m, 1h or 7d" in found.output
