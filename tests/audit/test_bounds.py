"""Are the bounds true, near the truth where there is something to see, and blind to chosen noise?"""

from math import e, exp, log

import numpy as np
import pytest
from scipy.stats import binom

from stream_dp.audit.bounds import (
    ERROR,
    Event,
    Views,
    _half,
    _measured,
    at_least,
    at_most,
    lower_bound,
)

RUNS = 200_000


def answers(truth: int, epsilon: float, seed: int, runs: int = RUNS) -> Views:
    """Randomised response: the truth with probability e^epsilon / (1 + e^epsilon)."""
    lies = np.random.default_rng(seed).random(runs) < 1 / (1 + exp(epsilon))
    return {"answer": np.where(lies, 1 - truth, truth)}


@pytest.mark.parametrize(("hits", "runs"), [(1, 10), (7, 1000), (999, 1000), (123, 50_000)])
def test_the_intervals_end_where_the_binomial_tail_is_the_error(hits: int, runs: int) -> None:
    low, high = at_least(hits, runs, 1e-4), at_most(hits, runs, 1e-4)
    assert binom.sf(hits - 1, runs, low) == pytest.approx(1e-4, rel=1e-6)
    assert binom.cdf(hits, runs, high) == pytest.approx(1e-4, rel=1e-6)
    assert low < hits / runs < high


def test_the_intervals_at_their_ends() -> None:
    assert (at_least(0, 100), at_most(100, 100)) == (0.0, 1.0)
    assert at_most(0, 100, 0.01) == pytest.approx(1 - 0.01**0.01)
    assert at_least(100, 100, 0.01) == pytest.approx(0.01**0.01)


def test_four_intervals_share_the_error() -> None:
    assert ERROR == 1e-6
    assert binom.sf(49, 1000, at_least(50, 1000)) == pytest.approx(ERROR / 4, rel=1e-6)
    assert binom.cdf(50, 1000, at_most(50, 1000)) == pytest.approx(ERROR / 4, rel=1e-6)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_a_true_claim_stands_and_a_smaller_one_falls(epsilon: float) -> None:
    for seed in range(20):
        bound = lower_bound(answers(1, epsilon, seed), answers(0, epsilon, seed + 100), epsilon, 0.0)
        assert 0.9 * epsilon < bound.epsilon <= epsilon
        assert bound.delta == 0
    wrong = lower_bound(answers(1, 1.2 * epsilon, 1), answers(0, 1.2 * epsilon, 2), epsilon, 0.0)
    assert wrong.epsilon > epsilon
    assert wrong.delta > 0


def test_delta_pays_for_what_happens_on_one_side_only() -> None:
    """A mark that one input shows with probability 0.01, and the other never."""
    marked = {"mark": (np.random.default_rng(1).random(RUNS) < 0.01).astype(np.int64)}
    never = {"mark": np.zeros(RUNS, np.int64)}
    for one, other in ((marked, never), (never, marked)):
        assert lower_bound(one, other, 1.0, 0.01).epsilon == 0
        refuted = lower_bound(one, other, 1.0, 0.005)
        assert refuted.epsilon > 1
        assert 0.007 < refuted.delta < 0.01


def test_the_event_may_be_any_set_of_values() -> None:
    """Only the parity tells: no tail does."""
    generator = np.random.default_rng(3)
    even = 2 * generator.integers(0, 20, RUNS)
    odd = even + 1
    lie = generator.random((2, RUNS)) < 0.1
    one, other = {"n": np.where(lie[0], odd, even)}, {"n": np.where(lie[1], even, odd)}
    bound = lower_bound(one, other, log(9), 0.0)
    assert 0.9 * log(9) < bound.epsilon <= log(9)
    assert bound.event.startswith("n in {")


def test_an_event_that_fits_noise_is_worth_nothing_on_the_other_half() -> None:
    """Equal laws over many values.  Measured where it was chosen, such an event seems to separate them."""
    generator = np.random.default_rng(4)
    one, other = ({"n": generator.integers(0, 40_000, 20_000)} for _ in range(2))
    assert lower_bound(one, other, 1.0, 0.0).epsilon == 0
    values = np.flatnonzero(np.bincount(one["n"][:10_000], minlength=40_000))
    unseen = values[~np.isin(values, other["n"][:10_000])]
    chosen = Event("n", "in", unseen)
    first, second = (_half(one, 0), _half(other, 0)), (_half(one, 1), _half(other, 1))
    assert _measured(chosen, *first, 1.0, 0.0).epsilon > 1
    assert _measured(chosen, *second, 1.0, 0.0).epsilon == 0


def test_the_best_of_several_views_is_found() -> None:
    one, other = answers(1, 1.0, 5), answers(0, 1.0, 6)
    noise = np.random.default_rng(7).integers(0, 2, (2, RUNS))
    bound = lower_bound({"blind": noise[0], **one}, {"blind": noise[1], **other}, 1.0, 0.0)
    assert bound.event.startswith("answer")
    assert bound.p / bound.q == pytest.approx(e, rel=0.05)


def test_events_count_and_describe_themselves() -> None:
    views = {"n": np.array([1, 2, 2, 5])}
    for relation, values, count, text in (
        (">=", [2], 3, "n >= 2"),
        ("<=", [1], 1, "n <= 1"),
        ("in", [2, 5], 3, "n in {2, 5}"),
        ("in", [0, 1, 3, 4, 9], 1, "n in {0, 1, 3, 4, ...}"),
    ):
        event = Event("n", relation, np.array(values))
        assert (event.count(views), str(event)) == (count, text)
