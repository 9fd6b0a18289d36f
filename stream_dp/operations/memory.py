"""What a process that runs for ever does with memory that it has used."""

import ctypes
import gc
from contextlib import suppress

_ALLOCATIONS = 100_000
_GENERATIONS = 20
_TRIM_THRESHOLD, _MAP_THRESHOLD = -1, -3  # of glibc's mallopt
_KEPT_BYTES, _MAPPED_BYTES = 64 << 20, 4 << 20


def collect_seldom() -> None:
    """Count what is there already as permanent, and collect only when that many objects have come to stay.

    A batch makes tens of thousands of small objects and drops them all, none of them in a cycle.  By default Python
    looks for cycles after every 700 of them, which costs a worker with 100 labels up to a third of its time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_ALLOCATIONS, _GENERATIONS, _GENERATIONS)


def keep_freed() -> None:
    """Keep up to 64 MB of what was freed in pieces of less than 4 MB, instead of giving it back.

    A batch frees what the next one takes again.  By default glibc gives it back in between, and the system clears every
    page of it once more, which costs a worker with 1,000 labels a sixth of its time.  Other libraries are left alone.
    """
    with suppress(AttributeError, OSError, TypeError):
        allocator = ctypes.CDLL(None)
        allocator.mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
        allocator.mallopt(_MAP_THRESHOLD, _MAPPED_BYTES)
