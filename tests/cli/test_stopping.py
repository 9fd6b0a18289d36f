"""How a command learns that it is to end."""

import signal
from collections.abc import Iterator

import pytest

from stream_dp.cli.stopping import until_stopped


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    """Give the handlers of this process back."""
    numbers = signal.SIGINT, signal.SIGTERM
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


class Stopped:
    """Is signalled while it is finalised, where Python drops exceptions."""

    def __init__(self, number: signal.Signals) -> None:
        self.number = number

    def __del__(self) -> None:
        signal.raise_signal(self.number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_seen_wherever_it_comes(number: signal.Signals) -> None:
    stopping = until_stopped()
    assert not stopping.is_set()
    Stopped(number)
    assert stopping.is_set()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_exception_would_be_dropped() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    Stopped(signal.SIGINT)


def test_the_second_ctrl_c_interrupts_at_once() -> None:
    stopping = until_stopped()
    signal.raise_signal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    assert stopping.is_set()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
