"""The totals of a release, as the page receives them."""

from typing import Any

from stream_dp.releases.release import Release
from stream_dp.releases.totals import totals_carried


def told_totals(release: Release) -> dict[str, Any]:
    """`totals`, `total_margins` and `since` by label, in the order of the release; null where nothing is carried on.

    A margin is half of a 95% interval, rounded up.
    """
    found = totals_carried(release)
    return {
        "totals": None if found is None else [each.count for each in found],
        "total_margins": None if found is None else [each.margin for each in found],
        "since": None if found is None else [each.since for each in found],
    }
