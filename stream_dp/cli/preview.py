"""`stream-dp preview`: what candidates for the settings would show of a log that everybody may see."""

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console

from stream_dp.cli import options
from stream_dp.cli.mistakes import Mistake
from stream_dp.cli.options import DEFAULTS
from stream_dp.cli.output import spaced, steps_bar
from stream_dp.cli.reach import require_kafka, require_topic
from stream_dp.cli.registry import decoding
from stream_dp.counters import WINDOW
from stream_dp.counters.protocol import CalibratedCounter
from stream_dp.counters.window import WindowMechanism
from stream_dp.engine.known_labels import read_list
from stream_dp.events.event import Event
from stream_dp.events.stored_files import stored_file
from stream_dp.planning.comparison import (
    Calibrated,
    calibrate_each,
    compared_name,
    counters_asked,
    settings_of,
)
from stream_dp.planning.preview import PublicLog, Seen, decoded, run, seen, throw_away_noise
from stream_dp.privacy.composition import Unit
from stream_dp.replay.source import FileSource, TopicSource


def preview(
    events: options.PublicFile = None,
    topic: Annotated[
        str | None,
        typer.Option(help="A PUBLIC topic instead of a file; settings that name it say how to read it."),
    ] = None,
    public: options.Public = False,
    mechanism: Annotated[
        str | None, typer.Option(metavar="NAME,...", help="The counters to try; without it, all of them.")
    ] = None,
    discover: Annotated[
        str | None,
        typer.Option(
            metavar="default,every-round",
            help="When blt looks for new labels, to try: at the default tests, or in every round.",
            show_default="default",
        ),
    ] = None,
    epsilon: Annotated[
        str, typer.Option(metavar="E,...", help="The epsilons to try, each for all rounds together.")
    ] = f"{DEFAULTS['epsilon']:g}",
    delta: Annotated[float, typer.Option(help="Delta of each guarantee.")] = DEFAULTS["delta"],
    horizon: Annotated[
        str | None,
        typer.Option(
            metavar="L,...", help="The horizons to try; without it, the least 2^k - 1 that holds the log."
        ),
    ] = None,
    window: options.Window = None,
    items_per_event: Annotated[
        str,
        typer.Option(
            metavar="D,...", help="The most distinct items of one event, or of one user, that count, to try."
        ),
    ] = str(DEFAULTS["items_per_event"]),
    unit: options.Protected = "event",
    shown: options.ShownRule = DEFAULTS["shown"],
    known_labels: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Labels that are public in advance and always shown, one a line."),
    ] = None,
    runs: options.Runs = 3,
    settings: options.SettingsFile = None,
    kafka: options.Kafka = None,
    as_json: options.Json = False,
) -> None:
    """Try candidate settings on a PUBLIC log, and compare what they show with the true counts.

    Every candidate runs as a stream would, one event a round, with noise keys that are thrown away. What is printed is
    compared with the true counts: on private data it has no guarantee at all. Take a public log that resembles yours,
    or one that you made up. Records of a topic's partitions are taken in the order of their times.

    [bold]Examples[/]

      stream-dp preview --events flights.jsonl --public

      stream-dp preview --events flights.jsonl --public --mechanism blt --epsilon 0.5,1,2 --runs 10

      stream-dp preview --events flights.jsonl --public --window 1000

      stream-dp preview --topic orders --settings stream.toml --public

      stream-dp preview --events flights.jsonl --public --known-labels airports.txt

      stream-dp preview --events flights.jsonl --public --mechanism binary,blt --horizon 65535,1048575 --json
    """
    options.require_public(public, "preview")
    epsilons = options.numbers(epsilon, float, "--epsilon")
    limits = options.numbers(items_per_event, int, "--items-per-event")
    horizons = None if horizon is None else options.numbers(horizon, int, "--horizon")
    if (events is None) == (topic is None):
        raise Mistake("say what to preview: either a file, with --events, or a topic, with --topic")
    names, sizes = counters_asked(mechanism, discover, window, horizons or (), unit)
    _check_uses(window, horizons, unit, shown, known_labels)
    log = _log(events, topic, settings, kafka, unit, hidden=as_json)
    if not log.counts:
        what = f"the topic {topic!r}" if topic else f"the file {events!r}"
        needed = "items and users" if unit == "user" else "items"
        raise Mistake(f"{what} holds no events that count: give a log with {needed}")
    sizes = sizes or [2 ** len(log.events).bit_length() - 1]
    if window is None and min(sizes) < len(log.events):
        raise Mistake(
            f"the log holds {len(log.events)} events, but a horizon of {min(sizes)} ends before: raise --horizon"
        )
    candidates, refused = list[Calibrated](), list[str]()
    for each, size, most in product(epsilons, sizes, limits):
        found, why = calibrate_each(each, delta, size, most, names, unit, shown)
        candidates += found
        refused += why.values()
    known = read_list(None if known_labels is None else str(known_labels)).labels
    shown_of = _run(log, [noise for noise, _ in candidates], runs, known, hidden=as_json)
    report = _report(log, candidates, shown_of)
    report |= {
        "delta": delta,
        "shown": shown if window is None else WINDOW,
        "known": len(known),
        "runs": runs,
        "refused": refused,
    }
    if as_json:
        typer.echo(json.dumps(report))
    else:
        _print(report)


def _check_uses(
    window: int | None, horizons: list[int] | None, unit: Unit, shown: str, known_labels: Path | None
) -> None:
    """Refuse what windows have no use for, and days, which no file tells."""
    if unit == "user-day":
        raise Mistake("a preview knows no days: give it the log of one day, with --unit user")
    others = {
        "--horizon": horizons is not None,
        "--shown": shown != DEFAULTS["shown"],
        "--known-labels": known_labels is not None,
    }
    wrong = [name for name, given in others.items() if given]
    if window is not None and wrong:
        raise Mistake(f"windows have no use for {wrong[0]}: leave it out, or --window")


def _log(
    file: str | None, topic: str | None, settings: Path | None, kafka: str | None, unit: Unit, hidden: bool
) -> PublicLog:
    """All of a file, or of a topic as it is now; records are mapped where the settings read this topic."""
    if topic is None:
        return PublicLog.of((row.value for row in FileSource(stored_file(file or "")).rows()), unit)
    found = options.settings_or_name(topic, settings, kafka)
    require_kafka(found.kafka)
    require_topic(found.kafka_address, topic)
    source = TopicSource(found.kafka_address, topic)
    with (
        decoding(found.mapping if topic == found.events else None) as decode,
        steps_bar("Reading", len(source), hidden) as step,
    ):

        def events() -> Iterator[Event]:
            for row in source.rows():
                step()
                yield decoded(row.record, decode)

        return PublicLog.of_events(events(), unit)


def _run(
    log: "PublicLog", mechanisms: "list[CalibratedCounter]", runs: int, known: list[str], hidden: bool
) -> "list[Seen]":
    with steps_bar("Running", len(mechanisms) * runs * len(log.events), hidden) as step:
        return [
            seen(
                log.last(each.window) if isinstance(each, WindowMechanism) else log,
                [run(log, each, throw_away_noise(), step, known=known) for _ in range(runs)],
            )
            for each in mechanisms
        ]


def _report(log: "PublicLog", candidates: "list[Calibrated]", seen: "list[Seen]") -> dict[str, Any]:
    return {
        "unit": log.unit,
        "events": len(log.events),
        "labels": len(log.counts),
        "counted": {
            limit: log.counted(limit) for limit in {noise.items_per_event for noise, _ in candidates}
        },
        "candidates": [
            {
                **settings_of(noise),
                "epsilon": guarantee.epsilon,
                **_length(noise),
                "items_per_event": noise.items_per_event,
                **asdict(each),
            }
            for (noise, guarantee), each in zip(candidates, seen, strict=True)
        ],
    }


def _length(noise: CalibratedCounter) -> dict[str, Any]:
    """How many rounds it counts, and of windows the highest sd and what it costs for ever."""
    if not isinstance(noise, WindowMechanism):
        return {"horizon": noise.horizon}
    rounds = np.arange(1, 2 * noise.window + 1)
    return {"window": noise.window, "sd": float(np.max(noise.sds(rounds))), "rho": noise.rho}


_SETTINGS: dict[str, tuple[str, str]] = {
    "epsilon": ("epsilon", "g"),
    "horizon": ("horizon", ","),
    "window": ("window", ","),
    "sd": ("sd", ".1f"),
    "rho": ("rho", ".4g"),
    "items_per_event": ("items", ","),
}

_COLUMNS: "dict[str, Callable[[dict[str, Any]], str]]" = {
    "seen": lambda told: f"{told['labels']:,.0f}",
    "ever": lambda told: f"{told['ever']:,.0f}",
    "top 10/50/100": lambda told: "/".join(f"{100 * part:.0f}" for part in told["recall"].values()) + "%",
    "error": lambda told: "-" if told["relative_error"] is None else f"{told['relative_error']:.1%}",
    "first": lambda told: _round(told["first_label"]),
    "top 10 from": lambda told: _round(told["first_top"]),
}


def _round(number: float | None) -> str:
    return "never" if number is None else f"{number:,.0f}"


def _print(report: dict[str, Any]) -> None:
    """A row for every candidate; settings that all of them share stand above."""
    candidates = report["candidates"]
    values = {
        name: [format(each[name], form) for each in candidates]
        for name, (_, form) in _SETTINGS.items()
        if name in candidates[0]
    }
    varied = [name for name in values if len(set(values[name])) > 1]
    shared = [f"{_SETTINGS[name][0]} {values[name][0]}" for name in values if name not in varied]
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"{report['events']:,} events with {report['labels']:,} labels")
    console.print(", ".join([*shared, f"delta {report['delta']:g}", f"unit {report['unit']}"]))
    for limit, part in sorted(report["counted"].items()):
        console.print(
            f"{part:.0%} of the true counts is within the first {limit:,} items of each {report['unit']}"
        )
    table = spaced("mechanism", right=(*(_SETTINGS[name][0] for name in varied), *_COLUMNS))
    for row, each in enumerate(candidates):
        own = [values[name][row] for name in varied]
        name = compared_name(each["mechanism"], each["discover"])
        table.add_row(f"[bold]{name}[/]", *own, *(column(each) for column in _COLUMNS.values()))
    console.print()
    console.print(table)
    for reason in report["refused"]:
        console.print(reason)
    if "window" in values:
        console.print(
            f"\nWindows: what the last {values['window'][0]} events held is shown and compared, with noise of at most "
            "this sd,\nand the epoch is charged its rho once, however long the stream runs."
        )
    runs = "one run" if report["runs"] == 1 else f"{report['runs']:,} runs"
    console.print(
        f"\nFrom {runs}. seen, ever: labels shown after the last event, and in any round. top 10/50/100: how many of "
        "them are seen.\nerror: median relative error of those of the top 100 that are seen, against the true counts.\n"
        "first, top 10 from: the round that first showed a label, and that had shown half of the top 10."
    )
