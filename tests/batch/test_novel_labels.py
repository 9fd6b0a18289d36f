"""What noise and a threshold have of delta together: against laws counted in full, and against what looks alike."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import ndtr
from scipy.stats import norm

from stream_dp.batch.novel_labels import (
    Allowance,
    after,
    delta_of_counts,
    delta_of_each,
    delta_of_integer_counts,
    delta_of_weights,
    numbers_of_novel,
    of_both,
    of_either,
)
from stream_dp.batch.policy_set_union import GaussianPolicy
from stream_dp.batch.set_union import GaussianSetUnion
from stream_dp.batch.two_rounds import SHARE, TwoRounds
from stream_dp.batch.two_stage import TwoStage
from stream_dp.jobs.shares import gaussian_shares
from stream_dp.privacy.accounting import (
    discrete_gaussian_sigma_squared,
    gaussian_delta,
    gaussian_deltas,
    gaussian_rho,
)
from stream_dp.privacy.thresholds import sum_tail, sum_tail_threshold

Reals = NDArray[np.float64]
EPSILONS = [0.1, 1.0, 3.0]


def hockey_sticks(ours: Reals, theirs: Reals, epsilon: float) -> float:
    """The larger of both directions."""
    return max(
        float(np.maximum(0.0, a - math.exp(epsilon) * b).sum()) for a, b in ((ours, theirs), (theirs, ours))
    )


def law_of_counts(sigma_squared: float, tau: int, others: int, novel: int) -> tuple[Reals, Reals]:
    """With a user and without: the sum of the noisy counts of others, and whether any novel label is shown."""
    reach = math.ceil(13 * math.sqrt(sigma_squared * max(others, 1)))
    sums = np.array([1.0])
    steps = np.arange(-reach, reach + 1)
    one = np.exp(-(steps**2) / (2 * sigma_squared))
    one /= one.sum()
    for _ in range(others):
        sums = np.convolve(sums, one)
    without = np.pad(sums, (others, others))
    moved = np.roll(without, others)
    hidden = (1 - sum_tail(sigma_squared, 1, tau - 1)) ** novel
    return np.stack([moved * hidden, moved * (1 - hidden)]), np.stack([without, np.zeros_like(without)])


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("items", [1, 3])
def test_a_histogram_spends_all_of_delta_and_no_more(epsilon: float, items: int) -> None:
    """The law of every mixture of novel labels and others: what others tell beyond their sum is the same for both."""
    delta = 1e-3

    def worst(each: float, d: float) -> float:
        tau = sum_tail_threshold(each**-2, 1, d / items)
        return max(
            hockey_sticks(*law_of_counts(each**-2, tau, items - novel, novel), epsilon)
            for novel in range(items + 1)
        )

    each, d = gaussian_shares(epsilon, delta, items)
    assert 0.97 * delta < worst(each, d) <= delta
    wrong = 1.1 * delta
    assert worst(discrete_gaussian_sigma_squared(epsilon, wrong, items) ** -0.5, wrong) > delta


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_more_novel_labels_than_are_looked_at_one_by_one_cost_nothing_more(epsilon: float) -> None:
    least, most = numbers_of_novel(5_000)
    assert len(least) <= 1024
    assert np.array_equal(np.concatenate([[0], most[:-1]]) + 1, least)
    assert most[-1] == 5_000
    assert numbers_of_novel(900)[0].tolist() == numbers_of_novel(900)[1].tolist() == list(range(1, 901))
    sigma_squared = discrete_gaussian_sigma_squared(epsilon, 1e-6, 5_000)
    found = delta_of_integer_counts(epsilon, sigma_squared, 5_000, 1e-6 / 5_000)
    assert found == pytest.approx(1e-6, rel=1e-3)


def law_of_a_union(moved: float, weights: Reals, sigma: float, threshold: float) -> tuple[Reals, Reals]:
    """With a user who moves others' weights by `moved` in l2, and gives novel labels these weights, and without."""
    places = np.linspace(-12, 14, 20_001)
    hidden = float(np.prod(ndtr((threshold - weights) / sigma)))
    ours, theirs = (np.diff(norm.cdf(places, mean)) for mean in (moved / sigma, 0.0))
    return np.stack([ours * hidden, ours * (1 - hidden)]), np.stack([theirs, np.zeros_like(theirs)])


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("kind", [GaussianSetUnion, GaussianPolicy])
def test_a_union_spends_all_of_delta_and_no_more(epsilon: float, kind: type) -> None:
    """A user of n labels, t novel ones, which get any part of the square of the move that is not less than t / n."""
    delta, limit = 1e-3, 4
    parameters = kind(epsilon, delta, limit)

    def worst(sigma: float, threshold: float) -> float:
        return max(
            hockey_sticks(
                *law_of_a_union(
                    math.sqrt(1 - share),
                    np.full(novel, math.sqrt(share / novel)) if novel else np.zeros(0),
                    sigma,
                    threshold,
                ),
                epsilon,
            )
            for novel in range(limit + 1)
            for share in (np.linspace(novel / limit, 1, 7) if novel else [0.0])
        )

    assert 0.9 * delta < worst(parameters.sigma, parameters.threshold) <= delta
    wrong = kind(epsilon, 1.2 * delta, limit)
    assert worst(wrong.sigma, wrong.threshold) > delta


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_a_threshold_is_about_five_percent_lower(epsilon: float) -> None:
    """Than with half of delta for the noise and half for the threshold, at epsilon 1."""
    half = discrete_gaussian_sigma_squared(epsilon, 5e-7, 10)
    before = sum_tail_threshold(half, 1, 5e-8)
    each, d = gaussian_shares(epsilon, 1e-6, 10)
    assert 0.93 < sum_tail_threshold(each**-2, 1, d / 10) / before < 0.96
    assert d == pytest.approx(1e-6, rel=1e-8)
    assert TwoRounds(epsilon, 1e-6, 150).each_delta > 0.85e-6
    assert 0.6e-6 < TwoStage(epsilon, 1e-6, 30).threshold_delta < 0.75e-6


MIXTURES = [(0.02, 20.0, 1e-4), (0.02, 400.0, 0.01), (0.5, 20.0, 0.2), (1.0, 20.0, 1e-9)]
"""Epsilon, the variance of noise, and the chance that a novel label passes: either counts more, or a mixture."""


@pytest.mark.parametrize(("epsilon", "sigma_squared", "chance"), MIXTURES)
def test_what_counts_spend_is_what_their_laws_do(epsilon: float, sigma_squared: float, chance: float) -> None:
    items = 4

    def worst(law: Callable[[int, int], tuple[Reals, Reals]]) -> float:
        return max(hockey_sticks(*law(items - novel, novel), epsilon) for novel in range(items + 1))

    def real(others: int, novel: int) -> tuple[Reals, Reals]:
        weight = 1.0 if novel else 0.0  # of each, beside a threshold that it passes with the given chance
        threshold = weight - math.sqrt(sigma_squared) * float(norm.ppf(chance))
        return law_of_a_union(math.sqrt(others), np.full(novel, weight), math.sqrt(sigma_squared), threshold)

    def whole(others: int, novel: int) -> tuple[Reals, Reals]:
        moved, kept = law_of_counts(sigma_squared, 1, others, 0)
        hidden = (1 - chance) ** novel
        return np.stack([moved[0] * hidden, moved[0] * (1 - hidden)]), kept

    for found, law in (
        (delta_of_counts(epsilon, math.sqrt(sigma_squared), items, chance), real),
        (delta_of_integer_counts(epsilon, sigma_squared, items, chance), whole),
    ):
        exact = worst(law)
        assert exact * (1 - 1e-4) <= found
        assert found <= 1.3 * exact


@pytest.mark.parametrize("rounding", [0.0, 0.2])
@pytest.mark.parametrize(
    ("epsilon", "sigma", "threshold"),
    [(0.001, 5.0, 10.7), (0.02, 5.0, 12.0), (0.3, 2.0, 9.0), (2.0, 1.0, 1.8)],
)
def test_what_a_union_spends_is_what_its_law_does(
    rounding: float, epsilon: float, sigma: float, threshold: float
) -> None:
    """And what the proof adds up for each mixture, which is a little more."""
    items, exact, added = 4, 0.0, 0.0
    for novel in range(items + 1):
        for share in np.linspace(novel / items, 1, 41) if novel else [0.0]:
            moved, weights = math.sqrt(1 - share) + rounding, np.full(novel, math.sqrt(share / max(novel, 1)))
            exact = max(exact, hockey_sticks(*law_of_a_union(moved, weights, sigma, threshold), epsilon))
            passes = 1 - float(np.prod(ndtr((threshold - weights) / sigma)))
            added = max(added, gaussian_delta((moved / sigma) ** 2 / 2, epsilon) + passes)
    found = delta_of_weights(epsilon, sigma, threshold, items, rounding)
    assert exact * (1 - 1e-4) <= added * (1 - 1e-9) <= found <= 1.04 * added


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_two_rounds_spend_the_chances_of_both_and_the_noise_of_what_is_not_novel(epsilon: float) -> None:
    """If all labels are novel, the second round may still move others in full."""
    parameters, d = TwoRounds(epsilon, 1e-3, 20), 5e-4
    rho = gaussian_rho(epsilon, d)
    both = gaussian_delta((1 - SHARE) * rho, epsilon) + d
    assert 0.9 * both < parameters.spent(d) < 1.3 * both


def chosen_by_noise(before: float, others: float, d: float, above: float) -> tuple[Reals, Reals]:
    """A noisy sum of mu^2 `before` is released; above a place a Gaussian of mu^2 `others` follows, else a threshold.

    What is followed tells of a user by a label that passes it with chance d.  With a user, and without.
    """
    places = np.linspace(-9, 10, 1_201)
    first, second = (
        [np.diff(norm.cdf(places, mean)) for mean in (math.sqrt(mu_squared), 0.0)]
        for mu_squared in (before, others)
    )
    high = places[1:] > above
    found = []
    for user in (0, 1):
        noise = np.outer(first[user][high], second[user])
        hidden = first[user][~high]
        passes = 0.0 if user else d
        found.append(np.concatenate([noise.ravel(), hidden * (1 - passes), hidden * passes]))
    return found[0], found[1]


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_what_is_chosen_by_noise_may_be_novel_just_when_the_noise_told_little(epsilon: float) -> None:
    """Then noise and threshold may not both have all of delta, and what is allowed holds."""
    delta, share = 1e-3, 0.1

    def parts(d: float) -> tuple[float, float]:
        whole = 2 * gaussian_rho(epsilon, d)
        return share * whole, (1 - share) * whole

    def worst(d: float) -> float:
        return max(
            hockey_sticks(*chosen_by_noise(*parts(d), d, above), epsilon) for above in np.arange(-1, 4, 0.25)
        )

    def spent(d: float) -> float:
        before, others = parts(d)
        return float(after(before, of_either(Allowance(others, d)))(np.asarray(epsilon)))

    d = delta_of_each(delta, spent)
    assert d > 0.6 * delta
    assert 0.93 * delta < worst(d) <= delta
    assert worst(delta) > 1.2 * delta


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("first", [0.001, 0.05, 0.3])
def test_gaussians_one_after_the_other_are_one(epsilon: float, first: float) -> None:
    """`after` rounds up, and not by much."""
    second = 2 * gaussian_rho(epsilon, 1e-5)
    both = gaussian_delta((first * second + second) / 2, epsilon)
    found = float(
        after(first * second, lambda at: gaussian_deltas(np.asarray(second), at))(np.asarray(epsilon))
    )
    assert both <= found <= 1.05 * both


def test_deltas_of_many_gaussians_are_those_of_each() -> None:
    rhos, epsilons = np.array([1e-6, 0.02, 0.5, 8.0]), np.array([0.0, 0.4, 1.0, 6.0])
    found = gaussian_deltas(2 * rhos[:, None], epsilons)
    for row, rho in zip(found, rhos.tolist(), strict=True):
        for value, epsilon in zip(row.tolist(), epsilons.tolist(), strict=True):
            exact = gaussian_delta(rho, epsilon)
            assert exact * (1 - 1e-9) <= value <= exact * (1 + 1e-6) + 1e-14
    below = float(gaussian_deltas(np.asarray(1.0), np.asarray(-2.0)))
    assert below == pytest.approx(1 - math.exp(-2) + math.exp(-2) * gaussian_delta(0.5, 2.0), rel=1e-9)
    assert float(gaussian_deltas(np.asarray(0.0), np.asarray(-0.5))) == pytest.approx(1 - math.exp(-0.5))


@pytest.mark.parametrize("mu_squared", [0.01, 0.3, 2.0])
def test_a_delta_is_convex_in_the_square_of_the_shift(mu_squared: float) -> None:
    """From the epsilon on that the proof asks for; well below it is not."""
    least = math.sqrt(mu_squared + mu_squared**2 / 4)
    shifts = np.linspace(1e-3, 1, 200) * mu_squared
    assert np.all(np.diff(gaussian_deltas(shifts, np.asarray(1.001 * least)), 2) >= -1e-15)
    assert np.diff(gaussian_deltas(shifts, np.asarray(0.5 * least)), 2).min() < -1e-9


def test_either_is_the_larger_and_both_the_sum_unless_epsilon_is_small() -> None:
    """Of noise and threshold; for a small epsilon what is shared may be more than the larger, so it is the sum too."""
    for delta in (1e-9, 1e-6, 1e-3):  # of the noise it is 2e-7 at epsilon 1, where m + m^2 / 4 is below 1
        allowed, at = Allowance(0.04, delta), np.array([1.0])
        noise = float(gaussian_deltas(np.asarray(0.04), at)[0])
        assert of_either(allowed)(at).tolist() == [max(noise, delta)]
        assert of_both(allowed)(at).tolist() == [noise + delta]
        for small in (np.array([0.2]), np.array([0.01]), np.array([-0.1])):
            assert of_either(allowed)(small).tolist() == of_both(allowed)(small).tolist()
