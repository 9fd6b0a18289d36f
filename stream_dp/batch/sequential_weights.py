"""The loops of set union in which a user's choice depends on the users before: compiled by numba on first use.

All three change `weights` (shape (item_count,)) in place, for the users in `order`, and treat one user alike whatever
the rest of the histogram. Weights of the first two are whole tokens. Write a user's move as a list of tokens: for
`fill_greedily` the user's first item until its gap to `cap` is closed, then the second, and so on; for `fill_evenly`
one token to each item with a gap left, in item order, then another round. The user spends the first `tokens` of the
list. One token more on an item takes one entry from the list and never moves another, so the two histograms differ
by one token afterwards, or by none: users who come later never enlarge a difference (the l1 contraction).
"""

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

Integers = NDArray[np.int64]


@njit(nogil=True)
def fill_greedily(
    order: Integers, starts: Integers, items: Integers, tokens: int, cap: int, weights: Integers
) -> None:
    """Every user spends `tokens`, one item after the other in the order of the basket, each up to `cap`."""
    for user in order:
        left = tokens
        for position in range(starts[user], starts[user + 1]):
            item = items[position]
            given = min(left, cap - weights[item])
            if given > 0:
                weights[item] += given
                left -= given
                if left == 0:
                    break


@njit(nogil=True)
def fill_evenly(
    order: Integers, starts: Integers, items: Integers, tokens: int, cap: int, weights: Integers
) -> None:
    """Every user spends `tokens` evenly over the items below `cap`; those that reach it leave theirs to the rest."""
    for user in order:
        first, last = starts[user], starts[user + 1]
        missing, opened = 0, 0
        for position in range(first, last):
            gap = cap - weights[items[position]]
            missing += gap
            if gap > 0:
                opened += 1
        if missing <= tokens:
            for position in range(first, last):
                weights[items[position]] = cap
            continue
        level, left = tokens // opened, tokens
        while True:
            left, above = tokens, 0
            for position in range(first, last):
                gap = cap - weights[items[position]]
                if gap > level:
                    above += 1
                else:
                    left -= gap
            if left // above == level:
                break
            level = left // above
        spare = left - level * above
        for position in range(first, last):
            item = items[position]
            if cap - weights[item] <= level:
                weights[item] = cap
            elif spare > 0:
                weights[item] += level + 1
                spare -= 1
            else:
                weights[item] += level


@njit(nogil=True)
def move_towards(
    order: Integers, starts: Integers, items: Integers, cap: float, weights: NDArray[np.float64]
) -> None:
    """Every user moves the weights of the basket towards `cap`, along the straight line, by at most 1 in l2."""
    for user in order:
        first, last = starts[user], starts[user + 1]
        squares = 0.0
        for position in range(first, last):
            gap = cap - weights[items[position]]
            squares += gap * gap
        share = 1.0 if squares <= 1.0 else 1.0 / math.sqrt(squares)
        for position in range(first, last):
            item = items[position]
            weights[item] = min(cap, weights[item] + share * (cap - weights[item]))
