"""`stream-dp audit --exact`: the true delta of small mechanisms, counted over every outcome of their noise."""

import json
from collections.abc import Sequence

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from stream_dp.audit.exact_cases import Counted, cases, counted
from stream_dp.cli.mistakes import Mistake
from stream_dp.counters import MECHANISMS, WINDOW


def audit_exactly(names: Sequence[str], as_json: bool) -> bool:
    """Count, print, and tell whether all correct mechanisms keep their guarantee and all broken ones do not."""
    for name in names:
        if name not in (known := (*MECHANISMS, WINDOW)):
            raise Mistake(f"there is no counter {name!r} to count exactly: choose from {', '.join(known)}")
    chosen, found = cases(names), list["Counted"]()
    with Progress(console=Console(stderr=True), transient=True, disable=as_json) as progress:
        task = progress.add_task("", total=len(chosen))
        for case in chosen:
            progress.update(task, description=case.mechanism.name)
            found.append(counted(case))
            progress.advance(task)
    good = all(each.as_expected for each in found)
    if as_json:
        typer.echo(json.dumps({"good": good, "cases": [each.report() for each in found]}))
    else:
        _print(found, good)
    return good


def _print(found: "Sequence[Counted]", good: bool) -> None:
    console = Console(highlight=False)
    broken = [each for each in found if each.case.broken]
    correct = [each for each in found if not each.case.broken]
    for title, rows in (("Correct mechanisms", correct), ("Broken on purpose", broken)):
        if rows:
            console.print(_table(title, rows))
            console.print()
    verdict = "[bold green]The audit passes[/]" if good else "[bold red]The audit FAILS[/]"
    console.print(
        f"{verdict}: {sum(each.exceeded for each in correct)} of {len(correct)} guarantees exceeded, "
        f"{sum(each.exceeded for each in broken)} of {len(broken)} broken mechanisms caught.",
        soft_wrap=True,
    )


def _table(title: str, rows: "Sequence[Counted]") -> Table:
    """The largest delta of any neighbours, the one that the proof gives, and what part of that it is."""
    broken = bool(rows[0].case.broken)
    table = Table(title=title, title_justify="left", title_style="bold", box=None, padding=(0, 2, 0, 0))
    for name in ("counter", "shown", *(("what is wrong",) if broken else ("unit", "items", "rounds"))):
        table.add_column(name, justify="right" if name in ("items", "rounds") else "left")
    for name in ("epsilon", "delta", "guarantee", "ratio"):
        table.add_column(name, justify="right", no_wrap=True)
    for each in rows:
        case, mechanism = each.case, each.case.mechanism
        rounds = " + ".join([f"{case.rounds}"] * (1 if case.carried is None else 2))
        what = (case.broken,) if broken else (case.unit, f"{mechanism.items_per_event}", rounds)
        colour = "green" if each.as_expected else "bold red"
        table.add_row(
            mechanism.name,
            mechanism.shown,
            *what,
            f"{case.epsilon:g}",
            f"{each.delta:.3g}",
            f"{each.guaranteed:.3g}",
            f"[{colour}]{each.delta / each.guaranteed:.2f}[/]",
        )
    return table
