"""Grouping rows: against dictionaries, at the limits of the key, and samples that a user draws alone."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_dp.batch import baskets as module
from stream_dp.batch.baskets import Baskets, baskets, distinct_users_per_item, sample, without
from tests.batch.evidence import counts_agree, noise
from tests.batch.plain_set_union import grouped, held

ROWS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 8)), max_size=60)


def contents(grouping: Baskets) -> dict[int, list[int]]:
    bounds = zip(grouping.starts[:-1].tolist(), grouping.starts[1:].tolist(), strict=True)
    pairs = zip(grouping.users.tolist(), bounds, strict=True)
    return {user: grouping.items[start:stop].tolist() for user, (start, stop) in pairs}


@given(ROWS, st.sampled_from([1, 10**12, 2**58]))
@settings(max_examples=150)
def test_grouping_is_that_of_dictionaries(rows: list[tuple[int, int]], stretch: int) -> None:
    rows = [(user * stretch, item) for user, item in rows]
    grouping, expected = grouped(rows, 9), held(rows)
    assert {user: sorted(items) for user, items in sorted(expected.items())} == contents(grouping)
    repeats = [expected[user][item] for user in sorted(expected) for item in sorted(expected[user])]
    assert repeats == grouping.repeats.tolist()
    assert len(grouping.owners) == len(grouping.items)
    pairs = np.array(rows, np.int64).reshape(-1, 2)
    counts = Counter(item for items in expected.values() for item in items)
    counted = distinct_users_per_item(pairs[:, 0], pairs[:, 1], 9)
    assert [counts[item] for item in range(9)] == counted.tolist()


@given(ROWS, st.integers(1, 5))
@settings(max_examples=150)
def test_a_sample_keeps_so_many_of_each_user_and_no_others(rows: list[tuple[int, int]], limit: int) -> None:
    whole = contents(grouped(rows, 9))
    kept = contents(sample(grouped(rows, 9), limit, noise(1)))
    assert whole.keys() == kept.keys()
    for user, items in kept.items():
        assert set(items) <= set(whole[user])
        assert len(items) == min(limit, len(whole[user]))
        assert items == sorted(items)


def test_a_sample_is_the_users_own_and_does_not_change_with_others() -> None:
    rows = [(user, item) for user in range(40) for item in range(30)]
    fewer = [row for row in rows if row[0] % 3]
    everyone = contents(sample(grouped(rows, 30), 4, noise(2)))
    some = contents(sample(grouped(fewer, 30), 4, noise(2)))
    assert {user: everyone[user] for user in some} == some
    assert len({tuple(items) for items in everyone.values()}) > 35  # users do not share one choice


def test_every_subset_is_equally_likely() -> None:
    rows = [(user, item) for user in range(30_000) for item in range(4)]
    chosen = Counter(tuple(items) for items in contents(sample(grouped(rows, 4), 2, noise(3))).values())
    assert len(chosen) == 6
    assert counts_agree(chosen, dict.fromkeys(chosen, 1 / 6))


def test_equal_marks_never_keep_one_item_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "stream_dp.privacy.one_shot_noise.OneShotNoise.sample_marks",
        lambda self, stage, users, items: np.full(len(users), 7, np.uint64),
    )
    rows = [(user, item) for user in range(5) for item in range(6)]
    assert sample(grouped(rows, 6), 2, noise()).sizes.tolist() == [2] * 5


@pytest.mark.parametrize("users", [1, 5, 40])
def test_marks_that_begin_alike_are_compared_to_their_last_bit(
    users: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many users leave room for however few bits of a mark."""
    monkeypatch.setattr(
        "stream_dp.privacy.one_shot_noise.OneShotNoise.sample_marks",
        lambda self, stage, users, items: (6 - items).astype(np.uint64),
    )
    rows = [(user, item) for user in range(users) for item in range(6)]
    assert contents(sample(grouped(rows, 6), 2, noise())) == {user: [4, 5] for user in range(users)}


@given(ROWS, st.sets(st.integers(0, 8)))
@settings(max_examples=100)
def test_without_takes_items_out_of_every_basket(rows: list[tuple[int, int]], gone: set[int]) -> None:
    mask = np.isin(np.arange(9), list(gone))
    whole = contents(grouped(rows, 9))
    expected = {user: [item for item in items if item not in gone] for user, items in whole.items()}
    assert expected == contents(without(grouped(rows, 9), mask))


def test_numbers_out_of_range_are_refused() -> None:
    for users, items in (([-1], [0]), ([0], [3]), ([0], [-1])):
        with pytest.raises(ValueError, match="users must be numbered from 0, and items from 0"):
            baskets(np.array(users), np.array(items), 3)
    with pytest.raises(ValueError, match="two arrays of one length"):
        distinct_users_per_item(np.array([1, 2]), np.array([1]), 3)


def test_large_user_numbers_that_fit_no_key_are_renumbered_and_kept() -> None:
    assert (2**62).bit_length() + 4 > module._KEY_BITS
    grouping = grouped([(2**62, 3), (5, 8), (2**62, 3)], 9)
    assert contents(grouping) == {5: [8], 2**62: [3]}
    assert grouping.repeats.tolist() == [1, 2]
