"""What a round of windows takes here and now, of labels that are shown and of labels that are only tested.

A label is tested from its first event in a block on.  Its cells since the block began are computed then, so it takes
the same whenever that is.
"""

from math import ceil
from time import process_time
from typing import NamedTuple

from stream_dp.counters.calibration import Guarantee, calibrate
from stream_dp.counters.window import WindowMechanism
from stream_dp.engine.seen_labels import SeenLabels
from stream_dp.engine.window_histogram import WindowHistogram
from stream_dp.privacy.keyed_noise import KEY_BYTES, NONCE_BYTES, KeyedNoise
from stream_dp.privacy.release_tags import ReleaseTags
from stream_dp.releases.encoder import ReleaseEncoder

LARGEST_MEASURED = 1_024
"""The rounds of the largest window that is measured: a larger one takes little more a round."""

_SHOWN, _TESTED, _ITEMS = 1_000, 20_000, 33
_IN_EACH_ROUND = 400  # of those tested, at most
_TURN = 128  # rounds at least
_REPEATS = 4  # the least of so many is taken, after one to warm up
_FOR_EVER = 2**62


class WindowCosts(NamedTuple):
    """Processor seconds: of a round, of a shown and of another label in it, of an item, and what is added if its
    label was not met lately.
    """

    round: float
    visible: float
    drawn: float
    item: float
    unmet: float


def measure_window_costs(window: int) -> WindowCosts:
    """Of windows of so many rounds."""
    mechanism, guarantee = calibrate(1.0, 1e-6, min(window, LARGEST_MEASURED), 4, "window")
    assert isinstance(mechanism, WindowMechanism)
    in_each_round = min(_IN_EACH_ROUND, ceil(_TESTED / mechanism.window))
    tested = in_each_round * mechanism.window
    found = []
    for labels, shown, items in (
        (1, 0, 1),
        (_SHOWN, _SHOWN, 1),
        (tested, 0, in_each_round),
        (_ITEMS, 0, _ITEMS),
    ):
        found.append(seconds_per_round(mechanism, guarantee, labels, shown, items))
    bare, with_shown, with_tested, with_items = found
    both = max(0.0, with_items - bare) / (_ITEMS - 1)  # an item, and its label
    of_round = max(0.0, bare - both)
    others = tested - in_each_round  # which have no item in a round
    drawn = max(0.0, with_tested - of_round - in_each_round * both) / others if others else 0.0
    item = max(0.0, both - drawn)
    unmet = _seconds_per_label_not_met()
    return WindowCosts(of_round, max(0.0, with_shown - of_round - item) / _SHOWN, drawn, item, unmet)


def seconds_per_round(
    mechanism: WindowMechanism, guarantee: Guarantee, labels: int, shown: int, items: int
) -> float:
    """From admitted labels to encoded releases, in whole blocks; the first `shown` labels are shown in every round.

    Every round has `items` of the labels, which take turns.
    """
    noise = KeyedNoise(bytes(KEY_BYTES), "plan", bytes(NONCE_BYTES))
    names = [f"label {i:010d}" for i in range(labels)]
    histogram = WindowHistogram(mechanism, noise)
    for _ in histogram.blocks([[]] * mechanism.window + [names]):
        pass
    state = histogram.state()
    until = next(column.cells for column in state.counter.columns if column.name == "until")
    until[:shown] = _FOR_EVER
    histogram = WindowHistogram(mechanism, noise, state)
    tags = ReleaseTags(bytes(KEY_BYTES), "plan", bytes(NONCE_BYTES))
    encoder = ReleaseEncoder("plan", 1, bytes(NONCE_BYTES), mechanism, guarantee, tags)
    turn = mechanism.window * ceil(_TURN / mechanism.window)
    rounds = [[names[(i * items + j) % labels] for j in range(items)] for i in range(turn)]
    taken = []
    for _ in range(1 + _REPEATS):
        started = process_time()
        for block in histogram.blocks(rounds):
            encoder.encode(block, range(len(block.sizes)))
        taken.append(process_time() - started)
    return min(taken[1:]) / turn


def _seconds_per_label_not_met() -> float:
    """What finding a label takes more if it was not met lately."""
    names = [f"label {i:010d}" for i in range(_TESTED)]
    taken = []
    for _ in range(1 + _REPEATS):
        seen = SeenLabels(KeyedNoise(bytes(KEY_BYTES), "plan", bytes(NONCE_BYTES)))
        seen.extend(names)
        times = [process_time()]
        for _ in range(2):  # by now they are met
            seen.rows_of(names)
            times.append(process_time())
        taken.append(2 * times[1] - times[0] - times[2])
    return max(0.0, min(taken[1:])) / _TESTED
