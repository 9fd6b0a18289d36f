"""What the work of a stream takes, in processor seconds and bytes: a table that `python -m benchmarks costs` measures.

What all counters share, and the Binary Mechanism, was measured on a virtual machine with two idle Intel Xeon cores and
Python 3.11 (docs/scaling.md).  The other counters and codecs were measured beside it while the machine was busy, and
are given in proportion.
"""

from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class OfCounter:
    """Processor seconds: of a round, and in it of a visible and a drawn label, and of an item."""

    round: float
    visible: float
    drawn: float
    item: float


@dataclass(frozen=True)
class Costs(OfCounter):
    """What the work takes: processor seconds, of `compress` for each byte, and bytes beside a label's text."""

    compress: float
    decode: float = 5.4e-6
    sequence: float = 3.9e-6
    unmet: float = 1.15e-6
    process_bytes: float = 150e6
    memory_per_hidden: float = 80.0
    memory_per_drawn: float = 240.0
    memory_per_tested: float = 600.0
    memory_per_shown: float = 200.0
    redis_per_label: float = 80.0
    release_per_label: float = 9.0
    release: float = 400.0
    row: float = 160.0


COUNTERS = {
    "binary": OfCounter(round=5.8e-6, visible=2.2e-8, drawn=5.7e-9, item=3.8e-7),
    "blt every-round": OfCounter(round=9.5e-6, visible=3.1e-8, drawn=1.5e-8, item=9.2e-7),
    "blt": OfCounter(round=1.5e-5, visible=3.6e-8, drawn=0.0, item=4.1e-7),
    "window": OfCounter(round=1.6e-5, visible=6.6e-8, drawn=3.0e-8, item=3.1e-7),
}
"""A label that is not shown is drawn for in every round: of windows, if it is tested; with tests for labels, never."""

COMPRESSION = {"none": 5e-10, "gzip": 8e-9, "snappy": 1.5e-9, "lz4": 8e-9, "zstd": 2e-9}
"""Processor seconds of packing a byte of releases for the broker."""


def costs_of(mechanism: str, compression: str) -> Costs:
    """What the work of a stream with this counter takes."""
    return Costs(**asdict(COUNTERS[mechanism]), compress=COMPRESSION[compression])
