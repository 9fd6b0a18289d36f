"""What a request leaves open, chosen without looking at data: docs/jobs.md, "Defaults"."""

import math
from collections.abc import Mapping
from typing import Any

from stream_dp.batch.gumbel_top_k import gumbel_offset
from stream_dp.batch.top_k import GaussianTopK
from stream_dp.jobs.calibrated import MOST_ITEMS
from stream_dp.jobs.request import JobName
from stream_dp.jobs.shares import gaussian_share, pick_share
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

_SAMPLED = 1.5
"""A threshold of counts that sampled may lie so much lower than that of whole baskets before sampling is worth it."""

_RANKS_PER_LABEL, _LEAST_RANKS = 50, 5_000


def kbar(k: int) -> int:
    """How many ranks a top-k of k labels looks at: its threshold lies just above the count of the next rank."""
    return max(k, _LEAST_RANKS, min(_RANKS_PER_LABEL * k, MOST_ITEMS))


DEFAULT_K: dict[JobName, int] = {"top-k": 10, "label-votes": 1}
"""How many labels a command asks for that does not say."""


def default_in_words(job: JobName) -> str:
    """Which mechanism a job takes that names none."""
    told = {
        "top-k": "gumbel, or gaussian where its threshold is far lower; with --bins the one of least noise",
        "histogram": "gaussian; with --bins known-gaussian, or known where that has less noise",
    }
    return told.get(job, default_mechanism(job, {}))


def default_mechanism(job: JobName, given: Mapping[str, Any]) -> str:
    """The mechanism of a job that names none: it follows from what was given, which is public.

    Of PUBLIC `bins` every one competes whatever it holds, so the noise alone decides: of counts with a bound on a
    user's bins, and if nobody asks for a bound, of Gumbel draws.
    """
    epsilon, delta = given.get("epsilon", 1.0), given.get("delta", 1e-6)
    k = given.get("k") or DEFAULT_K.get(job, 1)
    usual = {"set-union": "two-rounds", "histogram": "gaussian", "label-votes": "stable", "top-k": "gumbel"}
    try:
        if isinstance(given.get("bins"), list) and job in ("top-k", "histogram"):
            return _of_bins(job, epsilon, delta, k, len(given["bins"]), given.get("items_per_user"))
        return _of_unknown_labels(epsilon, delta, k) if job == "top-k" else usual[job]
    except (ValueError, ArithmeticError, TypeError):  # such a guarantee is refused in any case
        return usual[job]


def _of_unknown_labels(epsilon: float, delta: float, k: int) -> str:
    """By how far the thresholds lie above the count of the last rank, which follows from the guarantee and k."""
    each, d = pick_share(epsilon, delta, k)
    gumbel = gumbel_offset(each, d, kbar(k))
    per_count = gaussian_share(epsilon, delta, GAUSSIAN_TOP_ITEMS)
    gaussian = GaussianTopK(per_count, delta / 2, GAUSSIAN_TOP_ITEMS, kbar(k)).offset
    return "gumbel" if gumbel <= _SAMPLED * gaussian else "gaussian"


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
