"""The mechanisms `fitted`: of every job, from which branches one is chosen (how, and why it is private: `fitted.py`).

Of PUBLIC bins the branch follows from the noise alone; an estimate tells how many users hold more than are counted.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from stream_dp.batch.result import Outcome
from stream_dp.jobs.calibrated import Calibrated
from stream_dp.jobs.counted import Counted
from stream_dp.jobs.declared import MECHANISMS, one_shot
from stream_dp.jobs.defaults import GAUSSIAN_COUNT_ITEMS, GAUSSIAN_TOP_ITEMS, GAUSSIAN_UNION_ITEMS, tokens
from stream_dp.jobs.fitted import EDGES, Branch, Fitted, Reals
from stream_dp.jobs.known import least_noise
from stream_dp.jobs.request import JobName
from stream_dp.jobs.shares import DOWN
from stream_dp.privacy.one_shot_noise import OneShotNoise

SHARE = 0.02
"""What the estimate takes of epsilon."""

LEAST_EPSILON = 0.001
"""Less than this leaves nothing to choose by: no number of users would stand out of its noise."""

_BOUNDS = tuple(edge - 1 for edge in EDGES[1:])
"""So the estimate says how many users hold more than any of them."""

_PURE_BOUNDS = _BOUNDS[:3]
_STAGED_BOUNDS = (30, 50, 100)
_UNION_BOUNDS = (GAUSSIAN_UNION_ITEMS, 600)

_FREQUENT = 0.5
"""The part of what a user holds that is frequent, so that two stages keep it all if it is at most `items_per_user`."""

_SWAPS = 1.35
"""Gumbel noise moves labels past each other too, so it counts as if a label needed so many times as much."""

_FILLED = 0.85
"""The part of a user's weight that comes to labels which two rounds release."""

_SAMPLED = 1.5
"""A threshold of counts that sampled may lie so much lower than that of whole baskets before sampling is worth it."""


def _shares(epsilon: float) -> tuple[float, float]:
    """The epsilon of the estimate, and that of a branch."""
    if epsilon < LEAST_EPSILON:
        raise ValueError(
            f"epsilon must be at least {LEAST_EPSILON:g} for a job that chooses its mechanism, not {epsilon:g}"
        )
    return SHARE * epsilon, (1 - SHARE) * epsilon * DOWN


def _branch(
    job: JobName, mechanism: str, gives: Callable[[Reals], Reals], fixed: dict[str, Any], **chosen: Any
) -> Branch:
    return Branch(mechanism, chosen, MECHANISMS[job][mechanism].calibrate(**fixed, **chosen), gives)


def _sampled(job: JobName, fixed: dict[str, Any], pure: bool, bound: int | None) -> list[Branch]:
    """Counts of samples of several sizes, or of the one that was asked for.

    At a large epsilon small bounds are refused, and all of them at a tiny one: then this raises ValueError.
    """
    exact, coins = (_BOUNDS, _PURE_BOUNDS) if bound is None else ((bound,), (bound,))

    def kept(most: int) -> Callable[[Reals], Reals]:
        return lambda held: np.minimum(held, most)

    found, refused = list[Branch](), ValueError()
    for name, most in [
        *(("gaussian", most) for most in exact),
        *(("laplace", most) for most in coins if pure),
    ]:
        try:
            found.append(_branch(job, name, kept(most), fixed, items_per_user=most))
        except ValueError as error:
            refused = error
    if not found:
        raise refused
    return found


def _staged(job: JobName, **fixed: Any) -> list[Branch]:
    """Counts of what a first stage shows to be frequent, by how many labels users keep."""

    def kept(most: int) -> Callable[[Reals], Reals]:
        return lambda held: np.minimum(held, most / _FREQUENT)

    found = [_branch(job, "two-stage", kept(most), fixed, items_per_user=most) for most in _STAGED_BOUNDS]
    return [replace(each, of_head=True) for each in found]


def _gaussian(branches: Sequence[Branch], items_per_user: int) -> Branch:
    """The branch with Gaussian noise whose bound is nearest to this one."""
    counted = [each for each in branches if each.mechanism == "gaussian"] or branches
    return min(counted, key=lambda each: abs(each.chosen["items_per_user"] - items_per_user))


def _told(first: float, branch: Branch, bound: int, bins: list[str] | None = None) -> Fitted:
    """For users who count with so many items: two bins, because nothing is chosen by the estimate."""
    return Fitted(first, [branch], branch, edges=(1, bound + 1), held=(), bins=bins)


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
        branches = _sampled("histogram", {"epsilon": rest, "delta": delta}, pure, items_per_user)
        if items_per_user is not None:
            return _told(first, _least(branches), items_per_user).calibrated(epsilon, delta)
        staged = _staged("histogram", epsilon=rest, delta=delta)
        usual = _gaussian(branches, GAUSSIAN_COUNT_ITEMS)
        return Fitted(first, [*branches, *staged], usual).calibrated(epsilon, delta)

    return calibrate


def _top_k(pure: bool) -> Callable[..., Calibrated]:
    """At most k labels, by the mechanism and `items_per_user` that fit how many items users hold."""

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
        fixed = {"epsilon": rest, "delta": delta, "k": k, "kbar": kbar}
        counted = _sampled("top-k", fixed, pure, items_per_user)
        if items_per_user is not None:
            return _told(first, _least(counted), items_per_user).calibrated(epsilon, delta)
        ordered = replace(_branch("top-k", "gumbel", np.asarray, fixed), swaps=_SWAPS)
        usual = _gaussian(counted, GAUSSIAN_TOP_ITEMS)
        if ordered.needed <= _SAMPLED * usual.needed:
            usual = ordered
        staged = _staged("top-k", epsilon=rest, delta=delta, k=k)
        return Fitted(first, [*counted, ordered, *staged], usual, k).calibrated(epsilon, delta)

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
        return lambda held: _FILLED * np.sqrt(np.minimum(held, most))

    rounds = [
        _branch("set-union", "two-rounds", spread(most), fixed, items_per_user=most) for most in _UNION_BOUNDS
    ]
    few = _branch("set-union", "greedy", np.ones_like, fixed, tokens=tokens(rest))
    return Fitted(first, [*rounds, few], rounds[0]).calibrated(epsilon, delta)
