"""What fits itself chooses among samples, two stages and draws by public numbers and noisy ones alone."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from stream_dp.batch import two_stage
from stream_dp.batch.novel_labels import Allowance, Profile, after, of_both, of_either
from stream_dp.jobs.fitted import EDGES, Branch, Fitted, RankCounts
from stream_dp.jobs.fitted_jobs import LEAST_EPSILON
from stream_dp.jobs.mechanisms import MECHANISMS
from stream_dp.jobs.rows import Rows
from stream_dp.privacy.accounting import gaussian_delta
from stream_dp.privacy.loss import gaussian_alone
from stream_dp.privacy.one_shot_noise import OneShotNoise

PROMISE = {"epsilon": 1.0, "delta": 1e-6}
_TRIES = 400


def users_of(number: int, size: int) -> Any:
    """So many users, all of whom hold so many items."""
    return np.where(np.array(EDGES) == max(edge for edge in EDGES if edge <= size), number, 0)


def fitted_of(calibrated: Any) -> Fitted:
    fitted = calibrated.run.__self__
    assert isinstance(fitted, Fitted)
    return fitted


def chosen(calibrated: Any, number: int, size: int) -> tuple[str, int]:
    branch = fitted_of(calibrated).choose(users_of(number, size))
    return branch.mechanism, branch.chosen.get("items_per_user", 0)


def by_counts(calibrated: Any, number: int, size: int, counts: tuple[int, int]) -> tuple[str, int]:
    branch = fitted_of(calibrated).choose_by_counts(users_of(number, size), np.array(counts))
    return branch.mechanism, branch.chosen.get("items_per_user", 0)


@pytest.mark.parametrize(
    ("users", "size", "counts", "mechanism"),
    [
        (3_000, 30, (200, 40), "two-stage"),
        (3_000, 80, (400, 200), "two-stage"),
        (300_000, 30, (20_000, 9_000), "gaussian"),
        (300_000, 30, (200, 40), "two-stage"),
    ],
)
def test_a_histogram_counts_in_two_stages_if_it_shows_few_labels_of_large_baskets(
    users: int, size: int, counts: tuple[int, int], mechanism: str
) -> None:
    histogram = MECHANISMS["histogram"]["fitted"].calibrate(**PROMISE)
    assert by_counts(histogram, users, size, counts)[0] == mechanism


def test_users_keep_fewer_labels_if_labels_are_all_about_as_frequent() -> None:
    """Users hold as many items in both, and a label that few hold is shown only if its threshold is low."""
    histogram = MECHANISMS["histogram"]["fitted"].calibrate(**PROMISE)
    kept = [by_counts(histogram, 4_000, 45, counts) for counts in ((400, 100), (160, 135))]
    assert {mechanism for mechanism, _ in kept} == {"two-stage"}
    assert kept[0][1] > kept[1][1]


@pytest.mark.parametrize("users", [1_500, 3_000, 8_000])
def test_how_far_a_count_lies_below_its_noise_chooses_nothing(users: int) -> None:
    histogram = MECHANISMS["histogram"]["fitted"].calibrate(**PROMISE)
    assert len({by_counts(histogram, users, 22, (users // 8, count)) for count in (-50, 1, 30)}) == 1


@pytest.mark.parametrize("job", ["histogram", "top-k"])
def test_of_labels_that_may_be_few_users_keep_as_many_as_there_are(job: Any) -> None:
    """900 users hold the same 20 labels; users who keep 15 would all keep the same ones, and 5 were never shown."""
    more = {"k": 20, "kbar": 5_000} if job == "top-k" else {}
    calibrated = MECHANISMS[job]["fitted"].calibrate(epsilon=8.0, delta=1e-6, **more)
    users, items = np.repeat(np.arange(900), 20), np.tile(np.arange(20), 900)
    rows = Rows(users, items, pa.array([b"%02d" % number for number in range(20)], pa.large_binary()))
    assert fitted_of(calibrated).choose(users_of(900, 20)).chosen.get("items_per_user", 15) >= 15
    for counts in ((14, -5), (0, 0), (20, 20)):
        branch = fitted_of(calibrated).choose_by_counts(users_of(900, 20), np.array(counts))
        assert branch.counting is not None
        assert branch.counting.shows_at_most >= 20
        assert len(branch.calibrated.run(rows, OneShotNoise(bytes(32))).items) == 20


@pytest.mark.parametrize("name", ["fitted", "fitted-gaussian"])
def test_a_top_k_takes_two_stages_unless_it_is_found_with_ease(name: str) -> None:
    calibrate = MECHANISMS["top-k"][name].calibrate
    assert by_counts(calibrate(**PROMISE, k=200, kbar=10_000), 3_000, 60, (400, 150))[0] == "two-stage"
    assert by_counts(calibrate(**PROMISE, k=10, kbar=10_000), 300_000, 400, (90_000, 40_000))[0] == "gumbel"


@pytest.mark.parametrize("job", ["histogram", "top-k"])
def test_short_baskets_are_counted_without_looking_at_counts(job: Any) -> None:
    """Whatever noise: what little the counts of ranks cost would be lost, and rounding adds much to so little noise."""
    more = {"k": 50, "kbar": 5_000} if job == "top-k" else {}
    for name, mechanism in (("fitted", "laplace"), ("fitted-gaussian", "gaussian")):
        fitted = fitted_of(MECHANISMS[job][name].calibrate(**PROMISE, **more))
        branch = fitted.choose(users_of(8_000, 1))
        assert branch.mechanism == mechanism
        assert branch.counting is None


@pytest.mark.parametrize("job", ["histogram", "top-k"])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0, 20.0])
@pytest.mark.parametrize("k", [1, 20, 200])
def test_both_estimates_and_any_branch_fit_the_promise(job: Any, epsilon: float, k: int) -> None:
    more = {"k": k, "kbar": 10_000} if job == "top-k" else {}
    calibrated = MECHANISMS[job]["fitted"].calibrate(epsilon=epsilon, delta=1e-6, **more)
    fitted = fitted_of(calibrated)
    rest = epsilon - fitted.epsilon
    assert fitted.epsilon == pytest.approx(0.02 * min(epsilon, 1.0))
    assert fitted.ranks is not None
    counting = [each for each in fitted.branches if each.counting is not None]
    assert len(counting) >= 9
    before = fitted.ranks.cost.loss.gaussian

    def profile(each: Branch) -> Profile:
        cost = each.calibrated.cost
        mu_squared = gaussian_alone(cost.loss)
        allowed = Allowance(mu_squared, cost.delta)
        assert gaussian_delta((before + mu_squared) / 2, rest) <= 1.0001 * max(cost.delta, 4.9e-7)
        if epsilon <= 1:  # above, rounding adds to little noise
            assert gaussian_delta((before + mu_squared) / 2, rest) > 0.97 * cost.delta, "needless noise"
        if each.mechanism == "two-stage":
            return two_stage.profile(allowed)
        shares = each.mechanism == "gaussian" and each.calibrated.cost.loss.gaussian
        return (of_either if shares else of_both)(allowed)

    assert after(before, *map(profile, counting))(np.asarray(rest)) <= 1e-6
    for each in fitted.branches:
        if each.counting is None:
            assert each.calibrated.epsilon_at(1e-6) <= rest


@pytest.mark.parametrize(
    ("noisy", "users"),
    [
        ({6: 250, 7: 40, 8: -60, 9: 20}, {6: 250}),  # alone, whatever the noise above adds to the sum
        ({6: 160, 7: -190, 8: 20}, {6: 160}),  # and if it takes all of them away
        ({5: 200, 7: 120, 8: 120, 9: 120}, {8: 240, 5: 320}),  # two together, and what is left goes down
        ({5: 100, 6: 100, 9: 90}, {}),
    ],
)
def test_users_stay_in_a_bin_that_stands_out_of_its_noise(
    noisy: dict[int, int], users: dict[int, int]
) -> None:
    """The noise has scale 50; a bin that does not stand out is added to the one below."""
    found = fitted_of(MECHANISMS["histogram"]["fitted"].calibrate(**PROMISE))

    def by_bin(numbers: dict[int, int]) -> NDArray[np.int64]:
        return np.array([numbers.get(place, 0) for place in range(len(EDGES))])

    assert found._users(by_bin(noisy)).tolist() == by_bin(users).tolist()


def test_the_counts_of_ranks_are_those_of_whole_baskets() -> None:
    """And 0 where there is no label of that rank."""
    users, items = np.array([0, 0, 0, 1, 1, 2, 2, 2]), np.array([0, 1, 1, 0, 1, 0, 2, 2])
    rows = Rows(users, items, pa.array([b"a", b"b", b"c"], pa.large_binary()))
    for places, counts in (((1, 2), [3, 2]), ((2, 3), [2, 1]), ((3, 150), [1, 0])):
        assert RankCounts(10.0, places).exact(rows).tolist() == counts


def test_a_union_counts_more_items_where_users_hold_more() -> None:
    union = MECHANISMS["set-union"]["fitted"].calibrate(**PROMISE)
    assert [chosen(union, 5_000, size) for size in (1, 100, 400)] == [
        ("greedy", 0),
        ("two-rounds", 150),
        ("two-rounds", 600),
    ]


def test_a_top_k_in_two_stages_is_the_head_of_that_histogram() -> None:
    draw = np.random.default_rng(1)
    users, items = np.repeat(np.arange(2_000), 20), np.minimum(draw.zipf(1.3, 40_000), 400) - 1
    rows = Rows(users, items, pa.array([b"%03d" % number for number in range(400)], pa.large_binary()))
    whole = MECHANISMS["histogram"]["two-stage"].calibrate(**PROMISE).run(rows, OneShotNoise(bytes(32)))
    head = MECHANISMS["top-k"]["two-stage"].calibrate(**PROMISE, k=5).run(rows, OneShotNoise(bytes(32)))
    assert len(whole.items) > 5
    assert whole.counts is not None
    assert head.counts is not None
    assert head.items.tolist() == whole.items[:5].tolist()
    assert head.counts.tolist() == whole.counts[:5].tolist()


@pytest.mark.parametrize("bound", [None, 10, 16])
def test_the_share_over_the_cap_is_in_its_interval(bound: int | None) -> None:
    """Of 4,000 users 1,800 hold 40 items; the interval must hold that in 95% of estimates, and half of it does not."""
    calibrated = MECHANISMS["histogram"]["fitted-gaussian"].calibrate(**PROMISE, items_per_user=bound)
    fitted = fitted_of(calibrated)
    edges, most = np.array(fitted.edges), bound or 30
    true = np.where(edges == edges[edges <= 5][-1], 2_200, 0) + np.where(
        edges == edges[edges <= 40][-1], 1_800, 0
    )
    inside = halves = 0
    for number in range(_TRIES):
        noise = OneShotNoise(number.to_bytes(32, "big"))
        share = fitted.over_cap(true + noise.discrete_laplace(1 / fitted.epsilon, len(edges)), most)
        assert share is not None
        inside += share.low <= 0.45 <= share.high
        middle, reach = (share.low + share.high) / 2, (share.high - share.low) / 4
        halves += middle - reach <= 0.45 <= middle + reach
    assert inside >= 0.93 * _TRIES
    assert halves < 0.8 * _TRIES


@pytest.mark.parametrize("name", ["fitted", "fitted-gaussian"])
def test_of_public_bins_the_share_over_the_cap_counts_bins_alone(name: str) -> None:
    """Of 4,000 users 1,000 hold four of five bins, all hold five other labels, and three bins of a user count."""
    users = np.concatenate([np.repeat(np.arange(4_000), 6), np.repeat(np.arange(1_000), 3)])
    items = np.concatenate([np.tile([0, 5, 6, 7, 8, 9], 4_000), np.tile([1, 2, 3], 1_000)])
    rows = Rows(users, items, pa.array([b"%03d" % number for number in range(10)], pa.large_binary()))
    bins = [f"{number:03d}" for number in range(5)]
    histogram = MECHANISMS["histogram"][name]
    found = histogram.calibrate(**PROMISE, items_per_user=3, bins=bins).run(rows, OneShotNoise(bytes(32)))
    assert found.over_cap is not None
    assert found.over_cap.low < 0.25 < found.over_cap.high < 0.4
    whole = histogram.calibrate(**PROMISE, items_per_user=5, bins=bins)
    assert whole.run(rows, OneShotNoise(bytes(32))).over_cap is None
    least = "known" if name == "fitted" else "known-gaussian"
    assert (
        whole.cost
        == MECHANISMS["histogram"][least]
        .calibrate(epsilon=1.0, bins=bins, items_per_user=5, **({} if least == "known" else {"delta": 1e-6}))
        .cost
    )


def test_a_share_is_not_told_if_no_bin_ends_at_the_cap_or_nobody_is_seen() -> None:
    fitted = fitted_of(MECHANISMS["histogram"]["fitted"].calibrate(**PROMISE))
    assert fitted.over_cap(users_of(5_000, 40), 16) is None
    assert fitted.over_cap(users_of(0, 40), 30) is None
    assert fitted.over_cap(users_of(5_000, 40), 30) is not None


@pytest.mark.parametrize("job", ["histogram", "top-k"])
def test_every_bound_that_may_be_chosen_is_the_end_of_a_bin(job: Any) -> None:
    more = {"k": 10, "kbar": 5_000} if job == "top-k" else {}
    fitted = fitted_of(MECHANISMS[job]["fitted"].calibrate(**PROMISE, **more))
    bounds = {each.chosen["items_per_user"] for each in fitted.branches if "items_per_user" in each.chosen}
    assert len(bounds) >= 9
    assert {most + 1 for most in bounds} <= {*fitted.edges}


@pytest.mark.parametrize("job", ["histogram", "top-k"])
def test_a_bound_that_is_given_is_kept_and_the_lower_threshold_decides_on_the_noise(job: Any) -> None:
    more = {"k": 10, "kbar": 5_000} if job == "top-k" else {}
    for name, bound, mechanism in (
        ("fitted", 1, "laplace"),
        ("fitted", 40, "gaussian"),
        ("fitted-gaussian", 1, "gaussian"),
    ):
        calibrated = MECHANISMS[job][name].calibrate(**PROMISE, **more, items_per_user=bound)
        assert chosen(calibrated, 1_000_000, 1) == (mechanism, bound)
        assert calibrated.epsilon == pytest.approx(1.0)
        assert (calibrated.cost.loss.coins[-1][0] > 0.5) == (mechanism == "laplace")


@pytest.mark.parametrize("job", ["histogram", "top-k", "set-union"])
@pytest.mark.parametrize("epsilon", [1e-9, 1e-4])
def test_so_small_an_epsilon_leaves_nothing_to_choose_by(job: Any, epsilon: float) -> None:
    more = {"k": 10, "kbar": 5_000} if job == "top-k" else {}
    with pytest.raises(ValueError, match=r"^epsilon must be at least 0.001 for a job that chooses"):
        MECHANISMS[job]["fitted"].calibrate(epsilon=epsilon, delta=1e-6, **more)
    MECHANISMS[job]["fitted"].calibrate(epsilon=LEAST_EPSILON, delta=1e-6, **more)
