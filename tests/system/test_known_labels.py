"""Known labels and totals on real servers: killed, rolled, verified, rebuilt, and never another list."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from stream_dp.epochs.journal import EpochJournal, KnownLabelsPart
from stream_dp.events.record import Record
from stream_dp.kafka.log import LogRefused
from stream_dp.releases.release import Release, decode_release
from stream_dp.verification.rebuild import rebuild, verify_epoch
from stream_dp.verification.republish import republish
from stream_dp.verification.verify import Verdict
from tests.system.example_events import some_events
from tests.system.streams import Stream
from tests.system.ticking import MakeStream
from tests.system.waiting import wait_until
from tests.system.worker_process import Kill

HORIZON = 15
LISTED = ["airport", "tea", "梨"]


@pytest.fixture
def listed(tmp_path: Path) -> Path:
    file = tmp_path / "labels.txt"
    file.write_text("\n".join(LISTED))
    return file


@pytest.fixture
def stream(make_stream: MakeStream, listed: Path) -> Iterator[Stream]:
    options = {"horizon": HORIZON, "at_horizon": "roll", "known_labels": f"file:{listed}"}
    with make_stream(**options) as stream:
        yield stream


def found(stream: Stream) -> list[Release]:
    return [decode_release(record.value or b"") for record in stream.releases()]


def expected(stream: Stream) -> list[bytes]:
    """What one worker that never stops would have released in all epochs."""
    journal, values = EpochJournal(stream.settings), list[bytes]()
    for opened in journal.opened:
        closed = journal.closed.get(opened.epoch.number)
        events = stream.events()[opened.epoch.first_offset : closed.end_offset if closed else None]
        values += [part.value for part in stream.pipeline(opened.epoch).process(events).releases]
    return values


def check_totals(releases: list[Release]) -> None:
    """Every total is the sum of the last counts of the epochs before, computed from the releases alone."""
    sums: dict[str, int] = {}
    since = dict.fromkeys(LISTED, 0)
    for release, following in zip(releases, [*releases[1:], None], strict=True):
        for label, count, first in zip(release.labels, release.counts, release.since or [], strict=True):
            assert since.setdefault(label, release.epoch) == first
            if release.totals is not None:
                assert release.totals[release.labels.index(label)] == sums.get(label, 0) + count
        shown_before = set(LISTED) if release.epoch == 1 else set(sums)
        assert shown_before <= set(release.labels)
        if following is not None and following.epoch > release.epoch:
            assert following.totals is not None
            sums = {
                label: sums.get(label, 0) + count
                for label, count in zip(release.labels, release.counts, strict=True)
            }


def test_known_labels_and_totals_survive_kills_and_need_no_file_to_be_checked(
    stream: Stream, listed: Path
) -> None:
    stream.feed(some_events(40, seed=1))
    for kill in (
        Kill("write the epoch down"),
        Kill("write the epoch down", 1, True),
        Kill("begin the epoch"),
    ):
        assert (
            stream.run(kill) < 0
        )  # before, between and after the record of the labels and that of the epoch
        assert found(stream) == []
    assert stream.run(Kill("hand a batch to the producer", 2)) < 0
    assert stream.run(Kill("write the epoch down", 3)) < 0
    worker = stream.start()
    wait_until(lambda: len(stream.releases()) >= 40, stream.logged)
    stream.stop(worker)
    assert f"are known in advance, from {listed}" in stream.logged()
    assert "must not come from the events" in stream.logged()
    values = [record.value for record in stream.releases()]
    assert values == expected(stream)
    check_totals([decode_release(value or b"") for value in values])
    assert {release.epoch for release in found(stream)} == {1, 2, 3}
    listed.write_text("airport\ntea\nrare 1")
    assert "known_labels is 3 labels with the digest" in stream.refusal()
    listed.unlink()
    assert "cannot read the known labels" in stream.refusal()
    with stream.redis() as client:
        for number in (1, 2, 3):
            assert verify_epoch(stream.settings, client, number).certificate.verdict == Verdict.IDENTICAL
        rebuilt = rebuild(stream.settings, client, replace=True)
        assert (rebuilt.state.round, set(LISTED) - set(rebuilt.state.labels)) == (10, set())
        restored = f"{stream.settings.stream}.restored"
        for number in (1, 2, 3):
            republish(stream.settings, client, restored, number)
    assert [record.value for record in stream.records(restored)] == values
    listed.write_text("\r\n".join(LISTED[::-1]))
    stream.feed(some_events(10, seed=2))
    worker = stream.start(standby=True)
    wait_until(lambda: len(stream.releases()) >= 50, stream.logged)
    stream.stop(worker)
    check_totals(found(stream))
    assert [record.value for record in stream.releases()] == expected(stream)


def test_an_epoch_that_leaves_rounds_out_carries_on_what_its_last_one_has_released(
    make_stream: MakeStream, listed: Path
) -> None:
    options = {"horizon": 31, "at_horizon": "roll", "known_labels": f"file:{listed}", "release": "every-7"}
    with make_stream(**options) as stream:
        stream.feed(some_events(80, seed=3))
        worker = stream.start()
        rounds = [7, 14, 21, 28, 31, 7, 14, 21, 28, 31, 7, 14]
        stream.wait_until(lambda: len(stream.releases()) >= len(rounds), worker)
        stream.stop(worker)
        releases = found(stream)
        assert [release.round for release in releases] == rounds
        check_totals(releases)
        assert [record.value for record in stream.releases()] == expected(stream)
        with stream.redis() as client:
            certificate = verify_epoch(stream.settings, client, 2).certificate
        assert certificate.verdict == Verdict.IDENTICAL


def test_what_an_epoch_knew_must_be_there_as_it_was_written(stream: Stream) -> None:
    stream.feed(some_events(5, seed=4))
    assert stream.run(until_round=5) == 0
    topic = stream.settings.epochs
    entries = stream.records(topic)
    part = msgspec.json.decode(entries[0].value or b"", type=KnownLabelsPart)
    forged = replace(part, known=replace(part.known, labels=["airport", "tea", "who"]))
    for first in ([], [Record(0, entries[0].timestamp, None, msgspec.json.encode(forged))]):
        stream.rewrite(topic, [*first, *entries[1:]])
        assert "does not hold the labels that epoch 1 knew when it began" in stream.refusal()
        with stream.redis() as client, pytest.raises(LogRefused, match="does not hold the labels"):
            verify_epoch(stream.settings, client)
    stream.rewrite(topic, [*entries, *[Record(0, 0, None, msgspec.json.encode(forged))]])
    stream.feed(some_events(5, seed=5))
    assert stream.run(until_round=10) == 0  # what comes later counts for nothing
    assert [record.value for record in stream.releases()] == expected(stream)
