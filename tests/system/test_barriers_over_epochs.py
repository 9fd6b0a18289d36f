"""Barriers from one epoch to the next, and what becomes of a key, a topic or an events topic that is lost."""

import pytest

from stream_dp.config.times import iso_timestamp
from stream_dp.epochs.journal import EpochJournal
from stream_dp.events.record import Record
from stream_dp.store.ledger import Ledger
from stream_dp.verification.rebuild import rebuild, verify_epoch
from stream_dp.verification.verify import Verdict
from stream_dp.workers.resume import NewEpoch
from tests.system.example_events import event, some_events
from tests.system.ticking import MakeStream, open_epoch, times


def test_epochs_go_on_with_the_next_barrier_and_idle_rounds_belong_to_one_of_them(
    by_hand: MakeStream,
) -> None:
    """Barriers without an event between them stand at the same offset, and close rounds of one epoch each."""
    with by_hand(horizon=3, at_horizon="roll") as stream:
        open_epoch(stream)
        for number in range(1, 11):
            if number % 3:
                stream.feed([event("tea")])
            stream.close_rounds(1_000 * number)
        worker = stream.start()
        stream.wait_until(lambda: times(stream, 4).keys() == {1}, worker)
        stream.stop(worker)
        for epoch, dues in enumerate(((1, 2, 3), (4, 5, 6), (7, 8, 9), (10,)), 1):
            told = {number: iso_timestamp(1_000 * due) for number, due in enumerate(dues, 1)}
            assert times(stream, epoch) == told
        with stream.redis() as client:
            for epoch, rounds in enumerate((3, 3, 3, 1), 1):
                certificate = verify_epoch(stream.settings, client, epoch).certificate
                assert (certificate.verdict, certificate.rounds) == (Verdict.IDENTICAL, rounds)
            charges = Ledger(client, stream.settings.data_source).charges()
        assert [(each.first_offset, each.end_offset) for each in charges] == [
            (0, 2),
            (2, 4),
            (4, 6),
            (6, None),
        ]
        stream.check_state(stream.uninterrupted()[0])


@pytest.mark.parametrize("recount", [False, True])
def test_a_new_epoch_goes_on_with_the_next_barrier_or_with_the_first_again(
    by_hand: MakeStream, recount: bool
) -> None:
    with by_hand() as stream:
        open_epoch(stream)
        for number in (1, 2, 3):
            stream.feed([event("tea")])
            stream.close_rounds(1_000 * number)
        stream.close_rounds(4_000)
        stream.feed([event("milk")])  # the open round, which goes along
        assert stream.run(until_round=2, batch_rounds=2) == 0
        worker = stream.start(new_epoch=NewEpoch(recount))
        stream.wait_until_logged("epoch 2, round 0")
        stream.close_rounds(5_000)
        stream.close_rounds(6_000)
        dues = (1_000, 2_000, 3_000, 4_000, 5_000, 6_000) if recount else (5_000, 6_000)
        told = {number: iso_timestamp(due) for number, due in enumerate(dues, 1)}
        stream.wait_until(lambda: times(stream, 2) == told, worker)
        stream.stop(worker)
        assert list(times(stream)) == [1, 2, 3, 4]
        with stream.redis() as client:
            for epoch, rounds in ((1, 4), (2, len(dues))):
                certificate = verify_epoch(stream.settings, client, epoch).certificate
                assert (certificate.verdict, certificate.rounds) == (Verdict.IDENTICAL, rounds)
            rebuilt = rebuild(stream.settings, client, replace=True)
        assert rebuilt.state.round == len(dues)
        assert rebuilt.position.barrier is not None
        assert rebuilt.position.barrier.number == 6
        stream.check_state(stream.uninterrupted()[0])


def test_a_lost_key_begins_another_chain_which_the_old_barriers_are_no_part_of(by_hand: MakeStream) -> None:
    with by_hand() as stream:
        open_epoch(stream)
        stream.feed([event("tea")])
        stream.close_rounds(1_000, 2_000)
        assert stream.run(until_round=2) == 0
        with stream.redis() as client:
            client.delete(f"stream_dp:{{{stream.settings.stream}}}:key")
        worker = stream.start(new_epoch=NewEpoch())
        stream.wait_until_logged("epoch 2, round 0")
        stream.feed([event("tea")])
        stream.close_rounds(500, 600)  # of a chain of its own: nothing holds it to the times of the old one
        stream.wait_until(lambda: list(times(stream, 2)) == [1, 2], worker)
        stream.stop(worker)
        assert times(stream, 2) == {1: iso_timestamp(500), 2: iso_timestamp(600)}
        first, second = [opened.epoch.after_barrier for opened in EpochJournal(stream.settings).opened]
        assert first is not None
        assert second is not None
        assert first.chain != second.chain
        assert second.next_offset == 2
        with stream.redis() as client:
            assert verify_epoch(stream.settings, client).certificate.verdict is Verdict.IDENTICAL


@pytest.mark.apache("retention")
@pytest.mark.parametrize("left", [0, 1])
def test_barriers_that_were_counted_and_are_gone_stop_the_stream_and_a_new_epoch_goes_on(
    by_hand: MakeStream, left: int
) -> None:
    with by_hand() as stream:
        open_epoch(stream)
        stream.feed([event("tea")])
        stream.close_rounds(1_000, 2_000)
        assert stream.run(until_round=2) == 0
        held = stream.barrier_records()
        kept = [Record(0, 1, None, value) for _, value in held[:left]]
        stream.rewrite(stream.settings.barriers, kept)
        told = stream.refusal()
        assert f"the topic '{stream.settings.barriers}' is not the one that was counted: barrier 2" in told
        worker = stream.start(new_epoch=NewEpoch())
        stream.wait_until_logged("epoch 2, round 0")
        stream.feed([event("tea")])
        stream.close_rounds(3_000)
        stream.wait_until(lambda: list(times(stream, 2)) == [1], worker)
        stream.stop(worker)


@pytest.mark.apache("offsets")
def test_an_events_topic_that_was_made_anew_begins_another_chain_with_the_next_epoch(
    ticking: MakeStream,
) -> None:
    with ticking() as stream:
        stream.feed(some_events(20, seed=1))
        assert stream.run(until_round=3) == 0
        stream.rewrite(stream.settings.events, stream.events()[:3])
        assert "is not the log that was counted" in stream.refusal()
        worker = stream.start(new_epoch=NewEpoch())
        stream.feed(some_events(5, seed=2))
        stream.wait_until(lambda: len(times(stream, 2)) >= 3, worker)
        stream.stop(worker)
