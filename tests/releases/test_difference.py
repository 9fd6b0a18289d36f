"""Does the interval of a difference hold what it says, and is the answer seldom wrong?"""

import msgspec
import numpy as np
import pytest

from stream_dp.releases.difference import difference_of
from stream_dp.releases.whole_release import WholeRelease, decode_whole_release
from tests.example_releases import release

REACH = 1.959964


@pytest.mark.parametrize(("apart", "sd", "other_sd"), [(0, 10.0, 10.0), (40, 10.0, 40.0), (-5, 3.0, 1.0)])
def test_an_interval_holds_the_true_difference_and_one_half_as_long_does_not(
    apart: int, sd: float, other_sd: float
) -> None:
    random, runs = np.random.default_rng(3), 4_000
    counts = zip(random.normal(100 + apart, sd, runs), random.normal(100, other_sd, runs), strict=True)
    found = [
        difference_of(
            (one - REACH * sd, one + REACH * sd), (other - REACH * other_sd, other + REACH * other_sd)
        )
        for one, other in counts
    ]
    held = np.mean([each.low <= apart <= each.high for each in found])
    assert 0.938 < held < 0.962
    half = np.mean([abs(each.value - apart) <= (each.high - each.value) / 2 for each in found])
    assert half < 0.75, "the test can tell"
    wrong = np.mean([each.answer == ("above" if apart <= 0 else "below") for each in found])
    assert wrong < 0.035


def test_two_labels_of_a_release_are_compared() -> None:
    made: WholeRelease = decode_whole_release(
        msgspec.json.encode(release(64, {"tea": 900, "milk": 700, "cake": 690}))
    )
    assert [made.compare("tea", other).answer for other in ("milk", "cake")] == ["above", "above"]
    assert made.compare("milk", "tea").answer == "below"
    near = made.compare("milk", "cake")
    assert near.answer == "cannot tell"
    assert near.low < 0 < near.value < near.high
    assert made.compare("milk", "cake", 0.99).high > near.high
    with pytest.raises(KeyError):
        made.compare("milk", "coffee")
