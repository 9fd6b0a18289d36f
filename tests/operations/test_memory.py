import subprocess
import sys

COLLECTING = """
import gc, weakref
from stream_dp.operations.memory import collect_seldom

class Link:
    pass

def cycle():
    link = Link()
    link.itself = link
    return weakref.ref(link)

collect_seldom()
before = [generation["collections"] for generation in gc.get_stats()]
batch = [[place] for place in range(50_000)]
assert [generation["collections"] for generation in gc.get_stats()] == before, "a batch is collected without a look"
del batch
lost = cycle()
kept = [[place] for place in range(110_000)]
assert lost() is None, "a cycle goes in the end"
"""

KEEPING = """
import platform
from resource import RUSAGE_SELF, getrusage
from stream_dp.operations.memory import keep_freed

def faults():
    before = getrusage(RUSAGE_SELF).ru_minflt
    for _ in range(10):
        releases = [bytes(17_000) for _ in range(500)]
        numbers = bytearray(1_000_000)
        del releases, numbers
    return getrusage(RUSAGE_SELF).ru_minflt - before

if platform.libc_ver()[0] == "glibc":
    assert faults() > 10_000, "what was freed is given back, and taken anew"
keep_freed()
faults()
if platform.libc_ver()[0] == "glibc":
    assert faults() < 500
"""


def test_a_batch_is_not_looked_through_and_cycles_still_go() -> None:
    """In a process of its own, whose settings it changes."""
    subprocess.run([sys.executable, "-c", COLLECTING], check=True)


def test_what_a_batch_has_freed_the_next_one_takes() -> None:
    """In a process of its own, too."""
    subprocess.run([sys.executable, "-c", KEEPING], check=True)
