"""The guarantee of a release in one sentence, with the unit that it protects."""

from math import exp

from stream_dp.releases.release import Release

_UNMETERED = (
    " UNMETERED: the data source had no budget when this epoch was opened, so nothing bounds what all releases from it "
    "reveal together."
)


def promise(release: Release, unmetered: bool = False) -> str:
    """What the epoch of this release promises, for people; `unmetered`: whether its source had no budget."""
    items = f"{release.items_per_event:,} label{'s' if release.items_per_event > 1 else ''}"
    whom = {
        "event": f"any one event, with up to {items},",
        "user": f"any one user, with up to {items} and in all of their events,",
    }.get(release.unit, f"any one {release.unit}")
    times = f" (about {exp(release.epsilon):,.1f})" if release.epsilon < 10 else ""
    delta = f"{release.delta:g}".replace("e-0", "e-")
    return (
        f"Whether {whom} is in the stream changes how likely anything is that all {release.horizon:,} rounds "
        f"together may show by at most a factor of e^{release.epsilon:g}{times}, except with probability {delta}."
    ) + (_UNMETERED if unmetered else "")
