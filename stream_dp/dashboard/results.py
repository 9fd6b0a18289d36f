"""Results of one-shot jobs as the page shows them: only the public fields it knows, whatever else a record holds.

Whoever may write into the topic may write anything: what is larger than any result is none, and what does not fit its
field is not shown.
"""

from math import isfinite
from typing import Any

import msgspec

from stream_dp.events.event import LONGEST_LABEL

MOST_LABELS = 200
LONGEST_TEXT = 2_000
"""Of the texts of a result, which say what was asked for and what is guaranteed."""

_LARGEST = 2**53
"""In either direction; browsers know no larger whole number."""


class Result(msgspec.Struct, frozen=True):
    """One result: `labels` in the order of the record, `counts` alongside if it has any.

    `low` and `high` are the ends of the counts' 95% intervals, if the record has them.
    `source` is the data source that was charged.  `released` is how many labels the result holds; `labels` has at most
    `MOST_LABELS` of them.  `notes` are sentences.  `delta` of the `cost` is the one that goes with its `epsilon`.
    """

    id: str
    part: int
    title: str
    source: str
    labels: list[str]
    counts: list[int] | None
    low: list[int] | None
    high: list[int] | None
    released: int
    notes: list[str]
    cost: dict[str, float]
    guarantee: str
    ts: str


def read_result(key: bytes | None, value: bytes | None) -> Result | None:
    """The result in a record of `<stream>.results`; None if it is none, or that of a job that released nothing yet."""
    try:
        found = msgspec.json.decode(value or b"")
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    if not isinstance(found, dict) or found.get("status") != "done":
        return None
    labels = found.get("labels", [])
    if not isinstance(labels, list) or not all(_is_label(label) for label in labels):
        return None
    return Result(
        id=_text(found, "id") or (key or b"").decode(errors="replace")[:LONGEST_TEXT],
        part=_whole(found.get("part")) or 1,
        title=" · ".join(filter(None, (_text(found, "job"), _text(found, "mechanism")))) or "Result",
        source=_text(found, "source"),
        labels=labels[:MOST_LABELS],
        counts=_column(found, "counts", len(labels)),
        low=_column(found, "low", len(labels)),
        high=_column(found, "high", len(labels)),
        released=len(labels),
        notes=_notes(found, labels),
        cost=_cost(found.get("cost")),
        guarantee=_text(found, "guarantee"),
        ts=_text(found, "ts"),
    )


def joined(first: Result, following: Result) -> Result | None:
    """A result and its next part as one; None where it is no part of this result."""
    told = ("title", "source", "notes", "cost", "guarantee", "ts")
    if following.part != first.part + 1 or any(
        getattr(first, name) != getattr(following, name) for name in told
    ):
        return None
    room = MOST_LABELS - len(first.labels)
    columns = {
        name: None if None in (mine, theirs) else mine + theirs[:room]
        for name, mine, theirs in (
            (name, getattr(first, name), getattr(following, name)) for name in ("counts", "low", "high")
        )
    }
    return msgspec.structs.replace(
        first,
        part=following.part,
        labels=first.labels + following.labels[:room],
        **columns,
        released=first.released + following.released,
    )


def _is_label(value: object) -> bool:
    return isinstance(value, str) and len(value) <= LONGEST_LABEL


def _text(found: dict[str, Any], name: str) -> str:
    value = found.get(name)
    return value if isinstance(value, str) and len(value) <= LONGEST_TEXT else ""


def _whole(value: object) -> int | None:
    return value if type(value) is int and abs(value) <= _LARGEST else None


def _number(value: object) -> float | None:
    """A number that every reader of JSON knows."""
    if isinstance(value, float) and isfinite(value):
        return value
    whole = _whole(value)
    return None if whole is None else float(whole)


def _column(found: dict[str, Any], name: str, labels: int) -> list[int] | None:
    column = found.get(name)
    if not isinstance(column, list) or len(column) != labels or any(_whole(each) is None for each in column):
        return None
    return column[:MOST_LABELS]


def _notes(found: dict[str, Any], labels: list[str]) -> list[str]:
    rank = _whole(found.get("rank"))
    if rank is not None:
        return [f"The largest gap comes after rank {rank:,}."]
    if not labels:
        return ["No label was released."]
    fewer = ["There are fewer labels than were asked for."] if found.get("bottom") is True else []
    return fewer + [told for told in [_text(found, "counts_what")] if told]


def _cost(cost: object) -> dict[str, float]:
    """What was charged: (epsilon, delta) as they belong together, and rho."""
    if not isinstance(cost, dict):
        return {}
    names = {"epsilon": "epsilon", "delta": "at_delta", "rho": "rho"}
    numbers = {name: _number(cost.get(field)) for name, field in names.items()}
    return {name: number for name, number in numbers.items() if number is not None}
