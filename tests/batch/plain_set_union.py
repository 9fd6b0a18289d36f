"""Set union in plain dictionaries and exact fractions, as the definitions say it: slow, to compare with."""

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from stream_dp.batch.baskets import Baskets, baskets

Rows = Sequence[tuple[int, int]]


def grouped(rows: Rows, item_count: int) -> Baskets:
    """The mechanisms' input from (user, item) rows."""
    pairs = np.array(rows, np.int64).reshape(-1, 2)
    return baskets(pairs[:, 0].copy(), pairs[:, 1].copy(), item_count)


def held(rows: Rows) -> dict[int, dict[int, int]]:
    """user -> item -> how often."""
    users: dict[int, dict[int, int]] = {}
    for user, item in rows:
        users.setdefault(user, {}).setdefault(item, 0)
        users[user][item] += 1
    return users


def greedy_tokens(preferences: list[list[int]], tokens: int, cap: int, item_count: int) -> list[int]:
    """Every user in turn puts one token after the other on the first item of the list that is below `cap`."""
    weights = [0] * item_count
    for items in preferences:
        for _ in range(tokens):
            open_items = [item for item in items if weights[item] < cap]
            if open_items:
                weights[open_items[0]] += 1
    return weights


def even_tokens(sets: list[list[int]], tokens: int, cap: int, item_count: int) -> list[int]:
    """Every user in turn deals tokens round by round to the items below `cap`, in item order."""
    weights = [0] * item_count
    for items in sets:
        left = tokens
        while left and any(weights[item] < cap for item in items):
            for item in sorted(items):
                if left and weights[item] < cap:
                    weights[item] += 1
                    left -= 1
    return weights


def straight_moves(sets: list[list[int]], cap: float, item_count: int) -> list[float]:
    """Every user in turn moves towards the cap by at most 1 in l2."""
    weights = [0.0] * item_count
    for items in sets:
        gaps = {item: cap - weights[item] for item in items}
        norm = math.sqrt(sum(gap * gap for gap in gaps.values()))
        for item, gap in gaps.items():
            weights[item] += gap if norm <= 1 else gap / norm
    return weights


def posters_greedy(preferences: list[list[int]], cap: Fraction) -> dict[int, Fraction]:
    """The poster's update: a real-valued budget of 1, spent greedily. NOT private; a negative control."""
    weights: dict[int, Fraction] = {}
    for items in preferences:
        budget = Fraction(1)
        for item in items:
            given = min(budget, cap - weights.get(item, Fraction(0)))
            if given > 0:
                weights[item] = weights.get(item, Fraction(0)) + given
                budget -= given
    return weights


def posters_threshold(epsilon: float, delta: float) -> float:
    """1 - ln(2 delta) / epsilon. NOT private; a negative control."""
    return 1 - math.log(2 * delta) / epsilon


def chained_users(labels: int, whole: int) -> tuple[list[list[int]], list[int], Fraction]:
    """Users of at most two items each, the one who differs, and a cap that together break the poster's claim.

    The cap is `whole` + 2 - 1/labels. Item c_i is first brought to `whole` by users who hold nothing else, and to
    1 - r_i more by the chain, r_i = 1 - i / labels. The user (c_i, n_i) then just fits without the differing user; with
    that user's r_i on c_i, 1 / labels of the budget spills over to n_i, a label nobody had given anything. The next
    user (c_i, c_(i+1)) passes the rest of the difference on. Returns the chain, the differing user's items, the cap.
    """
    share = Fraction(1, labels)
    cap = whole + 2 - share
    chain: list[list[int]] = []
    first_novel = labels + 1
    for place in range(labels):
        # Without the differing user, c_place holds 1 - r from the user before (0 for the first, where r = 1).
        chain += [[place]] * whole
        chain += [[place, first_novel + place], [place, place + 1]]
    return chain, [0], cap
