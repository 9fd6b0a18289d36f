"""What a request leaves open, chosen without looking at data: docs/jobs.md, "Defaults"."""

import math
from collections.abc import Mapping
from typing import Any

from stream_dp.jobs.calibrated import MOST_ITEMS
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

MOST_BY_GUMBEL = 100
"""Up to this k, Gumbel noise finds more of the largest labels than Gaussian noise; docs/jobs.md has the table."""

_RANKS_PER_LABEL, _LEAST_RANKS = 50, 5_000


def kbar(k: int) -> int:
    """How many ranks a top-k of k labels looks at: its threshold lies just above the count of the next rank."""
    return max(k, _LEAST_RANKS, min(_RANKS_PER_LABEL * k, MOST_ITEMS))


DEFAULT_K: dict[JobName, int] = {"top-k": 10, "label-votes": 1}
"""How many labels a command asks for that does not say."""


def default_in_words(job: JobName) -> str:
    """Which mechanism a job takes that names none."""
    told = {
        "top-k": f"gumbel up to k = {MOST_BY_GUMBEL}, then gaussian; with --bins the one of least noise",
        "histogram": "gaussian; with --bins known-gaussian, or known where that has less noise",
    }
    return told.get(job, default_mechanism(job, {}))


def default_mechanism(job: JobName, given: Mapping[str, Any]) -> str:
    """The mechanism of a job that names none: it follows from what was given, which is public.

    Of PUBLIC `bins` every one competes whatever it holds, so the noise alone decides: of counts with a bound on a
    user's bins, and if nobody asks for a bound, of Gumbel draws.
    """
    bins, k = given.get("bins"), given.get("k") or DEFAULT_K.get(job, 1)
    usual = {"set-union": "policy-gaussian", "histogram": "gaussian", "label-votes": "stable"}
    if not isinstance(bins, list) or job not in ("top-k", "histogram"):
        return usual.get(job) or ("gumbel" if k <= MOST_BY_GUMBEL else "gaussian")
    epsilon, delta = given["epsilon"], given["delta"]
    try:
        usually = GAUSSIAN_TOP_ITEMS if job == "top-k" else GAUSSIAN_COUNT_ITEMS
        most = min(len(bins), given.get("items_per_user") or usually)
        gaussian = math.sqrt(discrete_gaussian_sigma_squared(epsilon, delta, most))
        noise = {"gaussian-known": gaussian, "laplace-known": math.sqrt(2) * most / epsilon}
        if job == "histogram":
            return "known" if noise["laplace-known"] < gaussian else "known-gaussian"
        if "items_per_user" not in given:
            each, _ = pick_share(epsilon, delta, k, threshold=False)
            noise["gumbel-known"] = math.pi / math.sqrt(6) / each
    except (ValueError, ZeroDivisionError, TypeError):  # such a guarantee is refused in any case
        return "gaussian-known" if job == "top-k" else "known-gaussian"
    return min(noise, key=lambda name: noise[name])
