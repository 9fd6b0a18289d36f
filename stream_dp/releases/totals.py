"""What a release says about earlier epochs: totals that continue, each with its noise and since when it counts."""

from dataclasses import dataclass
from math import ceil

from stream_dp.releases.release import Release

_NORMAL_95 = 1.96


@dataclass(frozen=True, slots=True)
class Total:
    """The noisy count of a label over several epochs, from the beginning of epoch `since` on.

    `sd` is the standard deviation of its noise.  `since` is 0 for a label that a list names: its total misses nothing.
    """

    count: int
    sd: float
    since: int

    @property
    def margin(self) -> int:
        """Half of the 95% interval, rounded up."""
        return ceil(_NORMAL_95 * self.sd)


def totals_of(release: Release) -> list[Total]:
    """The totals of all labels, in the order of the release; without earlier epochs, the counts themselves.

    Raises ValueError where the release does not say how large their noise is.
    """
    since = release.since or [release.epoch] * len(release.labels)
    if release.totals is None:
        columns = zip(release.counts, release.label_sds, since, strict=True)
        return [Total(count, sd, first) for count, sd, first in columns]
    sds = release.total_sds or {}
    try:
        return [
            Total(total, sds[str(first)], first) for total, first in zip(release.totals, since, strict=True)
        ]
    except KeyError as missing:
        raise ValueError(f"the release does not tell the noise of totals since epoch {missing}") from None


def totals_carried(release: Release) -> list[Total] | None:
    """What is to be shown beside the counts: None where nothing is carried on, or the noise of totals is not told."""
    if release.totals is None:
        return None
    try:
        return totals_of(release)
    except ValueError:
        return None
