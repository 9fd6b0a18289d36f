"""What was released at a moment: of the releases that a worker wrote much later than their events happened."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

import stream_dp
from stream_dp.cli import app
from stream_dp.events.record import Record
from stream_dp.releases.lookup import release_at
from stream_dp.releases.release import decode_release
from stream_dp.verification.republish import republish
from tests.system.example_events import event
from tests.system.streams import Stream, small_stream

NOON = datetime(2001, 2, 3, 12, tzinfo=UTC)
ROUNDS = 30


def happened(number: int) -> datetime:
    """When the event of a round happened: one every ten seconds, long before the worker counted it."""
    return NOON + timedelta(seconds=10 * number)


def fed(stream: Stream) -> None:
    times = [int(happened(number).timestamp() * 1000) for number in range(1, ROUNDS + 1)]
    stream.write(stream.settings.events, [Record(0, time, None, event("tea")) for time in times])


def tail(stream: Stream, *words: str) -> list[int]:
    """The rounds that `stream-dp tail` shows."""
    where = ["--stream", stream.settings.stream, "--kafka", stream.settings.kafka]
    found = CliRunner().invoke(app, ["tail", *where, "--json", *words])
    assert found.exit_code == 0, found.output
    return [decode_release(line.encode()).round for line in found.stdout.splitlines()]


@pytest.mark.parametrize("release", ["every-round", "every-20000ms"])
def test_a_release_is_found_by_the_time_of_its_event(
    kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path, release: str
) -> None:
    with small_stream(kafka, redis_url, topic_prefix, tmp_path, release=release) as stream:
        fed(stream)
        assert stream.run(until_round=ROUNDS) == 0
        releases = [decode_release(record.value or b"") for record in stream.releases()]
        assert len(releases) == (ROUNDS if release == "every-round" else ROUNDS // 2 + 1)
        restored = f"{topic_prefix}.restored"
        with stream.redis() as redis:
            republish(stream.settings, redis, to=restored)
        for before, after in (releases[:2], releases[-2:]):
            moment = happened(after.round)
            for asked, expected in ((moment, after.round), (moment - timedelta(seconds=1), before.round)):
                found = release_at(kafka, stream.settings.releases, asked)
                assert found is not None
                assert found.round == expected
                with stream_dp.subscribe(kafka, topic_prefix, asked) as following:
                    assert next(following).round == expected
        middle = releases[len(releases) // 2]
        later = (happened(middle.round) + timedelta(seconds=1)).isoformat()
        assert tail(stream, "--at", later) == [middle.round]
        assert tail(stream, "--from", later, "--rounds", "2")[0] == middle.round
        again = release_at(kafka, restored, happened(middle.round))
        assert again is not None
        assert again.round == middle.round
        assert release_at(kafka, stream.settings.releases, NOON) is None
