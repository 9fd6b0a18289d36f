"""Another engine in a few lines of Python: it counts a log as docs/operations/counts.md asks, without our intake."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from stream_dp.events.barrier_chain import BarrierChain
from stream_dp.events.merged_log import LogEntry
from stream_dp.events.record import Record


def items_of(value: bytes | None, bound: int) -> list[str]:
    """The first `bound` distinct items of an event; none of a record that is no event."""
    try:
        found = json.loads((value or b"").decode())
        items = found["items"]
    except (ValueError, KeyError, TypeError):
        return []
    if not isinstance(items, list) or not all(
        isinstance(each, str) and 0 < len(each) <= 1024 for each in items
    ):
        return []
    return list(dict.fromkeys(items))[:bound]


def records_of(
    place: Mapping[str, Any], counts: Mapping[str, int], per_part: int = 2
) -> list[dict[str, Any]]:
    """The counts of one round and partition, so many labels a record; one record where there are none."""
    pairs = [{"label": label, "count": count} for label, count in counts.items()]
    pieces = [pairs[start : start + per_part] for start in range(0, len(pairs), per_part)] or [[]]
    return [
        {**place, "part": part, "parts": len(pieces), "counts": piece} for part, piece in enumerate(pieces, 1)
    ]


def counted(entries: Iterable[LogEntry], chain: BarrierChain, bound: int) -> Iterator[dict[str, Any]]:
    """The records of a log, in which events come before the barrier that closes their round.

    `chain` is where the barriers begin, and says again what their writer wrote.
    """
    waiting: list[Record] = []
    for entry in entries:
        if isinstance(entry, Record):
            waiting.append(entry)
            continue
        tag, before = json.loads(chain.encode(entry.due, entry.offsets))["tag"], chain.last
        chain.last = entry
        for partition in range(len(entry.offsets)):
            mine = [each.value for each in waiting if each.partition == partition]
            counts = Counter(label for value in mine for label in items_of(value, bound))
            place = {"partition": partition, "n": entry.number, "tag": tag, "first": before.end_of(partition)}
            yield from records_of({**place, "bound": bound}, counts)
        waiting = []


def encoded(record: Mapping[str, Any]) -> bytes:
    """As JSON."""
    return json.dumps(record).encode()
