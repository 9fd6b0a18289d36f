"""The guarantee of a release in one sentence, for specialists and for everybody."""

from stream_dp.privacy.wording import UNMETERED, for_viewers, in_words, unit_in_words
from stream_dp.releases.release import Release


def guarantee(release: Release, unmetered: bool = False) -> str:
    """What the epoch of this release guarantees, for people; `unmetered`: whether its source had no budget."""
    unit = unit_in_words(release.unit, release.items_per_event)
    every = "all rounds" if release.horizon is None else f"all {release.horizon:,} rounds"
    rounds = f"{every} together show"
    return in_words(unit, rounds, release.epsilon, release.delta) + (UNMETERED if unmetered else "")


def protects(release: Release) -> str:
    """The guarantee of a release for somebody who has never heard of epsilon."""
    return for_viewers(release.unit, release.epsilon, release.delta)
