"""How long a new label may stay unseen, and what each answer costs."""

from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from stream_dp.config.settings import Settings, SettingsError
from stream_dp.counters.calibration import calibrate
from stream_dp.counters.discovery import DiscoveryMechanism
from stream_dp.counters.discovery_matrix import MOST_TESTS
from stream_dp.planning.comparison import seen_at_tests, visibility


class Delay(NamedTuple):
    """How many rounds a new label may stay unseen under this `discover`, and the count that is then seen at 95%."""

    discover: str
    rounds: int
    seen_mostly: int


def delays(settings: Settings) -> list[Delay]:
    """What it costs to look for labels more often, least often first, down to every round.

    Of ticks, after some times of the clock; of other rounds, as the default does, 8 and 64 times as often.
    """
    usual = delay_of(settings, "default")
    spans = ["every-1d", "default", "every-10m", "every-1m"]
    if settings.rounds != "ticks" and usual is not None:
        spans = ["default", *(f"every-{max(2, usual.rounds // factor)}" for factor in (8, 64))]
    found: list[Delay] = []
    for discover in (*spans, "every-round"):
        delay = delay_of(settings, discover)
        if delay is None or (found and delay.rounds > found[-1].rounds):
            continue
        if found and delay.rounds == found[-1].rounds:
            found[-1] = min(found[-1], delay, key=lambda each: each.seen_mostly)
        else:
            found.append(delay)
    return found


def delay_of(settings: Settings, discover: str) -> Delay | None:
    """What this `discover` costs a stream with these settings; None if it makes no test, or too many."""
    try:
        told = replace(settings, mechanism="blt", discover=discover)
    except SettingsError:
        return None
    tests = told.tests(told.horizon)
    if len(tests) > MOST_TESTS:
        return None
    asked = told.epsilon, told.delta, told.horizon, told.items_per_unit, "blt", told.unit, told.shown
    mechanism, guarantee = calibrate(*asked, tests, told.at_least, told.cap_share)
    if isinstance(mechanism, DiscoveryMechanism):
        seen = seen_at_tests(mechanism, guarantee)  # without the noise of every round, which takes long
    else:
        seen = visibility(mechanism, guarantee)
    return Delay(discover, int(np.diff([0, *tests]).max(initial=1)), seen.seen_mostly)
