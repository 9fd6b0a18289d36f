"""`stream-dp plan`: processor, memory, Redis and bandwidth that a stream of a given size needs."""

from dataclasses import asdict
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from stream_dp.cli import options
from stream_dp.cli.mistakes import Mistake
from stream_dp.cli.output import facts
from stream_dp.counters.protocol import LARGEST_HORIZON
from stream_dp.counters.window import LARGEST_WINDOW
from stream_dp.planning.comparison import counters_asked
from stream_dp.planning.costs import Costs, costs_of
from stream_dp.planning.plan import Plan, Workload
from stream_dp.planning.plan import plan as planned
from stream_dp.planning.release_sizes import CODECS
from stream_dp.planning.spark_plan import SPARK_FORMULAS, SparkCosts, SparkPlan


def plan(
    labels: Annotated[int, typer.Option(min=1, help="Labels that the stream will hold.")],
    events_per_second: Annotated[float, typer.Option(min=1e-6, help="Events a second, at the busiest time.")],
    horizon: Annotated[int, typer.Option(min=1, help="Rounds of an epoch.")] = 65_535,
    visible: Annotated[
        int | None,
        typer.Option(min=0, help="Labels above the threshold.", show_default="1,000, or all if fewer"),
    ] = None,
    active: Annotated[
        int | None,
        typer.Option(min=0, help="Labels that events still bring.", show_default="all"),
    ] = None,
    events_per_round: Annotated[int, typer.Option(min=1, help="Events that close a round.")] = 1,
    items_per_event: Annotated[int, typer.Option(min=1, help="Items of an event that are counted.")] = 4,
    label_bytes: Annotated[int, typer.Option(min=1, help="Bytes of an average label in UTF-8.")] = 16,
    mechanism: Annotated[
        str | None, typer.Option(metavar="NAME", help="The counter.", show_default="blt")
    ] = None,
    discover: options.Discover = None,
    compression: Annotated[
        str, typer.Option(metavar="CODEC", help="Of the releases: zstd, gzip, snappy, lz4 or none.")
    ] = "zstd",
    replicas: Annotated[int, typer.Option(min=1, help="Brokers that keep each release.")] = 3,
    window: options.Window = None,
    as_json: options.Json = False,
) -> None:
    """Estimate what a stream of a given size needs, by what the work took where it was measured.

    docs/scaling.md explains the model and its measured costs, and how to measure another machine. With --window, labels
    are those of two windows.

    [bold]Examples[/]

      stream-dp plan --labels 100000 --events-per-second 1000

      stream-dp plan --labels 1000 --events-per-second 1000 --compression none --replicas 1

      stream-dp plan --labels 100000 --events-per-second 1000 --window 60

      stream-dp plan --labels 10000000 --events-per-second 50000 --horizon 16777215 --events-per-round 1000
    """
    if compression not in CODECS:
        raise Mistake(f"compression must be one of {', '.join(CODECS)}, not {compression!r}")
    asked = mechanism if mechanism or window else "blt"
    names, [length] = counters_asked(asked, discover, window, [horizon])
    if len(names) > 1:
        raise Mistake(f"a plan is for one counter, not for {' and '.join(names)}")
    [name] = names
    if window is not None and length > LARGEST_WINDOW:
        raise Mistake(f"a window has at most {LARGEST_WINDOW:,} rounds: let a round hold more events instead")
    if horizon > LARGEST_HORIZON:
        raise Mistake(f"horizon must be at most {LARGEST_HORIZON:,}: let a round hold more events instead")
    shown = min(labels, 1_000) if visible is None else visible
    if shown > labels:
        raise Mistake(f"{shown:,} labels cannot be visible where there are {labels:,}: lower --visible")
    if active is not None and active > labels:
        raise Mistake(f"{active:,} labels cannot be active where there are {labels:,}: lower --active")
    work = Workload(
        labels,
        shown,
        events_per_second,
        events_per_round,
        items_per_event,
        horizon,
        label_bytes,
        compression,
        replicas,
        window or 0,
        active,
        at_tests=name == "blt",
    )
    costs = costs_of(name, compression)
    found = planned(work, costs)
    if as_json:
        told = {"workload": work, "formulas": work.formulas, "costs": costs, "plan": found}
        typer.echo(msgspec.json.encode(told).decode())
    else:
        _print(work, costs, found)


def _print(work: "Workload", costs: "Costs", found: "Plan") -> None:
    console = Console(highlight=False, soft_wrap=True)
    rows = [(name, _value(name, value)) for name, value in found.needs.items() if " a day" not in name]
    rows += [
        ("releases on disk", str(found.releases_a_day)),
        ("table, if written", str(found.table_a_day)),
        ("an epoch lasts", "for ever" if found.epoch_seconds is None else _duration(found.epoch_seconds)),
    ]
    console.print(facts(rows))
    console.print(f"\n[bold]It takes {found.answer}[/]")
    if found.spark is not None:
        console.print(
            'The lines above are what one worker would take.  With Spark, for unit = "event" and rounds = "ticks", '
            "it takes (users take six times the cores that count):"
        )
        console.print(_on_spark(found.spark))
    for sentence in found.limits:
        console.print(f"[yellow]{sentence}[/]")
    console.print(
        "\nThe formulas, in processor seconds a second, bytes, bytes a second, and bytes a day of one replica:"
    )
    formulas = work.formulas | ({} if found.spark is None else SPARK_FORMULAS)
    for name, formula in formulas.items():
        console.print(f"[bold]{name:<24}[/] {formula}")
    console.print(
        f"\nHere E = {work.events_per_second:,.10g} events and "
        f"R = {work.rounds_per_second:,.10g} rounds a second, i = {work.items_per_event:,} items an event and "
        f"k = {work.items_per_event * work.events_per_round:,} a round, N = {work.labels:,} labels of "
        f"L = {work.label_bytes:,} bytes, V = {work.visible:,} of them visible, {_window(work)}"
        f"and {work.compression} leaves the share C = {found.compressed:.2g} of the releases."
    )
    told = [*asdict(costs).items(), *(asdict(SparkCosts()).items() if found.spark is not None else ())]
    seconds = ", ".join(f"{name} {value * 1e6:.3g}" for name, value in told if value < 1)
    console.print(f"Measured, in microseconds: {seconds}.")
    console.print(
        f"Fixed, in bytes: {', '.join(f'{name} {value:,.10g}' for name, value in told if value >= 1)}."
    )


def _on_spark(spark: SparkPlan) -> Table:
    needs = spark.needs
    return facts(
        [
            ("cores", f"{spark.cores}, and {needs['Spark, counting']:.1f} of them are busy with counting"),
            ("a test", f"{spark.test_seconds:,.1f} seconds, while rounds wait"),
            ("memory of a core", f"{needs['Spark, memory of a core'] / 1e6:,.0f} MB"),
            ("shared folder", f"{needs['Spark, folder'] / 1e9:,.1f} GB"),
        ]
    )


def _value(name: str, value: float) -> str:
    if name.startswith("Kafka"):
        return f"{value / 1e6:,.2f} MB/s"
    if name in ("Redis", "memory"):
        return f"{value / 1e6:,.0f} MB"
    return f"{value:.0%} of a processor"


def _window(work: Workload) -> str:
    return f"W = {work.window:,} rounds a window, " if work.window else ""


def _duration(seconds: float) -> str:
    for unit, size in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:,.0f} seconds"
