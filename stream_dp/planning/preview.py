"""What people would see of a log that everybody may see: the true mechanism, run with keys that are thrown away.

Nothing here is a release.  A preview is compared with the true counts and is run again and again over the same events,
so on private data its output has no guarantee at all.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from math import inf
from statistics import fmean, median

import numpy as np
from numpy.typing import NDArray

from stream_dp.counters.protocol import CalibratedCounter
from stream_dp.engine.counting import histogram_of
from stream_dp.engine.histogram import HistogramState
from stream_dp.engine.released_block import ReleasedBlock
from stream_dp.events.bounding import EventBound, UserBound
from stream_dp.events.event import BadRecord, Event
from stream_dp.events.mapping.decoder import Decoder, decoder_of
from stream_dp.events.record import Record
from stream_dp.privacy.composition import Unit
from stream_dp.privacy.keyed_noise import KEY_BYTES, NONCE_BYTES, KeyedNoise, new_key, new_nonce

TOP = (10, 50, 100)
"""Recall is told of so many of the most frequent labels."""


def throw_away_noise() -> KeyedNoise:
    """Noise of a key that nobody keeps."""
    return KeyedNoise(new_key(), "preview", new_nonce())


@dataclass(frozen=True)
class PublicLog:
    """Events in the order of their rounds, and the true count of each label, most frequent first.

    A count is the number of events that hold the label, or where the unit is the user, of users.
    """

    events: list[Event]
    counts: dict[str, int]
    unit: Unit = "event"

    @classmethod
    def of(cls, records: Iterable[bytes | None], unit: Unit = "event") -> "PublicLog":
        """From the values of records in our own format; see `of_events`."""
        return cls.of_events(
            (decoded(Record(0, 0, None, record), decoder_of(None)) for record in records), unit
        )

    @classmethod
    def of_events(cls, found: Iterable[Event], unit: Unit = "event") -> "PublicLog":
        """From events; one of which nothing can be counted closes its round like an empty event."""
        events = list(found)
        if unit == "user":
            held = {
                (event.user, label) for event in events if event.user is not None for label in event.items
            }
            counts = Counter(label for _, label in held)
        else:
            counts = Counter(label for event in events for label in set(event.items))
        return cls(events, dict(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))), unit)

    def admitted(self, items: int) -> list[list[str]]:
        """What each round may count, where so many items of an event, or of a user, do."""
        bound = (
            UserBound(items, bytes(KEY_BYTES), bytes(NONCE_BYTES))
            if self.unit == "user"
            else EventBound(items)
        )
        return [bound.admit(event) if self.unit == "event" or event.user else [] for event in self.events]

    def counted(self, items: int) -> float:
        """The part of all true counts that is counted at all; the rest is beyond the limit of events, or of users."""
        return sum(map(len, self.admitted(items))) / max(1, sum(self.counts.values()))

    def last(self, rounds: int) -> "PublicLog":
        """The last so many events alone, which is what a window counts."""
        return PublicLog.of_events(self.events[-rounds:], self.unit)

    def top(self, size: int) -> list[str]:
        """The most frequent labels, ties in label order; fewer where there are fewer."""
        return list(islice(self.counts, size))


@dataclass(frozen=True)
class Run:
    """One run: the labels and counts shown in the last round, how many labels each round showed, and since when.

    `sizes` has shape (rounds,); `first` holds the first round of every label that any round showed.
    """

    shown: dict[str, int]
    sizes: NDArray[np.int64]
    first: dict[str, int]


@dataclass(frozen=True)
class Seen:
    """What several runs of one mechanism showed: means over the runs, and of times the median.

    `labels`: shown after the last event; `ever`: shown in any round; `recall`: by k, the part of the true top k that is
    shown after the last event; `relative_error`: median over the shown labels of the true top 100, None if there are
    none; `first_label`: the first round that showed any label; `first_top`: the median over the true top 10 of the
    first round that showed each, None for never.
    """

    labels: float
    ever: float
    recall: dict[int, float]
    relative_error: float | None
    first_label: float | None
    first_top: float | None


def run(
    log: PublicLog,
    mechanism: CalibratedCounter,
    noise: KeyedNoise,
    progress: Callable[[int], object] = lambda rounds: None,
    known: Sequence[str] = (),
) -> Run:
    """Run the mechanism over the whole log, one event a round; `progress` is told how many more rounds were closed.

    Labels that are `known` are shown from the first round on.  Raises `HorizonReached` where the log has more events
    than the mechanism's horizon.
    """
    state = HistogramState.before_any_round(known, shown=True)
    histogram = histogram_of(mechanism, noise, state)
    first: dict[str, int] = {}
    sizes, shown = [], dict[str, int]()
    for block in histogram.blocks(log.admitted(mechanism.items_per_event)):
        _take_first(block, first)
        sizes.append(block.sizes)
        last = block.places(len(block.sizes) - 1)
        shown = dict(zip(block.labels[last].tolist(), block.counts[-1, last].tolist(), strict=True))
        progress(len(block.sizes))
    return Run(shown, np.concatenate(sizes) if sizes else np.empty(0, np.int64), first)


def seen(log: PublicLog, runs: Sequence[Run]) -> Seen:
    """What the runs showed, compared with the truth."""
    errors = [error for each in runs if (error := _relative_error(log, each)) is not None]
    return Seen(
        fmean(len(each.shown) for each in runs),
        fmean(len(each.first) for each in runs),
        {size: fmean(_recall(log.top(size), each) for each in runs) for size in TOP},
        fmean(errors) if errors else None,
        _finite(median(min(each.first.values(), default=inf) for each in runs)),
        _finite(median(_first_top(log, each) for each in runs)),
    )


def decoded(record: Record, decode: Decoder) -> Event:
    """What a record counts as: an empty event if it is none."""
    try:
        return decode(record)
    except BadRecord:
        return Event([])


def _take_first(block: ReleasedBlock, first: dict[str, int]) -> None:
    """Note the labels that this block shows for the first time, each with its round."""
    rows, places = block.cells()
    for place, at in zip(*np.unique(places, return_index=True), strict=True):
        first.setdefault(block.labels[place], int(block.rounds[rows[at]]))


def _recall(top: list[str], each: Run) -> float:
    return sum(label in each.shown for label in top) / max(1, len(top))


def _relative_error(log: PublicLog, each: Run) -> float | None:
    shown = [label for label in log.top(100) if label in each.shown]
    if not shown:
        return None
    return median(abs(each.shown[label] - log.counts[label]) / log.counts[label] for label in shown)


def _first_top(log: PublicLog, each: Run) -> float:
    return median([each.first.get(label, inf) for label in log.top(10)] or [inf])


def _finite(value: float) -> float | None:
    return None if value == inf else value
