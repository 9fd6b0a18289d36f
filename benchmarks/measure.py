"""How every benchmark measures: contestants take turns, so that a slow moment of the machine hits them all."""

from collections.abc import Callable, Mapping
from statistics import median
from time import perf_counter


def take_turns(
    contestants: Mapping[str, Callable[[], object]], turns: int, clock: Callable[[], float] = perf_counter
) -> dict[str, float]:
    """Median seconds of each contestant over `turns` turns by `clock`, after one turn that does not count."""
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for turn in range(turns + 1):
        for name, run in contestants.items():
            start = clock()
            run()
            if turn:
                seconds[name].append(clock() - start)
    return {name: median(times) for name, times in seconds.items()}
