"""How the counts of a stream grew: a bounded choice of its releases, the most precise ones.

Kept are the rounds that are multiples of a power of two, and that power doubles when they become too many.
Multiples of high powers of two have few binary ones and therefore little noise (docs/releases.md), and the
choice depends on the round alone: who starts later or starts again keeps the same ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from stream_dp.records import Release

MOST_SAMPLES = 128
MOST_LABELS = 2_000
"""Of one release, so many of the largest counts are kept."""


@dataclass(frozen=True)
class Sample:
    """One release of the past: its largest counts by label."""

    round: int
    ts: str
    sd: float
    tau: int
    counts: dict[str, int]


class History:
    """At most `MOST_SAMPLES` releases of one epoch, at multiples of `stride`."""

    def __init__(self) -> None:
        self.stride = 1
        self._samples: dict[int, Sample] = {}
        self._texts: dict[str, str] = {}  # one copy of each label, however many samples hold it

    def __len__(self) -> int:
        return len(self._samples)

    @property
    def last(self) -> int:
        """The newest round kept, 0 for none."""
        return max(self._samples, default=0)

    def add(self, release: Release) -> bool:
        """Keep a whole release if its round is one of those to keep; whether it was."""
        while release.round // self.stride > MOST_SAMPLES:
            self._widen()
        if release.round % self.stride:
            return False
        texts = self._texts
        pairs = zip(release.labels[:MOST_LABELS], release.counts, strict=False)
        counts = {texts.setdefault(label, label): count for label, count in pairs}
        self._samples[release.round] = Sample(release.round, release.ts, release.sd, release.tau, counts)
        return True

    def missing(self, newest: int) -> list[int]:
        """The rounds up to `newest` that should be kept and are not, newest first."""
        stride = self.stride
        while newest // stride > MOST_SAMPLES:
            stride *= 2
        return [
            number for number in range(newest // stride * stride, 0, -stride) if number not in self._samples
        ]

    def series(self, labels: Sequence[str]) -> dict[str, Any]:
        """The kept counts of these labels as columns, oldest first; None where a label was not released."""
        samples = [self._samples[number] for number in sorted(self._samples)]
        return {
            "rounds": [sample.round for sample in samples],
            "ts": [sample.ts for sample in samples],
            "sd": [sample.sd for sample in samples],
            "tau": [sample.tau for sample in samples],
            "series": [
                {"label": label, "counts": [sample.counts.get(label) for sample in samples]}
                for label in labels
            ],
        }

    def _widen(self) -> None:
        self.stride *= 2
        self._samples = {
            number: sample for number, sample in self._samples.items() if not number % self.stride
        }
        self._texts = {label: label for sample in self._samples.values() for label in sample.counts}
