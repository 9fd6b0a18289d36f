"""The engine that forgets gives, bit for bit, what a mechanism gives that remembers every event and every cell."""

import random
from copy import deepcopy

import numpy as np
import pytest

from stream_dp.counters.blt import BltMechanism
from stream_dp.counters.protocol import EpochParameters, Hits
from stream_dp.counters.window import WindowMechanism
from stream_dp.engine.histogram import HistogramState
from stream_dp.engine.window_histogram import WindowHistogram as Engine
from stream_dp.privacy.keyed_noise import EMPTY_HISTORY, KeyedNoise
from tests.engine.window_histogram import WindowHistogram

NONE = Hits(np.empty(0, np.int64), np.empty(0, np.int64))
LABELS = [f"label {number}" for number in range(30)]


class Blocks:
    """Keyed cells: in each block a blt counter of horizon W from its first round on, and a hash chain of its own.

    The heads of blocks before the last one are gone, unless `keeps`.
    """

    def __init__(self, mechanism: BltMechanism, keeps: bool = False) -> None:
        self.mechanism = mechanism
        self._keeps = keeps
        self._noise = KeyedNoise(b"k" * 32, "s", b"n" * 16)
        self._heads: dict[int, list[bytes]] = {}

    def close(self, number: int, items: list[str]) -> None:
        """Extend the chain of a round's block, which begins with the block's number."""
        block = number // self.mechanism.horizon
        if not self._keeps:
            self._heads.pop(block - 2, None)
        chain = self._heads.setdefault(block, [])
        last = chain[-1] if chain else EMPTY_HISTORY
        chain.append(self._noise.extend_histories(last, number + 1, [items])[0])

    def cell(self, block: int, place: int, label: str) -> int:
        ids = self._noise.label_ids([label.encode()])
        counter = self.mechanism.counter(self._noise)
        heads = self._heads[block][:place]
        return int(counter.advance(ids, heads, NONE, np.zeros(1, np.int64))[-1, 0])


def remembered(
    window: int, taus: list[int], log: list[list[str]], cells: dict[tuple[int, int, str], int]
) -> list[dict[str, int]]:
    """The design's text read aloud, with everything since the first round at hand."""
    found: list[dict[str, int]] = []
    passed: dict[str, int] = {}
    for number in range(len(log)):
        block, place = number // window, number % window + 1
        first = block * window
        shown = {}
        for label in LABELS:
            since = [r for r in range(first, number + 1) if label in log[r]]
            showings = [r for r in range(first, number) if label in found[r]]
            carried = label in passed and number < passed[label] + window
            noisy = sum(log[r].count(label) for r in range(first, number + 1)) + cells[block, place, label]
            if (since or showings or carried) and noisy >= taus[place - 1]:
                passed[label] = number
            if label in passed and number < passed[label] + window:
                true = sum(each.count(label) for each in log[max(0, number - window + 1) : number + 1])
                noise = cells[block, place, label]
                if block:
                    noise += cells[block - 1, window, label] - cells[block - 1, place, label]
                shown[label] = true + noise
        found.append(shown)
    return found


@pytest.mark.parametrize("window", [1, 2, 5])
def test_forgetting_changes_no_bit(window: int) -> None:
    mechanism = BltMechanism.of(EpochParameters(window, 1, 0.3), 2.0)
    taus = [int(tau) for tau in mechanism.taus(np.arange(1, window + 1))]
    chance = random.Random(7)
    log = [
        [chance.choice(LABELS[number // 10 : number // 10 + 5]) for _ in range(chance.choice([0, 1, 6]))]
        for number in range(24 * window)
    ]
    blocks, everything = Blocks(mechanism), Blocks(mechanism, keeps=True)
    engine = WindowHistogram(window, taus, blocks.cell)
    released = []
    for number, items in enumerate(log):
        blocks.close(number, items)
        everything.close(number, items)
        released.append(engine.advance(items))
    cells = {
        (number // window, number % window + 1, label): everything.cell(
            number // window, number % window + 1, label
        )
        for number in range(len(log))
        for label in LABELS
    }
    expected = remembered(window, taus, log, cells)
    assert released == expected
    assert any(released)
    gone = {label for each in released for label in each} - set(released[-1])
    assert gone, "some were shown and are not any more"
    for _ in range(2 * window + window):
        blocks.close(number := number + 1, [])
        engine.advance([])
    assert len(engine) <= len(released[-1])


def drifting(window: int, rounds: int) -> list[list[str]]:
    """Labels that come, go and return; some rounds have none."""
    chance = random.Random(window)
    found = []
    for number in range(rounds):
        alive = LABELS[number // (2 * window) % 20 :][:8]
        found.append([chance.choice(alive) for _ in range(chance.choice([0, 1, 2, 9]))])
    return found


def engine_of(window: int, state: HistogramState | None = None) -> Engine:
    return Engine(
        WindowMechanism.of(EpochParameters(window, 1, 0.3), 2.0), KeyedNoise(b"k" * 32, "s", b"n" * 16), state
    )


def snapshots(engine: Engine, rounds: list[list[str]]) -> list[dict[str, int]]:
    return [dict(zip(each.labels, each.counts.tolist(), strict=True)) for each in engine.observe(rounds)]


@pytest.mark.parametrize("window", [1, 2, 3, 7, 16])
def test_the_engine_gives_what_the_plain_reference_gives(window: int) -> None:
    log = drifting(window, 20 * window)
    mechanism = WindowMechanism.of(EpochParameters(window, 1, 0.3), 2.0)
    taus = [int(tau) for tau in mechanism.block.taus(np.arange(1, window + 1))]
    blocks = Blocks(mechanism.block)
    reference = WindowHistogram(window, taus, blocks.cell)
    expected = []
    for number, items in enumerate(log):
        blocks.close(number, items)
        expected.append(reference.advance(items))
    assert snapshots(engine_of(window), log) == expected
    assert any(expected)
    chance = random.Random(3)
    cut, engine = 0, engine_of(window)
    pieces: list[dict[str, int]] = []
    while cut < len(log):
        size = chance.randint(1, 2 * window + 1)
        pieces += snapshots(engine, log[cut : cut + size])
        cut += size
        engine = engine_of(window, deepcopy(engine.state()))
        [again] = engine.last_release().snapshots()
        assert dict(zip(again.labels, again.counts.tolist(), strict=True)) == pieces[-1]
    assert pieces == expected


def test_what_cannot_be_seen_any_more_is_forgotten() -> None:
    engine = engine_of(4)
    for number in range(50):
        engine.observe([[f"once {number} {i}"] * 3 for i in range(8)])
        state = engine.state()
        assert len(state.labels) <= 16 + 8 * 8
        assert sum(column.cells.nbytes for column in state.recent) <= 2 * 4 * 32 + 2 * 24 * 8 * 8
    engine.observe([[]] * 13)
    assert engine.state().labels == []
