"""Epochs on real servers: opened, counted to their end, closed, and never begun again on another log."""

import signal
from pathlib import Path

import pytest
from msgspec.structs import replace

from stream_dp.engine.epoch import EpochRefused
from stream_dp.epochs.journal import EpochJournal
from stream_dp.events.record import Record
from stream_dp.privacy.keyed_noise import new_key
from stream_dp.releases.release import Release
from stream_dp.verification.rebuild import rebuild, verify_epoch
from stream_dp.verification.verify import Verdict
from stream_dp.workers.resume import NewEpoch
from tests.system.epoch_steps import REFUSED, charges, lose_state, releases, run_epoch
from tests.system.example_events import event, some_events
from tests.system.streams import Stream, ended, wake_up
from tests.system.worker_process import Kill, Pause


def test_a_new_epoch_counts_on_where_the_old_one_ends(stream: Stream) -> None:
    stream.feed(some_events(50, seed=9))
    assert stream.run(until_round=50) == 0
    stream.feed(some_events(30, seed=10))
    worker = stream.start(new_epoch=NewEpoch())
    stream.wait_until_logged("epoch 2, round")
    stream.feed(some_events(25, seed=11))
    stream.wait_until(lambda: len(releases(stream, 2)) >= 25, worker)
    stream.stop(worker)
    assert [len(releases(stream, number)) for number in (1, 2)] == [80, 25]
    assert releases(stream, 1)[0].nonce != releases(stream, 2)[0].nonce
    first, second = charges(stream)
    assert (first.first_offset, first.end_offset, second.first_offset, second.end_offset) == (0, 80, 80, None)
    with stream.redis() as client:
        verdicts = [verify_epoch(stream.settings, client, number).certificate.verdict for number in (1, 2)]
    assert verdicts == [Verdict.IDENTICAL] * 2


def test_after_the_horizon_a_new_epoch_loses_no_event(stream: Stream) -> None:
    stream.feed(some_events(70, seed=14))
    assert stream.run(horizon=63) == 0
    run_epoch(stream, 7, 2, NewEpoch(), horizon=63)
    assert [len(releases(stream, number)) for number in (1, 2)] == [63, 7]
    assert [(charge.first_offset, charge.end_offset) for charge in charges(stream)] == [(0, 63), (63, None)]


def test_changed_settings_need_a_new_epoch(stream: Stream) -> None:
    stream.feed(some_events(20, seed=15))
    assert stream.run(until_round=20) == 0
    assert "--new-epoch" in stream.refusal(items_per_event=2)
    stream.feed(some_events(20, seed=16))
    run_epoch(stream, 0, 2, NewEpoch(), items_per_event=2)
    assert {3} == {release.items_per_event for release in releases(stream, 1)}
    assert len(releases(stream, 1)) == 40  # the old epoch is counted to its end under its own settings


@pytest.mark.parametrize("key_too", [False, True])
def test_lost_for_good_a_stream_goes_on_in_a_new_charged_epoch(stream: Stream, key_too: bool) -> None:
    stream.feed(some_events(30, seed=17))
    assert stream.run(until_round=30) == 0
    lose_state(stream, key_too)
    with stream.redis() as client:
        client.delete(*client.keys(f"stream_dp:{{{stream.settings.data_source}}}:*"))  # the ledger too
    assert "--new-epoch" in stream.refusal()
    worker = stream.start(new_epoch=NewEpoch())
    stream.wait_until_logged("epoch 2, round")
    stream.feed(some_events(10, seed=18))
    stream.wait_until(lambda: len(releases(stream, 2)) >= 10, worker)
    stream.stop(worker)
    assert "it is not known how far epoch 1 has counted" in stream.logged()
    assert [(charge.first_offset, charge.end_offset) for charge in charges(stream)] == [(0, None), (30, None)]


@pytest.mark.apache("offsets")
def test_a_log_made_anew_that_ends_before_the_last_epoch_began_goes_on_at_its_end(stream: Stream) -> None:
    stream.feed(some_events(30, seed=31))
    assert stream.run(until_round=30) == 0
    run_epoch(stream, 0, 2, NewEpoch())
    stream.rewrite(stream.settings.events, stream.events()[:10])
    worker = stream.start(new_epoch=NewEpoch())
    stream.wait_until_logged("epoch 3, round")
    stream.feed(some_events(5, seed=32))
    stream.wait_until(lambda: len(releases(stream, 3)) >= 5, worker)
    stream.stop(worker)
    made = [(charge.first_offset, charge.end_offset) for charge in charges(stream)]
    assert made == [(0, 30), (30, None), (10, None)]


@pytest.fixture
def key_file(tmp_path: Path) -> str:
    place = tmp_path / "noise.key"
    place.write_text(new_key().hex())
    place.chmod(0o600)
    return f"file:{place}"


@pytest.mark.apache("offsets")
def test_an_epoch_that_started_never_begins_again_on_another_log(stream: Stream, key_file: str) -> None:
    """The key is kept in a file, so all that tells of what was released is the epochs topic."""
    stream.feed(some_events(25, seed=35))
    assert stream.run(until_round=25, noise_key=key_file) == 0
    assert EpochJournal(stream.settings).started == {1}
    lose_state(stream)
    stream.rewrite(stream.settings.releases, [])
    stream.rewrite(
        stream.settings.events, [Record(0, 1000, None, value) for value in some_events(25, seed=36)]
    )
    assert "epoch 1 of stream" in (told := stream.refusal(noise_key=key_file))
    assert "has started, but Redis has no state of it" in told
    own = replace(stream.settings, noise_key=key_file)
    with stream.redis() as client, pytest.raises(EpochRefused, match="no release of epoch 1 is there"):
        rebuild(own, client)
    run_epoch(stream, 25, 2, NewEpoch(recount=True), noise_key=key_file)
    assert releases(stream, 1) == []
    assert [(charge.first_offset, charge.end_offset) for charge in charges(stream)] == [(0, None), (0, None)]


def test_a_zombie_of_a_closed_epoch_sends_nothing_past_its_end(stream: Stream) -> None:
    stream.feed(some_events(40, seed=19))
    zombie = stream.start(Pause("hand a batch to the producer", nth=3), checkpoint_every="1000")
    stream.wait_until_asleep(zombie)
    stream.feed(some_events(20, seed=20))
    worker = stream.start(new_epoch=NewEpoch())
    stream.wait_until_logged("epoch 2, round")
    stream.feed(some_events(20, seed=21))
    stream.wait_until(lambda: len(releases(stream, 2)) >= 20, worker)
    wake_up(zombie)
    assert ended(zombie) == REFUSED
    stream.feed(some_events(10, seed=22))
    stream.wait_until(lambda: len(releases(stream, 2)) >= 30, worker)
    stream.stop(worker)
    assert max(release.round for release in releases(stream, 1)) == 60
    by_round: dict[int, Release] = {}
    for release in releases(stream, 1):
        assert by_round.setdefault(release.round, release) == release
    worker = stream.start()
    stream.wait_until_logged(
        "epoch 2, round 30"
    )  # what the zombie has sent in between does not confuse a restart
    stream.stop(worker)


@pytest.mark.parametrize("after", [False, True])
def test_killed_before_it_is_on_record_that_the_epoch_started_it_goes_on(stream: Stream, after: bool) -> None:
    killed = stream.start(Kill("write the epoch down", nth=2, after=after))
    assert ended(killed) == -signal.SIGKILL
    assert EpochJournal(stream.settings).started == ({1} if after else set())
    stream.feed(some_events(5, seed=38))
    assert stream.run(until_round=5) == 0
    assert EpochJournal(stream.settings).started == {1}
    stream.check_everything()
    assert len(charges(stream)) == 1


ONE_STEP_FURTHER = [
    Kill("write the epoch down"),
    Kill("write the epoch down", after=True),  # the end of the first one
    Kill("end the charge in Redis", after=True),
    Kill("end the charge", after=True),
    Kill("write the epoch down", after=True),  # the second one
    Kill("charge in Redis", after=True),
    Kill("charge the ledger", after=True),
    Kill("forget older state"),
    Kill("forget older state", after=True),
    Kill("begin the epoch", after=True),
]
"""All that a new epoch leaves behind it durably, each once; a worker that goes on has done the steps before."""


def test_killed_between_two_epochs_a_stream_has_no_gap_and_is_charged_once(stream: Stream) -> None:
    stream.feed(some_events(30, seed=23))
    assert stream.run(until_round=30) == 0
    for kill in ONE_STEP_FURTHER:
        killed = stream.start(kill, new_epoch=NewEpoch())
        assert ended(killed) == -signal.SIGKILL, f"{kill} was never reached:\n{stream.logged()}"
        assert len(releases(stream, 1)) == 30
        assert releases(stream, 2) == []
        stream.feed([event("tea")])
    stream.feed(some_events(2, seed=24))
    run_epoch(stream, 12, 2)
    assert [len(releases(stream, number)) for number in (1, 2)] == [30, 12]
    assert [(charge.first_offset, charge.end_offset) for charge in charges(stream)] == [(0, 30), (30, None)]
    with stream.redis() as client:
        verdicts = [verify_epoch(stream.settings, client, number).certificate.verdict for number in (1, 2)]
    assert verdicts == [Verdict.IDENTICAL] * 2
