"""The true delta of two epochs that follow one another, the second of which carries the first one on.

Both are enumerated as in exact.py, by the real histogram.  Whether the second one knows the label when it begins is
decided by the real rule, from what the first one released last; so the law of both together is, for each outcome of the
first one, its probability times the law of the second one that follows it.
"""

from collections.abc import Callable
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_dp.audit.exact import HIDDEN, Law, Occurrences, law, losses, neighbours
from stream_dp.counters.protocol import CalibratedCounter
from stream_dp.engine.known_labels import NOTHING_KNOWN

Epochs = tuple[Occurrences, Occurrences]
"""The rounds of each epoch whose event holds the label."""

Carried = Callable[[NDArray[np.int32], Occurrences], bool]
"""Whether the second epoch knows the label, from what the first one showed of it and from where it occurred there."""


def by_release(shown: NDArray[np.int32], occurrences: Occurrences) -> bool:
    """The rule: the label was in the last release."""
    label, count = "label", int(shown[-1])
    released = ([label], [count]) if count != HIDDEN else ([], [])
    return NOTHING_KNOWN.carried_on(1, *released, [1.0] * len(released[0])).labels == [label]


def by_admission(shown: NDArray[np.int32], occurrences: Occurrences) -> bool:
    """BROKEN: the label was admitted, whether or not any release has shown it."""
    return bool(occurrences)


def law_of_both(mechanism: CalibratedCounter, epochs: Epochs, carried: Carried = by_release) -> Law:
    """What a label shows in the rounds of both epochs, one after the other."""
    first = law(mechanism, epochs[0])
    knows = np.array([carried(outcome, epochs[0]) for outcome in first.outcomes])
    outcomes: list[Any] = []
    probabilities: list[Any] = []
    for known in (False, True):
        if not (knows == known).any():
            continue
        mine, second = first.outcomes[knows == known], law(mechanism, epochs[1], known=known)
        before, after = np.repeat(mine, len(second.outcomes), 0), np.tile(second.outcomes, (len(mine), 1))
        outcomes.append(np.concatenate([before, after], axis=1))
        chances = np.multiply.outer(first.probabilities[knows == known], second.probabilities)
        probabilities.append(chances.reshape(-1))
    return Law(np.concatenate(outcomes), np.concatenate(probabilities))


def worst_of_both(
    mechanism: CalibratedCounter, epsilon: float, carried: Carried = by_release
) -> tuple[float, tuple[Epochs, Epochs]]:
    """The largest delta of any neighbours of one label, and which: the smaller log and the larger one.

    They differ in one round of either epoch, and the other epoch holds the label in its last round or nowhere.
    """
    found: tuple[float, tuple[Epochs, Epochs]] = 0.0, ((frozenset(), frozenset()),) * 2
    for held, number in neighbours(mechanism.horizon):
        for other in (frozenset[int](), frozenset({mechanism.horizon})):
            for smaller, larger in (
                ((held, other), (held | {number}, other)),
                ((other, held), (other, held | {number})),
            ):
                delta = delta_of_both(mechanism, epsilon, smaller, larger, carried)
                found = max(found, (delta, (smaller, larger)), key=itemgetter(0))
    return found


def delta_of_both(
    mechanism: CalibratedCounter,
    epsilon: float,
    smaller: Epochs,
    larger: Epochs,
    carried: Carried = by_release,
) -> float:
    """The least delta by which what both epochs release tells two logs apart."""
    laws = (law_of_both(mechanism, epochs, carried) for epochs in (larger, smaller))
    return losses(*laws).delta(epsilon)
