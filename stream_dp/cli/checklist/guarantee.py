"""Whether this machine draws the right noise, and what the privacy settings mean."""

from stream_dp.cli.checklist.finding import Finding
from stream_dp.config.settings import Settings, SettingsError
from stream_dp.counters.golden import check_golden_noise
from stream_dp.engine.epoch import Epoch, EpochRefused
from stream_dp.engine.known_labels import read_list
from stream_dp.planning.comparison import name_of, seen_with_each
from stream_dp.privacy.keyed_noise import WrongNoise, check_golden_draw

_SEEN = {
    "kept": "a label with {} evenly spread events is shown by the last round, in 95% of cases or more",
    "window": "a label with {} events, evenly spread over a window, is shown at its end in 95% of cases or more",
    "each-round": "a round picked at random shows a label with {} events in 95% of cases",
}


def noise(settings: Settings) -> Finding:
    """Whether the noise of the configured counter is what it is everywhere."""
    try:
        check_golden_draw()
        check_golden_noise(settings.mechanism)
    except WrongNoise as error:
        return Finding("noise", "failed", str(error))
    return Finding("noise", "ok", "this machine draws the same noise as every other")


def guarantee(settings: Settings) -> Finding:
    """Whether the privacy settings can be kept, and what they mean for a count."""
    try:
        Epoch.open(settings, 1, 0, known=read_list(settings.known_labels))
    except (EpochRefused, SettingsError) as error:
        return Finding("guarantee", "failed", str(error))
    seen = {each.name: each.seen_mostly for each in seen_with_each(settings)}
    own = seen[name_of(settings)]
    better = ", ".join(f"{count:,} with {name}" for name, count in seen.items() if count < own)
    length = (
        f"all windows of {settings.window:,} rounds" if settings.window else f"{settings.horizon:,} rounds"
    )
    return Finding(
        "guarantee",
        "ok",
        f"epsilon {settings.epsilon:g}, delta {settings.delta:g} over {length} with "
        f"{name_of(settings)}: {_SEEN['window' if settings.window else settings.shown].format(f'{own:,}')}"
        + (f"; at the same guarantee it takes {better}" if better else ""),
    )
