"""The result of a one-shot job as people see it: a table, with bars if there are counts."""

from math import isfinite

import msgspec
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from stream_dp.cli.histogram_view import printable
from stream_dp.cli.output import output, picture_width
from stream_dp.jobs.calibrated import Calibrated
from stream_dp.jobs.forecast import MOST_COUNTED, Forecast
from stream_dp.jobs.request import JobRequest
from stream_dp.jobs.result import JobResult, ResultCost, cost_of, guarantee
from stream_dp.jobs.votes import columns_of
from stream_dp.privacy import composition
from stream_dp.privacy.wording import room_for
from stream_dp.store.ledger_file import ledger_path
from stream_dp.store.ledger_records import State

_MOST_ROWS = 40
_WIDEST_LABEL = 36
_OTHER_COLUMNS = 38


def show_cost(request: JobRequest, calibrated: Calibrated, found: "Forecast | str", as_json: bool) -> None:
    """What a job would cost and leave, before anything is charged; or why the ledger could not be asked."""
    known = None if isinstance(found, str) else found
    unit, cost = (known.unit, known.cost) if known else (request.unit, cost_of(calibrated, None))
    sentence = guarantee(unit, calibrated)
    if as_json:
        told = {
            "source": known.source if known else request.source.name,
            "unit": unit,
            "cost": cost,
            "guarantee": sentence,
            "needed": calibrated.needed,
            "needed_most": calibrated.needed_most,
            "forecast": known,
            "unknown": found if known is None else None,
        }
        typer.echo(msgspec.json.encode(told).decode())
        return
    console = output()
    console.print(_cost_line(cost, known.source if known else "its data source"), markup=False)
    console.print(sentence, markup=False)
    if calibrated.needed is not None:
        console.print(_needed(request, calibrated.needed, calibrated.needed_most), markup=False)
    console.print(_outlook(found), markup=False)
    console.print("Nothing was charged.", style="dim")


def _needed(request: JobRequest, needed: float, most: float | None) -> str:
    """What a label needs, which follows from the request alone."""
    users = f"{needed:,.0f} {request.unit or 'user'}s"
    if most is not None:
        users = f"{needed:,.0f} to {most:,.0f} {request.unit or 'user'}s"
    if request.job == "top-k":
        told = f"A label is found in 95% of cases if {users} more hold it than the label behind the last rank"
    else:
        told = f"A label is found in 95% of cases if {users} hold it and nothing else; it takes more if they hold many"
    return (
        f"{told}."
        if most is None
        else f"{told}. How many depends on what the job chooses by its own estimate."
    )


def _outlook(found: "Forecast | str") -> str:
    """What the ledger would say to the charge."""
    if isinstance(found, str):
        return f"It is not known whether the budget has room: {found}."
    if found.why_not is not None:
        return f"It would be refused: {found.why_not}."
    if found.budget is None:
        return "It would be accepted UNMETERED: the source has no budget."
    epsilon = "unbounded" if not isfinite(found.spent_epsilon) else f"{found.spent_epsilon:.4g}"
    return (
        f"It fits the budget of epsilon {found.budget.epsilon:g} at delta {found.budget.delta:g}, of which {epsilon} "
        f"is spent. After it, there is {room_for(found.more or 0, MOST_COUNTED)} like it, on the same events."
    )


def show_result(console: Console, result: JobResult) -> None:
    """Labels with bars, then what was guaranteed and what it cost."""
    if result.rank is not None:
        console.print(f"The counts fall most after rank [bold]{result.rank}[/].")
    elif not result.labels:
        console.print("No label could be released under this guarantee.")
    else:
        console.print(_table(result, picture_width(console)))
        if len(result.labels) > _MOST_ROWS:
            console.print(
                f"and {len(result.labels) - _MOST_ROWS:,} more; --json prints all of them", style="dim"
            )
    if result.bottom and result.job == "label-votes":
        console.print("Examples that are not listed had no clear votes.", style="dim")
    elif result.bottom:
        console.print("The mechanism found fewer labels than asked for.", style="dim")
    console.print()
    console.print(Text(result.guarantee or ""))
    if (told := result.counts_what) is not None:
        console.print(Text(f"{told} --items-per-user sets it."), style="dim")
    if result.cost is not None:
        console.print(Text(_cost_line(result.cost, result.source or "")), style="dim")


def local_note(source: str, state: State) -> str:
    """Where a job was charged on this machine, and how many more like it fit."""
    budget, charges = state.budget, state.charges()
    told = f"Charged to {source} in {ledger_path()}"
    if budget is not None:
        more = composition.more_like(charges[-1], charges, budget)
        told += (
            f", whose budget is epsilon {budget.epsilon:g} at delta {budget.delta:g} per {budget.unit}: "
            f"room for {more:,} more like it"
        )
    told += f". `stream-dp budget show --source {source}` shows it."
    if len(charges) == 1:
        told += (
            " If you have asked about the same people in other files, name the same --source for all of them."
        )
    return told


def _cost_line(cost: ResultCost, source: str) -> str:
    return ("UNMETERED. " if cost.unmetered else "") + (
        f"Cost to {source}: rho {cost.rho:.4g} and delta {cost.delta:.4g}, which is epsilon {cost.epsilon:.4g} at "
        f"delta {cost.at_delta:.4g}."
    )


def _table(result: JobResult, width: int) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", show_edge=False)
    if result.job == "label-votes":
        table.add_column("query", overflow="ellipsis", no_wrap=True, max_width=_WIDEST_LABEL)
        table.add_column("label", overflow="ellipsis", no_wrap=True, max_width=_WIDEST_LABEL)
        for example, label in zip(*columns_of(result.labels[:_MOST_ROWS]), strict=True):
            table.add_row(Text(printable(example)), Text(printable(label), style="bold"))
        return table
    table.add_column("#", justify="right")
    table.add_column("label", overflow="ellipsis", no_wrap=True, max_width=_WIDEST_LABEL)
    if result.counts is None:
        for rank, label in enumerate(result.labels[:_MOST_ROWS], start=1):
            table.add_row(str(rank), Text(printable(label), style="bold"))
        return table
    table.add_column("count", justify="right")
    table.add_column("95% interval", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    longest = max(len(printable(label)) for label in result.labels[:_MOST_ROWS])
    bar_width = max(5, width - min(_WIDEST_LABEL, longest) - _OTHER_COLUMNS)
    largest = max([1, *result.counts[:_MOST_ROWS]])
    ends = result.low or result.counts, result.high or result.counts
    rows = zip(result.labels[:_MOST_ROWS], result.counts, *ends, strict=False)
    for rank, (label, count, low, high) in enumerate(rows, start=1):
        table.add_row(
            str(rank),
            Text(printable(label), style="bold"),
            f"{count:,}",
            Text("" if result.low is None else f"{low:,}–{high:,}", style="dim"),
            Text("█" * round(bar_width * max(0, count) / largest), style="green"),
        )
    return table
