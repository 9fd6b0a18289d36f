"""Writes releases as bytes: whole blocks of rounds at once, from the columns that the histogram gives."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_dp.config.times import LATEST_TIMESTAMP
from stream_dp.counters.calibration import Guarantee
from stream_dp.counters.discovery import DiscoveryMechanism
from stream_dp.counters.protocol import CalibratedCounter
from stream_dp.counters.window import WindowMechanism
from stream_dp.engine.known_labels import NOTHING_KNOWN, KnownLabels
from stream_dp.engine.released_block import ReleasedBlock
from stream_dp.privacy.release_tags import ReleaseTags
from stream_dp.releases.noise_fields import cell_fields, fields, known_sds, noise_fields
from stream_dp.releases.part_encoder import PartEncoder
from stream_dp.releases.release import VERSION

_DIGITS = 3  # of the standard deviations of totals, after the point


class ReleaseEncoder:
    """Writes the releases of one epoch.  Equal snapshots and timestamps give equal bytes, however cut into blocks."""

    def __init__(
        self,
        stream: str,
        epoch: int,
        nonce: bytes,
        mechanism: CalibratedCounter,
        guarantee: Guarantee,
        tags: ReleaseTags,
        known: KnownLabels = NOTHING_KNOWN,
    ) -> None:
        """`known`: what the epoch knew of labels when it began."""
        self._totals = _Totals(epoch, known)
        self._tags = tags
        self._mechanism = mechanism
        self._parts = PartEncoder()
        frozen = {
            "unit": guarantee.unit,
            "mechanism": mechanism.name,
            "epsilon": guarantee.epsilon,
            "delta": guarantee.delta,
            "rho": guarantee.rho,
            "items_per_event": mechanism.items_per_event,
            "shown": mechanism.shown,
        }
        if guarantee.unit != "event":
            frozen["items_per_user"] = mechanism.items_per_event
        if isinstance(mechanism, DiscoveryMechanism):
            frozen |= {
                "at_least": mechanism.at_least,
                "draw_sd": mechanism.counts.draw_sd,
                "test_draw_sd": mechanism.test_sd,
            }
        self._epoch = fields({"v": VERSION, "stream": stream, "epoch": epoch, "nonce": nonce.hex()})
        self._length = fields(
            {"window": mechanism.window}
            if isinstance(mechanism, WindowMechanism)
            else {"horizon": mechanism.horizon}
        )
        self._promise = fields(frozen)

    def encode(self, block: ReleasedBlock, timestamps: Sequence[int], previous: int = 0) -> list[list[bytes]]:
        """The parts of each round's release; its round `rounds[i]` was closed at `timestamps[i]`.

        `previous`: the round that was released before the first of them, 0 if there was none.
        """
        rounds = block.rounds
        noise = noise_fields(self._mechanism, block)
        openings = [
            f'{{{self._epoch},"round":{number},{self._length},"ts":"{timestamp}Z",{proof}'
            f"{self._promise},{noise_fields}{total_sds}{cells}".encode()
            for number, timestamp, proof, noise_fields, total_sds, cells in zip(
                rounds.tolist(),
                without_zone(timestamps),
                self._proofs(block, previous),
                noise,
                self._totals.sds(self._mechanism, rounds),
                cell_fields(self._mechanism, block),
                strict=True,
            )
        ]
        of_labels, of_counts = self._totals.columns(block)
        if block.found is not None:
            of_labels = {"found": block.found, **of_labels}
        return self._parts.encode(block, openings, of_labels, of_counts)

    def _proofs(self, block: ReleasedBlock, previous: int) -> list[str]:
        """The fields of each release that link it to the one before and to the log."""
        rounds = block.rounds.tolist()
        tags = self._tags.tags(rounds, block.heads)
        before = [previous, *rounds]  # the last one is before what follows
        return [f'"previous":{each},"tag":"{tag}",' for each, tag in zip(before, tags, strict=False)]


def without_zone(timestamps: Sequence[int]) -> list[str]:
    """Each as `iso_timestamp` writes it, but for the Z at its end."""
    inside = np.array(timestamps, np.int64).clip(0, LATEST_TIMESTAMP)
    texts: list[str] = np.datetime_as_string(inside.astype("datetime64[ms]")).tolist()
    return texts


class _Totals:
    """What releases say of epochs before their own, and of labels that were known before it began."""

    def __init__(self, epoch: int, known: KnownLabels) -> None:
        self._epoch, self._known = epoch, known
        self._before = dict(zip(known.labels, zip(known.totals, known.since, strict=True), strict=True))
        self._labels: NDArray[np.object_] | None = None
        self._totals = self._since = np.empty(0, np.int64)

    def sds(self, mechanism: CalibratedCounter, rounds: NDArray[np.int64]) -> list[str]:
        """The field `total_sds` of each round, behind a comma: the largest that a total since that epoch can have."""
        variances = {**self._known.variances, self._epoch: 0.0} if self._known.variances else {}
        if not variances:
            return [""] * len(rounds)
        known, new = known_sds(mechanism, rounds) ** 2, mechanism.sds(rounds) ** 2
        columns = [before + (new if since == self._epoch else known) for since, before in variances.items()]
        found = np.sqrt(np.stack(columns, axis=1)).round(_DIGITS).tolist()
        names = [*map(str, variances)]
        return [f",{fields({'total_sds': dict(zip(names, row, strict=True))})}" for row in found]

    def columns(self, block: ReleasedBlock) -> tuple[dict[str, NDArray[Any]], dict[str, NDArray[Any]]]:
        """The columns beside the counts of a block: what a label has in all rounds, and what goes with its count."""
        if not self._known.labels:
            return {}, {}
        if block.labels is not self._labels:
            self._labels = block.labels
            known = [self._before.get(label, (0, self._epoch)) for label in block.labels.tolist()]
            pairs = np.array(known, np.int64).reshape(-1, 2)
            self._totals, self._since = pairs[:, 0], pairs[:, 1]
        totals = {"totals": self._totals + block.counts} if self._known.variances else {}
        return {"since": self._since}, totals
