"""What a request leaves open, chosen without looking at data: docs/jobs.md, "Defaults"."""

from collections.abc import Mapping
from typing import Any

from stream_dp.batch.set_union_thresholds import tokens_at_no_cost
from stream_dp.jobs.bounds import MOST_ITEMS
from stream_dp.jobs.request import JobName

GAUSSIAN_UNION_ITEMS = 150
"""How many items of a user are counted by default where this number only moves the threshold, and only a little."""

GAUSSIAN_COUNT_ITEMS = 30
"""The same where the noise grows with the square root of this number."""

GAUSSIAN_TOP_ITEMS = 50
"""The same for a top-k, which is spared the labels of small counts and gains more from the large ones."""

JOINT_LABELS = 10.0
"""Up to so many of a top-k's public labels times epsilon are drawn at once."""

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


DEFAULT_IN_WORDS: dict[JobName, str] = {
    "top-k": "fitted, of a topic fitted-gaussian",
    "histogram": "fitted, of a topic fitted-gaussian",
    "set-union": "fitted, of a topic two-rounds",
    "label-votes": "stable",
}
"""Which mechanism a job takes that names none."""


def default_mechanism(job: JobName, given: Mapping[str, Any], beside_a_stream: bool = False) -> str:
    """The mechanism of a job that names none: it follows from what was given, which is public.

    A job estimates how many items users hold.  `beside_a_stream`, which releases from the same budget, it does so
    without Laplace noise, which weighs far more beside other charges.
    """
    if job == "label-votes":
        return "stable"
    if job == "set-union":
        asked = {"items_per_user", "alpha"} & {name for name, value in given.items() if value is not None}
        return "two-rounds" if asked or beside_a_stream else "fitted"
    return "fitted-gaussian" if beside_a_stream else "fitted"
