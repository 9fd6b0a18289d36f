"""How many jobs fit into one budget, beside dp-accounting's privacy-loss distributions and OpenDP's privacy filter.

dp-accounting's composition is no filter: it holds for jobs that were fixed in advance.  It is what a filter could reach
at best, and is asked anew for each job.  OpenDP's filter adds up rho.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import numpy as np
import opendp.prelude as dp
from dp_accounting.dp_event import DiscreteLaplaceDpEvent, DpEvent, GaussianDpEvent, SelfComposedDpEvent
from dp_accounting.pld import PLDAccountant
from numpy.random import Generator
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from stream_dp.batch.cost import Cost
from stream_dp.batch.gumbel_top_k import GumbelTopK
from stream_dp.batch.histogram import GaussianHistogram, LaplaceHistogram
from stream_dp.batch.policy_set_union import LaplacePolicy
from stream_dp.batch.sips import Sips
from stream_dp.privacy.accounting import zcdp_rho
from stream_dp.privacy.composition import Budget, Charge, refused

BUDGET = Budget(epsilon=1.0, delta=1e-6, unit="user")
JOBS, SEQUENCES, SEED = 100, 40, 12
TOTALS, SHAPES, HALVINGS = (0.6, 1.2), 8, 8
"""`mixed` draws how large a sequence is; `share_that_fits` looks for the limit, and so needs fewer sequences."""

Reals = NDArray[Any]


class Job(NamedTuple):
    """What our ledger is told of a job, and what dp-accounting is told of the same noise."""

    cost: Cost
    event: DpEvent


def laplace(epsilon: float, delta: float, items: int = 1) -> Job:
    """A histogram; the loss of discrete Laplace noise takes two values."""
    cost = LaplaceHistogram(epsilon / items, delta, items).cost
    return Job(cost, SelfComposedDpEvent(DiscreteLaplaceDpEvent(epsilon / items, 1), items))


def gaussian(epsilon: float, delta: float, items: int = 1) -> Job:
    """A histogram whose Gaussian noise has the rho of Laplace noise of this epsilon."""
    return Job(GaussianHistogram(epsilon / math.sqrt(items), delta, items).cost, GaussianDpEvent(1 / epsilon))


def union(epsilon: float, delta: float) -> Job:
    """Labels by the policy of Laplace noise."""
    return Job(LaplacePolicy(epsilon, delta, 4).cost, DiscreteLaplaceDpEvent(epsilon, 1))


def top(epsilon: float, delta: float, k: int = 5) -> Job:
    """Labels by Gumbel noise; dp-accounting is told the middle one of the laws that a bounded range may have."""
    each = 2 * epsilon / math.sqrt(k)  # so that the whole costs as much as Laplace noise of this epsilon
    return Job(
        GumbelTopK(each, delta, k, 20).cost, SelfComposedDpEvent(DiscreteLaplaceDpEvent(each / 2, 1), k)
    )


def sips(epsilon: float, delta: float) -> Job:
    """Labels by three rounds of Gaussian noise."""
    return Job(Sips(epsilon**2 / 2, delta, 4).cost, GaussianDpEvent(1 / epsilon))


def charge(cost: Cost) -> Charge:
    """The job as a charge."""
    return Charge(
        id="job",
        what="",
        unit="user",
        rho=cost.rho,
        delta=cost.delta,
        first_offset=0,
        end_offset=None,
        digest="",
        exact=cost.alone,
        loss=cost.loss,
    )


def fits(jobs: list[Job]) -> bool:
    """Whether our filter takes all of them, in this order."""
    return not refused([charge(job.cost) for job in jobs], BUDGET)


def fits_as_told(jobs: list[Job]) -> bool:
    """The same where the budget was set with the share of delta that the jobs' own deltas will take."""
    own = math.fsum(job.cost.delta for job in jobs) / BUDGET.delta
    return own < 0.99 and not refused(
        [charge(job.cost) for job in jobs], msgspec.structs.replace(BUDGET, own_deltas=max(0.001, own))
    )


def fits_by_rho(jobs: list[Job]) -> bool:
    """Whether rho and the own deltas add up to no more than what half of delta each allows."""
    limits = zcdp_rho(BUDGET.epsilon, BUDGET.delta / 2), BUDGET.delta / 2
    spent = math.fsum(job.cost.rho for job in jobs), math.fsum(job.cost.delta for job in jobs)
    return all(sum_ <= limit * (1 + 1e-9) for sum_, limit in zip(spent, limits, strict=True))


def fits_in_advance(jobs: list[Job]) -> bool:
    """Whether dp-accounting says so for jobs that were fixed in advance."""
    left = BUDGET.delta - math.fsum(job.cost.delta for job in jobs)
    accountant = PLDAccountant()
    for job in jobs:
        accountant.compose(job.event)
    return left >= -1e-15 and bool(accountant.get_delta(BUDGET.epsilon) <= max(left, 1e-15))


def fits_opendp(jobs: list[Job]) -> bool:
    """Whether OpenDP's privacy filter answers them all, with what the jobs' own deltas leave for its rho."""
    left = BUDGET.delta - math.fsum(job.cost.delta for job in jobs)
    if left <= 1e-12:
        return False
    space = dp.atom_domain(T=int), dp.absolute_distance(T=int)
    adaptive = dp.c.make_fully_adaptive_composition(*space, output_measure=dp.zero_concentrated_divergence())
    filter_ = dp.c.make_privacy_filter(adaptive, d_in=1, d_out=zcdp_rho(BUDGET.epsilon, left))(0)
    try:
        for job in jobs:
            filter_(dp.m.make_gaussian(*space, scale=math.sqrt(1 / (2 * job.cost.rho))))
    except dp.OpenDPException:
        return False
    return True


FILTERS: dict[str, Callable[[list[Job]], bool]] = {
    "our filter": fits,
    "by rho alone": fits_by_rho,
    "OpenDP's filter": fits_opendp,
    "dp-accounting, fixed in advance": fits_in_advance,
}


FOR_MIXED = {"our filter": fits, "our filter, told the jobs' own deltas": fits_as_told, **FILTERS}


def how_many(accepts: Callable[[list[Job]], bool], jobs: list[Job]) -> int:
    """How many of the jobs, from the first on, are accepted until one is refused."""
    low, high = 0, len(jobs) + 1
    while high - low > 1:
        middle = (low + high) // 2
        if accepts(jobs[:middle]):
            low = middle
        else:
            high = middle
    return low


class Shape(NamedTuple):
    """Jobs of all kinds, up to a common factor of their sizes, which differ by a factor of 10."""

    kinds: Reals
    sizes: Reals

    @classmethod
    def drawn(cls, random: Generator) -> "Shape":
        """A hundred of them."""
        kinds = random.choice(np.array([laplace, gaussian, union, top, sips], object), JOBS)
        sizes = 10 ** random.uniform(-0.5, 0.5, JOBS)
        return cls(kinds, sizes / math.sqrt(float(np.sum(sizes**2))))

    def jobs(self, total: float, own_deltas: float) -> list[Job]:
        """As large together as `total` times what one Gaussian of the budget has; deltas take this share."""
        sizes = self.sizes * total * BUDGET.epsilon / 4.22
        delta = own_deltas * BUDGET.delta / JOBS
        return [kind(float(size), delta) for kind, size in zip(self.kinds, sizes, strict=True)]


def mixed(random: Generator, own_deltas: float) -> list[Job]:
    """Jobs whose deltas take this share of the budget's; about half of such sequences fit."""
    shape = Shape.drawn(random)
    return shape.jobs(random.uniform(*TOTALS), own_deltas)


def share_that_fits(accepts: Callable[[list[Job]], bool], shape: Shape, own_deltas: float) -> float:
    """Of the totals that `mixed` draws from, the share that is accepted: those up to a limit are."""
    least, most = low, high = TOTALS
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if accepts(shape.jobs(middle, own_deltas)):
            low = middle
        else:
            high = middle
    return ((low + high) / 2 - least) / (most - least)


def main(console: Console) -> None:
    """Print how many equal jobs fit, and how many mixed sequences do."""
    dp.enable_features("contrib")
    table = Table("jobs", *FILTERS, title="How many equal jobs fit into epsilon 1, delta 1e-6")
    for name, job, most in (
        ("Laplace histogram, (0.1, 1e-7)", laplace(0.1, 1e-7), 20),
        ("Laplace histogram, (0.05, 1e-9)", laplace(0.05, 1e-9), 60),
        ("Laplace histogram of 4 items, (0.1, 1e-9)", laplace(0.1, 1e-9, 4), 120),
        ("policy union, (0.25, 2.4e-7)", union(0.25, 2.4e-7), 10),
        ("Gaussian histogram, rho 0.0005", gaussian(math.sqrt(0.001), 1e-9), 120),
        ("Gumbel top 5, rho 0.0005", top(math.sqrt(0.001), 1e-9), 120),
    ):
        table.add_row(name, *(str(how_many(accepts, [job] * most)) for accepts in FILTERS.values()))
    console.print(table)
    console.print()
    table = Table(
        "own deltas", *FOR_MIXED, title=f"How many of {SEQUENCES} mixed sequences of {JOBS} jobs fit"
    )
    for share in (0.05, 0.25, 0.5):
        random = np.random.default_rng(SEED)
        sequences = [mixed(random, share) for _ in range(SEQUENCES)]
        table.add_row(
            f"{share:.0%} of delta", *(str(sum(map(accepts, sequences))) for accepts in FOR_MIXED.values())
        )
    console.print(table)
    console.print()
    table = Table("own deltas", *FOR_MIXED, title="How many mixed sequences fit, of all sizes")
    for share in (0.05, 0.5):
        random = np.random.default_rng(SEED)
        shapes = [Shape.drawn(random) for _ in range(SHAPES)]
        fit = [[share_that_fits(accepts, shape, share) for shape in shapes] for accepts in FOR_MIXED.values()]
        table.add_row(f"{share:.0%} of delta", *(f"{float(np.mean(each)):.1%}" for each in fit))
    console.print(table)
