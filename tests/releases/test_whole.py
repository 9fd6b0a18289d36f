"""Whole releases from the parts of a topic, whatever a crash has torn or repeated."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tests.example_releases import release
from tests.releases.topic_in_memory import merged, parts_of


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(1, 4)), min_size=1, max_size=8))
def test_parts_become_the_release_they_were_cut_from(shapes: list[tuple[int, int]]) -> None:
    wholes = [
        release(number, dict.fromkeys("abcdefg"[:labels], 300))
        for number, (labels, _) in enumerate(shapes, start=1)
    ]
    cut = [part for whole, (_, parts) in zip(wholes, shapes, strict=True) for part in parts_of(whole, parts)]
    assert merged(cut) == wholes


@given(st.integers(1, 11), st.integers(0, 11))
def test_what_a_crash_repeats_is_dropped(sent: int, checkpointed: int) -> None:
    """A worker died after `sent` records and its successor sent again everything after `checkpointed`."""
    wholes = [release(number, {"a": 300, "b": 200 + number}) for number in range(1, 5)]
    cut = [part for whole in wholes for part in parts_of(whole, 3)]
    first_again = min(sent, checkpointed) // 3 * 3
    assert merged(cut[:sent] + cut[first_again:]) == wholes


def test_a_release_without_its_first_part_is_left_out() -> None:
    first, second = (release(number, {"a": 300, "b": 200}) for number in (1, 2))
    assert merged([*parts_of(first, 2)[1:], *parts_of(second, 2)]) == [second]


def test_releases_before_the_asked_one_are_left_out_and_a_new_epoch_begins_again_at_round_1() -> None:
    old = [release(number, {}) for number in (1, 2, 3)]
    new = [msgspec.structs.replace(each, epoch=2) for each in old]
    assert merged(old + new, after=(1, 2)) == [old[2], *new]
