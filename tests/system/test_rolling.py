"""Epochs that follow one another by themselves: every event in exactly one of them, each charged once."""

import asyncio
import dataclasses
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from prometheus_client import generate_latest

from stream_dp import subscribe
from stream_dp.config.settings import Settings
from stream_dp.counters.protocol import LARGEST_HORIZON
from stream_dp.engine.epoch import EpochRefused
from stream_dp.epochs.journal import EpochJournal
from stream_dp.events.record import Record
from stream_dp.pipeline.pipeline import Position
from stream_dp.privacy.composition import spent
from stream_dp.privacy.keyed_noise import key_check
from stream_dp.releases.lookup import release_at
from stream_dp.releases.release import decode_release
from stream_dp.store.checkpoints import CheckpointStore
from stream_dp.store.ledger import Ledger
from stream_dp.store.noise_key import noise_key
from stream_dp.verification.rebuild import rebuild, verify_epoch
from stream_dp.verification.verify import Verdict
from stream_dp.workers.histogram import Worker
from stream_dp.workers.resume import NewEpoch, take_over
from tests.dashboard.running import Running, running
from tests.system.epoch_steps import charges, releases
from tests.system.example_events import event, some_events
from tests.system.streams import Stream, ended, wake_up
from tests.system.ticking import MakeStream
from tests.system.waiting import GIVE_UP_SECONDS, wait_until
from tests.system.worker_process import Kill, Pause

REFUSED = 2
KILLED = -signal.SIGKILL
HORIZON = 15


@pytest.fixture
def stream(make_stream: MakeStream) -> Iterator[Stream]:
    options = {"horizon": HORIZON, "at_horizon": "roll"}
    with make_stream(**options) as stream:
        yield stream


def run_until(stream: Stream, epoch: int, rounds: int, **changed: Any) -> None:
    """Run a worker until `epoch` is opened and has released so many rounds, and end it."""
    begun = f"epoch {epoch}, round"
    before = stream.logged().count(begun)
    worker = stream.start(None, None, **changed)
    stream.wait_until_logged(begun, before + 1)
    stream.wait_until(lambda: len(releases(stream, epoch)) >= rounds, worker)
    stream.stop(worker)


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
        closed = journal.closed.get(number)
        end = closed.end_offset if closed is not None else None
        pipeline = stream.pipeline(epoch)
        expected = [part.value for part in pipeline.process(events[counted:end]).releases]
        seen: list[bytes] = []
        for record, release in zip(published, found, strict=True):
            if (
                release.nonce == epoch.nonce.hex() and record.value not in seen
            ):  # once more after a kill: the same
                seen.append(record.value or b"")
        assert seen == expected, f"epoch {number}"
        counted = pipeline.position.next_offset
        assert end == (counted if number < len(journal.opened) else None)
        made.append((epoch.nonce.hex(), epoch.first_offset, end))
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


@pytest.mark.apache("roles")
def test_at_its_horizon_an_epoch_gives_way_to_the_next_and_no_event_is_lost(stream: Stream) -> None:
    stream.feed(some_events(35, seed=1))
    run_until(stream, 3, 5)
    assert check_epochs(stream) == [HORIZON] * 3
    assert "its counts begin at zero" in stream.logged()
    with stream.redis() as client:
        certificates = [verify_epoch(stream.settings, client, number).certificate for number in (1, 2, 3)]
        assert [certificate.rounds for certificate in certificates] == [15, 15, 5]
        assert {certificate.verdict for certificate in certificates} == {Verdict.IDENTICAL}
        assert rebuild(stream.settings, client, replace=True).state.round == 5
    stream.feed(some_events(20, seed=2))
    run_until(stream, 4, 10)
    assert check_epochs(stream) == [HORIZON] * 4


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


def test_a_roll_that_is_killed_at_every_step_in_turn_is_one_roll(stream: Stream) -> None:
    stream.feed(some_events(HORIZON + 5, seed=5))
    run_until(stream, 1, 0, at_horizon="stop")
    for kill in ONE_STEP_FURTHER:
        assert stream.run(kill) == KILLED, f"{kill} was never reached:\n{stream.logged()}"
        assert len(releases(stream, 2)) == 0
    run_until(stream, 2, 5)
    assert check_epochs(stream) == [HORIZON] * 2


def test_over_disjoint_offsets_all_epochs_together_spend_what_one_does(stream: Stream) -> None:
    own = stream.settings
    with stream.redis() as client:
        ledger = Ledger(client, own.data_source)
        ledger.set_budget(own.epsilon, own.delta, "event")
        stream.feed(some_events(40, seed=30))
        run_until(stream, 3, 10)
        assert ledger.spent().epsilon <= own.epsilon  # less where the least noise there is hides more
        together = spent([replace(charge, unit="user") for charge in ledger.charges()], "user", own.delta)
    assert together.rho == pytest.approx(3 * charges(stream)[0].rho, rel=1e-12)
    assert together.epsilon > own.epsilon


DERIVED = {"source": "{stream}-source.events"}
PER_USER = {"unit": "user", "items_per_user": 3}


@pytest.mark.parametrize("kind", [DERIVED, PER_USER])
def test_where_every_epoch_adds_rolling_ends_with_the_budget(stream: Stream, kind: dict[str, object]) -> None:
    """Nobody knows which events of its source a derived stream holds, and one user may be in every epoch."""
    changed = {name: str(value).format(stream=stream.settings.stream) for name, value in kind.items()}
    own = msgspec.convert(msgspec.to_builtins(stream.settings) | changed, Settings, strict=False)
    stream.settings, source = own, own.data_source
    stream.feed(some_events(10, seed=31))
    run_until(stream, 1, 10)
    stream.feed(some_events(30, seed=32))
    [first] = charges(stream)
    with stream.redis() as client:
        ledger = Ledger(client, source)
        enough = spent([first, replace(first, id="again")], own.unit, 4 * own.delta).epsilon
        ledger.set_budget(1.15 * enough, 4 * own.delta, own.unit)
        assert stream.run() == REFUSED
        told = stream.logged().splitlines()[-1]
        assert told.startswith(f"the budget of {source!r} has no room for another epoch")
        assert f" per {own.unit})" in told
        assert [len(releases(stream, epoch)) for epoch in (1, 2, 3)] == [HORIZON, HORIZON, 0]
        assert told == stream.refusal()
        assert len(ledger.charges()) == 2
        assert ledger.spent().rho == pytest.approx(2 * first.rho, rel=1e-12)
        ledger.set_budget(10 * enough, 1e-2, own.unit)
    run_until(stream, 3, 10)
    assert [charge.first_offset for charge in charges(stream)] == (
        [0, 0, 0] if kind is DERIVED else [0, 15, 30]
    )


def test_a_budget_that_others_spend_in_the_middle_of_a_roll_is_refused_and_rolls_once_it_is_raised(
    stream: Stream,
) -> None:
    own = stream.settings
    stream.feed(some_events(HORIZON + 5, seed=32))
    worker = stream.start(Pause("end the charge", after=True))
    stream.wait_until_asleep(worker)
    with stream.redis() as client:
        ledger = Ledger(client, own.data_source)
        ledger.set_budget(own.epsilon, own.delta, "event")
        [first] = charges(stream)
        ledger.charge(replace(first, id="a job", what="a job", first_offset=HORIZON, end_offset=None))
        wake_up(worker)
        assert ended(worker) == REFUSED
        assert "does not fit the budget" in stream.logged().splitlines()[-1]
        assert "has no room for another epoch" in stream.refusal()
        assert releases(stream, 2) == []
        ledger.set_budget(10 * own.epsilon, 1e-2, "event")
    run_until(stream, 3, 5)  # the second was on record, and has never counted anything
    with stream.redis() as client:
        assert verify_epoch(own, client).certificate.rounds == 5


def test_a_new_epoch_that_is_asked_for_begins_with_the_horizon_of_the_settings(stream: Stream) -> None:
    stream.feed(some_events(15 + 30 + 8, seed=33))
    run_until(stream, 3, 8, at_horizon="double")
    stream.feed(some_events(4, seed=34))
    worker = stream.start(None, NewEpoch(), at_horizon="double")
    stream.wait_until_logged("epoch 4, round")
    stream.stop(worker)
    stream.feed(some_events(20, seed=35))
    run_until(stream, 5, 5, at_horizon="double")
    assert check_epochs(stream) == [15, 30, 60, 15, 30]


def test_no_horizon_is_larger_than_the_largest(stream: Stream) -> None:
    own = replace(stream.settings, horizon=LARGEST_HORIZON // 2 - 5, at_horizon="double")
    with stream.redis() as client:
        epochs = take_over(own, CheckpointStore(client, own.stream), client)
        key = noise_key("redis", client, own.stream, may_create=True)
        opened = [epochs.open_next((0,), key_check(key))]
        for end in (100, 200):
            opened.append(epochs.roll(dataclasses.replace(opened[-1], position=Position(end))))
    horizons = [checkpoint.epoch.mechanism.horizon for checkpoint in opened]
    assert horizons == [LARGEST_HORIZON // 2 - 5, LARGEST_HORIZON - 10, LARGEST_HORIZON]
    for checkpoint in opened:
        checkpoint.epoch.check_settings(own)
        with pytest.raises(EpochRefused, match="epsilon"):
            checkpoint.epoch.check_settings(replace(own, epsilon=29.0))


@pytest.mark.parametrize(
    "asleep", [Pause("hand a batch to the producer", nth=2), Pause("write the epoch down")]
)
def test_a_zombie_of_an_epoch_that_was_rolled_changes_nothing(stream: Stream, asleep: Pause) -> None:
    stream.feed(some_events(5, seed=36))
    run_until(stream, 1, 5)
    stream.feed(some_events(20, seed=37))
    zombie = stream.start(asleep)
    stream.wait_until_asleep(zombie)
    worker = stream.start()
    stream.wait_until(lambda: len(releases(stream, 2)) >= 10, worker)
    wake_up(zombie)
    assert ended(zombie) == REFUSED
    stream.feed(some_events(10, seed=38))
    stream.wait_until(lambda: len(releases(stream, 3)) >= 5, worker)
    stream.stop(worker)
    assert check_epochs(stream) == [HORIZON] * 3


@pytest.mark.parametrize("zombie_is_first", [True, False])
def test_two_workers_that_write_the_next_epoch_down_at_once_agree_on_one(
    stream: Stream, zombie_is_first: bool
) -> None:
    """Both have asked who holds the stream before; the topic of the epochs decides."""
    stream.feed(some_events(HORIZON + 5, seed=39))
    run_until(stream, 1, 0, at_horizon="stop")
    zombie = stream.start(Pause("write the epoch down", nth=2))
    stream.wait_until_asleep(zombie)
    worker = stream.start(Pause("write the epoch down"))
    stream.wait_until_asleep(worker)
    if zombie_is_first:
        wake_up(zombie)
        assert ended(zombie) == REFUSED
    wake_up(worker)
    stream.wait_until(lambda: len(releases(stream, 2)) >= 5, worker)
    if not zombie_is_first:
        wake_up(zombie)
        assert ended(zombie) == REFUSED
    stream.stop(worker)
    run_until(stream, 2, 5)
    assert check_epochs(stream) == [HORIZON] * 2


@pytest.mark.apache("offsets")
def test_an_events_topic_made_anew_between_two_epochs_is_noticed(stream: Stream) -> None:
    stream.feed(some_events(HORIZON, seed=40))
    run_until(stream, 2, 0)
    others = [Record(0, 1000, None, value) for value in some_events(2 * HORIZON, seed=41)]
    stream.rewrite(stream.settings.events, others)
    assert "is not the log that was counted" in stream.refusal()


def test_readers_follow_from_epoch_to_epoch_and_mix_no_counts(stream: Stream, tmp_path: Path) -> None:
    horizon = 31  # a label of 31 events is released in the 31st round but once in 1e20 runs
    own = stream.settings = replace(stream.settings, horizon=horizon)
    stream.feed([event("tea")] * (2 * horizon + 10))
    run_until(stream, 3, 10)
    places = [(epoch, number) for epoch in (1, 2, 3) for number in range(1, horizon + 1)][: 2 * horizon + 10]
    with subscribe(own.kafka, own.stream, "earliest") as subscription:
        followed = [next(subscription) for _ in places]
    assert [(release.epoch, release.round) for release in followed] == places
    assert [release.labels for release in followed[horizon - 1 : horizon + 1]] == [["tea"]] * 2
    assert followed[horizon - 1].counts[0] > 15 > followed[horizon].counts[0]
    last = [followed[place].counts[0] for place in (horizon - 1, 2 * horizon - 1, -1)]
    assert (followed[-1].totals, followed[-1].since) == ([sum(last)], [1])
    assert followed[0].totals is None
    for epoch in (1, 2, 3):
        newest = release_at(own.kafka, own.releases, 10, epoch)
        assert newest == next(each for each in followed if (each.epoch, each.round) == (epoch, 10))
    with running(own.kafka, own.stream, tmp_path) as dashboard:
        wait_until_latest(dashboard, 3, 10)
        assert dashboard.get("/api/v1/release?round=30&epoch=2")["labels"] == followed[horizon + 29].labels
        stream.feed([event("tea")] * (horizon - 10 + 1))
        run_until(stream, 4, 1)
        wait_until_latest(dashboard, 4, 1)
        history = dashboard.get("/api/v1/history?label=tea")
        assert history["rounds"] == [1]
        assert history["series"][0]["counts"][0] < 15


def wait_until_latest(dashboard: Running, epoch: int, number: int) -> None:
    """Return when the dashboard shows this round of this epoch; it passes by the same round of others."""
    place = {"epoch": epoch, "round": number}

    def shown() -> bool:
        return (
            dashboard.status("/api/v1/release/latest") == 200
            and dashboard.get("/api/v1/release/latest").items() >= place.items()
        )

    wait_until(shown, lambda: f"{place} is not shown: {dashboard.log.read_text()}")


async def test_the_open_port_tells_the_epoch_its_round_and_its_horizon(stream: Stream) -> None:
    stream.feed(some_events(15 + 30 + 4, seed=44))
    worker = Worker(replace(stream.settings, at_horizon="double"))
    work = asyncio.create_task(worker.run())
    async with asyncio.timeout(GIVE_UP_SECONDS):
        while worker.watch.facts.epoch != 3 or worker.watch.facts.round < 4:
            await asyncio.sleep(0.02)
    told = generate_latest(worker.watch.open_registry).decode()
    worker.stop()
    await work
    for name, value in (("epoch", 3), ("rounds_closed_total", 4), ("horizon_rounds", 60)):
        assert f'stream_dp_{name}{{stream="{stream.settings.stream}"}} {value:.1f}\n' in told
