"""What an epoch promises when it opens, and what of it the ledger is charged."""

from typing import Literal

import pytest

from stream_dp.epoch import Epoch
from stream_dp.epochs import _charge
from stream_dp.settings import Settings


@pytest.mark.parametrize("mechanism", ["binary", "blt"])
def test_labels_of_rounds_with_many_events_count_in_what_may_collide(
    mechanism: Literal["binary", "blt"],
) -> None:
    """A million events of a round bring a million times as many labels; nothing bounds those that ticks end."""
    one, million, ticks = (
        Epoch.open(Settings(stream="s", mechanism=mechanism, rounds=rounds), 1, 0)
        for rounds in ("per-event", "every-1000000", "ticks")
    )
    assert _charge(one).delta < _charge(million).delta < _charge(ticks).delta
    assert _charge(ticks).delta == pytest.approx(_charge(one).delta, rel=1e-8)
    assert one.guarantee.rho == pytest.approx(ticks.guarantee.rho, rel=1e-8)
