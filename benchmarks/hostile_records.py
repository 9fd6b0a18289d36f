"""What the values of records made to cost as much as they can cost to decode, per kB of them."""

from collections.abc import Callable
from statistics import median
from typing import get_args

from rich.console import Console
from rich.table import Table

from benchmarks.measure import take_turns
from stream_dp.config.events_section import Format
from stream_dp.events.event import BadRecord, decode_event
from stream_dp.events.record import LARGEST_VALUE
from tests.events.hostile_records import HostileRecord, hostile_records
from tests.events.mapping.hostile_records import hostile, readers

SIZES = (1 << 10, 1 << 14, 1 << 17, LARGEST_VALUE - 2048)
TURNS = 3
_SHOWN = 5
_ONE_IN = 7
"""So much of the families of the formats that a mapping reads is measured."""


def main(console: Console) -> None:
    """Print microseconds per kB over the sizes: of an ordinary event, of the family's middle, and of its worst."""
    family = list(hostile_records())
    ordinary = HostileRecord(b'{"items":["a"],"note":"', b"no items here ", b'"}')
    costs = {record: [_per_kilobyte(record, size) for size in SIZES] for record in [ordinary, *family]}
    table = Table(
        "value",
        *(f"{size / 1024:,.0f} kB" for size in SIZES),
        title=f"Decoding {len(family):,} kinds of hostile records: us per kB",
    )
    table.add_row("an event with a long note", *_row(costs[ordinary]))
    table.add_row(
        "median of the family", *_row([median(found) for found in zip(*costs.values(), strict=True)])
    )
    worst = sorted(family, key=lambda record: -costs[record][-1])[:_SHOWN]
    for record in worst:
        table.add_row(f"{record.opening[-12:]!r} + {record.unit!r} ...", *_row(costs[record]))
    console.print(table)
    table = Table("format", *(f"{size / 1024:,.0f} kB" for size in SIZES))
    table.title = "Reading hostile records by a mapping: us per kB, of the worst at the largest size"
    for kind in get_args(Format):
        found = [
            [_per_kilobyte(record, size, read) for size in SIZES]
            for read in readers(kind)
            for record in list(hostile(kind))[::_ONE_IN]
        ]
        table.add_row(kind, *_row(max(found, key=lambda each: each[-1])))
    console.print(table)


def _decode(value: bytes) -> None:
    try:
        decode_event(value)
    except BadRecord:
        return


def _per_kilobyte(record: HostileRecord, size: int, read: Callable[[bytes], object] = _decode) -> float:
    """Microseconds."""
    value = record.value(size)
    return take_turns({"": lambda: read(value)}, TURNS)[""] * 1e6 / (len(value) / 1024)


def _row(costs: list[float]) -> list[str]:
    return [f"{cost:,.1f}" for cost in costs]
