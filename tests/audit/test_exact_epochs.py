"""Do two epochs, the second of which goes on with the labels of the first, tell no more than one of them?"""

import numpy as np
import pytest

from stream_dp.audit.exact import HIDDEN, guaranteed, law, losses
from stream_dp.audit.exact_epochs import (
    by_admission,
    delta_of_both,
    law_of_both,
    worst_of_both,
)
from stream_dp.counters.binary import BinaryMechanism
from stream_dp.counters.blt import BltMechanism
from stream_dp.counters.protocol import CalibratedCounter, EpochParameters
from stream_dp.privacy.shown import Shown

RULES: list[Shown] = ["kept", "each-round"]
NOWHERE, FIRST, LAST = frozenset[int](), frozenset({1}), frozenset({2})
EPSILON = 1.0


def small(shown: Shown = "kept") -> list[CalibratedCounter]:
    return [
        BinaryMechanism.of(EpochParameters(2, 1, 0.02, shown), 1.0),
        BltMechanism.of(EpochParameters(2, 1, 0.02, shown), 0.5),
    ]


@pytest.mark.parametrize("shown", RULES)
@pytest.mark.parametrize("kind", [0, 1])
def test_what_the_next_epoch_goes_on_with_tells_nothing_more(kind: int, shown: Shown) -> None:
    mechanism = small(shown)[kind]
    for held, larger in ((NOWHERE, FIRST), (NOWHERE, LAST), (FIRST, FIRST | LAST)):
        alone = losses(law(mechanism, larger), law(mechanism, held)).delta(EPSILON)
        for later in (NOWHERE, LAST):
            both = delta_of_both(mechanism, EPSILON, (held, later), (larger, later))
            assert both == pytest.approx(alone, rel=1e-9)


@pytest.mark.parametrize("shown", RULES)
@pytest.mark.parametrize("kind", [0, 1])
def test_two_epochs_keep_the_guarantee_of_one(kind: int, shown: Shown) -> None:
    mechanism = small(shown)[kind]
    delta, _ = worst_of_both(mechanism, EPSILON)
    assert 0 < delta <= guaranteed(mechanism, EPSILON)


def test_labels_that_were_admitted_and_never_shown_give_the_event_away() -> None:
    mechanism = small()[0]
    delta, (smaller, larger) = worst_of_both(mechanism, EPSILON, by_admission)
    assert delta > 0.99 > 2 * guaranteed(mechanism, EPSILON)
    assert smaller[0] == NOWHERE != larger[0]


@pytest.mark.parametrize("mechanism", small())
def test_a_known_label_is_in_every_round_with_the_noise_of_the_counter(mechanism: CalibratedCounter) -> None:
    found = law(mechanism, NOWHERE, known=True)
    assert found.probabilities.sum() == pytest.approx(1, abs=1e-9)
    assert (found.outcomes != HIDDEN).all()
    for number in (1, 2):
        squares = found.outcomes[:, number - 1].astype(np.float64) ** 2
        assert found.probabilities @ squares == pytest.approx(mechanism.sd(number) ** 2, rel=0.02)
    once = law(mechanism, LAST, known=True)
    np.testing.assert_array_equal(once.outcomes, found.outcomes + np.array([0, 1]))


def test_both_ways_into_the_second_epoch_are_enumerated() -> None:
    """Else the tests above would compare nothing but epochs that know no label."""
    found = law_of_both(small()[0], (FIRST, NOWHERE))
    goes_on = (found.outcomes[:, 2:] != HIDDEN).all(axis=1)
    assert (goes_on == (found.outcomes[:, 1] != HIDDEN)).all()
    assert 0 < found.probabilities[goes_on].sum() < 0.5
