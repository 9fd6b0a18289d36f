"""From (user, item) rows to what each user holds: repeats counted, users separated, all by one sort."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]

_KEY_BITS = 63

Share = Callable[[Integers], Integers | NDArray[np.float64]]
"""Whole units that a user gives to each of n items, from the numbers n of many users; at most 2^53 in all."""


def each_once(sizes: Integers) -> Integers:
    """The `Share` by which weights are numbers of users."""
    return np.ones_like(sizes)


class Marks(Protocol):
    """Gives each item of each user a uniform mark."""

    def sample_marks(self, stage: int, users: Integers, items: Integers) -> NDArray[np.uint64]:
        """See `OneShotNoise.sample_marks`."""
        ...


@dataclass(frozen=True, eq=False)
class Ranks:
    """Marks by which users keep the items that come first, instead of a sample.

    `of_item`: the rank of each item by number, uint64; no two are equal.
    """

    of_item: NDArray[np.uint64]

    @classmethod
    def of(cls, places: Integers) -> "Ranks":
        """From the items' places in an order, int64 of shape (items,)."""
        return cls(places.astype(np.uint64))

    def sample_marks(self, stage: int, users: Integers, items: Integers) -> NDArray[np.uint64]:
        """See `Marks`: the leading bits, which samples compare first, tell ranks apart."""
        bits = int(self.of_item.max(initial=1)).bit_length()
        return self.of_item[items] << np.uint64(64 - bits)


class Weighing(Protocol):
    """Users whose items can be weighed, wherever they are."""

    @property
    def item_count(self) -> int:
        """Items are numbered 0 .. item_count - 1."""
        ...

    @abstractmethod
    def weights(
        self,
        items_per_user: int,
        share: Share,
        marks: Marks,
        stage: int = 0,
        released: NDArray[np.bool_] | None = None,
    ) -> Integers:
        """The sum over users of what each gives to the items of their sample, int64 of shape (item_count,).

        `released`: items that no user gives to any more, bool of shape (item_count,).
        """
        ...


class KnownBy(Protocol):
    """What samples know users and items by, whatever their numbers: so they are the same however rows are divided."""

    def users(self, numbers: Integers) -> Integers:
        """64 bits for each of these users."""
        ...

    def items(self, numbers: Integers) -> Integers:
        """64 bits for each of these items."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Baskets:
    """The distinct items of every user.

    `users`: the numbers of the users, int64 of shape (n,), rising.
    `starts`: int64 of shape (n + 1,); user i holds items[starts[i] : starts[i + 1]].
    `items`: int64 of shape (pairs,), by rising item number within a user.
    `repeats`: how often the user's rows named the item, int64 of shape (pairs,).
    `item_count`: items are numbered 0 .. item_count - 1.
    `known_by`: what samples know users and items by; None: their numbers.
    """

    users: Integers
    starts: Integers
    items: Integers
    repeats: Integers
    item_count: int
    known_by: KnownBy | None = None

    def weights(
        self,
        items_per_user: int,
        share: Share,
        marks: Marks,
        stage: int = 0,
        released: NDArray[np.bool_] | None = None,
    ) -> Integers:
        """See `Weighing.weights`."""
        left = self if released is None else without(self, released)
        return spread_weights(sample(left, items_per_user, marks, stage), share)

    @property
    def sizes(self) -> Integers:
        """The number of distinct items of each user, shape (n,)."""
        return np.diff(self.starts)

    @property
    def owners(self) -> Integers:
        """The position in `users` of the holder of each pair, shape (pairs,)."""
        return np.repeat(np.arange(len(self.users)), self.sizes)


def baskets(users: Integers, items: Integers, item_count: int, known_by: KnownBy | None = None) -> Baskets:
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
        known_by=known_by,
    )


def distinct_users_per_item(users: Integers, items: Integers, item_count: int) -> Integers:
    """How many distinct users hold each item, int64 of shape (item_count,); arguments as for `baskets`."""
    keys, shift, _ = _keys(users, items, item_count)
    keys.sort()
    distinct = keys[_changes(keys)]
    distinct &= (1 << shift) - 1
    return np.bincount(distinct, minlength=item_count)


def sizes_in(found: Baskets, edges: Sequence[int]) -> Integers:
    """How many users hold edges[b] to edges[b + 1] - 1 items, int64 of shape (edges,); see `Counted.sizes`."""
    held = np.searchsorted(edges, found.sizes, "right")
    return np.bincount(held, minlength=len(edges) + 1)[1:]


def sample(all_baskets: Baskets, items_per_user: int, marks: Marks, stage: int = 0) -> Baskets:
    """At most `items_per_user` items of each user, a uniform choice which each user makes without the others.

    By `Ranks` those that come first.

    Whatever the key, who else is there changes nothing of a user's choice where users and items are known by names.
    """
    sizes = all_baskets.sizes
    over = sizes > items_per_user
    if not over.any():
        return all_baskets
    crowded = np.flatnonzero(np.repeat(over, sizes))
    crowds = sizes[over]
    holders = np.repeat(np.arange(len(crowds)), crowds)
    users, items = all_baskets.users[over], all_baskets.items[crowded]
    if all_baskets.known_by is not None and not isinstance(marks, Ranks):
        users, items = all_baskets.known_by.users(users), all_baskets.known_by.items(items)
    drawn = marks.sample_marks(stage, np.repeat(users, crowds), items)
    kept = np.ones(len(all_baskets.items), np.bool_)
    kept[crowded] = _least_marked(holders, crowds, drawn, items_per_user)
    return replace(
        all_baskets,
        starts=np.concatenate([[0], np.cumsum(np.minimum(sizes, items_per_user))]),
        items=all_baskets.items[kept],
        repeats=all_baskets.repeats[kept],
    )


def spread_weights(kept: Baskets, share: Share) -> Integers:
    """Whole units per item, int64 of shape (item_count,); `share` gives them from the size of a user's basket."""
    sizes = kept.sizes
    each = np.repeat(share(np.maximum(sizes, 1)).astype(np.float64), sizes)
    sums = np.bincount(kept.items, weights=each, minlength=kept.item_count)  # exact: whole numbers below 2^53
    return sums.astype(np.int64)


def without(all_baskets: Baskets, released: NDArray[np.bool_]) -> Baskets:
    """The baskets without the items marked in `released`, bool of shape (item_count,); users may end up empty."""
    kept = ~released[all_baskets.items]
    before = np.concatenate([[0], np.cumsum(kept)])
    return replace(
        all_baskets,
        starts=before[all_baskets.starts],
        items=all_baskets.items[kept],
        repeats=all_baskets.repeats[kept],
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
