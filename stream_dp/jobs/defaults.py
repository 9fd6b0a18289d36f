"""What a request leaves open, chosen without looking at data: docs/jobs.md, "Defaults"."""

from stream_dp.jobs.calibrated import MOST_ITEMS
from stream_dp.jobs.request import JobName

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
    return f"gumbel up to k = {MOST_BY_GUMBEL}, then gaussian" if job == "top-k" else default_mechanism(job)


def default_mechanism(job: JobName, k: int = 1) -> str:
    """The mechanism of a job that names none; `k` is that of a top-k."""
    chosen = "gumbel" if k <= MOST_BY_GUMBEL else "gaussian"
    return {
        "top-k": chosen,
        "set-union": "policy-gaussian",
        "histogram": "gaussian",
        "label-votes": "stable",
    }[job]
