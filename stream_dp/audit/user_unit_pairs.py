"""Neighbours in the user unit: all events of one user are emptied, and the rest of the log stays as it is.

Records go through the real intake, which cuts rounds and decides what counts, and then through the real running
histogram.  `controls.py` decides what counts in ways that are not the user's own.
"""

from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from stream_dp.audit.bounds import Views
from stream_dp.audit.examine import LARGER, Pair
from stream_dp.audit.running_pairs import Neighbours, open_releases, open_table
from stream_dp.audit.running_replicas import Situation, replicas
from stream_dp.audit.running_views import views
from stream_dp.config.settings import Settings
from stream_dp.engine.epoch import Epoch
from stream_dp.events.record import Record
from stream_dp.pipeline.intake import Intake

NAME = "user-unit-admission"

Stream = Sequence[tuple[int, Sequence[int]]]
"""The user and the items of each event."""

Admission = Callable[[Stream], list[list[int]]]
"""The items that each round admits."""

DIFFERING = 0
"""The user whose events are emptied."""

HORIZON = 31
STREAM: Stream = [(user, [user]) for _ in range(7) for user in (1, 2, 3, DIFFERING)]
"""Three users and the differing one come round seven times, each with an item of their own."""

ALONE: Stream = [(DIFFERING, [0])] * HORIZON
"""The differing user comes in every round, with one item."""

_MANY: Stream = [
    (1, [5]), (DIFFERING, [0, 1]), (1, [5]), (2, [5, 1]), (DIFFERING, [1, 2, 3]), (2, [5]), (3, [4]), (3, [1]),
    (DIFFERING, [4, 0]), (1, [2]), (DIFFERING, [3]), (2, [2]), (3, [5]), (1, [1]),
]  # fmt: skip
"""The differing user brings five items where three count; two of them come from other users, too, later."""


def pairs() -> list[Pair]:
    """All of them."""
    return [
        admitted_by(admitted, "a user who comes back seven times", STREAM, control=False),
        admitted_by(admitted, "a user who comes in every round", ALONE, control=False),
        admitted_by(
            partial(admitted, items_per_user=3), "a user with 3 items that count and 2 that do not", _MANY, 3,
            control=False,
        ),
        _released("the same through the threshold, in rounds of 2 events", "every-2"),
    ]  # fmt: skip


def epoch(items_per_user: int, rounds: str) -> Epoch:
    """An epoch of the user unit, opened as a worker opens it."""
    settings = Settings(
        stream="audit",
        unit="user",
        mechanism="binary",
        items_per_user=items_per_user,
        rounds=rounds,
        horizon=15,
        epsilon=2.0,
        delta=0.02,
    )
    return Epoch.open(settings, 1, 0)


def admitted(stream: Stream, items_per_user: int = 1, rounds: str = "per-event") -> list[list[int]]:
    """What each round admits, by the intake of a worker; an event of a negative user is an empty one."""
    records = [
        Record(offset, 0, None, event_value(user, items) if user >= 0 else None)
        for offset, (user, items) in enumerate(stream)
    ]
    intake = Intake(epoch(items_per_user, rounds), bytes(32), "audit.events")
    closed = intake.process(records, len(records))
    return [[int(label) for label in labels] for labels in closed.admitted]


def event_value(user: int, items: Sequence[int]) -> bytes:
    """An event in our own format."""
    return msgspec.json.encode({"items": [str(item) for item in items], "user": str(user)})


def emptied(stream: Stream) -> Stream:
    """The smaller stream."""
    return [(-1, items) if user == DIFFERING else (user, items) for user, items in stream]


def admitted_by(
    admission: Admission, name: str, stream: Stream, items_per_user: int = 1, *, control: bool
) -> Pair:
    """Items admitted from the whole of `stream` and from its neighbour, with everything in the open."""
    mechanism, epsilon = open_table(HORIZON, items_per_user, 1.0, 1e-3)
    sides = [_situation(admission(emptied(stream))), _situation(admission(stream))]
    first = next(number for number, (user, _) in enumerate(stream, 1) if user == DIFFERING)

    def sample(side: int, runs: int, key: bytes) -> Views:
        all_items = Neighbours(1, sorted({item for _, items in stream for item in items}), sides[side])
        return views(open_releases(mechanism, all_items, 1 - LARGER, runs, key), first)

    return Pair(NAME, name, epsilon, 1e-3, sample, 20_000, control)


def _released(name: str, rounds: str) -> Pair:
    """`_MANY` and its neighbour through the threshold, as a worker calibrates it."""
    opened = epoch(3, rounds)
    sides = [_situation(admitted(stream, 3, rounds)) for stream in (emptied(_MANY), _MANY)]
    first = min(number for number in sides[LARGER] if sides[LARGER][number] != sides[1 - LARGER].get(number))
    items = 1 + max(item for _, each in _MANY for item in each)

    def sample(side: int, runs: int, key: bytes) -> Views:
        return views(replicas(opened.mechanism, sides[side], items, runs, key), first)

    return Pair(NAME, name, opened.guarantee.epsilon, opened.guarantee.delta, sample, 60_000)


def _situation(rounds: list[list[int]]) -> Situation:
    return {number: items for number, items in enumerate(rounds, 1) if items}
