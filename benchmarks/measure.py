"""How every benchmark measures: contestants take turns, so that a slow moment of the machine hits them all."""

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
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


def processor_seconds(pid: int) -> float:
    """For how many seconds a process has used the processor; 0 where Linux does not tell."""
    try:
        told = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0.0
    user, system = told.rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def most_memory() -> int:
    """The most bytes that this process has had by now; `getrusage` would count those of its parent too."""
    [line] = [each for each in Path("/proc/self/status").read_text().splitlines() if each.startswith("VmHWM")]
    return int(line.split()[1]) * 1024


def children(pid: int) -> list[int]:
    """The processes that a process has started and that run; none where Linux does not tell."""
    found = list[int]()
    for task in Path(f"/proc/{pid}/task").glob("*"):
        with suppress(OSError):  # a thread that has ended meanwhile
            found += map(int, (task / "children").read_text().split())
    return found


def family(pid: int) -> list[int]:
    """A process and all that it has started, directly or not, and that run."""
    found = [pid]
    for each in found:  # which grows on the way
        found += children(each)
    return found
