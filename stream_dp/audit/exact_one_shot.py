"""One-shot mechanisms whose true delta `stream-dp audit --exact` counts on small data, and broken ones it must catch.

Where noise is integers or coins, the whole job runs, its bounding included, with every value of its noise
(`enumerated.py`).  Where noise decides an order, the law is a formula (`one_shot_laws.py`).  Neighbours are all that
one user makes by leaving one of a few small data sets.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import product
from typing import Any

import numpy as np

from stream_dp.audit import broken_two_rounds as broken
from stream_dp.audit import one_shot_laws as laws
from stream_dp.audit.enumerated import Law, delta_between, law_of
from stream_dp.audit.exact_fitted import fitted_cases, fitted_wrongly
from stream_dp.audit.exact_two_stage import first_of_two_stages, two_stage_cases, two_stage_wrongly
from stream_dp.audit.held_rows import Holdings, rows_of
from stream_dp.audit.one_shot_case import CROWDS, OneShotCase, OneShotCounted, shown, worst_of_leaving
from stream_dp.batch.gumbel_top_k import GumbelTopK, KnownTopK, PayWhatYouGet
from stream_dp.batch.histogram import GaussianHistogram, LaplaceHistogram, laplace_histogram
from stream_dp.batch.joint_top_k import JointTopK
from stream_dp.batch.label_votes import ArgmaxVotes, LabelVotes
from stream_dp.batch.largest_gap import GaussianGap, LargestGap, Ranks
from stream_dp.batch.ptr_top_k import GaussianPtr, LaplacePtr
from stream_dp.batch.ranking import head
from stream_dp.batch.result import Outcome
from stream_dp.batch.stable_top_k import GapTest, GaussianStableTopK, StableFixedK, StableTopK
from stream_dp.batch.two_rounds import TwoRounds
from stream_dp.jobs.histogram import of_samples
from stream_dp.jobs.mechanisms import MECHANISMS, calibrate
from stream_dp.jobs.request import JobRequest, Protects, request_from
from stream_dp.jobs.rows import Rows
from stream_dp.jobs.shares import gaussian_share, pick_share
from stream_dp.privacy.accounting import discrete_gaussian_sigma_squared
from stream_dp.privacy.one_shot_noise import OneShotNoise


def one_shot_cases(names: Sequence[str] = ()) -> list[OneShotCase]:
    """All, broken ones last; only those of the named mechanisms where some are named."""
    found = [*_jobs(), *_laws(), *fitted_cases(), *two_stage_cases(), *first_of_two_stages()]
    found += [*_broken(), *fitted_wrongly(), *two_stage_wrongly()]
    return [case for case in found if not names or case.name in names]


def one_shot_counted(case: OneShotCase) -> OneShotCounted:
    """Count one."""
    return OneShotCounted(case, case.worst())


_MANY: tuple[Holdings, ...] = (
    ((0, 1, 2),),
    ((0, 1), (1, 2)),
    ((0,), (0, 1), (0, 1, 2)),
    ((0,), (0,), (0, 1)),
)
"""Data sets of three labels, for mechanisms that toss a coin for each."""


def _jobs() -> Iterator[OneShotCase]:
    """Whole jobs as they are asked for: what the mechanisms declare."""
    for job, known in MECHANISMS.items():
        for name, declared in known.items():
            data = CROWDS if declared.releases == "counts" else _MANY
            for given in declared.enumerated:
                yield _job(job, name, data, dict(given))


def _laws() -> Iterator[OneShotCase]:
    """Mechanisms whose noise decides an order, by the delta at which their cost gives an epsilon."""
    for parameters in (GumbelTopK(1.0, 0.02, 2, 3), GumbelTopK(2.0, 0.05, 1, 1), GumbelTopK(0.5, 0.01, 3, 3)):
        yield _law("top-k gumbel", parameters, partial(_of, laws.gumbel, parameters))
    for each in _PICKS:
        yield _picked("top-k gumbel", *each)
        yield _picked("top-k gumbel-known", *each)
    for k in (1, 3):
        listed = KnownTopK(0.8, 4, k)
        yield _law("top-k gumbel-known", listed, partial(_of, laws.known, listed))
        at_once = JointTopK(0.8, 4, k)
        yield _law("top-k joint-known", at_once, partial(_of, laws.joint, at_once))
    budget = PayWhatYouGet(1.0, 0.02, marks=3, queries=2)
    yield _law("top-k pay-what-you-get", budget, lambda counts: laws.two_queries(np.array(counts), budget, 3))
    for ranks in (Ranks(3), Ranks(3, least=2), Ranks(3, penalty=0.7, around=3)):
        chosen = StableTopK(0.5, 0.02, ranks)
        yield _law("top-k stable", chosen, partial(_of, laws.stable, chosen))
        gaussian_choice = GaussianStableTopK(0.5, 0.02, 0.01, ranks)
        yield _law("top-k stable-gaussian", gaussian_choice, partial(_of, laws.stable, gaussian_choice))
        rank = LargestGap(1.5, ranks)
        yield _law("top-k gap", rank, partial(_of, laws.gap, rank))
        gaussian_rank = GaussianGap(2.0, 0.02, ranks)
        yield _law("top-k gap-gaussian", gaussian_rank, partial(_of, laws.gaussian_gap, gaussian_rank))
    for k, penalty in ((1, 1.0), (2, 0.3)):
        fixed = StableFixedK(1.0, 0.05, k, 3, penalty)
        yield _law("top-k stable-fixed-k", fixed, partial(_of, laws.stable_fixed_k, fixed))
    units: tuple[Protects, ...] = ("teacher", "record")
    for unit in units:
        yield _votes(unit, LabelVotes(0.5, 0.02, 2, 2, unit))
        yield _votes(unit, ArgmaxVotes(0.8, 2, 2, unit))


_PICKS = ((1.0, 0.1, 3), (3.0, 0.1, 3), (2.0, 0.05, 2))
"""Guarantees, and how many labels are picked under each."""


def _picked(name: str, epsilon: float, delta: float, k: int, loud: float = 1.0) -> OneShotCase:
    """What a job of this guarantee draws by, or with so much less noise than it pays for."""
    each, d = pick_share(epsilon, delta, k, threshold=name == "top-k gumbel")
    known, unknown = KnownTopK(loud * each, 4, k), GumbelTopK(loud * each, d or delta, k, 3)
    law = partial(_of, laws.gumbel, unknown) if d else partial(_of, laws.known, known)
    what = "" if loud == 1 else "two thirds of the noise that it pays for"
    return OneShotCase(name, epsilon, delta, partial(_worst_of_counts, law, epsilon), what)


def _broken() -> Iterator[OneShotCase]:
    for name in ("top-k gumbel", "top-k gumbel-known"):
        yield _picked(name, *_PICKS[1], loud=1.5)
    crowd: Holdings = ((0, 1), (0, 1), (0,))
    rich, sure = TwoRounds(1.0, 0.05, 3), TwoRounds(4.0, 0.02, 3)
    emptied = "a user who is left with nothing keeps all", broken.left_with_nothing_keeps_all(rich)
    yield _program("set-union two-rounds", 1.0, 0.05, *emptied, [((0, 1, 2),)])
    by_truth = "labels are hopeless by their true weights", broken.dropped_by_true_weight(sure)
    yield _program("set-union two-rounds", 4.0, 0.02, *by_truth, [crowd])
    yield _outside_the_sample(TwoRounds(1.0, 1e-6, 1))
    for name in ("histogram known-gaussian", "top-k gaussian-known"):
        yield _program(name, 2.0, 0.02, "noise for one bin of a user, who is in both", _one_bin_paid)
    much = "noise and threshold have twice as much of delta as there is"
    yield _program("histogram gaussian", 2.0, 0.02, much, _gaussian(2.0, 2 * 0.02))
    correct = LaplaceHistogram(1.0, 0.02, 2)
    yield _program(
        "histogram laplace", 2.0, 0.02, "users hold more labels than items_per_user", _unbounded(correct)
    )
    yield _law(
        "top-k gumbel",
        GumbelTopK(1.0, 0.02, 2, 3),
        lambda counts: laws.gumbel(np.array(counts), _NoOffset(1.0, 0.02, 2, 3)),
        "no offset above the count behind the last rank",
    )
    one = KnownTopK(0.8, 4, 1)
    all_of_it = partial(_of, laws.known, KnownTopK(0.8, 4, 2))
    yield _law("top-k gumbel-known", one, all_of_it, "the second label is not paid")
    at_once = JointTopK(0.8, 4, 2)
    for broken_one, what in (
        (_HalfPaid(0.8, 4, 2), "only one of the two counts is paid"),
        (_AllTwice(0.8, 4, 2), "set and order have all of epsilon each"),
    ):
        yield _law("top-k joint-known", at_once, partial(_of, laws.joint, broken_one), what)
    spent = PayWhatYouGet(1.0, 0.02, marks=1, queries=1)
    twice = PayWhatYouGet(1.0, 0.02, marks=3, queries=2)
    yield _law(
        "top-k pay-what-you-get",
        spent,
        lambda counts: laws.two_queries(np.array(counts), twice, 3),
        "the second query is not paid",
    )
    untested = StableTopK(0.5, 0.02, Ranks(3))
    yield _law(
        "top-k stable",
        untested,
        lambda counts: laws.stable(np.array(counts), _Untested(0.5, 0.02, Ranks(3))),
        "a test without an offset",
    )
    half = GaussianStableTopK(0.2, 0.02, 0.01, Ranks(3))
    yield _law(
        "top-k stable-gaussian",
        half,
        partial(_of, laws.stable, GaussianStableTopK(5.0, 0.02, 0.01, Ranks(3))),
        "a fifth of the noise that it pays for",
    )
    half_gap = LargestGap(0.75, Ranks(3))
    yield _law(
        "top-k gap",
        half_gap,
        partial(_of, laws.gap, LargestGap(1.5, Ranks(3))),
        "half the noise that it pays for",
    )
    wide = GaussianGap(6.0, 0.02, Ranks(3))
    yield _law(
        "top-k gap-gaussian",
        wide,
        partial(_of, laws.gaussian_gap, GaussianGap(0.5, 0.02, Ranks(3))),
        "a twelfth of the noise that it pays for",
    )
    by_data = LargestGap(1.5, Ranks(3))
    yield _law("top-k gap", by_data, _around_what_there_is, "ranks preferred by what the data hold")
    early = "a set is released as soon as its noisy gap reaches 1"
    for name, test in (
        ("top-k ptr-laplace", LaplacePtr(3.0, 0.05, 1)),
        ("top-k ptr-gaussian", GaussianPtr(2.0, 0.05, 1)),
    ):
        yield _program(name, 3.0, 0.05, early, _early(test), [((0,),)])
    for_teachers = "noise for the unit teacher, and a record changes"
    yield _votes("record", LabelVotes(0.5, 0.02, 2, 2, "teacher"), for_teachers)
    yield _votes("record", ArgmaxVotes(0.8, 2, 2, "teacher"), for_teachers)
    yield _program(
        "histogram sparse-vector", 4.0, 0.0, "the noise that decided is released", _deciding_noise_released
    )


def _gaussian(epsilon: float, delta: float) -> Callable[[Rows, OneShotNoise], Hashable]:
    """A histogram of two items of each user whose noise has all of delta, and its threshold too."""
    parameters = GaussianHistogram(gaussian_share(epsilon, delta, 2), delta, 2)
    return lambda rows, noise: shown(of_samples(parameters, (epsilon, delta)).run(rows, noise))


def _outside_the_sample(parameters: TwoRounds) -> OneShotCase:
    """No data small enough to enumerate show it, but one label that thirty people hold among others does."""
    crowd, spoilt = broken.Crowd(30, 999), "the second round takes items from outside the sample"

    def worst() -> float:
        with_one, without_one = (crowd.law_outside_the_sample(parameters, joined) for joined in (True, False))
        return delta_between(with_one, without_one, parameters.epsilon)

    return OneShotCase("set-union two-rounds", parameters.epsilon, parameters.delta, worst, spoilt)


def _job(job: str, mechanism: str, data: Sequence[Holdings], given: dict[str, Any]) -> OneShotCase:
    request = request_from({"id": "x", "job": job, "mechanism": mechanism} | given)
    assert isinstance(request, JobRequest)
    run, epsilon, delta = calibrate(request).run, given["epsilon"], given.get("delta", 0.0)

    def law(holdings: Holdings) -> Law[Hashable]:
        rows = rows_of(holdings)
        return law_of(lambda noise: shown(run(rows, noise)))

    return OneShotCase(f"{job} {mechanism}", epsilon, delta, partial(worst_of_leaving, law, data, epsilon))


def _program(
    name: str,
    epsilon: float,
    delta: float,
    broken: str,
    run: Callable[[Rows, OneShotNoise], Hashable],
    data: Sequence[Holdings] = CROWDS[:2],
) -> OneShotCase:
    def law(holdings: Holdings) -> Law[Hashable]:
        rows = rows_of(holdings)
        return law_of(lambda noise: run(rows, noise))

    return OneShotCase(name, epsilon, delta, partial(worst_of_leaving, law, data, epsilon), broken)


def _law(
    name: str, parameters: Any, law: Callable[[tuple[int, ...]], Law[Any]], broken: str = ""
) -> OneShotCase:
    """At the delta of the mechanism itself and, unless that is 0, a hundredth for the conversion of rho."""
    delta = parameters.cost.delta + (0.01 if parameters.cost.delta else 0.0)
    epsilon = parameters.cost.epsilon_at(delta)
    return OneShotCase(name, epsilon, delta, partial(_worst_of_counts, law, epsilon), broken)


def _votes(unit: Protects, parameters: LabelVotes | ArgmaxVotes, broken: str = "") -> OneShotCase:
    """Two examples of two labels: a teacher comes, or the one of a record votes for other labels."""
    argmax = isinstance(parameters, ArgmaxVotes)
    delta = 0.0 if argmax else parameters.cost.delta + 0.01
    epsilon = parameters.cost.epsilon_at(delta)
    changes = [-1, 0] if unit == "teacher" else [-1, 0, 1]

    def worst() -> float:
        @lru_cache
        def law(cells: tuple[int, ...]) -> Law[Any]:
            tallies = np.array(cells).reshape(2, 2)
            if isinstance(parameters, ArgmaxVotes):
                return laws.argmax_votes(tallies, parameters)
            return laws.votes(tallies, parameters)

        pairs = (
            (cells, tuple(cell + step for cell, step in zip(cells, steps, strict=True)))
            for cells in product((1, 2, 3), repeat=4)
            for steps in product(changes, repeat=4)
        )
        return max(delta_between(law(one), law(other), epsilon) for one, other in pairs)

    return OneShotCase(f"label-votes {'argmax' if argmax else 'stable'}", epsilon, delta, worst, broken)


def _of(law: Callable[..., Law[Any]], parameters: Any, counts: tuple[int, ...]) -> Law[Any]:
    return law(np.array(counts), parameters)


def _worst_of_counts(law: Callable[[tuple[int, ...]], Law[Any]], epsilon: float) -> float:
    """The largest delta between all counts of four labels up to three and the same without one user."""
    known = lru_cache(maxsize=None)(law)
    pairs = (
        (counts, tuple(count - held for count, held in zip(counts, mine, strict=True)))
        for counts in product(range(4), repeat=4)
        for mine in product((0, 1), repeat=4)
        if all(count >= held for count, held in zip(counts, mine, strict=True))
    )
    return max(delta_between(known(one), known(other), epsilon) for one, other in pairs)


def _unbounded(parameters: LaplaceHistogram) -> Callable[[Rows, OneShotNoise], Hashable]:
    """BROKEN: noise for one label of a user, and no bound on the labels that a user holds."""
    for_one = LaplaceHistogram(parameters.epsilon * 2, parameters.threshold_delta, 1)

    def run(rows: Rows, noise: OneShotNoise) -> Hashable:
        found = laplace_histogram(rows.counts(), for_one, noise)
        return shown(Outcome(found.items, found.counts))

    return run


def _one_bin_paid(rows: Rows, noise: OneShotNoise) -> Hashable:
    """BROKEN: noise for users of one bin each, and no bound on how many a user is in."""
    sigma_squared = discrete_gaussian_sigma_squared(2.0, 0.02, 1)
    counts = rows.restricted(["a", "b"]).counts()
    return tuple((counts + noise.discrete_gaussian(sigma_squared, 2)).tolist())


def _deciding_noise_released(rows: Rows, noise: OneShotNoise) -> Hashable:
    """BROKEN: a sparse vector that releases the noisy counts by which it decided, for the price of deciding."""
    threshold = 2 + int(noise.discrete_laplace(0.5, 1)[0])
    noisy = rows.counts()[:2] + noise.discrete_laplace(0.25, 2)
    return tuple(int(count) if count >= threshold else None for count in noisy)


def _around_what_there_is(counts: tuple[int, ...]) -> Law[int]:
    """BROKEN: a regulariser that prefers the rank after which no label is left, which is private."""
    held = max(1, sum(count > 0 for count in counts))
    return laws.gap(np.array(counts), LargestGap(1.5, Ranks(3, penalty=4.0, around=held)))


def _early(parameters: LaplacePtr | GaussianPtr) -> Callable[[Rows, OneShotNoise], Hashable]:
    """BROKEN: the set is released as soon as the noisy gap reaches 1."""

    def run(rows: Rows, noise: OneShotNoise) -> Hashable:
        top = head(rows.counts(), 1)
        passes = int(top.gaps(1)[-1]) + parameters.draw(noise) >= 1
        return tuple(top.items.tolist()) if passes else None

    return run


class _NoOffset(GumbelTopK):
    """BROKEN: see `_broken`."""

    __slots__ = ()

    @property
    def offset(self) -> float:
        return -5.0


class _HalfPaid(JointTopK):
    """BROKEN: see `_broken`."""

    __slots__ = ()

    @property
    def together(self) -> KnownTopK:
        return KnownTopK(2 * self.epsilon, self.bins, 1)


class _AllTwice(JointTopK):
    """BROKEN: see `_broken`."""

    __slots__ = ()

    @property
    def together(self) -> KnownTopK:
        return KnownTopK(self.epsilon, self.bins, 1)

    @property
    def order(self) -> KnownTopK:
        return KnownTopK(self.epsilon / (self.k - 1), self.k, self.k - 1)


class _Untested(StableTopK):
    """BROKEN: see `_broken`."""

    __slots__ = ()

    @property
    def test(self) -> GapTest:
        return GapTest(super().test.sigma, 0.5, self.step)
