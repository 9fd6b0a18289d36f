"""What a stream may hold, for Hypothesis: shared by every test that feeds events to a histogram."""

from itertools import pairwise

from hypothesis import strategies as st

labels = st.text(st.characters(codec="utf-8"), max_size=6)
"""Any label that UTF-8 can carry, the empty one and control characters included."""


@st.composite
def streams(draw: st.DrawFn, longest: int = 40) -> list[list[str]]:
    """Events over a few labels that come again; some events are empty, some repeat an item."""
    pool = draw(st.lists(labels, min_size=1, max_size=8, unique=True))
    return draw(st.lists(st.lists(st.sampled_from(pool), max_size=6), max_size=longest))


@st.composite
def cut_streams(draw: st.DrawFn, longest: int = 40) -> tuple[list[list[str]], list[list[list[str]]]]:
    """A stream, and the same stream cut into blocks, some of which may be empty."""
    stream = draw(streams(longest))
    cuts = sorted(draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    bounds = [0, *cuts, len(stream)]
    return stream, [stream[start:end] for start, end in pairwise(bounds)]
