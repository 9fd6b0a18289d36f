"""Where batches of releases end: at public places, whatever pieces the releases come in."""

from collections.abc import Sequence
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from stream_dp.pipeline.pipeline import ReleasedPart
from stream_dp.sinks.framing import Framing, first_ends, last_of_batch, records_left, rounds_per_batch


def parts(rounds: Sequence[int], size: int = 10) -> list[ReleasedPart]:
    return [ReleasedPart(number, 1, b"x" * size) for number in rounds]


def framed(
    cuts: Sequence[int], last: int, every: int = 7, size: int = 10, largest: int = 10_000
) -> list[list[int]]:
    """The rounds of each batch of a log of `last` rounds that comes in pieces which end at `cuts`."""
    framing, found, before = Framing(every, 3, largest), list[list[ReleasedPart]](), 0
    for cut in [*sorted({cut for cut in cuts if cut < last}), last]:
        found += framing.cut(parts(range(before + 1, cut + 1), size), cut, cut == last)
        before = cut
    assert not framing.is_open
    return [[part.round for part in batch] for batch in found]


def test_batches_end_at_multiples_and_where_the_log_did() -> None:
    assert framed([], 17) == [[*range(1, 8)], [*range(8, 15)], [15, 16, 17]]


@given(st.lists(st.integers(1, 60)), st.integers(1, 60), st.sampled_from([10, 400]))
def test_pieces_do_not_show(cuts: list[int], last: int, size: int) -> None:
    assert framed(cuts, last, size=size, largest=2_000) == framed([], last, size=size, largest=2_000)


def test_framing_by_pieces_would_be_noticed() -> None:
    """What it replaces: whatever a fetch held is a batch."""

    def by_pieces(cuts: Sequence[int], last: int) -> list[list[int]]:
        bounds = [0, *cuts, last]
        return [list(range(a + 1, b + 1)) for a, b in pairwise(bounds)]

    assert by_pieces([5], 17) != by_pieces([9], 17)


def test_a_batch_is_never_larger_than_the_broker_takes() -> None:
    framing = Framing(100, 3, largest=1_000)
    batches = [*framing.cut(parts(range(1, 30), size=150), 29, True)]
    assert [len(batch) for batch in batches] == [5] * 5 + [4]
    assert all(61 + sum(32 + 3 + len(part.value) for part in batch) <= 1_000 for batch in batches)


def test_a_release_that_is_larger_than_a_batch_goes_alone() -> None:
    framing = Framing(100, 3, largest=1_000)
    batches = [*framing.cut([*parts([1]), *parts([2], size=5_000), *parts([3])], 3, True)]
    assert [[part.round for part in batch] for batch in batches] == [[1], [2], [3]]


def test_the_parts_of_a_round_stay_together() -> None:
    framing = Framing(2, 3)
    of_two = [ReleasedPart(2, part, b"x") for part in (1, 2, 3)]
    assert [*framing.cut([*parts([1]), *of_two, *parts([3])], 3)] == [[*parts([1]), *of_two]]
    assert framing.is_open


def test_a_batch_without_releases_is_none() -> None:
    """Where few rounds are released, many multiples pass without any."""
    framing = Framing(10, 3)
    assert [*framing.cut(parts([100]), 105)] == [parts([100])]
    assert [*framing.cut([], 200, True)] == []


def test_an_open_batch_ends_where_the_log_did_though_nothing_more_is_released() -> None:
    framing = Framing(100, 3)
    assert [*framing.cut(parts([3]), 5)] == []
    assert [*framing.cut([], 9, True)] == [parts([3])]


def test_a_batch_holds_no_release_of_the_next_epoch() -> None:
    framing = Framing(100, 3)
    assert [*framing.cut(parts([7, 8]), 8)] == []
    assert [*framing.cut(parts([1, 2]), 2)] == [parts([7, 8])]
    assert framing.rest() == parts([1, 2])
    assert not framing.is_open


@given(
    st.sampled_from(["per-event", "every-3", "every-7", "every-1000"]),
    st.integers(1, 500),
    st.integers(0, 3_000),
    st.integers(0, 6),
)
def test_so_many_records_end_a_batch_and_no_fewer(
    rounds: str, at_once: int, closed: int, open_records: int
) -> None:
    events = 1 if rounds == "per-event" else int(rounds.partition("-")[2])
    open_records %= events
    every, left = rounds_per_batch(rounds, at_once), records_left(rounds, at_once, closed, open_records)
    assert left >= 1
    assert (closed * events + open_records + left) % (every * events) == 0
    assert left <= every * events


@given(
    st.sampled_from(["per-event", "every-3", "every-7", "every-1000", "ticks"]),
    st.integers(1, 500),
    st.integers(1, 3_000),
)
def test_behind_what_was_released_batches_begin_small_and_double(
    rounds: str, at_once: int, released: int
) -> None:
    """And soon end where they would have ended anyway."""
    ends = first_ends(released, at_once)
    sizes = [after - before for before, after in pairwise([released, *ends])]
    assert sizes == [2**number for number in range(len(sizes))]
    assert 2 ** len(sizes) < at_once + 1 or at_once == 1
    assert sum(sizes) < max(1, at_once)
    every = rounds_per_batch(rounds, at_once)
    for before, end in pairwise([released, *ends]):
        left = records_left(rounds, at_once, before, 0, end)
        events = {"per-event": 1, "ticks": 1}.get(rounds) or int(rounds.partition("-")[2])
        reached = end if rounds == "ticks" else min(end, last_of_batch(before + 1, every))
        assert left == (reached - before) * events
