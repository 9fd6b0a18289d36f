"""What a request leaves open, chosen without looking at data: docs/jobs.md, "Defaults"."""

import math
from collections.abc import Mapping
from typing import Any

from stream_dp.batch.set_union_thresholds import tokens_at_no_cost
from stream_dp.jobs.bounds import MOST_ITEMS
from stream_dp.jobs.request import JobName
from stream_dp.jobs.shares import pick_share
from stream_dp.privacy.accounting import discrete_gaussian_sigma_squared

GAUSSIAN_UNION_ITEMS = 150
"""How many items of a user are counted by default where this number only moves the threshold, and only a little."""

GAUSSIAN_COUNT_ITEMS = 30
"""The same where the noise grows with the square root of this number."""

GAUSSIAN_TOP_ITEMS = 50
"""The same for a top-k, which is spared the labels of small counts and gains more from the large ones."""

LAPLACE_ITEMS = 10
"""The same where the noise grows in proportion to this number."""

GAUSSIAN_ALPHA = 20.0
"""By default a label's weight is filled up to this many noise scales above the threshold.

A smaller value finds more labels among many users and far fewer among few; nobody can know which without looking.
"""

_RANKS_PER_LABEL, _LEAST_RANKS = 50, 5_000
_TOKENS_UP_TO = 4.0
"""More tokens than at this epsilon would only make a job slower."""


def kbar(k: int) -> int:
    """How many ranks a top-k of k labels looks at: its threshold lies just above the count of the next rank."""
    return max(k, _LEAST_RANKS, min(_RANKS_PER_LABEL * k, MOST_ITEMS))


def tokens(epsilon: float) -> int:
    """The tokens of a greedy union: as many as cost nothing."""
    return tokens_at_no_cost(min(epsilon, _TOKENS_UP_TO))


DEFAULT_K: dict[JobName, int] = {"top-k": 10, "label-votes": 1}
"""How many labels a command asks for that does not say."""


def default_in_words(job: JobName) -> str:
    """Which mechanism a job takes that names none."""
    told = {
        "top-k": "fitted, of a topic fitted-gaussian; with --bins the one of least noise",
        "histogram": "fitted, of a topic fitted-gaussian; with --bins the one of least noise",
        "set-union": "fitted, of a topic two-rounds",
    }
    return told.get(job, _USUAL[job])


_USUAL: dict[JobName, str] = {
    "set-union": "two-rounds",
    "histogram": "gaussian",
    "label-votes": "stable",
    "top-k": "gumbel",
}


def default_mechanism(job: JobName, given: Mapping[str, Any], beside_a_stream: bool = False) -> str:
    """The mechanism of a job that names none: it follows from what was given, which is public.

    Of PUBLIC `bins` every one competes whatever it holds, so the noise alone decides: of counts with a bound on a
    user's bins, and if nobody asks for a bound, of Gumbel draws.  Otherwise the job estimates how many items users
    hold.  `beside_a_stream`, which releases from the same budget, it does so without Laplace noise, which weighs far
    more beside other charges.
    """
    epsilon, delta = given.get("epsilon", 1.0), given.get("delta", 1e-6)
    k, bound = given.get("k") or DEFAULT_K.get(job, 1), given.get("items_per_user")
    try:
        if isinstance(given.get("bins"), list) and job in ("top-k", "histogram"):
            return _of_bins(job, epsilon, delta, k, len(given["bins"]), bound)
    except (ValueError, ArithmeticError, TypeError):  # such a guarantee is refused in any case
        return _USUAL[job]
    if job == "set-union":
        asked = {"items_per_user", "alpha"} & {name for name, value in given.items() if value is not None}
        return "two-rounds" if asked or beside_a_stream else "fitted"
    if job == "label-votes":
        return _USUAL[job]
    return "fitted-gaussian" if beside_a_stream else "fitted"


def _of_bins(job: JobName, epsilon: float, delta: float, k: int, bins: int, bound: int | None) -> str:
    most = min(bins, bound or (GAUSSIAN_TOP_ITEMS if job == "top-k" else GAUSSIAN_COUNT_ITEMS))
    gaussian = math.sqrt(discrete_gaussian_sigma_squared(epsilon, delta, most))
    laplace = math.sqrt(2) * most / epsilon
    if job == "histogram":
        return "known" if laplace < gaussian else "known-gaussian"
    noise = {"gaussian-known": gaussian, "laplace-known": laplace}
    if bound is None:
        noise["gumbel-known"] = math.pi / math.sqrt(6) / pick_share(epsilon, delta, k, threshold=False)[0]
    return min(noise, key=lambda name: noise[name])
