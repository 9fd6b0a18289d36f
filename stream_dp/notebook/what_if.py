"""Settings tried on PUBLIC events in a notebook, as `stream-dp preview` tries them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np
import orjson
from starlette.concurrency import run_in_threadpool

from stream_dp.counters import COMPARED
from stream_dp.errors import Refused
from stream_dp.local.events import Event, each_event, record_value
from stream_dp.notebook.page import OWN, document
from stream_dp.notebook.widget import PageWidget
from stream_dp.planning.comparison import calibrate_each, counters_asked
from stream_dp.planning.preview import PublicLog, run, throw_away_noise
from stream_dp.privacy.composition import Unit
from stream_dp.privacy.wording import for_viewers

LABELS = 25
"""The most frequent labels are shown, so many of them."""

_NORMAL_95 = 1.96
_DELTA = 1e-6


def what_if(
    events: Iterable[Event],
    *,
    public: bool,
    unit: Unit = "event",
    delta: float = _DELTA,
    height: int = 780,
) -> WhatIf:
    """A widget that tries settings on PUBLIC events: epsilon, horizon, items and mechanism.

        stream_dp.what_if(flights, public=True)

    It shows the counts that a stream would show after the last event beside the true ones.  `events` are given as to
    `stream_dp.run`, one a round.  `public=True` says that everybody may see them and whatever is computed of them: on
    private data this has no guarantee at all.

    Raises `Refused` without it, and for events that hold nothing to count.
    """
    if public is not True:
        raise Refused(
            "on private data a what-if has no guarantee at all: say public=True if everybody may see these events"
        )
    log = PublicLog.of((record_value(event) for event in each_event(events)), unit)
    if not log.counts:
        raise Refused(f"no event holds anything to count: give items{' and users' if unit == 'user' else ''}")
    return WhatIf(log, delta, height)


@dataclass(frozen=True)
class Tried:
    """What one run of the settings showed, beside the truth; intervals are those of 95% of the noise.

    `rows` are the most frequent labels with their true count, and the count that was shown, None where none was.
    `recall` is the part of the 10 most frequent labels that is shown, and `first` the first round that showed any.
    """

    rows: list[tuple[str, int, int | None]]
    margin: int
    sd: float
    tau: int
    labels: int
    all_labels: int
    recall: float
    first: int | None
    counted: float
    protects: str


class WhatIf(PageWidget):
    """What `what_if` returns: display it.  `tried` gives the numbers without a picture."""

    def __init__(self, log: PublicLog, delta: float, height: int) -> None:
        self._log = log
        self._delta = delta
        self._least_horizon = 2 ** len(log.events).bit_length() - 1
        query = [("events", str(len(log.events))), ("unit", log.unit)]
        query += [("horizon", str(each)) for each in self.horizons]
        query += [("mechanism", each) for each in COMPARED]
        super().__init__(
            document(OWN / "what_if.html", query), "What if: settings tried on public events", height
        )

    @property
    def horizons(self) -> list[int]:
        """Those that the widget offers: the least 2^k - 1 that holds the events, and larger ones."""
        return [(self._least_horizon + 1) * 4**step - 1 for step in range(4)]

    def tried(
        self,
        epsilon: float = 1.0,
        *,
        horizon: int | None = None,
        items: int = 1,
        mechanism: str = "blt",
        discover: str = "default",
    ) -> Tried:
        """Run the settings once, with a noise key that is thrown away.  Raises `Refused` for those that cannot be."""
        log, rounds = self._log, len(self._log.events)
        names, [length] = counters_asked(
            mechanism, discover if mechanism == "blt" else None, None, [horizon or self._least_horizon]
        )
        [(counter, _)], _ = calibrate_each(epsilon, self._delta, length, items, names, log.unit)
        if counter.horizon < rounds:
            raise Refused(f"the horizon must hold all {rounds:,} events")
        seen = run(log, counter, throw_away_noise())
        last = np.array([rounds])
        sd = float(counter.sds(last)[0])
        return Tried(
            rows=[(label, log.counts[label], seen.shown.get(label)) for label in log.top(LABELS)],
            margin=int(np.ceil(_NORMAL_95 * sd)),
            sd=sd,
            tau=int(counter.taus(last)[0]),
            labels=len(seen.shown),
            all_labels=len(log.counts),
            recall=sum(label in seen.shown for label in log.top(10)) / len(log.top(10)),
            first=min(seen.first.values(), default=None),
            counted=log.counted(items),
            protects=for_viewers(log.unit, epsilon, self._delta),
        )

    async def answer(self, question: str) -> tuple[int, str]:
        """`try?epsilon=1&horizon=65535&items=3&mechanism=blt&discover=default`."""
        try:
            asked = {name: values[0] for name, values in parse_qs(urlsplit(question).query).items()}
            found = await run_in_threadpool(
                self.tried,
                float(asked["epsilon"]),
                horizon=int(asked["horizon"]),
                items=int(asked["items"]),
                mechanism=asked["mechanism"],
                discover=asked.get("discover", "default"),
            )
        except (KeyError, ValueError, Refused) as mistake:
            return 400, orjson.dumps({"error": str(mistake)}).decode()
        return 200, orjson.dumps(found).decode()

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """The widget, and for whoever cannot show it a sentence."""
        bundle = super()._repr_mimebundle_(**kwargs)
        if bundle is None:
            return None
        found = self.tried()
        told = (
            f"<p>With epsilon 1, {found.labels:,} of {found.all_labels:,} labels are shown after "
            f"{len(self._log.events):,} events, each within ± {found.margin:,} of its true count 95% of the time.</p>"
        )
        data, metadata = bundle
        return data | {"text/html": told}, metadata
