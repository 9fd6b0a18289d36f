"""Neighbours where the unit is a user's day: all that one user brings on one day is emptied.

Records and barriers go through the real intake, a round an hour, and then through the real running histogram.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from stream_dp.audit.bounds import Views
from stream_dp.audit.examine import LARGER, Pair
from stream_dp.audit.running_pairs import Neighbours, open_releases, open_table
from stream_dp.audit.running_replicas import Situation
from stream_dp.audit.running_views import views
from stream_dp.audit.user_unit_pairs import DIFFERING, Stream, event_value
from stream_dp.config.settings import Settings
from stream_dp.engine.epoch import Epoch
from stream_dp.events.barrier_chain import PARTITION, BarrierChain, beginning
from stream_dp.events.merged_log import LogEntry
from stream_dp.events.record import Record
from stream_dp.pipeline.intake import Intake, Position

NAME = "user-day-admission"

Hours = Sequence[Stream]
"""What users bring in each hour, of several days."""

Admission = Callable[[Hours, int], list[list[int]]]
"""The items that each hour admits, where so many of a user count a day."""

DAY, DAYS = 24, 2
_HOUR_MILLISECONDS = 3_600_000
_KEY = bytes(32)

ALWAYS: Hours = [[(DIFFERING, [0])]] * DAY * DAYS
"""The differing user comes in every hour of both days, with one item."""

_MANY: Hours = [
    [[(DIFFERING, [hour % 4, 1])], [(1, [5, hour % 3])], [(DIFFERING, [(hour + 1) % 5])], [(2, [1, 5])]][
        hour % 4
    ]
    for hour in range(DAY * DAYS)
]
"""The differing user brings more items than count, some of which others bring too."""


def pairs() -> list[Pair]:
    """All of them."""
    return [
        admitted_by(admitted, "the first day of a user who comes in every hour", ALWAYS, 0),
        admitted_by(admitted, "the second day of a user who comes in every hour", ALWAYS, 1),
        admitted_by(admitted, "a day with 2 items that count and 3 that do not", _MANY, 1, items_per_user=2),
    ]


def admitted(hours: Hours, items_per_user: int = 1, restarts: bool = False) -> list[list[int]]:
    """What each hour admits, by the intake of a worker; with `restarts`, of one that forgets in every hour."""
    settings = Settings(
        stream="audit", unit="user-day", items_per_user=items_per_user, rounds="ticks", horizon=DAY * DAYS
    )
    of = replace(Epoch.open(settings, 1, 0), after_barrier=beginning("audit", 0, 0))
    rounds: list[list[int]] = []
    position, pairs = Position.at_start_of(of), b""
    for entries in _log(of, hours):
        intake = Intake(of, _KEY, "audit.events", position, pairs)
        closed = intake.process(entries, len(entries))
        rounds += [[int(label) for label in labels] for labels in closed.admitted]
        position, pairs = intake.position, b"" if restarts else bytes(intake.pairs)
    return rounds


def _log(of: Epoch, hours: Hours) -> list[list[LogEntry]]:
    """The entries of each hour; before the first, a barrier at midnight.

    The hour before midnight ends a second earlier, and nothing comes in that second, which is counted nowhere.
    """
    assert of.after_barrier is not None
    chain, offset = BarrierChain(_KEY, "audit", of.after_barrier), 0
    found: list[list[LogEntry]] = []
    for number, events in enumerate([[], *hours]):
        values = [event_value(user, items) if user >= 0 else None for user, items in events]
        records = [Record(place, 0, None, value) for place, value in enumerate(values, offset)]
        offset += len(records)
        due = (DAY * 365 + number) * _HOUR_MILLISECONDS
        dues = (due,) if number % DAY else (due - 1_000, due)
        barriers = [
            chain.take(chain.last.next_offset, chain.encode(each, {PARTITION: offset})) for each in dues
        ]
        found.append([*records, *filter(None, barriers)])
    return found


def emptied(hours: Hours, day: int) -> Hours:
    """The smaller log: what the differing user brought on this day is gone."""
    return [
        [(-1 if user == DIFFERING and number // DAY == day else user, items) for user, items in events]
        for number, events in enumerate(hours)
    ]


def admitted_by(
    admission: Admission,
    name: str,
    hours: Hours,
    day: int,
    items_per_user: int = 1,
    *,
    control: bool = False,
) -> Pair:
    """Items admitted from all of `hours` and from the neighbour, with everything in the open."""
    mechanism, epsilon = open_table(DAY * DAYS, items_per_user, 1.0, 1e-3)
    sides = [_situation(admission(each, items_per_user)) for each in (emptied(hours, day), hours)]
    items = sorted({item for events in hours for _, each in events for item in each})

    def sample(side: int, runs: int, key: bytes) -> Views:
        neighbours = Neighbours(1, items, sides[side])
        return views(open_releases(mechanism, neighbours, 1 - LARGER, runs, key), DAY * day + 1)

    return Pair(NAME, name, epsilon, 1e-3, sample, 20_000, control)


def _situation(rounds: list[list[int]]) -> Situation:
    return {number: items for number, items in enumerate(rounds, 1) if items}
