"""From (user, item) rows to what each user holds: repeats counted, users separated, all by one sort."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stream_dp.privacy.one_shot_noise import OneShotNoise

Integers = NDArray[np.int64]

_KEY_BITS = 63


@dataclass(frozen=True, slots=True, eq=False)
class Baskets:
    """The distinct items of every user.

    `users`: the numbers of the users, int64 of shape (n,), rising.
    `starts`: int64 of shape (n + 1,); user i holds items[starts[i] : starts[i + 1]].
    `items`: int64 of shape (pairs,), by rising item number within a user.
    `repeats`: how often the user's rows named the item, int64 of shape (pairs,).
    `item_count`: items are numbered 0 .. item_count - 1.
    """

    users: Integers
    starts: Integers
    items: Integers
    repeats: Integers
    item_count: int

    @property
    def sizes(self) -> Integers:
        """The number of distinct items of each user, shape (n,)."""
        return np.diff(self.starts)

    @property
    def owners(self) -> Integers:
        """The position in `users` of the holder of each pair, shape (pairs,)."""
        return np.repeat(np.arange(len(self.users)), self.sizes)


def baskets(users: Integers, items: Integers, item_count: int) -> Baskets:
    """Group rows, int64 arrays of one shape (rows,), users numbered from 0 and items below `item_count`.

    Items are numbered by their sorted labels: ties go by these numbers, so which of two items comes first must not
    depend on who else is present.  Users may be numbered in any way (`OneShotNoise.order` says why).
    """
    keys, shift, names = _keys(users, items, item_count)
    keys.sort()
    first = np.flatnonzero(_changes(keys))
    repeats = np.diff(first, append=len(keys))
    keys = keys[first]
    holders = keys >> shift
    begins = np.flatnonzero(_changes(holders))
    present = holders[begins]
    return Baskets(
        users=present if names is None else names[present],
        starts=np.append(begins, len(keys)),
        items=keys & ((1 << shift) - 1),
        repeats=repeats,
        item_count=item_count,
    )


def distinct_users_per_item(users: Integers, items: Integers, item_count: int) -> Integers:
    """How many distinct users hold each item, int64 of shape (item_count,); arguments as for `baskets`."""
    keys, shift, _ = _keys(users, items, item_count)
    keys.sort()
    distinct = keys[_changes(keys)]
    distinct &= (1 << shift) - 1
    return np.bincount(distinct, minlength=item_count)


def sample(all_baskets: Baskets, items_per_user: int, noise: OneShotNoise, stage: int = 0) -> Baskets:
    """At most `items_per_user` items of each user, a uniform choice which each user makes without the others."""
    sizes = all_baskets.sizes
    over = sizes > items_per_user
    if not over.any():
        return all_baskets
    crowded = np.flatnonzero(np.repeat(over, sizes))
    crowds = sizes[over]
    holders = np.repeat(np.arange(len(crowds)), crowds)
    marks = noise.sample_marks(stage, np.repeat(all_baskets.users[over], crowds), all_baskets.items[crowded])
    kept = np.ones(len(all_baskets.items), np.bool_)
    kept[crowded] = _least_marked(holders, crowds, marks, items_per_user)
    return Baskets(
        all_baskets.users,
        np.concatenate([[0], np.cumsum(np.minimum(sizes, items_per_user))]),
        all_baskets.items[kept],
        all_baskets.repeats[kept],
        all_baskets.item_count,
    )


def without(all_baskets: Baskets, released: NDArray[np.bool_]) -> Baskets:
    """The baskets without the items marked in `released`, bool of shape (item_count,); users may end up empty."""
    kept = ~released[all_baskets.items]
    before = np.concatenate([[0], np.cumsum(kept)])
    return Baskets(
        all_baskets.users,
        before[all_baskets.starts],
        all_baskets.items[kept],
        all_baskets.repeats[kept],
        all_baskets.item_count,
    )


def _keys(users: Integers, items: Integers, item_count: int) -> tuple[Integers, int, Integers | None]:
    """user << shift | item for every row, the shift, and the users' numbers where they had to be renumbered."""
    if users.shape != items.shape or users.ndim != 1:
        raise ValueError("users and items must be two arrays of one length.")
    if len(items) and (users.min() < 0 or items.min() < 0 or items.max() >= item_count):
        raise ValueError("users must be numbered from 0, and items from 0 to item_count - 1.")
    shift = max(1, item_count - 1).bit_length()
    names = None
    if len(users) and int(users.max()).bit_length() + shift > _KEY_BITS:
        names, users = np.unique(users, return_inverse=True)
    keys = np.left_shift(users, shift, dtype=np.int64)
    keys |= items
    return keys, shift, names


def _changes(ordered: Integers) -> NDArray[np.bool_]:
    """True where a value differs from the one before it, and at the first."""
    changed = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=changed[1:])
    return changed


def _least_marked(
    holders: Integers, sizes: Integers, marks: NDArray[np.uint64], wanted: int
) -> NDArray[np.bool_]:
    """True for exactly the `wanted` pairs of least mark of each holder; `sizes`, all above `wanted`, per holder.

    Only the leading bits of a mark that fit beside the holder are compared. Values are sorted rather than positions,
    which is ten times faster; the rare tie at the limit would keep one pair too many and takes the slow way, by whole
    marks, so that nobody's sample depends on how many holders there are.
    """
    bits = max(1, len(sizes) - 1).bit_length()
    keys = holders.astype(np.uint64) << np.uint64(64 - bits) | marks >> np.uint64(bits)
    limits = np.sort(keys)[np.cumsum(sizes) - sizes + wanted - 1]
    chosen = keys <= limits[holders]
    if np.count_nonzero(chosen) > wanted * len(sizes):
        order = np.lexsort((marks, holders))
        place = np.arange(len(keys)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        chosen[order] = place < wanted
    return chosen
