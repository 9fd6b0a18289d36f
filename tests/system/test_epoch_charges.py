"""What an epoch is charged: its budget, on whose account, and until where in the log."""

import pytest
from msgspec.structs import replace

from stream_dp.counters import COMPARED, WINDOW
from stream_dp.counters.blt import NUMERICAL_SHARE, BltMechanism
from stream_dp.counters.discovery import DiscoveryMechanism
from stream_dp.counters.discrete import DiscreteCounter
from stream_dp.counters.registry import DISCRETE
from stream_dp.counters.window import WindowMechanism
from stream_dp.epochs.journal import EpochClosed, EpochJournal
from stream_dp.events.record import Record
from stream_dp.privacy.accounting import discrete_gaussian_delta, gaussian_delta
from stream_dp.privacy.keyed_noise import key_check
from stream_dp.store.checkpoints import CheckpointStore
from stream_dp.store.ledger import Ledger
from stream_dp.store.noise_key import noise_key
from stream_dp.workers.resume import NewEpoch, take_over
from tests.system.epoch_steps import REFUSED, charges, releases, run_epoch
from tests.system.example_events import event, some_events
from tests.system.streams import Stream, ended


def test_a_recount_is_charged_on_top(stream: Stream) -> None:
    """What was counted twice is released twice with noise of its own, some of which differs in the later rounds."""
    stream.feed([event("tea")] * 50)
    assert stream.run(until_round=50) == 0
    run_epoch(stream, 50, 2, NewEpoch(recount=True))
    assert [charge.first_offset for charge in charges(stream)] == [0, 0]
    one, two = ([release.counts for release in releases(stream, epoch)] for epoch in (1, 2))
    assert len(one) == len(two) == 50
    assert one != two


@pytest.mark.parametrize("name", [*COMPARED, WINDOW])
def test_the_ledger_is_charged_all_of_delta_that_the_conversion_of_rho_leaves(
    stream: Stream, name: str
) -> None:
    """The ledger converts rho itself: the rest must be in the charge, what computing the noise of blt may cost too."""
    mechanism, _, discover = name.partition(" ")
    own = replace(
        stream.settings,
        mechanism=mechanism,
        discover=discover or "default",
        window=60 if name == WINDOW else None,
        epsilon=1.0,
    )
    with stream.redis() as client:
        epochs = take_over(own, CheckpointStore(client, own.stream), client)
        key = noise_key("redis", client, own.stream, may_create=True)
        epoch = epochs.open_next((0,), key_check(key)).epoch
    [charge] = charges(stream)
    assert charge.exact == (own.epsilon, own.delta)
    if isinstance(epoch.mechanism, BltMechanism | DiscoveryMechanism | WindowMechanism):
        assert charge.delta >= own.delta * (1 / 2 + NUMERICAL_SHARE)
        converted = gaussian_delta(epoch.guarantee.rho, own.epsilon)
    else:
        assert isinstance(epoch.mechanism, DiscreteCounter)
        shifts = own.items_per_event * DISCRETE[name].nodes_per_event(own.horizon)
        converted = discrete_gaussian_delta(epoch.mechanism.sigma_squared, shifts, own.epsilon)
    assert epoch.guarantee.threshold_delta <= charge.delta <= own.delta - converted


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


def test_a_first_epoch_beyond_the_budget_is_refused_until_the_budget_is_raised(stream: Stream) -> None:
    with stream.redis() as client:
        ledger = Ledger(client, stream.settings.data_source)
        ledger.set_budget(1.0, stream.settings.delta, "event")
        stream.feed(some_events(20, seed=26))
        assert "does not fit the budget" in stream.refusal()
        assert charges(stream) == []
        ledger.set_budget(stream.settings.epsilon, stream.settings.delta, "event")
    assert stream.run(until_round=20) == 0, "a refusal changes nothing"
    assert len(charges(stream)) == 1


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
    stream.stop(worker)
    first, second = charges(stream)
    assert (first.first_offset, first.end_offset) == (0, None)
    assert (second.first_offset, second.end_offset) == (0 if recount else left, None)
    with stream.redis() as client:
        spent = Ledger(client, stream.settings.data_source).spent()
        assert (spent.epsilon > stream.settings.epsilon, spent.rho) == (True, first.rho + second.rho)
    assert "it is not known how far epoch 1 has counted" in stream.logged()
    worker = stream.start()
    stream.wait_until_logged("epoch 2, round", times=2)
    stream.stop(worker)


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
