"""The mechanisms `fitted`: of every job, from which branches one is chosen (how, and why it is private: `fitted.py`).

Of PUBLIC bins the branch follows from the noise alone; an estimate tells how many users hold more than are counted.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from stream_dp.batch import two_stage
from stream_dp.batch.histogram import GaussianHistogram
from stream_dp.batch.novel_labels import Allowance, Profile, after, delta_of_each, of_both, of_either
from stream_dp.batch.result import Outcome
from stream_dp.batch.two_stage import TwoStage
from stream_dp.jobs.calibrated import Calibrated
from stream_dp.jobs.counted import Counted
from stream_dp.jobs.declared import MECHANISMS, one_shot
from stream_dp.jobs.defaults import GAUSSIAN_COUNT_ITEMS, GAUSSIAN_TOP_ITEMS, GAUSSIAN_UNION_ITEMS, tokens
from stream_dp.jobs.fitted import PLACES, Branch, Fitted, RankCounts, Reals
from stream_dp.jobs.histogram import of_samples, of_stages
from stream_dp.jobs.known import least_noise
from stream_dp.jobs.prospect import Counting
from stream_dp.jobs.request import JobName
from stream_dp.jobs.shares import DOWN
from stream_dp.privacy import loss
from stream_dp.privacy.accounting import gaussian_epsilon, gaussian_rho
from stream_dp.privacy.loss import ROUNDED_VARIANCE
from stream_dp.privacy.one_shot_noise import OneShotNoise

SHARE = 0.02
"""What the first estimate takes of epsilon, up to an epsilon of 1; it tells enough then."""

RANK_SHARE = 0.03
"""What the second takes of the mu^2 that is left, up to an epsilon of 1; beyond, so much divided by epsilon."""

LEAST_EPSILON = 0.001
"""Less than this leaves nothing to choose by: no number of users would stand out of its noise."""

_FEW = (1, 2, 3)
_MORE = (5, 15, 30, 60, 100, 300)
_STAGED_BOUNDS = (15, 30, 60, 100)
"""So the first estimate says how many users hold more than any of them: see `fitted.EDGES`."""

_UNION_BOUNDS = (GAUSSIAN_UNION_ITEMS, 600)

_FREQUENT = 0.5
"""The part of what a user holds that is frequent, so that two stages keep it all if it is at most `items_per_user`."""

_SWAPS = 1.35
"""Gumbel noise moves labels past each other too, so it counts as if a label needed so many times as much."""

_ROUNDS = 1.04
"""Two rounds count as if a label needed so many times as much: users of few items give them less than is reckoned."""

_SAMPLED = 1.5
"""A threshold of counts that sampled may lie so much lower than that of whole baskets before sampling is worth it."""

_FOR_EITHER = 0.03
"""What branches leave of delta if their noise and threshold add up, so that the others may have much more than half."""

_CALLS = 20
"""So often a mechanism may be given a little less before its noise is refused; three times do, mostly."""


def _shares(epsilon: float) -> tuple[float, float]:
    """The epsilon of the first estimate, and that of all else."""
    if epsilon < LEAST_EPSILON:
        raise ValueError(
            f"epsilon must be at least {LEAST_EPSILON:g} for a job that chooses its mechanism, not {epsilon:g}"
        )
    first = SHARE * min(epsilon, 1.0)
    return first, (epsilon - first) * DOWN


def counts_within(epsilon: float, delta: float, share: float, places: tuple[int, ...]) -> RankCounts:
    """Counts of the labels of these `places` for a `share` of the mu^2 that is (epsilon, delta / 2)-DP."""
    told = share * 2 * gaussian_rho(epsilon, delta / 2) / max(epsilon, 1.0)
    return RankCounts(max(2 * ROUNDED_VARIANCE, ROUNDED_VARIANCE + len(places) / told), places)


@dataclass(frozen=True)
class Room:
    """What branches with Gaussian noise have beside the counts of ranks.

    `samples` and `stages`: of histograms, whose noise and threshold share their delta (`novel_labels.py`).  `both`: of
    whatever else follows.  `whole`: the epsilon and delta of all together.
    """

    whole: tuple[float, float]
    ranks: RankCounts
    samples: Allowance
    stages: Allowance
    both: Allowance

    @classmethod
    @lru_cache(maxsize=64)
    def of(
        cls, epsilon: float, delta: float, share: float = RANK_SHARE, places: tuple[int, ...] = PLACES
    ) -> "Room":
        """Of (epsilon, delta), with a `share` for the counts of the labels of these `places`; see `RANK_SHARE`."""
        ranks = counts_within(epsilon, delta, share, places)
        before = ranks.cost.loss.gaussian

        def left(d: float) -> Allowance:
            return Allowance(2 * gaussian_rho(epsilon, d) * DOWN - before, d)

        def staged(d: float) -> Profile:
            return two_stage.profile(left(d))

        def spent(*following: Profile) -> float:
            return float(after(before, *following)(np.asarray(epsilon)))

        least = (1 - _FOR_EITHER) * delta / 2  # of both it is enough, so it is where they share it
        both = of_both(left(least))
        much = (1 - _FOR_EITHER / 3) * delta
        stages = delta_of_each(much, lambda d: spent(both, staged(d)), least)
        samples = delta_of_each(delta, lambda d: spent(both, staged(stages), of_either(left(d))), least)
        return cls((epsilon, delta), ranks, left(samples), left(stages), left(least))

    def sampled(self, most: int) -> Calibrated:
        """A histogram of samples of `most` items."""
        sigma_squared = ROUNDED_VARIANCE + most / self.samples.mu_squared
        if sigma_squared < 2 * ROUNDED_VARIANCE:
            return self.calibrated(MECHANISMS["histogram"]["gaussian"].calibrate, items_per_user=most)
        return of_samples(GaussianHistogram(sigma_squared**-0.5 * DOWN, self.samples.delta, most), self.whole)

    def staged(self, most: int) -> Calibrated:
        """A histogram of the `most` labels of each user that a first stage shows to be frequent."""
        return of_stages(TwoStage(*self.whole, most, self.stages))

    def calibrated(self, calibrate: Callable[..., Calibrated], **fixed: Any) -> Calibrated:
        """Another mechanism, with as little noise as there is room for, or a little more; ValueError if it refuses."""
        left, chance = self.both
        mu_squared, delta = left, 2 * chance
        for _ in range(_CALLS):
            found = calibrate(epsilon=gaussian_epsilon(mu_squared / 2, chance), delta=delta, **fixed)
            spent = loss.gaussian_alone(found.cost.loss)
            if found.cost.delta > chance:
                delta = chance
            elif spent <= left:
                return found
            else:
                mu_squared *= left / spent * (1 - 1e-6)
        raise ValueError("no noise of this mechanism leaves room for the counts of ranks")


def _branch(
    job: JobName, mechanism: str, gives: Callable[[Reals], Reals], fixed: dict[str, Any], **chosen: Any
) -> Branch:
    return Branch(mechanism, chosen, MECHANISMS[job][mechanism].calibrate(**fixed, **chosen), gives)


def _kept(most: int) -> Callable[[Reals], Reals]:
    return lambda held: np.minimum(held, most)


def _sampled(fixed: dict[str, Any], pure: bool, bounds: Sequence[int]) -> list[Branch]:
    """Histograms of samples of several sizes.

    At a large epsilon small bounds are refused, and all of them at a tiny one: then this raises ValueError.
    """
    found, refused = list[Branch](), ValueError()
    for name in ("laplace", "gaussian") if pure else ("gaussian",):
        for most in bounds:
            try:
                found.append(_branch("histogram", name, _kept(most), fixed, items_per_user=most))
            except ValueError as error:
                refused = error
    if not found:
        raise refused
    return found


def _counted(room: Room) -> list[Branch]:
    """What the counts of ranks decide, too: histograms of samples, and of what a first stage shows to be frequent."""
    found = list[Branch]()
    for most in _MORE:
        try:
            each = room.sampled(most)
        except ValueError:
            continue
        found.append(_weighed(Branch("gaussian", {"items_per_user": most}, each, _kept(most)), most))
    for most in _STAGED_BOUNDS:
        each, kept = room.staged(most), _kept(round(most / _FREQUENT))
        first_sd = two_stage.first_sigma(each.cost.loss.gaussian)
        found.append(_weighed(Branch("two-stage", {"items_per_user": most}, each, kept), most, first_sd))
    return found


def _ordered(room: Room, fixed: dict[str, Any]) -> Branch:
    """Noisy order.  Where pure composition gives least noise, it takes all of delta and leaves nothing for counts."""
    branch = replace(_branch("top-k", "gumbel", np.asarray, fixed), swaps=_SWAPS)
    if branch.calibrated.cost.delta > fixed["delta"] / 2:
        return branch
    more = {key: value for key, value in fixed.items() if key not in ("epsilon", "delta")}
    beside = room.calibrated(MECHANISMS["top-k"]["gumbel"].calibrate, **more)
    return _weighed(replace(branch, calibrated=beside), None)


def _weighed(branch: Branch, most: int | None, first_sd: float = 0.0) -> Branch:
    sd = branch.calibrated.sd
    assert sd is not None
    return replace(branch, counting=Counting(branch.needed, sd, most, first_sd))


def _gaussian(branches: Sequence[Branch], items_per_user: int) -> Branch:
    """The branch with Gaussian noise whose bound is nearest to this one."""
    counted = [each for each in branches if each.mechanism == "gaussian"] or branches
    return min(counted, key=lambda each: abs(each.chosen["items_per_user"] - items_per_user))


def _told(first: float, branch: Branch, bound: int, bins: list[str] | None = None, k: int = 0) -> Fitted:
    """For users who count with so many items: two bins, because nothing is chosen by the estimate."""
    return Fitted(first, [branch], branch, k, (1, bound + 1), (), bins)


def _least(branches: Sequence[Branch]) -> Branch:
    """The branch that needs the fewest users for a label, which is public."""
    return min(branches, key=lambda each: each.needed)


def _of_bins(
    job: JobName, epsilon: float, delta: float, bins: list[str], bound: int | None, pure: bool, **fixed: Any
) -> Calibrated:
    """The mechanism of least noise; if its bound may leave out bins of a user, a part of epsilon tells of how many."""
    name, most = least_noise(job, epsilon, delta, len(bins), bound, pure, fixed.get("k"))
    most_held = len(bins) if most is None else most
    bounded = most_held < len(bins)
    first, rest = _shares(epsilon) if bounded else (0.0, epsilon)
    fixed |= {"epsilon": rest, "bins": bins}
    if "delta" in MECHANISMS[job][name].parameters:
        fixed["delta"] = delta
    branch = _branch(job, name, np.asarray, fixed, **({} if most is None else {"items_per_user": most}))
    if bounded:
        return _told(first, branch, most_held, bins).calibrated(epsilon, fixed.get("delta", 0.0))

    def run(rows: Counted, noise: OneShotNoise) -> Outcome:
        return replace(branch.calibrated.run(rows, noise), chosen={"fitted": name} | branch.chosen)

    return replace(branch.calibrated, run=run)


def _histogram(pure: bool) -> Callable[..., Calibrated]:
    """A histogram whose noise, and `items_per_user` if it is left open, fit how many items users hold."""

    def calibrate(
        epsilon: float, delta: float, items_per_user: int | None = None, bins: list[str] | None = None
    ) -> Calibrated:
        if bins is not None:
            return _of_bins("histogram", epsilon, delta, bins, items_per_user, pure)
        first, rest = _shares(epsilon)
        fixed = {"epsilon": rest, "delta": delta}
        if items_per_user is not None:
            given = _sampled(fixed, pure, (items_per_user,))
            return _told(first, _least(given), items_per_user).calibrated(epsilon, delta)
        room = Room.of(rest, delta)
        branches = [*_sampled(fixed, pure, _FEW), *_counted(room)]
        usual = _gaussian(branches, GAUSSIAN_COUNT_ITEMS)
        return Fitted(first, branches, usual, ranks=room.ranks).calibrated(epsilon, delta)

    return calibrate


def _top_k(pure: bool) -> Callable[..., Calibrated]:
    """At most k labels: noisy order, or the head of a histogram, whose threshold has no noise, so that it is lower.

    Which one, and `items_per_user`, fit how many items users hold.
    """

    def calibrate(
        epsilon: float,
        delta: float,
        k: int,
        kbar: int,
        items_per_user: int | None = None,
        bins: list[str] | None = None,
    ) -> Calibrated:
        if bins is not None:
            return _of_bins("top-k", epsilon, delta, bins, items_per_user, pure, k=k)
        first, rest = _shares(epsilon)
        fixed = {"epsilon": rest, "delta": delta}
        if items_per_user is not None:
            given = _sampled(fixed, pure, (items_per_user,))
            return _told(first, _least(given), items_per_user, k=k).calibrated(epsilon, delta)
        room = Room.of(rest, delta)
        ordered = _ordered(room, fixed | {"k": k, "kbar": kbar})
        branches = [ordered, *_sampled(fixed, pure, _FEW), *_counted(room)]  # of equals the first is chosen
        usual = _gaussian(branches, GAUSSIAN_TOP_ITEMS)
        if ordered.needed <= _SAMPLED * usual.needed:
            usual = ordered
        return Fitted(first, branches, usual, k, ranks=room.ranks).calibrated(epsilon, delta)

    return calibrate


for _name, _pure in (
    ("fitted", True),
    ("fitted-gaussian", False),
):  # the second costs less beside other charges
    one_shot("histogram", _name, "counts")(_histogram(_pure))
    one_shot("top-k", _name)(_top_k(_pure))


@one_shot("set-union", "fitted")
def calibrate_fitted_union(epsilon: float, delta: float) -> Calibrated:
    """`greedy` if users hold few items, else `two-rounds`."""
    first, rest = _shares(epsilon)
    fixed = {"epsilon": rest, "delta": delta}

    def spread(most: int) -> Callable[[Reals], Reals]:
        return lambda held: np.sqrt(np.minimum(held, most))

    rounds = [
        replace(_branch("set-union", "two-rounds", spread(most), fixed, items_per_user=most), swaps=_ROUNDS)
        for most in _UNION_BOUNDS
    ]
    few = _branch("set-union", "greedy", np.ones_like, fixed, tokens=tokens(rest))
    return Fitted(first, [*rounds, few], rounds[0]).calibrated(epsilon, delta)
