"""Epochs on real servers: opened, counted to their end, closed, charged once; lost state is rebuilt bit for bit."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from stream_dp.counters import DISCRETE, MECHANISMS
from stream_dp.counters.blt import NUMERICAL_SHARE, BltMechanism
from stream_dp.engine.epoch import EpochRefused
from stream_dp.epochs.journal import EpochClosed, EpochJournal
from stream_dp.epochs.lifecycle import Epochs
from stream_dp.events.record import Record
from stream_dp.privacy.accounting import discrete_gaussian_delta, gaussian_delta
from stream_dp.privacy.composition import Charge
from stream_dp.privacy.keyed_noise import key_check, new_key
from stream_dp.releases.release import Release, decode_release
from stream_dp.store.checkpoints import CheckpointStore
from stream_dp.store.ledger import Ledger
from stream_dp.store.noise_key import noise_key
from stream_dp.verification.rebuild import rebuild, verify_epoch
from stream_dp.verification.verify import Verdict
from stream_dp.workers.resume import NewEpoch, take_over
from tests.system.streams import Stream, ended, event, small_stream, some_events, wake_up
from tests.system.worker_process import Kill, Pause

REFUSED = 2
PRIVATE_TO_A_WORKER = {b"fence"}


@pytest.fixture
def stream(kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path) -> Iterator[Stream]:
    with small_stream(kafka, redis_url, topic_prefix, tmp_path) as stream:
        yield stream


def state_keys(stream: Stream) -> dict[bytes, bytes]:
    """What Redis holds of the stream, by the last part of the key; without what differs between workers."""
    prefix = len(f"stream_dp:{{{stream.settings.stream}}}:")
    return {
        name[prefix:]: value
        for name, value in stream.redis_keys().items()
        if name[prefix:] not in PRIVATE_TO_A_WORKER
    }


def lose_state(stream: Stream, key_too: bool = False) -> None:
    with stream.redis() as client:
        for name in stream.redis_keys():
            if key_too or not name.endswith(b":key"):
                client.delete(name)


def charges(stream: Stream) -> list[Charge]:
    with stream.redis() as client:
        return Ledger(client, stream.settings.data_source).charges()


def releases(stream: Stream, epoch: int) -> list[Release]:
    found = [decode_release(record.value or b"") for record in stream.releases()]
    return [release for release in found if release.epoch == epoch]


def run_epoch(
    stream: Stream, until_round: int, epoch: int, wish: NewEpoch | None = None, **changed: Any
) -> None:
    """Run a worker until `epoch` has released `until_round`."""
    worker = stream.start(new_epoch=wish, **changed)
    stream.wait_until_logged(f"epoch {epoch}, round")
    stream.wait_until(lambda: len(releases(stream, epoch)) >= until_round, worker)
    worker.terminate()
    assert ended(worker) == 0, stream.logged()


def test_lost_state_is_refused_then_rebuilt_bit_for_bit(stream: Stream) -> None:
    stream.feed(some_events(150, seed=1))
    assert stream.run(until_round=150) == 0
    before, released = state_keys(stream), stream.releases()
    lose_state(stream)
    assert "stream-dp rebuild" in stream.refusal()
    with stream.redis() as client:
        checkpoint = rebuild(stream.settings, client)
    assert checkpoint.state.round == 150
    after = state_keys(stream)
    assert before.keys() == after.keys()
    assert {name for name in before if before[name] != after[name]} <= {b"meta"}  # it counts the checkpoints
    assert released == stream.releases()
    stream.feed(some_events(30, seed=2))
    assert stream.run(until_round=180) == 0
    stream.check_everything()
    assert len(charges(stream)) == 1


def test_a_rebuild_goes_no_further_than_what_was_released(stream: Stream) -> None:
    stream.feed(some_events(60, seed=3))
    assert stream.run(until_round=60) == 0
    stream.feed(some_events(40, seed=4))
    lose_state(stream)
    with stream.redis() as client:
        assert rebuild(stream.settings, client).state.round == 60
    assert stream.run(until_round=100) == 0
    stream.check_everything()
    run_epoch(stream, 0, 2, NewEpoch())  # it is known again how far the first has counted
    assert [(charge.first_offset, charge.end_offset) for charge in charges(stream)] == [(0, 100), (100, None)]


@pytest.mark.same_on_any_broker("state is in Redis")
def test_a_rebuild_replaces_state_only_when_told_to(stream: Stream) -> None:
    stream.feed(some_events(20, seed=5))
    assert stream.run(until_round=20) == 0
    with stream.redis() as client:
        with pytest.raises(EpochRefused, match="--replace"):
            rebuild(stream.settings, client)
        assert rebuild(stream.settings, client, replace=True).state.round == 20
    stream.check_everything()


def test_a_rebuild_from_another_log_is_refused_and_changes_nothing(stream: Stream) -> None:
    stream.settings = replace(stream.settings, delta=0.1)  # so that most labels show, and tell the other log
    stream.feed(some_events(40, seed=6))
    assert stream.run(until_round=40) == 0
    first, *others = stream.events()
    stream.rewrite(stream.settings.events, [*others, first])
    lose_state(stream)
    with stream.redis() as client, pytest.raises(EpochRefused, match="do not give what was released"):
        rebuild(stream.settings, client)
    assert b"meta" not in state_keys(stream)


def test_verify_finds_every_release_in_order(stream: Stream) -> None:
    stream.feed(some_events(80, seed=7))
    assert stream.run(until_round=80) == 0
    with stream.redis() as client:
        certificate = verify_epoch(stream.settings, client).certificate
    assert (certificate.verdict, certificate.rounds, certificate.log_records) == (Verdict.IDENTICAL, 80, 80)
    stream.feed(some_events(5, seed=8))
    with stream.redis() as client:
        assert verify_epoch(stream.settings, client).certificate.verdict is Verdict.EXTENDED


def test_a_new_epoch_counts_on_where_the_old_one_ends(stream: Stream) -> None:
    stream.feed(some_events(50, seed=9))
    assert stream.run(until_round=50) == 0
    stream.feed(some_events(30, seed=10))
    worker = stream.start(new_epoch=NewEpoch())
    stream.wait_until_logged("epoch 2, round")
    stream.feed(some_events(25, seed=11))
    stream.wait_until(lambda: len(releases(stream, 2)) >= 25, worker)
    worker.terminate()
    assert ended(worker) == 0
    assert [len(releases(stream, number)) for number in (1, 2)] == [80, 25]
    assert releases(stream, 1)[0].nonce != releases(stream, 2)[0].nonce
    first, second = charges(stream)
    assert (first.first_offset, first.end_offset, second.first_offset, second.end_offset) == (0, 80, 80, None)
    with stream.redis() as client:
        verdicts = [verify_epoch(stream.settings, client, number).certificate.verdict for number in (1, 2)]
    assert verdicts == [Verdict.IDENTICAL] * 2


def test_a_recount_is_charged_on_top(stream: Stream) -> None:
    """What was counted twice is released twice with noise of its own, some of which differs in the later rounds."""
    stream.feed([event("tea")] * 50)
    assert stream.run(until_round=50) == 0
    run_epoch(stream, 50, 2, NewEpoch(recount=True))
    assert [charge.first_offset for charge in charges(stream)] == [0, 0]
    one, two = ([release.counts for release in releases(stream, epoch)] for epoch in (1, 2))
    assert len(one) == len(two) == 50
    assert one != two


@pytest.mark.same_on_any_broker("the ledger's arithmetic, and what Redis holds")
@pytest.mark.parametrize("name", MECHANISMS)
def test_the_ledger_is_charged_all_of_delta_that_the_conversion_of_rho_leaves(
    stream: Stream, name: str
) -> None:
    """The ledger converts rho itself: the rest must be in the charge, what computing the noise of blt may cost too."""
    own = replace(stream.settings, mechanism=name, epsilon=1.0)
    with stream.redis() as client:
        epochs = take_over(own, CheckpointStore(client, own.stream), client)
        key = noise_key("redis", client, own.stream, may_create=True)
        epoch = epochs.open_next(0, key_check(key)).epoch
    [charge] = charges(stream)
    assert charge.exact == (own.epsilon, own.delta)
    if isinstance(epoch.mechanism, BltMechanism):
        assert charge.delta >= own.delta * (1 / 2 + NUMERICAL_SHARE)
        converted = gaussian_delta(epoch.guarantee.rho, own.epsilon)
    else:
        shifts = own.items_per_event * DISCRETE[name].nodes_per_event(own.horizon)
        converted = discrete_gaussian_delta(epoch.mechanism.sigma_squared, shifts, own.epsilon)
    assert epoch.guarantee.threshold_delta <= charge.delta <= own.delta - converted


@pytest.mark.same_on_any_broker("the ledger's arithmetic, and what Redis holds")
def test_a_derived_stream_spends_its_source_whole_and_for_good(stream: Stream) -> None:
    """Its own offsets say nothing about which events of the source it holds."""
    source = f"{stream.settings.stream}-source.events"
    stream.feed(some_events(30, seed=25))
    assert stream.run(until_round=30, source=source) == 0
    run_epoch(stream, 0, 2, NewEpoch(), source=source)
    with stream.redis() as client:
        made = Ledger(client, source).charges()
    assert [(charge.first_offset, charge.end_offset) for charge in made] == [(0, None), (0, None)]
    assert charges(stream) == []
    assert "data_source" in stream.refusal()  # an epoch stays with the source it was charged to


@pytest.mark.same_on_any_broker("the ledger's arithmetic, and what Redis holds")
def test_the_setting_source_does_not_move_events_to_another_budget(stream: Stream) -> None:
    """It is changed with the next epoch, which would read the same events on somebody else's budget."""
    stream.feed(some_events(30, seed=27))
    assert stream.run(until_round=30) == 0
    source = f"{stream.settings.stream}-source.events"
    assert ended(stream.start(new_epoch=NewEpoch(), source=source)) == REFUSED
    assert f"belongs to the data source {stream.settings.events!r}" in stream.logged()
    assert [(charge.first_offset, charge.end_offset) for charge in charges(stream)] == [(0, None)]
    with stream.redis() as client:
        assert Ledger(client, source).charges() == []


@pytest.mark.same_on_any_broker("the ledger's arithmetic, and what Redis holds")
def test_without_a_budget_no_epoch_opens_and_one_that_is_open_goes_on(stream: Stream) -> None:
    stream.feed(some_events(30, seed=28))
    assert ended(stream.start(unmetered=False)) == REFUSED
    assert f"stream-dp budget set --source {stream.settings.events}" in stream.logged()
    assert charges(stream) == []
    assert stream.run(until_round=20) == 0
    [opened] = EpochJournal(stream.settings).opened
    assert opened.unmetered
    assert stream.run(until_round=30, unmetered=False) == 0  # as after an upgrade: its charge was made
    assert ended(stream.start(new_epoch=NewEpoch(), unmetered=False)) == REFUSED
    assert not EpochJournal(stream.settings).closed
    assert len(charges(stream)) == 1


@pytest.mark.same_on_any_broker("the ledger's arithmetic, and what Redis holds")
def test_a_budget_without_room_refuses_the_epoch_and_releases_nothing(stream: Stream) -> None:
    with stream.redis() as client:
        Ledger(client, stream.settings.data_source).set_budget(
            stream.settings.epsilon, stream.settings.delta, "event"
        )
    stream.feed(some_events(40, seed=13))
    assert stream.run(until_round=40) == 0
    worker = stream.start(new_epoch=NewEpoch(recount=True))
    assert ended(worker) == REFUSED
    assert "budget" in stream.logged().splitlines()[-1]
    (charge,) = charges(stream)
    assert charge.end_offset is None  # the running epoch was not closed
    run_epoch(stream, 0, 2, NewEpoch())  # what comes after it is not spent yet
    assert releases(stream, 2) == []


@pytest.mark.same_on_any_broker("the ledger's arithmetic, and what Redis holds")
def test_a_first_epoch_beyond_the_budget_is_refused_until_the_budget_is_raised(stream: Stream) -> None:
    with stream.redis() as client:
        ledger = Ledger(client, stream.settings.data_source)
        ledger.set_budget(1.0, stream.settings.delta, "event")
        stream.feed(some_events(20, seed=26))
        assert "does not fit the budget" in stream.refusal()
        assert charges(stream) == []
        ledger.set_budget(stream.settings.epsilon, stream.settings.delta, "event")
    assert "--new-epoch" in stream.refusal()
    run_epoch(stream, 20, 2, NewEpoch())


def test_after_the_horizon_a_new_epoch_loses_no_event(stream: Stream) -> None:
    stream.feed(some_events(70, seed=14))
    assert stream.run(horizon=63) == 0
    run_epoch(stream, 7, 2, NewEpoch(), horizon=63)
    assert [len(releases(stream, number)) for number in (1, 2)] == [63, 7]
    assert [(charge.first_offset, charge.end_offset) for charge in charges(stream)] == [(0, 63), (63, None)]


@pytest.mark.same_on_any_broker("settings are in Redis")
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
    worker.terminate()
    assert ended(worker) == 0
    assert "nobody can tell how far epoch 1 has counted" in stream.logged()
    assert [(charge.first_offset, charge.end_offset) for charge in charges(stream)] == [(0, None), (30, None)]


@pytest.mark.parametrize(("left", "recount"), [(0, True), (15, True), (15, False)])
def test_a_new_epoch_over_another_log_ends_no_charge(stream: Stream, left: int, recount: bool) -> None:
    """Records are erased by making the topic anew: what the old epoch has counted stays charged on every offset."""
    stream.feed(some_events(40, seed=28))
    assert stream.run(until_round=40) == 0
    stream.rewrite(stream.settings.events, stream.events()[1 : 1 + left])
    worker = stream.start(new_epoch=NewEpoch(recount))
    stream.wait_until_logged("epoch 2, round")
    stream.feed([record.value for record in stream.events()] or some_events(40, seed=29))
    stream.wait_until(
        lambda: len(releases(stream, 2)) >= len(stream.events()) - (0 if recount else left), worker
    )
    worker.terminate()
    assert ended(worker) == 0, stream.logged()
    first, second = charges(stream)
    assert (first.first_offset, first.end_offset) == (0, None)
    assert (second.first_offset, second.end_offset) == (0 if recount else left, None)
    with stream.redis() as client:
        spent = Ledger(client, stream.settings.data_source).spent()
        assert (spent.epsilon > stream.settings.epsilon, spent.rho) == (True, first.rho + second.rho)
    assert "nobody can tell how far epoch 1 has counted" in stream.logged()
    worker = stream.start()
    stream.wait_until_logged("epoch 2, round", times=2)
    worker.terminate()
    assert ended(worker) == 0, stream.logged()


@pytest.mark.parametrize("left", [0, 15])
def test_a_new_epoch_over_another_log_needs_room_beside_the_old_charge(stream: Stream, left: int) -> None:
    with stream.redis() as client:
        ledger = Ledger(client, stream.settings.data_source)
        ledger.set_budget(stream.settings.epsilon, stream.settings.delta, "event")
    stream.feed(some_events(40, seed=30))
    assert stream.run(until_round=40) == 0
    stream.rewrite(stream.settings.events, stream.events()[1 : 1 + left])
    for recount in (True, False):
        worker = stream.start(new_epoch=NewEpoch(recount))
        assert ended(worker) == REFUSED
        assert "has no room for another epoch" in stream.logged().splitlines()[-1]
    assert EpochJournal(stream.settings).closed == {}
    assert [charge.end_offset for charge in charges(stream)] == [None]
    with stream.redis() as client:
        Ledger(client, stream.settings.data_source).set_budget(200.0, 1e-2, "event")
    run_epoch(stream, left, 2, NewEpoch(recount=True))


def test_a_log_made_anew_that_ends_before_the_last_epoch_began_goes_on_at_its_end(stream: Stream) -> None:
    stream.feed(some_events(30, seed=31))
    assert stream.run(until_round=30) == 0
    run_epoch(stream, 0, 2, NewEpoch())
    stream.rewrite(stream.settings.events, stream.events()[:10])
    worker = stream.start(new_epoch=NewEpoch())
    stream.wait_until_logged("epoch 3, round")
    stream.feed(some_events(5, seed=32))
    stream.wait_until(lambda: len(releases(stream, 3)) >= 5, worker)
    worker.terminate()
    assert ended(worker) == 0, stream.logged()
    made = [(charge.first_offset, charge.end_offset) for charge in charges(stream)]
    assert made == [(0, 30), (30, None), (10, None)]


def test_a_known_end_ends_the_charge_even_if_the_worker_died_before_it_said_so(stream: Stream) -> None:
    """By the epochs topic of an earlier version, too, whose records do not tell whether the end was known."""
    old = b'{"type":"epoch-closed","number":1,"end_offset":20}'
    stream.feed(some_events(20, seed=33))
    assert stream.run(until_round=20) == 0
    stream.write(stream.settings.epochs, [Record(0, 1000, None, old)])
    assert EpochJournal(stream.settings).closed == {1: EpochClosed(1, 20)}
    stream.feed(some_events(5, seed=34))
    run_epoch(stream, 5, 2, NewEpoch())
    assert [(charge.first_offset, charge.end_offset) for charge in charges(stream)] == [(0, 20), (20, None)]


@pytest.fixture
def key_file(tmp_path: Path) -> str:
    place = tmp_path / "noise.key"
    place.write_text(new_key().hex())
    place.chmod(0o600)
    return f"file:{place}"


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


def test_an_epoch_of_an_earlier_version_is_put_on_record_as_started_when_it_goes_on(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    with stream.redis() as client, monkeypatch.context() as earlier:
        earlier.setattr(Epochs, "note_started", lambda *_: None)
        epochs = take_over(stream.settings, CheckpointStore(client, stream.settings.stream), client)
        key = noise_key("redis", client, stream.settings.stream, may_create=True)
        epochs.open_next(0, key_check(key))
        assert EpochJournal(stream.settings).started == set()
    for rounds in (5, 10):
        stream.feed(some_events(5, seed=37))
        assert stream.run(until_round=rounds) == 0
    assert EpochJournal(stream.settings).started == {1}
    kinds = [json.loads(record.value or b"")["type"] for record in stream._read(stream.settings.epochs)]
    assert kinds == ["epoch-opened", "epoch-started"]
    stream.check_everything()


def test_a_zombie_of_a_closed_epoch_sends_nothing_past_its_end(stream: Stream) -> None:
    stream.feed(some_events(40, seed=19))
    zombie = stream.start(Pause("hand a batch to the producer", nth=3), checkpoint_rounds=1000)
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
    worker.terminate()
    assert ended(worker) == 0
    assert max(release.round for release in releases(stream, 1)) == 60
    by_round: dict[int, Release] = {}
    for release in releases(stream, 1):
        assert by_round.setdefault(release.round, release) == release
    worker = stream.start()
    stream.wait_until_logged(
        "epoch 2, round 30"
    )  # what the zombie has sent in between does not confuse a restart
    worker.terminate()
    assert ended(worker) == 0


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
