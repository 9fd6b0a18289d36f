"""Labels that are public before an epoch begins: those of a list, and those that the epoch before it showed at its end.

They are registered at round 0, so their noise is that of a label which is there from the beginning, whether or not an
event brings them.  They are shown from the first round on and never tested, so they cost no delta.  That is right only
for labels that do not come from the data: docs/guarantee.md.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Self

import msgspec
import numpy as np

from stream_dp.config.secret import SettingsError
from stream_dp.events.event import LONGEST_LABEL

MOST_LABELS = 1_000_000
LARGEST_FILE = 64 << 20
"""Bytes.  Every release holds every known label, so a list that is anywhere near either limit is a mistake."""

FROM_LIST = 0
"""Stands for an epoch where a label was first shown: it has been known since before any."""

LARGEST_PIECE = 800_000
"""About this many bytes of known labels, with the variances beside them, fit into one record."""

_DIGEST_BYTES, _BYTES_OF_NUMBERS = 16, 30  # the latter: a total and an epoch


class KnownLabels(msgspec.Struct, frozen=True, omit_defaults=True, dict=True):
    """What is known of the labels that an epoch shows from its first round on, in label order.

    `totals` are the sums of their last released counts in the epochs that this one carries on, and `since` the first of
    these epochs that showed each label, 0 for one of the list.  `variances` are those of the totals, by `since`; there
    are none where the epoch carries nothing on.  `listed` says which list was read, None for none.
    """

    labels: list[str]
    totals: list[int]
    since: list[int]
    variances: dict[int, float] = {}
    listed: str | None = None

    @classmethod
    def of_list(cls, labels: list[str]) -> Self:
        """The labels of a list, in the first epoch that uses it."""
        told = f"{len(labels):,} labels with the digest {_digest(msgspec.json.encode(labels))}"
        return cls(labels, [0] * len(labels), [FROM_LIST] * len(labels), listed=told)

    @cached_property
    def digest(self) -> str | None:
        """What an epoch freezes of it; None where no label is known."""
        return _digest(msgspec.json.encode(self)) if self.labels else None

    def carried_on(self, epoch: int, labels: list[str], counts: list[int], sds: list[float]) -> "KnownLabels":
        """What the next epoch knows, if `epoch`, which knew this, has ended with a release of these labels and counts.

        `sds` are the standard deviations of these counts.  Of labels with one `since` the largest variance is kept.
        """
        if not labels:
            return NOTHING_KNOWN
        before = dict(zip(self.labels, zip(self.totals, self.since, strict=True), strict=True))
        known = {
            label: (before.get(label, (0, epoch)), count) for label, count in zip(labels, counts, strict=True)
        }
        ordered = sorted(known)
        since = [known[label][0][1] for label in ordered]
        largest: dict[int, float] = {}
        for label, sd in zip(labels, sds, strict=True):
            first = known[label][0][1]
            largest[first] = max(largest.get(first, 0.0), sd**2)
        return KnownLabels(
            ordered,
            [known[label][0][0] + known[label][1] for label in ordered],
            since,
            {first: self.variances.get(first, 0.0) + largest[first] for first in sorted(set(since))},
            self.listed,
        )

    def with_list(self, listed: "KnownLabels", epoch: int) -> "KnownLabels":
        """What `epoch` knows that carries this on and reads a list, whose new labels count from its beginning."""
        if not self.labels:
            return listed
        carried = dict(zip(self.labels, zip(self.totals, self.since, strict=True), strict=True))
        rows = {**dict.fromkeys(listed.labels, (0, epoch)), **carried}
        labels = sorted(rows)
        totals, since = ([rows[label][column] for label in labels] for column in (0, 1))
        return KnownLabels(labels, totals, since, self.variances, listed.listed)


NOTHING_KNOWN = KnownLabels([], [], [])


def cut(known: KnownLabels) -> Iterator[KnownLabels]:
    """What is known, cut into pieces whose JSON is below Kafka's default limit of a message, in order."""
    sizes = np.array([len(msgspec.json.encode(label)) + _BYTES_OF_NUMBERS for label in known.labels])
    ends = np.cumsum(sizes)
    start = 0
    while start < len(ends):
        reach = LARGEST_PIECE + (int(ends[start - 1]) if start else 0)
        end = max(start + 1, int(ends.searchsorted(reach, "right")))
        yield KnownLabels(
            known.labels[start:end],
            known.totals[start:end],
            known.since[start:end],
            known.variances,
            known.listed,
        )
        start = end


def joined(pieces: Sequence[KnownLabels]) -> KnownLabels:
    """What was cut into `pieces`."""
    if not pieces:
        return NOTHING_KNOWN
    return KnownLabels(
        [label for piece in pieces for label in piece.labels],
        [total for piece in pieces for total in piece.totals],
        [since for piece in pieces for since in piece.since],
        pieces[0].variances,
        pieces[0].listed,
    )


def read_list(setting: str | None) -> KnownLabels:
    """The labels that the setting `known_labels` names: UTF-8, one a line, in any order.

    Empty lines and repeated labels count for nothing.  Raises `SettingsError`.
    """
    if setting is None:
        return NOTHING_KNOWN
    path = Path(setting.removeprefix("file:"))
    text = _text(path)
    found: set[str] = set()
    for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        label = line.removesuffix("\r")
        if len(label) > LONGEST_LABEL:
            raise SettingsError(
                f"line {number:,} of the known labels in {path} has more than {LONGEST_LABEL:,} characters, and no "
                "event may hold such a label: shorten it"
            )
        if label:
            found.add(label)
    if not found:
        raise SettingsError(
            f"the file {path} holds no known label: write one a line, or leave known_labels out"
        )
    if len(found) > MOST_LABELS:
        raise SettingsError(
            f"the file {path} holds {len(found):,} known labels, and every release would hold all of them: "
            f"{MOST_LABELS:,} are the most; list only those that you want to see whatever their counts"
        )
    return KnownLabels.of_list(sorted(found))


def _text(path: Path) -> str:
    try:
        if path.exists() and not path.is_file():
            raise SettingsError(f"cannot read the known labels from {path}: it is not a file")
        with path.open("rb") as file:
            held = file.read(LARGEST_FILE + 1)
        if len(held) > LARGEST_FILE:
            raise SettingsError(
                f"the known labels in {path} are more than {LARGEST_FILE:,} bytes: list fewer"
            )
        return held.decode()
    except UnicodeDecodeError as error:
        raise SettingsError(
            f"the known labels in {path} are not UTF-8 at byte {error.start:,}: save the file as UTF-8"
        ) from None
    except OSError as error:
        raise SettingsError(f"cannot read the known labels from {path}: {error.strerror}") from None


def _digest(text: bytes) -> str:
    return blake2b(text, digest_size=_DIGEST_BYTES).hexdigest()
