"""Feeding a counter the way the histogram does: blocks of rounds, and labels that come in the middle of one."""

from collections.abc import Sequence
from hashlib import blake2b
from itertools import pairwise
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from stream_dp.counters.protocol import Column, Counter, CounterState, Hits
from stream_dp.privacy.keyed_noise import KeyedNoise

Arrivals = tuple[int, list[int], list[int]]
"""Rounds, the round in which each label is first seen (in increasing order), and where blocks end."""


@st.composite
def arrivals(draw: st.DrawFn, most_rounds: int = 80, most_labels: int = 6) -> Arrivals:
    """Streams of up to `most_rounds` rounds."""
    rounds = draw(st.integers(1, most_rounds))
    some_rounds = st.lists(st.integers(1, rounds), max_size=8)
    first_seen = draw(st.lists(st.integers(1, rounds), min_size=1, max_size=most_labels))
    return rounds, sorted(first_seen), sorted({*draw(some_rounds), rounds})


def histories(first: int, last: int) -> list[bytes]:
    """Some history for each round, each its own."""
    return [blake2b(b"%d" % round_number, digest_size=32).digest() for round_number in range(first, last + 1)]


def ids(noise: KeyedNoise, labels: int) -> NDArray[np.uint64]:
    """The identities of labels 0, 1, ..."""
    return noise.label_ids(b"%d" % i for i in range(labels))


def feed(
    counter: Counter, identities: NDArray[np.uint64], first_seen: Sequence[int], cuts: Sequence[int]
) -> NDArray[np.int32]:
    """Go on to round cuts[-1] in blocks that end at `cuts`; a label's only hit is in the round it is first seen in.

    A label first seen in round 0 is known from the start.  Returns the noise, shape (rounds, labels), with 0 before a
    label is first seen.
    """
    start = counter.round
    seen = np.array(first_seen, np.int64)
    noise = np.zeros((cuts[-1] - start, len(seen)), np.int32)
    for before, last in pairwise([start, *cuts]):
        labels = int(np.searchsorted(seen, last, side="right"))
        new = np.arange(counter.labels, labels)
        hits = Hits(seen[new], new)
        block = counter.advance(identities[:labels], histories(before + 1, last), hits, seen[new])
        noise[before - start : last - start, :labels] = block
    noise[np.arange(start + 1, cuts[-1] + 1)[:, None] < seen] = 0
    return noise


def copied(state: CounterState) -> CounterState:
    """A state that the counter does not change any more."""
    columns = [Column(column.name, column.version, column.cells.copy()) for column in state.columns]
    return CounterState(state.round, columns, dict(state.tweaks))


def as_lists(state: CounterState) -> Any:
    """All of a state, the order of its columns included, in a form that compares."""
    columns = [(column.name, column.version, column.cells.tolist()) for column in state.columns]
    return state.round, columns, state.tweaks
