"""The share of a budget's delta for the charges' own deltas: told before anything is charged, and kept from then on."""

from typing import Any

import msgspec
import pytest
from redis import Redis

from stream_dp.privacy.composition import Charge
from stream_dp.privacy.loss import pure
from stream_dp.store.journal_fold import JournalFold
from stream_dp.store.ledger import Budget, Ledger, LedgerRefused
from tests.store.charges import SOURCE, charge

SHARED = Budget(epsilon=1.0, delta=1e-6, unit="event", own_deltas=0.05)
SMALL = charge("small", 1e-5, delta=1e-9, loss=pure(0.004))


def rule_of(ledger: Ledger) -> tuple[str, Any]:
    state = ledger.state()
    assert state.budget is not None
    rule = state.budget.rule(next(iter(state.charges()), None))
    return rule.name, rule.charged_delta


def test_what_is_told_is_kept_whatever_is_charged_first(redis: Redis) -> None:
    ledger = Ledger(redis, SOURCE)
    ledger.set_budget(1.0, 1e-6, "event")
    ledger.set_budget(1.0, 1e-6, "event", 0.5)
    ledger.set_budget(1.0, 1e-6, "event")
    assert ledger.budget() == msgspec.structs.replace(SHARED, own_deltas=None)
    ledger.set_budget(1.0, 1e-6, "event", 0.05)
    assert rule_of(ledger) == ("gaussian", pytest.approx(5e-8))
    ledger.charge(SMALL)
    assert rule_of(ledger) == ("gaussian", pytest.approx(5e-8))
    for share in (0.5, 0.001):
        with pytest.raises(LedgerRefused, match=r"cannot change any more \(0\.05 of it"):
            ledger.set_budget(2.0, 1e-6, "event", share)
    assert ledger.budget() == SHARED
    ledger.set_budget(2.0, 1e-6, "event")
    assert ledger.budget() == msgspec.structs.replace(SHARED, epsilon=2.0)


def test_a_ledger_with_charges_goes_on_by_the_rule_of_the_first(redis: Redis) -> None:
    ledger = Ledger(redis, SOURCE)
    ledger.set_budget(1.0, 1e-6, "event")
    ledger.charge(SMALL)
    before = rule_of(ledger)
    with pytest.raises(LedgerRefused, match=r"cannot change any more \(as the first charge settled it\)"):
        ledger.set_budget(1.0, 1e-6, "event", 0.05)
    ledger.set_budget(1.0, 1e-6, "event")
    assert rule_of(ledger) == before != ("gaussian", pytest.approx(5e-8))


@pytest.mark.parametrize("share", [0.0, 0.0009, 0.991, 1.0, -1.0, float("nan"), float("inf")])
def test_a_share_that_leaves_nothing_for_either_is_refused(redis: Redis, share: float) -> None:
    with pytest.raises(ValueError, match=r"must lie between 0\.001 and 0\.99"):
        Ledger(redis, SOURCE).set_budget(1.0, 1e-6, "event", share)


def journal_of(ledger: Ledger, *written: Budget | Charge) -> JournalFold:
    return JournalFold(
        SOURCE,
        [
            ledger.budget_record(each, "somebody")
            if isinstance(each, Budget)
            else ledger.journal_record(each)
            for each in written
        ],
    )


def test_the_last_share_before_the_first_charge_of_the_journal_counts(redis: Redis) -> None:
    ledger = Ledger(redis, SOURCE)
    first, last = (msgspec.structs.replace(SHARED, own_deltas=share) for share in (0.5, None))
    assert journal_of(ledger, first, SHARED, SMALL).budget == SHARED
    assert journal_of(ledger, first, SHARED, SMALL, first, last).budget == SHARED
    assert journal_of(ledger, SMALL, SHARED).budget == last
    assert journal_of(ledger, last, SMALL, SHARED).budget == last


def test_a_redis_that_was_lost_or_rolled_back_changes_no_share(redis: Redis) -> None:
    ledger = Ledger(redis, SOURCE)
    ledger.set_budget(1.0, 1e-6, "event", 0.05)
    ledger.charge(SMALL)
    records = [ledger.budget_record(SHARED, "somebody"), ledger.journal_record(SMALL)]
    for rolled_back in (None, 0.9):
        redis.flushall()
        if rolled_back is not None:
            Ledger(redis, SOURCE).set_budget(4.0, 1e-6, "event", rolled_back)
        found = Ledger(redis, SOURCE)
        found.journal = JournalFold(SOURCE, records)
        found.put_back()
        assert found.budget() == SHARED
        assert found.charges() == [SMALL]


def test_a_budget_that_says_nothing_of_it_is_written_as_before() -> None:
    plain = msgspec.structs.replace(SHARED, own_deltas=None)
    assert msgspec.json.encode(plain) == b'{"epsilon":1.0,"delta":1e-6,"unit":"event"}'
    assert msgspec.json.decode(b'{"epsilon":1.0,"delta":1e-6,"unit":"event"}', type=Budget) == plain
