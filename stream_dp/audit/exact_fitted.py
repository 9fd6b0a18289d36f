"""The law of jobs that fit their parameters by an estimate, on small data: which branch runs, and what it releases.

Both draw noise of their own, so the probability of a branch and an outcome is a product.  The estimate, the choice and
the branches are the program's own, with few bins and few branches; only Gumbel noise and two stages have formulas.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_dp.audit import one_shot_laws as laws
from stream_dp.audit.enumerated import Law, law_of
from stream_dp.audit.exact_two_stage import law_of_two_stages
from stream_dp.audit.held_rows import Holdings, rows_of
from stream_dp.audit.one_shot_case import CROWDS, OneShotCase, shown, worst_of_leaving
from stream_dp.batch.gumbel_top_k import GumbelTopK
from stream_dp.batch.two_stage import TwoStage
from stream_dp.jobs.calibrated import head
from stream_dp.jobs.fitted import Branch, Fitted, RankCounts
from stream_dp.jobs.fitted_jobs import Room, counts_within
from stream_dp.jobs.mechanisms import MECHANISMS
from stream_dp.jobs.prospect import Counting
from stream_dp.jobs.request import JobName
from stream_dp.jobs.rows import Rows
from stream_dp.jobs.shares import pick_share
from stream_dp.privacy.one_shot_noise import OneShotNoise

_DELTA = 0.02
_SMALL = 0.3
_EDGES, _HELD = (1, 2), (1.0, 2.0)
_SIZES = np.array([40, 40])
"""An estimate of them."""

_BETWEEN: Holdings = ((0, 1),) * 20
"""One user less, and by true counts another branch is chosen."""

_Seen = tuple["Law[Hashable]", "Law[Hashable]"]
_Estimate = Callable[[Fitted, Rows, OneShotNoise], NDArray[np.int64]]
_Counts = Callable[[RankCounts, Rows, OneShotNoise], NDArray[np.int64]]


_FITTED: tuple[tuple[JobName, str, tuple[str, str]], ...] = (
    ("histogram", "fitted", ("laplace", "gaussian")),
    ("histogram", "fitted", ("laplace", "two-stage")),
    ("histogram", "fitted-gaussian", ("gaussian", "gaussian")),
    ("top-k", "fitted", ("laplace", "gumbel")),
    ("top-k", "fitted-gaussian", ("gumbel", "gaussian")),
    ("set-union", "fitted", ("greedy", "two-rounds")),
)
"""Jobs that choose between these branches by an estimate."""


def fitted_cases() -> Iterator[OneShotCase]:
    for job, name, mechanisms in _FITTED:
        yield _fitted_case(job, name, mechanisms, 1.0, 2.0)
    yield _told_share(1.0, 2.0, 3.0)
    yield _told_share(1.0, 2.0, 3.0, bins=["a", "c"])
    yield _by_counts()
    yield _told_counts()
    yield _counts_alone()


def fitted_wrongly() -> Iterator[OneShotCase]:
    job, name, mechanisms = _FITTED[-1]
    truth = "the branch is chosen by true sizes", _true_sizes
    yield _fitted_case(job, name, mechanisms, 1.0, 2.0, *truth)
    for bins in (None, ["a", "c"]):
        yield _told_share(1.0, 2.0, 2.0, "the share over the cap, which nothing pays for", bins)
    every = "users count once for each item", _once_an_item
    yield _fitted_case(job, name, mechanisms, 2.0, 0.5, *every)
    yield _by_counts("the branch is chosen by true counts", _true_counts)
    yield _told_counts("the counts of ranks, which nothing pays for", paid=False)
    yield _counts_alone("the counts of two ranks for the price of one", (1,))


def _fitted_case(
    job: JobName,
    name: str,
    mechanisms: tuple[str, str],
    first: float,
    rest: float,
    broken: str = "",
    estimate: _Estimate = Fitted.estimate,
) -> OneShotCase:
    fitted = _small(job, mechanisms, first, rest)
    law = partial(_law, fitted, estimate=estimate)
    worst = partial(worst_of_leaving, law, CROWDS[:3], first + rest)
    return OneShotCase(f"{job} {name}", first + rest, _DELTA, worst, broken)


def _told_share(
    first: float, rest: float, promised: float, broken: str = "", bins: list[str] | None = None
) -> OneShotCase:
    """A bound that is given: whoever sees the share sees no more than the noisy numbers, so these are released here."""
    mechanism, known = ("gaussian", {}) if bins is None else ("known-gaussian", {"bins": bins})
    branch = _small("histogram", (mechanism,), first, rest, **known).branches[0]
    fitted = Fitted(first, [branch], branch, 0, _EDGES, (), bins)

    @lru_cache
    def seen_of(holdings: Holdings) -> _Seen:
        rows = rows_of(holdings)
        return law_of(lambda noise: tuple(fitted.estimate(rows, noise).tolist())), _released(branch, holdings)

    worst = partial(_worst_of_both, seen_of, CROWDS, promised)
    return OneShotCase("histogram fitted", promised, _DELTA, worst, broken)


def _by_counts(broken: str = "", estimate: _Counts = RankCounts.estimate) -> OneShotCase:
    """One of two branches, chosen by the counts of two ranks, whatever the sizes of users were found to be.

    Nobody is sampled, and what is said of how the branches count makes the choice change between 19 and 20 users.
    """
    room = Room.of(1.0, _DELTA, 0.5, (1, 2))
    branches = [
        Branch("gaussian", {"items_per_user": most}, room.sampled(most), np.asarray, swaps, counting)
        for most, swaps, counting in ((2, 9.0, Counting(15.0, 1.0, 1)), (3, 1.0, Counting(30.0, 6.0, 2)))
    ]
    fitted = Fitted(1.0, branches, branches[1], 2, _EDGES, _HELD, ranks=room.ranks)

    def law(holdings: Holdings) -> "Law[Hashable]":
        rows, found = rows_of(holdings), dict[Hashable, float]()
        for number, chance in law_of(
            lambda noise: branches.index(fitted.choose_by_counts(_SIZES, estimate(room.ranks, rows, noise)))
        ).items():
            for outcome, then in _released(branches[number], holdings).items():
                found[number, outcome] = chance * then
        return found

    worst = partial(worst_of_leaving, law, [_BETWEEN], 1.0)
    return OneShotCase("histogram fitted-gaussian", 1.0, _DELTA, worst, broken)


def _told_counts(broken: str = "", paid: bool = True) -> OneShotCase:
    """Whoever sees which branch was chosen sees no more than the noisy counts, so these are released here.

    One label, which is always shown; the noise is large, so that what rounding adds to it is little.
    """
    room = Room.of(_SMALL, _DELTA, 0.9, (1,))
    left = room if paid else Room.of(_SMALL, _DELTA, 1e-6)
    branch = Branch("gaussian", {"items_per_user": 1}, left.sampled(1), np.asarray)

    @lru_cache
    def seen_of(holdings: Holdings) -> _Seen:
        return _law_of_counts(room.ranks, holdings), _released(branch, holdings)

    worst = partial(_worst_of_both, seen_of, [((0,),) * 60], _SMALL)
    return OneShotCase("histogram fitted-gaussian", _SMALL, _DELTA, worst, broken)


def _counts_alone(broken: str = "", priced: tuple[int, ...] = (1, 2)) -> OneShotCase:
    """The counts of two labels that a user holds, with nearly all of the budget."""
    ranks = replace(counts_within(_SMALL, _DELTA, 1 - 1e-6, priced), places=(1, 2))
    law = partial(_law_of_counts, ranks)
    worst = partial(worst_of_leaving, law, [((0, 1),) * 3], _SMALL)
    return OneShotCase("histogram fitted-gaussian", _SMALL, _DELTA, worst, broken)


def _law_of_counts(ranks: RankCounts, holdings: Holdings) -> "Law[Hashable]":
    rows = rows_of(holdings)
    return law_of(lambda noise: tuple(ranks.estimate(rows, noise).tolist()))


def _worst_of_both(seen_of: Callable[[Holdings], _Seen], data: Sequence[Holdings], epsilon: float) -> float:
    """`worst_of_leaving` for pairs of independent outcomes."""
    return max(
        _product_delta(seen_of(users), seen_of(other), epsilon)
        for users in data
        for other in {users[:gone] + users[gone + 1 :] for gone in range(len(users))}
    )


def _product_delta(one: _Seen, other: _Seen, epsilon: float) -> float:
    """`delta_between` for pairs of independent outcomes."""

    def chances(seen: _Seen) -> NDArray[np.float64]:
        first, second = (
            np.array([law.get(outcome, 0.0) for outcome in {**mine, **theirs}])
            for law, mine, theirs in zip(seen, one, other, strict=True)
        )
        return np.outer(first, second)

    left, right = chances(one), chances(other)
    return max(
        float(np.maximum(0.0, a - np.exp(epsilon) * b).sum()) for a, b in ((left, right), (right, left))
    )


def _small(job: JobName, mechanisms: tuple[str, ...], first: float, rest: float, **known: Any) -> Fitted:
    """With two bins, and a branch of each mechanism: which one is chosen depends on how many users hold two items."""
    fixed: dict[str, Any] = {"epsilon": rest, "delta": _DELTA, **known}
    bounds: dict[str, dict[str, int]] = {
        "gumbel": {"k": 1, "kbar": 1},
        "greedy": {"tokens": 1},
        "two-stage": {"items_per_user": 1},
    }
    branches = []
    for number, mechanism in enumerate(mechanisms):
        chosen = bounds.get(mechanism, {"items_per_user": 1 + number})
        counts = job == "top-k" and mechanism != "gumbel"
        found = MECHANISMS["histogram" if counts else job][mechanism].calibrate(**fixed, **chosen)
        calibrated = head(found, 1) if counts else found
        branches.append(
            Branch(mechanism, chosen, calibrated, _gives(calibrated.needed or 1.0, float(number)))
        )
    return Fitted(first, branches, branches[0], 0, _EDGES, _HELD)


def _gives(needed: float, more: float) -> Callable[[NDArray[np.float64]], NDArray[np.float64]]:
    """The first branch gives the same whatever a user holds, the second less at one item and more at two."""
    return lambda held: needed * (1 + more * (held - 1.5))


def _true_sizes(fitted: Fitted, rows: Rows, noise: OneShotNoise) -> NDArray[np.int64]:
    """BROKEN: what is chosen follows from the sizes themselves."""
    return 100 * rows.sizes(fitted.edges)


def _true_counts(ranks: RankCounts, rows: Rows, noise: OneShotNoise) -> NDArray[np.int64]:
    """BROKEN: what is chosen follows from the counts themselves."""
    return ranks.exact(rows)


def _once_an_item(fitted: Fitted, rows: Rows, noise: OneShotNoise) -> NDArray[np.int64]:
    """BROKEN: a user counts in the own bin once for each item, for the price of one."""
    users = rows.sizes(fitted.edges) * np.array(fitted.edges)
    return users + noise.discrete_laplace(1 / fitted.epsilon, len(users))


def _law(fitted: Fitted, holdings: Holdings, estimate: _Estimate = Fitted.estimate) -> "Law[Hashable]":
    """Every branch with every outcome."""
    rows, numbers = rows_of(holdings), {id(each): number for number, each in enumerate(fitted.branches)}
    chosen = law_of(lambda noise: numbers[id(fitted.choose(estimate(fitted, rows, noise)))])
    found: Law[Hashable] = {}
    for number, chance in chosen.items():
        for outcome, then in _released(fitted.branches[number], holdings).items():
            found[number, outcome] = chance * then
    return found


def _released(branch: Branch, holdings: Holdings) -> "Law[Hashable]":
    rows, alone = rows_of(holdings), branch.calibrated.cost.alone
    assert alone is not None
    if branch.mechanism == "two-stage":
        return law_of_two_stages(TwoStage(*alone, branch.chosen["items_per_user"]), holdings)
    if branch.mechanism == "gumbel":
        each, d = pick_share(*alone, 1)
        law: Law[Any] = laws.gumbel(rows.counts(), GumbelTopK(each, d, 1, 1))
        return law
    return law_of(lambda noise: shown(branch.calibrated.run(rows, noise)))
