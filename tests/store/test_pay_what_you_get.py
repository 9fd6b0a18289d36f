"""A pay-what-you-get budget is charged once and gives away its marks once, whoever asks, crashes or repeats."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from redis import Redis

from stream_dp.batch.gumbel_top_k import PayWhatYouGet
from stream_dp.dev import redis_server
from stream_dp.store.journal_fold import JournalFold
from stream_dp.store.ledger import BudgetExceeded, ChargeConflict, Ledger
from stream_dp.store.ledger_records import Marks, Query
from stream_dp.store.pay_what_you_get import charge_of, left, reserve, spend
from tests import redis_contents

SOURCE = "shop.events"
BUDGET = PayWhatYouGet(epsilon=0.02, threshold_delta=1e-8, marks=20, queries=5)


def open_budget(ledger: Ledger, budget_id: str, budget: PayWhatYouGet) -> PayWhatYouGet:
    """Charge all that the budget's queries may return; returns what is left of it."""
    ledger.charge(charge_of(budget_id, budget, unit="user"), Marks(budget, {}))
    return left(ledger, budget_id)


@pytest.fixture
def ledger(redis: Redis) -> Ledger:
    """A ledger of users with one pay-what-you-get budget, `analyst`."""
    ledger = Ledger(redis, SOURCE)
    ledger.set_budget(1.0, 1e-6, "user")
    open_budget(ledger, "analyst", BUDGET)
    return ledger


def remains(ledger: Ledger) -> tuple[int, int]:
    found = left(ledger, "analyst")
    assert (found.epsilon, found.threshold_delta) == (BUDGET.epsilon, BUDGET.threshold_delta)
    return found.marks, found.queries


def test_opening_charges_the_whole_budget_once(ledger: Ledger, redis: Redis) -> None:
    assert open_budget(Ledger(redis, SOURCE), "analyst", BUDGET) == BUDGET
    [charged] = ledger.charges()
    assert (charged.rho, charged.delta) == (20 * 0.02**2 / 8, 5e-8)
    with pytest.raises(ChargeConflict):
        open_budget(ledger, "analyst", PayWhatYouGet(0.02, 1e-8, 21, 5))
    with pytest.raises(BudgetExceeded):
        open_budget(ledger, "greedy", PayWhatYouGet(0.02, 2e-7, 20, 6))
    assert remains(ledger) == (20, 5)


def test_a_query_pays_for_what_it_returned_and_survives_restarts(ledger: Ledger, redis: Redis) -> None:
    for _ in range(2):  # every step repeated, each time by a new process
        reserve(Ledger(redis, SOURCE), "analyst", "q1", 8)
        assert remains(ledger) == (12, 4)
    for _ in range(2):
        assert spend(Ledger(redis, SOURCE), "analyst", "q1", 3) == Query(8, 3)
        assert remains(ledger)[0] == 17
    reserve(ledger, "analyst", "q1", 8)
    assert remains(Ledger(redis, SOURCE)) == (17, 4)
    assert len(ledger.charges()) == 1
    assert open_budget(ledger, "analyst", BUDGET) == left(ledger, "analyst")


def test_a_query_beyond_what_is_left_is_refused_before_it_is_computed(ledger: Ledger) -> None:
    reserve(ledger, "analyst", "q1", 15)
    with pytest.raises(BudgetExceeded, match="ask for k = 5 or fewer"):
        reserve(ledger, "analyst", "q2", 6)
    for number in range(2, 6):
        reserve(ledger, "analyst", f"q{number}", 1)
    with pytest.raises(BudgetExceeded, match="no queries left"):
        reserve(ledger, "analyst", "q6", 1)
    assert remains(ledger) == (1, 0)


@pytest.mark.parametrize("k", [0, -1])
def test_a_query_for_nothing_is_refused(ledger: Ledger, k: int) -> None:
    with pytest.raises(BudgetExceeded, match="k must be a whole number of at least 1"):
        reserve(ledger, "analyst", "q1", k)
    assert remains(ledger) == (20, 5)


def test_a_query_cannot_change_what_it_asked_or_returned(ledger: Ledger) -> None:
    reserve(ledger, "analyst", "q1", 8)
    with pytest.raises(ChargeConflict, match="asked before with k = 8"):
        reserve(ledger, "analyst", "q1", 7)
    for marks in (9, -1):
        with pytest.raises(ChargeConflict, match="reserved 8 marks and cannot be settled at"):
            spend(ledger, "analyst", "q1", marks)
    spend(ledger, "analyst", "q1", 8)
    with pytest.raises(ChargeConflict, match="was settled at 8"):
        spend(ledger, "analyst", "q1", 2)
    with pytest.raises(ChargeConflict, match="has reserved no marks"):
        spend(ledger, "analyst", "q2", 1)
    assert remains(ledger) == (12, 4)


def test_queries_at_once_never_return_too_many_marks(
    ledger: Ledger, server: redis_server.RedisServer
) -> None:
    def ask(number: int) -> int:
        with Redis.from_url(server.url) as client:
            own = Ledger(client, SOURCE)
            try:
                reserve(own, "analyst", f"q{number}", 7)
            except BudgetExceeded:
                return 0
            spend(own, "analyst", f"q{number}", 7)
            return 7

    with ThreadPoolExecutor(6) as threads:
        assert sum(threads.map(ask, range(6))) == 14
    assert remains(ledger) == (6, 3)


def opened_with(redis: Redis, journal: list[bytes]) -> Ledger:
    ledger = Ledger(redis, SOURCE)
    ledger.journal = JournalFold(SOURCE, journal)
    ledger.put_back()
    return ledger


def test_a_budget_that_lost_its_queries_is_not_opened_anew(ledger: Ledger, redis: Redis) -> None:
    reserve(ledger, "analyst", "q1", 8)
    journal = [ledger.journal_record(each) for each in ledger.charges()]
    redis.flushall()
    with pytest.raises(ChargeConflict, match="restored without its queries"):
        open_budget(opened_with(redis, journal), "analyst", BUDGET)
    with pytest.raises(ChargeConflict, match="does not exist"):
        reserve(ledger, "nobody", "q1", 1)


def test_queries_outlive_a_redis_that_was_rolled_back(ledger: Ledger, redis: Redis) -> None:
    """The journal holds each query as it stood after each step; Redis stands where it was after each of them."""
    [charged] = ledger.charges()
    journal, backups = [ledger.journal_record(charged, Marks(BUDGET, {}))], [dict[bytes, bytes]()]
    for step, query_id, marks in ((reserve, "q1", 8), (reserve, "q2", 5), (spend, "q1", 3)):
        backups.append(redis_contents.dumps(redis))
        query = step(ledger, "analyst", query_id, marks)
        journal.append(ledger.journal_record(charged, Marks(BUDGET, {query_id: query})))
    for backup in backups:
        redis.flushall()
        for key, value in backup.items():
            redis.restore(key, 0, value)
        restored = opened_with(redis, journal)
        assert remains(restored) == remains(Ledger(redis, SOURCE)) == (12, 3)
    spend(restored, "analyst", "q2", 0)
    assert remains(Ledger(redis, SOURCE)) == (17, 3)
    assert remains(restored) == (12, 3), "what is given back counts once it is in the journal"
