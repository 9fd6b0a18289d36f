"""Epochs that follow one another by themselves: every event in exactly one of them, each charged once."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from stream_dp.journal import EpochJournal
from stream_dp.pipeline import Pipeline
from stream_dp.privacy.composition import Charge
from stream_dp.rebuild import rebuild, verify_epoch
from stream_dp.records import Release, decode_release
from stream_dp.store.ledger import Ledger
from stream_dp.verify import Verdict
from tests.system.streams import Stream, small_stream, some_events
from tests.system.worker_process import Kill

REFUSED = 2
KILLED = -signal.SIGKILL
HORIZON = 15


@pytest.fixture
def stream(kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path) -> Iterator[Stream]:
    options = {"horizon": HORIZON, "at_horizon": "roll"}
    with small_stream(kafka, redis_url, topic_prefix, tmp_path, **options) as stream:
        yield stream


def releases(stream: Stream, epoch: int) -> list[Release]:
    found = [decode_release(record.value or b"") for record in stream.releases()]
    return [release for release in found if release.epoch == epoch]


def charges(stream: Stream, source: str | None = None) -> list[Charge]:
    with stream.redis() as client:
        return Ledger(client, source or stream.settings.data_source).charges()


def run_until(stream: Stream, epoch: int, rounds: int, **changed: object) -> None:
    """Run a worker until `epoch` is opened and has released so many rounds, and end it."""
    worker = stream.start(None, None, **changed)
    stream.wait_until_logged(f"epoch {epoch}, round")
    stream.wait_until(lambda: len(releases(stream, epoch)) >= rounds, worker)
    worker.terminate()
    worker.join()
    assert worker.exitcode == 0, stream.logged()


def check_epochs(stream: Stream) -> list[int]:
    """The horizons of the epochs, after comparing everything with what one worker that never stops would have made.

    Each epoch counts on where the one before it stopped, releases every round of its own and is charged once, for
    exactly the events that it has counted; Redis holds the state of the last one.
    """
    journal, events, published = EpochJournal(stream.settings), stream.events(), stream.releases()
    found = [decode_release(record.value or b"") for record in published]
    counted, horizons, made = 0, [], []
    for number, opened in enumerate(journal.opened, 1):
        epoch = opened.epoch
        assert (epoch.number, epoch.first_offset) == (number, counted)
        pipeline = Pipeline(epoch, stream.key(), stream.settings.events)
        expected = [part.value for part in pipeline.process(events[counted:]).releases]
        seen: list[bytes] = []
        for record, release in zip(published, found, strict=True):
            if (
                release.nonce == epoch.nonce.hex() and record.value not in seen
            ):  # once more after a kill: the same
                seen.append(record.value or b"")
        assert seen == expected, f"epoch {number}"
        counted = pipeline.position.next_offset
        closed = journal.closed.get(number)
        assert (closed.end_offset if closed else None) == (counted if number < len(journal.opened) else None)
        made.append((epoch.nonce.hex(), epoch.first_offset, closed.end_offset if closed else None))
        horizons.append(epoch.mechanism.horizon)
    assert counted == len(events)
    assert len({opened.epoch.nonce for opened in journal.opened}) == len(journal.opened)
    assert {release.nonce for release in found} <= {opened.epoch.nonce.hex() for opened in journal.opened}
    charged = [
        (charge.id.rpartition("/")[2], charge.first_offset, charge.end_offset) for charge in charges(stream)
    ]
    assert charged == made
    if pipeline.round:
        stream.check_state(pipeline)
    return horizons


def test_at_its_horizon_an_epoch_gives_way_to_the_next_and_no_event_is_lost(stream: Stream) -> None:
    stream.feed(some_events(50, seed=1))
    run_until(stream, 4, 5)
    assert check_epochs(stream) == [HORIZON] * 4
    assert "its counts begin at zero" in stream.logged()
    with stream.redis() as client:
        certificates = [verify_epoch(stream.settings, client, number).certificate for number in (1, 2, 3, 4)]
        assert [certificate.rounds for certificate in certificates] == [15, 15, 15, 5]
        assert {certificate.verdict for certificate in certificates} == {Verdict.IDENTICAL}
        assert rebuild(stream.settings, client, replace=True).state.round == 5
    stream.feed(some_events(20, seed=2))
    run_until(stream, 5, 10)
    assert check_epochs(stream) == [HORIZON] * 5


def test_horizons_double_up_to_the_largest(stream: Stream) -> None:
    stream.feed(some_events(15 + 30 + 60 + 10, seed=3))
    run_until(stream, 4, 10, at_horizon="double")
    assert check_epochs(stream) == [15, 30, 60, 120]
    assert {release.horizon for release in releases(stream, 3)} == {60}
    assert "horizon is 15 in the epoch and 31 in the settings" in stream.refusal(
        horizon=31, at_horizon="double"
    )
    stream.feed(some_events(120, seed=4))
    run_until(stream, 5, 10)  # at_horizon is no promise: it may be changed under an epoch
    assert check_epochs(stream) == [15, 30, 60, 120, 120]


def after(step: str, nth: int = 1) -> Kill:
    return Kill(step, nth, after=True)


ONE_STEP_FURTHER = [
    Kill("write the epoch down"),
    after("write the epoch down"),
    after("end the charge in Redis"),
    after("end the charge"),
    after("write the epoch down"),
    after("charge in Redis"),
    after("charge the ledger"),
    after("forget older state"),
    after("begin the epoch"),
]
"""All that a roll leaves behind it durably, each once; a worker that goes on has done the steps before."""

FROM_THE_START = [*ONE_STEP_FURTHER[:4], after("write the epoch down", 2), *ONE_STEP_FURTHER[5:]]
"""The same, for workers that roll from the beginning."""


def test_a_roll_that_is_killed_at_every_step_in_turn_is_one_roll(stream: Stream) -> None:
    stream.feed(some_events(HORIZON + 5, seed=5))
    run_until(stream, 1, 0, at_horizon="stop")
    for kill in ONE_STEP_FURTHER:
        assert stream.run(kill) == KILLED, f"{kill} was never reached:\n{stream.logged()}"
        assert len(releases(stream, 2)) == 0
    run_until(stream, 2, 5)
    assert check_epochs(stream) == [HORIZON] * 2


def test_every_roll_killed_at_another_step_loses_and_doubles_nothing(stream: Stream) -> None:
    stream.feed(some_events(1, seed=6))
    run_until(stream, 1, 1)
    for number, kill in enumerate(FROM_THE_START, 1):
        stream.feed(some_events(HORIZON, seed=10 + number))
        assert stream.run(kill) == KILLED, f"{kill} was never reached:\n{stream.logged()}"
        run_until(stream, number + 1, 1)
    assert check_epochs(stream) == [HORIZON] * (len(FROM_THE_START) + 1)
