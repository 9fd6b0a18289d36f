"""The history of an epoch that is over is that which was kept while it was the newest."""

from datetime import datetime

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_dp.dashboard.earlier import EarlierEpochs
from stream_dp.dashboard.history import History
from stream_dp.releases.release import Release
from tests.example_releases import release


class Held:
    """In place of the archive: every round of epochs 2 and 3 from `first` on; it counts what it is asked."""

    def __init__(self, first: int, last: int) -> None:
        self.rounds = range(first, last + 1)
        self.asked = 0

    def of(self, number: int, epoch: int) -> Release:
        counts = {"a": 100 * epoch + number}  # without noise, so that intervals cost little
        return msgspec.structs.replace(release(number, counts), epoch=epoch, nonce=str(epoch), sd=0.0)

    def find(self, at: int | datetime, epoch: int | None = None) -> Release | None:
        self.asked += 1
        assert isinstance(at, int)
        return self.of(min(at, self.rounds[-1]), epoch) if epoch in (2, 3) else None

    def find_near(self, round_number: int, epoch: int) -> Release | None:
        """Past an epoch's end comes the next epoch."""
        self.asked += 1
        number = max(round_number, self.rounds[0])
        return self.of(number, epoch) if number in self.rounds else self.of(self.rounds[0], epoch + 1)


@settings(max_examples=25)
@given(st.integers(1, 1_000))
def test_it_is_that_which_was_kept_and_is_read_once(last: int) -> None:
    held, always = Held(1, last), History()
    for number in range(1, last + 1):
        always.add(held.of(number, 2))
    earlier = EarlierEpochs(held)  # type: ignore[arg-type]
    assert earlier.history("nonce", 2).series(["a", "b"]) == always.series(["a", "b"])
    asked = held.asked
    assert asked < 400
    assert earlier.history("nonce", 2).series(["a"]) == always.series(["a"])
    assert held.asked == asked
    earlier.history("another", 2)
    assert held.asked == 2 * asked, "a topic that was made anew has other epochs of the same numbers"


def test_of_an_epoch_that_is_not_there_it_is_empty_and_few_are_remembered() -> None:
    earlier = EarlierEpochs(Held(500, 600))  # type: ignore[arg-type]
    assert earlier.history("nonce", 1).series(["a"]).rounds == []
    assert min(earlier.history("nonce", 2).series(["a"]).rounds) == 500
    for epoch in range(4, 40):
        earlier.history("nonce", epoch)
    assert len(earlier._found) == 8


@pytest.mark.parametrize("failing", ["find", "find_near"])
def test_what_cannot_be_read_now_is_read_by_the_next_who_asks(
    failing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(1, 100)
    earlier = EarlierEpochs(held)  # type: ignore[arg-type]
    with monkeypatch.context() as broken:
        broken.setattr(held, failing, lambda *_: (_ for _ in ()).throw(OSError("away")))
        with pytest.raises(OSError, match="away"):
            earlier.history("nonce", 2)
    assert len(earlier.history("nonce", 2)) == 100
