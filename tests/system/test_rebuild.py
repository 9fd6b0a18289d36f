"""Rebuild and verify: lost state comes back bit for bit, and no further than what was released."""

import pytest
from msgspec.structs import replace

from stream_dp.engine.epoch import EpochRefused
from stream_dp.verification.rebuild import rebuild, verify_epoch
from stream_dp.verification.verify import Verdict
from stream_dp.workers.resume import NewEpoch
from tests.system.epoch_steps import charges, lose_state, run_epoch, state_keys
from tests.system.example_events import some_events
from tests.system.streams import Stream


@pytest.mark.parametrize("cap_share", [False, True])
def test_lost_state_is_refused_then_rebuilt_bit_for_bit(stream: Stream, cap_share: bool) -> None:
    stream.settings = replace(stream.settings, cap_share=cap_share)
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
    with stream.redis() as client, pytest.raises(EpochRefused, match="do not reproduce what was released"):
        rebuild(stream.settings, client)
    assert b"meta" not in state_keys(stream)


@pytest.mark.apache("roles")
def test_verify_finds_every_release_in_order(stream: Stream) -> None:
    stream.feed(some_events(80, seed=7))
    assert stream.run(until_round=80) == 0
    with stream.redis() as client:
        certificate = verify_epoch(stream.settings, client).certificate
    assert (certificate.verdict, certificate.rounds, certificate.log_records) == (Verdict.IDENTICAL, 80, 80)
    stream.feed(some_events(5, seed=8))
    with stream.redis() as client:
        assert verify_epoch(stream.settings, client).certificate.verdict is Verdict.EXTENDED
