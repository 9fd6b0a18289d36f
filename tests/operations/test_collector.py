import subprocess
import sys

SCRIPT = """
import gc, weakref
from stream_dp.operations.collector import collect_seldom

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


def test_a_batch_is_not_looked_through_and_cycles_still_go() -> None:
    """In a process of its own, whose settings it changes."""
    subprocess.run([sys.executable, "-c", SCRIPT], check=True)
