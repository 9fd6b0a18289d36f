"""Rounds of several events, rounds that end by ticks, and the user as privacy unit: on real servers, and killed."""

import asyncio
import re
import signal

import pytest

from stream_dp.operations import watch
from stream_dp.releases.release import decode_release
from stream_dp.store.ledger import Ledger
from stream_dp.verification.rebuild import rebuild, verify_epoch
from stream_dp.verification.verify import Verdict
from stream_dp.workers.histogram import Worker
from stream_dp.workers.resume import NewEpoch
from tests.system.example_events import some_events
from tests.system.streams import Stream
from tests.system.ticking import NO_MORE, MakeStream, rounds_of_the_log
from tests.system.worker_process import Kill

KILLED = -signal.SIGKILL
USERS = {"unit": "user", "items_per_user": 3}
TICKS = {"rounds": "ticks", "tick_seconds": 0.1}


@pytest.fixture
def make(make_stream: MakeStream) -> MakeStream:
    return lambda **changed: make_stream(**{"checkpoint_every": "3", **changed})


def released(stream: Stream, epoch: int = 1) -> set[int]:
    found = [decode_release(record.value or b"") for record in stream.releases()]
    return {release.round for release in found if release.epoch == epoch}


def dead_letters(stream: Stream) -> dict[str, set[tuple[object, ...]]]:
    """What was sent to the dead-letter topic, by offset; more than one of an offset would be different letters."""
    found: dict[str, set[tuple[object, ...]]] = {}
    for letter in stream.dead_letters(0):
        content = (letter.key, letter.value, *sorted(letter.headers.items()))
        found.setdefault(letter.headers["offset"], set()).add(content)
    return found


def check_dead_letters(stream: Stream) -> None:
    """One content for every bad record of the closed rounds, and none of the open one."""
    expected = {str(letter.offset) for letter in stream.uninterrupted()[1].dead_letters}
    found = dead_letters(stream)
    assert expected == set(found)
    assert {len(contents) for contents in found.values()} <= {1}


def test_a_round_that_grows_while_no_barrier_comes_is_told(
    make: MakeStream, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The worker, which is this process, finds 300 records waiting: with more than 100 in memory it says so."""
    monkeypatch.setattr(watch, "LARGE_ROUND", 100)
    with make(rounds="ticks", **NO_MORE) as stream:
        stream.feed(some_events(300, seed=1))

        async def until_told() -> None:
            worker = Worker(stream.settings)
            working = asyncio.create_task(worker.run())
            while "the open round holds" not in caplog.text and not working.done():
                await asyncio.sleep(0.02)
            worker.stop()
            await working

        asyncio.run(until_told())
    said = re.search(r"the open round holds (\d+) records, all of them in memory", caplog.text)
    assert said is not None, caplog.text
    assert 100 < int(said[1]) <= 300


@pytest.mark.parametrize("unit", [{}, USERS])
def test_rounds_of_seven_events_survive_kills_at_any_step(make: MakeStream, unit: dict[str, object]) -> None:
    with make(rounds="every-7", **unit) as stream:
        for number, kill in enumerate(
            (
                Kill("compute", 3, after=True),
                Kill("hand a batch to the producer", 2),
                Kill("wait for the broker", 4, after=True),
                Kill("queue the checkpoint's commands", 1, after=True),
                Kill("write a checkpoint", 2, after=True),
            )
        ):
            stream.feed(
                some_events(91, seed=number, users=20)
            )  # every step is reached, wherever the last one ended
            assert stream.run(kill) == KILLED, f"{kill} was never reached:\n{stream.logged()}"
        stream.feed(some_events(20, seed=5, users=20))
        assert stream.run(until_round=67) == 0
        assert stream.checkpoint().position.next_offset == 67 * 7, (
            "six events wait for the rest of their round"
        )
        stream.check_everything()
        check_dead_letters(stream)


def test_rounds_by_ticks_survive_kills_at_any_step_and_idle_streams_release(make: MakeStream) -> None:
    with make(**TICKS, **USERS) as stream:
        for number, kill in enumerate(
            (
                Kill("start the writer of barriers"),
                Kill("start the writer of barriers", after=True),
                Kill("read the log", 5, after=True),
                Kill("hand a batch to the producer", 2, after=True),
                Kill("write a checkpoint", 1),
                Kill("write a checkpoint", 1, after=True),
            )
        ):
            stream.feed(some_events(30, seed=number, users=20))
            assert stream.run(kill) == KILLED, f"{kill} was never reached:\n{stream.logged()}"
        stream.wait_until_no_writer()
        idle = max(released(stream), default=0) + 5
        assert stream.run(until_round=idle) == 0
        assert stream.writers() == []
        assert stream.run(until_round=rounds_of_the_log(stream), **NO_MORE) == 0
        stream.check_everything()
        check_dead_letters(stream)
        assert stream.checkpoint().state.counts.sum() > 20  # so that there was something to lose
        assert len(stream.events()) == 180  # nothing of ours is among them


def test_a_new_epoch_takes_the_open_round_along(make: MakeStream) -> None:
    with make(rounds="every-10", **USERS) as stream:
        stream.feed(some_events(25, seed=1, users=9))
        assert stream.run(until_round=2) == 0
        worker = stream.start(new_epoch=NewEpoch())
        stream.wait_until_logged("epoch 2, round 0")
        stream.feed(some_events(15, seed=2, users=9))
        stream.wait_until(lambda: released(stream, epoch=2) == {1, 2}, worker)
        stream.stop(worker)
        assert released(stream) == {1, 2}
        with stream.redis() as client:
            charges = Ledger(client, stream.settings.data_source).charges()
            assert [(charge.unit, charge.first_offset, charge.end_offset) for charge in charges] == [
                ("user", 0, 20),
                ("user", 20, None),
            ]
            for epoch in (1, 2):
                certificate = verify_epoch(stream.settings, client, epoch).certificate
                assert (certificate.verdict, certificate.rounds) == (Verdict.IDENTICAL, 2)
        assert stream.checkpoint().position.next_offset == 40


def test_rolling_epochs_of_several_events_a_round_count_each_event_once_and_users_anew(
    make: MakeStream,
) -> None:
    """A user brings their items again in the next epoch, which is charged for it."""
    own = b'{"items": ["a", "b", "c", "d"], "user": "u"}'
    with make(rounds="every-4", horizon=3, at_horizon="roll", **USERS) as stream:
        stream.feed([own] * 33)
        worker = stream.start()
        stream.wait_until(lambda: released(stream, epoch=3) == {1, 2}, worker)
        stream.stop(worker)
        assert released(stream, 1) == released(stream, 2) == {1, 2, 3}
        found = stream.checkpoint()
        assert (found.position.next_offset, found.state.labels) == (32, ["a", "b", "c"])
        assert found.state.counts.tolist() == [1, 1, 1]
        with stream.redis() as client:
            charges = Ledger(client, stream.settings.data_source).charges()
        assert [(charge.first_offset, charge.end_offset) for charge in charges] == [
            (0, 12),
            (12, 24),
            (24, None),
        ]


@pytest.mark.parametrize("rounds", [{"rounds": "every-8"}, TICKS])
def test_lost_state_is_rebuilt_and_an_open_round_stays_open(
    make: MakeStream, rounds: dict[str, object]
) -> None:
    with make(**rounds, **USERS) as stream:
        stream.feed(some_events(60, seed=3, users=12))
        assert stream.run(until_round=3) == 0
        assert stream.run(until_round=rounds_of_the_log(stream), **NO_MORE) == 0
        stream.feed(some_events(3, seed=4, users=12))
        before = stream.checkpoint()
        with stream.redis() as client:
            assert verify_epoch(stream.settings, client).certificate.verdict is Verdict.IDENTICAL
            rebuilt = rebuild(stream.settings, client, replace=True)
        after = stream.checkpoint()
        assert rebuilt.position == before.position == after.position
        assert bytes(rebuilt.pairs) == before.pairs == after.pairs != b""
        stream.check_everything()
        stream.feed(some_events(30, seed=5, users=12))
        assert stream.run(until_round=before.state.round + 2) == 0
        assert stream.run(until_round=rounds_of_the_log(stream), **NO_MORE) == 0
        stream.check_everything()


def test_a_ledger_of_another_unit_is_refused_before_anything_is_opened(make: MakeStream) -> None:
    with make(**USERS) as stream:
        stream.feed(some_events(5, seed=1, users=3))
        with stream.redis() as client:
            Ledger(client, stream.settings.data_source).set_budget(100.0, 1e-5, "event")
        assert 'counts per event, and the two units cannot be added: set unit = "event"' in stream.refusal()
        with stream.redis() as client:
            assert Ledger(client, stream.settings.data_source).charges() == []
        assert stream.run(until_round=5, unit="event", items_per_user=None) == 0


def test_rounds_and_the_users_bound_are_frozen_and_the_ticks_interval_is_not(make: MakeStream) -> None:
    with make(**TICKS, **USERS) as stream:
        stream.feed(some_events(5, seed=1, users=3))
        assert stream.run(until_round=1) == 0
        assert "rounds is ticks in the epoch and every-2 in the settings" in stream.refusal(rounds="every-2")
        assert "items_per_user is 3 in the epoch and 4 in the settings" in stream.refusal(items_per_user=4)
        assert stream.run(until_round=rounds_of_the_log(stream) + 1, tick_seconds=0.2) == 0
