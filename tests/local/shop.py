"""Events of a shop, and what a histogram releases from them."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import stream_dp
from stream_dp.releases.whole_release import WholeRelease

LOOSE: dict[str, Any] = {"epsilon": 30.0, "delta": 1e-2, "horizon": 1023, "items_per_event": 3}
"""Much is shown after few events."""

AT = datetime(2026, 1, 31, tzinfo=UTC)
EVENTS = [["tea", "milk"], ["tea"], ["tea", "bread"], ["milk", "tea"]] * 20


def released(events: Any, key: Path, **settings: Any) -> list[WholeRelease]:
    return list(stream_dp.run(events, LOOSE, key_file=key, **settings))


def shown(releases: list[WholeRelease]) -> list[dict[str, int]]:
    return [release.histogram for release in releases]
