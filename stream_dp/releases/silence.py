"""Many rounds that show no label: perhaps the records are not what the stream takes for events.

It is told from the newest release alone, which everybody may read.
"""

from stream_dp.releases.release import Release

_DEVIATIONS = 4
_SURE = 80  # standard deviations of one draw: eight times the highest threshold


def rounds_without_label(release: Release) -> int:
    """How many rounds of the epoch have shown no label, if a label of every round would be shown by now; else 0.

    Only where labels stay shown does one release tell it of all rounds before.
    """
    expected = (
        release.round >= (release.tau or 0) + _DEVIATIONS * release.sd
        if release.found is None
        else _tests_would_have_found(release)
    )
    return release.round if expected and release.shown == "kept" and not release.labels else 0


def _tests_would_have_found(release: Release) -> bool:
    """A release names a threshold in test rounds alone: all are far below this, and a test has come before."""
    return release.round >= _SURE * (release.test_draw_sd or 0.0)


def silence(release: Release) -> str | None:
    """The sentence for people; None where there is nothing strange."""
    rounds = rounds_without_label(release)
    if not rounds:
        return None
    return f"{rounds:,} rounds without a label: records may not match the mapping; see dead letters"
