"""Many independent runs of the running histogram in one: every replica is a group of labels of its own.

Why this is the real mechanism, many times.  A released count of a label is its own admitted events, plus noise that is
AES of the label's identity and the round, compared with a threshold that depends on the round alone.  So what is
released about one group of labels depends on events only through the group's own items, and noise of different
labels is independent.  A stream whose every event holds the same items once per replica, under names of the replica's
own, therefore shows as many independent runs of the stream with one replica.  Two things are changed for it, neither
of which touches a count, a noise draw or a threshold: the bound on the items of an event holds per replica (a replica's
event that exceeds the mechanism's D0 is refused here), and all replicas share a hash chain, which enters all noise of a
round alike.  A test compares such a run with single runs on the same bits.

Replicas come in blocks, each under an epoch nonce of its own.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from stream_dp.counters.protocol import CalibratedCounter
from stream_dp.engine.histogram import HistogramState, RunningHistogram
from stream_dp.engine.released_block import ReleasedBlock
from stream_dp.privacy.keyed_noise import NONCE_BYTES, KeyedNoise

Situation = Mapping[int, Sequence[int]]
"""The stream of one replica: round -> the items of its event, numbered from 0; other rounds hold empty events."""

_LABELS_AT_ONCE = 1 << 14

Counts = NDArray[np.int32]


@dataclass(frozen=True)
class Releases:
    """`counts` (int32) and `shown` (bool) of shape (rounds, replicas, items); counts are 0 where nothing is shown."""

    counts: Counts
    shown: NDArray[np.bool_]


def noise_of(key: bytes, block: int) -> KeyedNoise:
    """The noise of one block of replicas."""
    return KeyedNoise(key, "audit", blake2b(b"%d" % block, digest_size=NONCE_BYTES).digest())


def replicas(
    mechanism: CalibratedCounter,
    situation: Situation,
    items: int,
    runs: int,
    key: bytes,
    *,
    known: Sequence[int] = (),
    shown_at_once: bool = False,
) -> Releases:
    """All releases of `runs` streams of the whole horizon, each over items 0 .. `items` - 1.

    Items in `known` are labels from before the first round on, without a count; `shown_at_once`: where labels are
    kept, these are, from the first round on.
    """
    if any(len(event) > mechanism.items_per_event for event in situation.values()):
        raise ValueError(f"an event of a replica holds more than {mechanism.items_per_event} items")
    size = max(1, _LABELS_AT_ONCE // items)
    shape = (mechanism.horizon, runs, items)
    releases = Releases(np.zeros(shape, np.int32), np.zeros(shape, bool))
    for block, start in enumerate(range(0, runs, size)):
        end = min(start + size, runs)
        shown, counts = run_block(
            mechanism, situation, items, end - start, noise_of(key, block), known, shown_at_once
        )
        releases.shown[:, start:end], releases.counts[:, start:end] = shown, counts
    return releases


def run_block(
    mechanism: CalibratedCounter,
    situation: Situation,
    items: int,
    runs: int,
    noise: KeyedNoise,
    known: Sequence[int] = (),
    shown_at_once: bool = False,
) -> tuple[NDArray[np.bool_], Counts]:
    """One real histogram over all labels of `runs` replicas: `shown` and `counts`, shape (rounds, runs, items)."""
    labels = _labels(known, items, runs)
    state = HistogramState.before_any_round(labels, shown=shown_at_once)
    histogram = RunningHistogram(mechanism, noise, state)
    shape = (mechanism.horizon, runs * items)
    shown, counts = np.zeros(shape, bool), np.zeros(shape, np.int32)
    for block in _blocks(histogram, situation, items, runs):
        rows, places = block.cells()
        cells = np.array([int(label) for label in block.labels], np.int64)[places]
        numbers = block.rounds[rows] - 1
        shown[numbers, cells], counts[numbers, cells] = True, block.counts[rows, places]
    return shown.reshape(-1, runs, items), counts.reshape(-1, runs, items)


def _blocks(
    histogram: RunningHistogram, situation: Situation, items: int, runs: int
) -> Iterator[ReleasedBlock]:
    for round_number in range(1, histogram.mechanism.horizon + 1):
        yield histogram.observe_block([_labels(situation.get(round_number, ()), items, runs)])


def _labels(chosen: Sequence[int], items: int, runs: int) -> list[str]:
    """The names of the chosen items in all replicas: the number of the cell."""
    return [f"{run * items + item:08d}" for run in range(runs) for item in chosen]
