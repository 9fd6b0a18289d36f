"""`stream-dp budget`: what a data source may spend, what it has spent, and how that adds up."""

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from stream_dp.cli import options
from stream_dp.cli.mistakes import Mistake
from stream_dp.settings import load_settings

if TYPE_CHECKING:
    from stream_dp.privacy.composition import Budget, Charge, Load
    from stream_dp.store.ledger import Ledger
    from stream_dp.store.ledger_records import Marks

_ROWS = 40  # ranges that people see; --json has all


@dataclass(frozen=True)
class Place:
    """Which ledger is meant, and where it is."""

    source: Annotated[
        str | None,
        typer.Option(
            "--source",
            metavar="TOPIC",
            help="Events topic, or name of a file; without it the source of the stream.",
        ),
    ] = None
    settings: options.SettingsFile = None
    stream: options.Stream = None
    redis: options.Redis = None

    @contextmanager
    def ledger(self) -> "Iterator[Ledger]":
        """The ledger of the source, or of the stream's events topic; what it refuses is the user's to mend."""
        from stream_dp.cli.reach import require_redis
        from stream_dp.connections import redis_client
        from stream_dp.store.ledger import Ledger, LedgerRefused

        # A source needs no stream beside it, and only the address of Redis is wanted then.
        stream = self.stream or (self.source and "unnamed")
        found = load_settings(self.settings, stream=stream, redis=self.redis)
        require_redis(found.redis)
        with redis_client(found.redis_address) as client:
            try:
                yield Ledger(client, self.source or found.data_source)
            except LedgerRefused as refused:
                raise Mistake(str(refused)) from None


app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="""Show, set and explain the privacy budget of a data source.

    [bold]Examples[/]

      stream-dp budget set --source shop.events --epsilon 2 --delta 1e-6

      stream-dp budget show --source shop.events
    """,
)


@app.command()
@options.grouped
def show(place: Place, as_json: options.Json = False) -> None:
    """Show the budget of a data source, what is spent of it, and every charge.

    [bold]Examples[/]

      stream-dp budget show --source shop.events

      stream-dp budget show --stream shop --redis redis://cache:6379/0 --json
    """
    with place.ledger() as ledger:
        report = _report(ledger)
    if as_json:
        typer.echo(json.dumps(report))
        return
    console = Console(highlight=False)
    _print_summary(console, report)
    if report["charges"]:
        table = Table(
            "charge", "what", "offsets", "rho", "delta", "alone: epsilon, delta", box=None, pad_edge=False
        )
        for charge in report["charges"]:
            exact = charge["exact"]
            table.add_row(
                escape(charge["id"]),
                escape(charge["what"]),
                _offsets(charge),
                f"{charge['rho']:.4g}",
                f"{charge['delta']:.4g}",
                "" if exact is None else f"{exact[0]:.4g}, {exact[1]:.4g}",
            )
        console.print()
        console.print(table)
    for each in report["pay_what_you_get"]:
        console.print(
            f"{escape(each['charge'])} has left: {each['marks_left']:,} of {each['marks']:,} marks, "
            f"{each['queries_left']:,} of {each['queries']:,} queries"
        )


@app.command("set")
@options.grouped
def set_(
    *,
    epsilon: Annotated[float, typer.Option(help="The most that all releases from the source may cost.")],
    delta: Annotated[float, typer.Option(help="Chance that the promise fails.")],
    unit: Annotated[
        Literal["event", "user"],
        typer.Option(help="What one unit of the promise is: one event, or all of one user."),
    ] = "event",
    place: Place,
    as_json: options.Json = False,
) -> None:
    """Set the budget of a data source, or change it; a budget below what is spent already is refused.

    [bold]Examples[/]

      stream-dp budget set --source shop.events --epsilon 2 --delta 1e-6

      stream-dp budget set --source shop.events --epsilon 4 --delta 1e-6 --unit user
    """
    with place.ledger() as ledger:
        try:
            ledger.set_budget(epsilon, delta, unit)
        except ValueError as error:
            raise Mistake(str(error)) from None
        report = _report(ledger)
    if as_json:
        typer.echo(json.dumps(report))
    else:
        _print_summary(Console(highlight=False), report)


@app.command()
@options.grouped
def explain(place: Place, as_json: options.Json = False) -> None:
    """Explain how the charges add up over the offsets, and what would still fit where.

    [bold]Examples[/]

      stream-dp budget explain --source shop.events

      stream-dp budget explain --source shop.events --json
    """
    from stream_dp.privacy import composition

    with place.ledger() as ledger:
        report = _report(ledger)
        state = ledger.state()
    charges = state.charges()
    loads = composition.loads(charges, state.unit or "event")
    ranges = [_range(load, charges, state.budget, report["spent"]["delta"]) for load in loads]
    if as_json:
        typer.echo(json.dumps(report | {"ranges": ranges}))
        return
    console = Console(highlight=False)
    _print_summary(console, report)
    if ranges:
        console.print()
        _print_ranges(console, ranges)
    console.print(f"\n{_rule(report)}")


def _report(ledger: "Ledger") -> dict[str, Any]:
    """The ledger at one moment; an epsilon that is infinite is null, and so is everything about a budget not set."""
    from stream_dp.privacy import composition

    state = ledger.state()
    charges, budget = state.charges(), state.budget
    spent = asdict(composition.spent(charges, state.unit or "event", budget.delta if budget else None))
    limits = None
    if budget is not None:
        limits = {
            "epsilon": budget.epsilon,
            "delta": budget.delta,
            "rho": budget.rho,
            "charged_delta": budget.charged_delta,
        }
    return {
        "source": ledger.source,
        "unit": state.unit,
        "budget": limits,
        "spent": spent | {"epsilon": _finite(spent["epsilon"])},
        "left_everywhere": None if budget is None else _room(charges, budget, 0, None),
        "charges": [_charge(charge) for charge in charges],
        "pay_what_you_get": [
            _marks(stored.made.id, stored.marks)
            for stored in state.stored.values()
            if stored.marks is not None
        ],
    }


def _charge(charge: "Charge") -> dict[str, Any]:
    import msgspec

    return dict(msgspec.to_builtins(charge))


def _marks(budget_id: str, marks: "Marks") -> dict[str, Any]:
    """What a pay-what-you-get budget was opened with, and what no job has taken of it yet."""
    from stream_dp.store.pay_what_you_get import left_of

    left = left_of(marks)
    return {
        "charge": budget_id,
        "marks": marks.opened.marks,
        "queries": marks.opened.queries,
        "marks_left": left.marks,
        "queries_left": left.queries,
    }


def _room(charges: "list[Charge]", budget: "Budget", first: int, end: int | None) -> dict[str, float]:
    from stream_dp.privacy import composition

    room = composition.room(charges, budget, first, end)
    return {"rho": room.rho, "delta": room.delta, "pure_epsilon": room.pure_epsilon}


def _range(load: "Load", charges: "list[Charge]", budget: "Budget | None", delta: float) -> dict[str, Any]:
    """One range of offsets: which charges cover it, what they add up to, and what is left there."""
    covering = [
        charge.id
        for charge in charges
        if (budget is not None and budget.unit == "user")
        or charge.unit == "user"
        or (
            charge.first_offset <= load.first_offset
            and (charge.end_offset is None or charge.end_offset > load.first_offset)
        )
    ]
    return {
        "first_offset": load.first_offset,
        "end_offset": load.end_offset,
        "charges": covering,
        "rho": load.rho,
        "charged_delta": load.delta,
        "epsilon": _finite(load.epsilon_at(delta)),
        "by_its_own_guarantee": load.by_exact(delta),
        "left": None if budget is None else _room(charges, budget, load.first_offset, load.end_offset),
    }


def _finite(epsilon: float) -> float | None:
    return epsilon if math.isfinite(epsilon) else None


def _print_summary(console: Console, report: dict[str, Any]) -> None:
    budget, spent, left = report["budget"], report["spent"], report["left_everywhere"]
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    unit = "" if report["unit"] is None else f" per {report['unit']}"
    told = "none: charges are recorded, and nothing is refused"
    if budget is not None:
        told = f"epsilon {budget['epsilon']:g}, delta {budget['delta']:g}{unit}"
    epsilon = "unbounded" if spent["epsilon"] is None else f"{spent['epsilon']:.6g}"
    rows = [("source", escape(report["source"])), ("budget", told)]
    if report["charges"]:
        where = "" if report["unit"] == "user" else f", on offsets {_offsets(spent)}"
        rows.append(("spent", f"epsilon {epsilon} at delta {spent['delta']:g}{where}"))
        rows.append(("", f"rho {spent['rho']:.4g}, charged delta {spent['charged_delta']:.4g}"))
    else:
        rows.append(("spent", "nothing"))
    if left is not None:
        rows.append(("left", f"rho {left['rho']:.4g}, charged delta {left['delta']:.4g} on all offsets"))
        rows.append(("", f"that is a pure epsilon of {left['pure_epsilon']:.4g}"))
    for name, value in rows:
        table.add_row(f"[bold]{name}[/]", value)
    console.print(table)


def _print_ranges(console: Console, ranges: list[dict[str, Any]]) -> None:
    table = Table(
        "offsets",
        "charges",
        "rho",
        "charged delta",
        "epsilon",
        "left: rho",
        "left: delta",
        box=None,
        pad_edge=False,
    )
    costly = sorted(ranges, key=lambda each: -(math.inf if each["epsilon"] is None else each["epsilon"]))[
        :_ROWS
    ]
    for each in sorted(costly, key=lambda each: each["first_offset"]):
        names = each["charges"]
        covering = (
            ", ".join(names) if len(names) <= 3 else f"{', '.join(names[:2])} and {len(names) - 2} more"
        )
        epsilon = "unbounded" if each["epsilon"] is None else f"{each['epsilon']:.4g}"
        left = each["left"]
        table.add_row(
            _offsets(each),
            escape(covering),
            f"{each['rho']:.4g}",
            f"{each['charged_delta']:.4g}",
            epsilon + (" (exact)" if each["by_its_own_guarantee"] else ""),
            "" if left is None else f"{left['rho']:.4g}",
            "" if left is None else f"{left['delta']:.4g}",
        )
    console.print(table)
    if len(ranges) > _ROWS:
        console.print(f"The {_ROWS} costliest of {len(ranges)} ranges; --json prints all.")


def _rule(report: dict[str, Any]) -> str:
    """How a charge is found to fit, in words."""
    over = (
        "All charges add up, whatever offsets they read, because a user's events may stand anywhere."
        if report["unit"] == "user"
        else "An event stands at one offset, so charges add up where they cover the same offset, and the costliest "
        "offset counts."
    )
    alone = "Where there is one charge only, its own exact guarantee counts if that is smaller."
    if report["budget"] is None:
        return f"{over} {alone} No budget is set, so nothing is refused."
    budget = report["budget"]
    return (
        f"{over} They fit while the sum of rho is at most {budget['rho']:.4g} and the sum of their own deltas at most "
        f"{budget['charged_delta']:.4g}: half of delta covers these, the other half the conversion of rho. {alone}"
    )


def _offsets(range_: dict[str, Any]) -> str:
    if range_["end_offset"] is None:
        return f"{range_['first_offset']} on"
    return f"{range_['first_offset']} to {range_['end_offset']}"
