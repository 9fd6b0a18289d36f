"""What a start draws to find out machines that compute other noise: it is right here, and tells every change."""

from collections.abc import Callable
from typing import Any

import pytest

from stream_dp.counters import MECHANISMS, binary, blt_counter
from stream_dp.counters.golden import check_golden_noise
from stream_dp.loops import blt_advance, blt_combine
from stream_dp.privacy.keyed_noise import WrongNoise

Change = tuple[str, Any, str, Any]


def a_millionth_more(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, after which one cell of the array that it is given first is a millionth larger."""

    def changed(*arguments: Any) -> Any:
        result = function(*arguments)
        arguments[0][-1, 0] *= 1 + 1e-6
        return result

    return changed


CHANGES: list[Change] = [
    ("binary", binary.DyadicTree, "parents", lambda _, first, last: [0] * (last - first + 1)),
    ("blt", blt_counter, "_FIRST_SHARED_LANE", 3),
    ("blt", blt_counter, "blt_combine", a_millionth_more(blt_combine)),
    ("blt", blt_counter, "blt_advance", a_millionth_more(blt_advance)),
]


@pytest.fixture(autouse=True)
def _drawn_anew() -> None:
    check_golden_noise.cache_clear()


@pytest.mark.parametrize("name", MECHANISMS)
def test_the_golden_noise_is_drawn_here(name: str) -> None:
    check_golden_noise(name)


@pytest.mark.parametrize(
    ("name", "owner", "part", "instead"), CHANGES, ids=[f"{name} {part}" for name, _, part, _ in CHANGES]
)
def test_a_machine_that_computes_otherwise_is_refused(
    name: str, owner: Any, part: str, instead: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, part, instead)
    with pytest.raises(
        WrongNoise, match=f"'{name}' that differs from the golden draw .* nothing is released"
    ):
        check_golden_noise(name)
