"""How the counts of a stream grew: a bounded choice of its releases, one of each stretch of rounds.

A stretch goes from one multiple of a power of two to before the next one, and that power doubles when there are too
many.  The first release of each is kept: who starts later or starts again keeps the same ones.  Where all rounds are
released these are the multiples themselves, which with `mechanism = "binary"` have few binary ones and therefore little
noise (docs/releases.md).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from stream_dp.dashboard.answers import HistoryAnswer, LabelHistory
from stream_dp.releases.estimates.intervals import whole_intervals
from stream_dp.releases.release import Release

MOST_SAMPLES = 128
MOST_LABELS = 2_000
"""Of one release, so many of the largest counts are kept."""


@dataclass(frozen=True)
class Sample:
    """One release of the past: its largest counts by label, each with its 95% interval."""

    round: int
    ts: str
    sd: float
    tau: int | None
    counts: dict[str, tuple[int, int, int]]


class History:
    """At most `MOST_SAMPLES` releases of one epoch, one of each `stride` rounds; there is none of those before it."""

    def __init__(self) -> None:
        self.stride = 1
        self._samples: dict[int, Sample] = {}  # by round // stride
        self._texts: dict[str, str] = {}  # one copy of each label, however many samples hold it

    def __len__(self) -> int:
        return len(self._samples)

    @property
    def last(self) -> int:
        """The newest round kept, 0 for none."""
        return self._samples[max(self._samples)].round if self._samples else 0

    def add(self, release: Release) -> bool:
        """Keep a whole release if none before it in its stretch is known; whether it was."""
        while release.round // self.stride > MOST_SAMPLES:
            self._widen()
        stretch = release.round // self.stride
        known = self._samples.get(stretch)
        if stretch == 0 or (known is not None and known.round <= release.round):
            return False
        texts, release = self._texts, release.largest_first()
        columns = zip(release.labels[:MOST_LABELS], release.counts, *whole_intervals(release), strict=False)
        counts = {texts.setdefault(label, label): (count, low, high) for label, count, low, high in columns}
        self._samples[stretch] = Sample(release.round, release.ts, release.sd, release.tau, counts)
        return True

    def missing(self, since: int) -> list[int]:
        """Where to look for releases that should be kept, if all from the round `since` on were added as they came.

        These are the beginnings of stretches of which none is known, and of the one of `since`, whose first may not be;
        those that halve the stream before those that quarter it, so that who has little time gets some of everywhere.
        """
        stretches = range(1, max(self._samples, default=0) + 1)
        known = set(self._samples)
        joined = self._samples.get(since // self.stride)
        if joined is not None and joined.round % self.stride:
            known.remove(since // self.stride)
        found = (stretch * self.stride for stretch in stretches if stretch not in known)
        return sorted(found, key=lambda number: number & -number, reverse=True)

    def series(self, labels: Sequence[str]) -> HistoryAnswer:
        """The kept counts of these labels as columns, oldest first; None where a label was not released."""
        samples = [self._samples[stretch] for stretch in sorted(self._samples)]
        return HistoryAnswer(
            rounds=[sample.round for sample in samples],
            ts=[sample.ts for sample in samples],
            sd=[sample.sd for sample in samples],
            tau=[sample.tau for sample in samples],
            series=[_series(label, samples) for label in labels],
        )

    def _widen(self) -> None:
        self.stride *= 2
        samples, self._samples = self._samples, {}
        for stretch in sorted(samples):
            if stretch > 1:
                self._samples.setdefault(stretch // 2, samples[stretch])
        self._texts = {label: label for sample in self._samples.values() for label in sample.counts}


def _series(label: str, samples: Sequence[Sample]) -> LabelHistory:
    found = [sample.counts.get(label, (None, None, None)) for sample in samples]
    counts, low, high = ([each[place] for each in found] for place in range(3))
    return LabelHistory(label, counts, low, high)
