"""Over several partitions too, what is lost is written again byte for byte, or counted on from where it ends."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from stream_dp.cli import app
from stream_dp.epochs.gap import gap_of, lost_epoch
from stream_dp.epochs.journal import EpochJournal
from stream_dp.releases.release import decode_release
from stream_dp.verification.rebuild import verify_epoch
from stream_dp.verification.republish import republish
from stream_dp.verification.verify import Verdict
from stream_dp.workers.resume import NewEpoch
from tests.dashboard.running import running
from tests.system.example_events import event, some_events
from tests.system.partitioned import KINDS, PARTITIONS, feed_segments, rounds
from tests.system.streams import Stream
from tests.system.ticking import MakeStream, open_epoch

SEGMENTS, MORE = 5, 2


def content(stream: Stream) -> list[bytes | None]:
    return [record.value for record in stream.releases()]


def ready(stream: Stream, kind: str) -> None:
    """Releases of five segments, of which the third is empty, and no worker."""
    open_epoch(stream)
    feed_segments(stream, 1, SEGMENTS)
    assert stream.run(until_round=rounds(kind, SEGMENTS)) == 0


@pytest.mark.parametrize(("kind", "kept"), [("per-event", 0), ("every-3", 2), ("ticks", 2)])
def test_lost_releases_are_written_again_and_the_worker_goes_on(
    spread: MakeStream, kind: str, kept: int
) -> None:
    with spread(rounds=kind) as stream:
        ready(stream, kind)
        before, last = stream.releases(), rounds(kind, SEGMENTS)
        stream.feed(
            [event("open")] * 4, partition=1
        )  # behind the last barrier: no round of any kind holds them
        stream.rewrite(stream.settings.releases, before[:kept])
        assert "write them again with `stream-dp republish`" in " ".join(stream.refusal().split())
        with stream.redis() as redis:
            [planned] = republish(stream.settings, redis, dry_run=True)
            assert len(stream.releases()) == kept
            [written] = republish(stream.settings, redis)
            assert republish(stream.settings, redis) == []
        assert planned.rounds == written.rounds == list(range(kept + 1, last + 1))
        assert stream.releases() == before, "with the same times"
        feed_segments(stream, SEGMENTS + 2, SEGMENTS + 3)
        further = {"ticks": 2, "per-event": 28, "every-3": 9}[kind]
        assert stream.run(until_round=last + further) == 0
        stream.check_everything()


def test_nothing_is_written_from_a_log_with_another_record_in_any_partition(spread: MakeStream) -> None:
    with spread(rounds="ticks", items_per_event=1, delta=0.1) as stream:
        ready(stream, "ticks")
        before = content(stream)
        kept = [stream.events(number) for number in range(PARTITIONS)]
        kept[2][3] = kept[2][3]._replace(value=event("another"))
        stream.rewrite(stream.settings.events, [each for part in kept for each in part])
        stream.rewrite(stream.settings.releases, stream.releases()[:2])
        result = run(stream, "republish")
        assert result.exit_code == 2
        assert "nothing was written" in " ".join(result.stderr.split())
        assert content(stream) == before[:2]


def run(stream: Stream, *words: str) -> Result:
    return run_without_redis(stream, *words, "--redis", stream.settings.redis)


def run_without_redis(stream: Stream, *words: str) -> Result:
    own = stream.settings
    return CliRunner().invoke(app, [*words, "--stream", own.stream, "--kafka", own.kafka])


@pytest.mark.parametrize(
    ("kind", "from_last_release"), [("per-event", True), ("every-3", False), ("ticks", True)]
)
def test_where_all_state_is_lost_the_next_epoch_counts_on_in_every_partition(
    spread: MakeStream, kind: str, from_last_release: bool
) -> None:
    """Each record that came since the last release is counted once, or in no epoch; none that was is counted again."""
    with spread(rounds=kind) as stream:
        ready(stream, kind)
        released = tuple(stream.ends())
        stream.spread(some_events(13, seed=7), PARTITIONS)
        stream.restore_keys({})
        with stream.redis() as redis:
            epoch = lost_epoch(stream.settings, redis)
        assert epoch is not None
        gap = gap_of(stream.settings, epoch)
        assert (gap.begin, gap.end, gap.records) == (released, tuple(stream.ends()), 13)
        worker = stream.start(new_epoch=NewEpoch(from_last_release=from_last_release))
        stream.wait_until_logged("epoch 2, round 0")
        feed_segments(stream, SEGMENTS + 2, SEGMENTS + 3)
        events = 24 + (13 if from_last_release else 0)
        last = {"ticks": 2, "per-event": events, "every-3": events // 3}[kind]
        stream.wait_until(lambda: place_of_last(stream) == (2, last), worker)
        stream.stop(worker)
        opened = [each.epoch.offsets for each in EpochJournal(stream.settings).opened]
        assert opened == [(0,) * PARTITIONS, released if from_last_release else gap.end]
        with stream.redis() as redis:
            assert verify_epoch(stream.settings, redis, 2).certificate.verdict == Verdict.IDENTICAL


def place_of_last(stream: Stream) -> tuple[int, int]:
    """Epoch and round of the newest release."""
    newest = decode_release(stream.releases()[-1].value or b"")
    return newest.epoch, newest.round


@pytest.mark.parametrize("kind", KINDS)
def test_whoever_watches_sees_the_rounds_of_all_partitions(
    spread: MakeStream, kind: str, tmp_path: Path
) -> None:
    with spread(rounds=kind) as stream:
        ready(stream, kind)
        newest = decode_release(stream.releases()[-1].value or b"")
        shown = run_without_redis(
            stream, "tail", "--from", "earliest", "--rounds", str(newest.round), "--json"
        )
        lines = [json.loads(line) for line in shown.stdout.splitlines()]
        assert [line["round"] for line in lines] == list(range(1, newest.round + 1))
        assert lines[-1]["labels"] == newest.labels
        with running(stream.settings.kafka, stream.settings.stream, tmp_path) as page:
            page.wait_until_round(newest.round)
            latest = page.get("/api/v1/release/latest")
        assert (latest["round"], latest["ts"]) == (newest.round, newest.ts)
        assert sorted(latest["labels"]) == sorted(newest.labels), "the page has the largest first"
        assert newest.labels
