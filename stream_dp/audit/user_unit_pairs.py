"""Admission in the user unit, as a model beside the real histogram: who decides whether a (user, item) pair counts?

Neighbours differ by emptying all events of one user.  The bound needs every pair to count once over the whole horizon,
and a user to bring at most `items_per_user` items, by bookkeeping that is the user's own.  What is admitted then runs
through the real running histogram.  `controls.py` decides admission by a filter that users share.
"""

from collections.abc import Callable, Sequence

from stream_dp.audit.bounds import Views
from stream_dp.audit.examine import LARGER, Pair
from stream_dp.audit.running_pairs import Neighbours, open_releases, open_table
from stream_dp.audit.running_views import views

Stream = Sequence[tuple[int, int]]
"""One (user, item) a round."""

Admission = Callable[[Stream], list[list[int]]]
"""The items that each round admits."""

DIFFERING = 0
"""The user whose events are emptied."""

HORIZON = 31
STREAM: Stream = [(user, user) for _ in range(7) for user in (1, 2, 3, DIFFERING)]
"""Three users and the differing one come round seven times, each with an item of their own."""

_EMPTY = -1  # the user of an emptied event


def exact(stream: Stream, items_per_user: int = 1) -> list[list[int]]:
    """Every user's own items, never forgotten."""
    own: dict[int, set[int]] = {}
    admitted = []
    for user, item in stream:
        held = own.setdefault(user, set())
        new = user != _EMPTY and item not in held and len(held) < items_per_user
        if new:
            held.add(item)
        admitted.append([item] if new else [])
    return admitted


def pairs() -> list[Pair]:
    """The rule that passes."""
    return [admitted_by(exact, "a user who comes back seven times", control=False)]


def admitted_by(admission: Admission, name: str, *, control: bool) -> Pair:
    """Items admitted from the whole stream, and from the one in which the differing user's events are empty."""
    mechanism, epsilon = open_table(HORIZON, 1, 1.0, 1e-3)
    emptied = [(_EMPTY, item) if user == DIFFERING else (user, item) for user, item in STREAM]

    def sample(side: int, runs: int, key: bytes) -> Views:
        admitted = admission(STREAM if side == LARGER else emptied)
        situation = {r: items for r, items in enumerate(admitted, 1) if items}
        all_items = Neighbours(1, sorted({item for _, item in STREAM}), situation)
        return views(open_releases(mechanism, all_items, 1 - LARGER, runs, key), 4)

    return Pair("user-unit-admission", name, epsilon, 1e-3, sample, 20_000, control)
