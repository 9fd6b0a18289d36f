"""Everything that is examined.  A new mechanism adds a file of pairs, and its name to `_SOURCES`."""

from collections.abc import Iterator, Sequence

from stream_dp.audit import (
    controls,
    histogram_pairs,
    running_pairs,
    set_union_pairs,
    top_k_pairs,
    user_day_pairs,
    user_unit_pairs,
)
from stream_dp.audit.examine import Finding, Pair, examine

_SOURCES = (
    running_pairs,
    histogram_pairs,
    top_k_pairs,
    set_union_pairs,
    user_unit_pairs,
    user_day_pairs,
    controls,
)


def pairs(mechanisms: Sequence[str] = ()) -> list[Pair]:
    """All pairs, controls last; only those of the named mechanisms where some are named."""
    everything = [pair for source in _SOURCES for pair in source.pairs()]
    return [pair for pair in everything if not mechanisms or pair.mechanism in mechanisms]


def audit(chosen: Sequence[Pair], seed: bytes, runs: int | None = None) -> Iterator[Finding]:
    """Examine one pair after the other; `runs` of each input, or each pair's own number."""
    return (examine(pair, seed, runs) for pair in chosen)
