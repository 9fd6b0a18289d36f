"""What `stream-dp budget` shows: the ledger as JSON, as tables, and in words."""

import math
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

import msgspec
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from stream_dp.cli.output import facts
from stream_dp.config.times import parse_time
from stream_dp.privacy import composition
from stream_dp.privacy.composition import Budget, Charge, Load, Room
from stream_dp.privacy.vector import offsets_text
from stream_dp.privacy.wording import room_for
from stream_dp.store.any_ledger import AnyLedger
from stream_dp.store.ledger_records import Marks, State, Stored
from stream_dp.store.pay_what_you_get import left_of

_ROWS = 40  # ranges that people see; --json has all
_BAR_WIDTH = 32
_MOST_COUNTED = 1_000
_LEAST_DAYS = 1.0  # of spending before it is continued into the future


def report_of(ledger: "AnyLedger", odometer: bool = False) -> dict[str, Any]:
    """The ledger at one moment; an epsilon that is infinite is null, and so is everything about a budget not set.

    `odometer`: also what holds although somebody chose this moment by what was released.
    """
    state = ledger.state()
    charges, budget = state.charges(), state.budget
    spent = asdict(state.spent())
    limits = rule = None
    if budget is not None:
        rule = composition.rule(charges, budget)
        limits = {
            "epsilon": budget.epsilon,
            "delta": budget.delta,
            "rho": rule.gaussian_rho,
            "charged_delta": rule.charged_delta,
        }
    told = {}
    if odometer:
        epsilon = composition.odometer(charges, state.unit or "event", spent["delta"])
        told["odometer"] = {"epsilon": _finite(epsilon), "delta": spent["delta"]}
    return told | {
        "source": ledger.source,
        "unit": state.unit,
        "budget": limits,
        "rule": None if rule is None else rule.name,
        "spent": spent | {"epsilon": _finite(spent["epsilon"])},
        "more_like_the_last": _more_like_the_last(charges, budget),
        "left_everywhere": None if budget is None else _told(composition.room(charges, budget, 0, None)),
        "charges": [_charge(stored) for stored in state.in_order()],
        "journal": _journal(ledger),
        "history": history_of(state),
        "pay_what_you_get": [
            _marks(stored.made.id, stored.marks)
            for stored in state.stored.values()
            if stored.marks is not None
        ],
    }


def _more_like_the_last(charges: list[Charge], budget: Budget | None) -> int | None:
    return composition.more_like(charges[-1], charges, budget, _MOST_COUNTED) if charges and budget else None


def conversion(limits: dict[str, float]) -> str:
    """What became of the epsilon that somebody set, and why: `limits` is the `budget` of a report."""
    return (
        f"Charges are added up as rho, because the rhos of releases simply add and their epsilons do not: epsilon "
        f"{limits['epsilon']:g} at delta {limits['delta']:g} leaves room for rho {limits['rho']:.4g} in all, with "
        f"{limits['charged_delta']:.3g} of delta for what the releases themselves may miss."
    )


def _charge(stored: "Stored") -> dict[str, Any]:
    return dict(msgspec.to_builtins(stored.now)) | {"at": stored.at}


def _journal(ledger: "AnyLedger") -> dict[str, Any]:
    """What the journal says, and whether Redis says the same."""
    held, known = ledger.held(), ledger.state().stored
    changes = [
        {**msgspec.to_builtins(each.budget), "by": each.by, "at": each.at} for each in ledger.journal.budgets
    ]
    return {
        "budgets": changes,
        "agrees": held.budget == ledger.journal.budget,
        "redis": None if held.budget is None else msgspec.to_builtins(held.budget),
        "charges_redis_lacks": len(known) - len(held.stored),
        "passed_over": [{"offset": offset, "why": why} for offset, why in ledger.journal.foreign.items()],
    }


def _marks(budget_id: str, marks: "Marks") -> dict[str, Any]:
    """What a pay-what-you-get budget was opened with, and what no job has taken of it yet."""
    left = left_of(marks)
    return {
        "charge": budget_id,
        "marks": marks.opened.marks,
        "queries": marks.opened.queries,
        "marks_left": left.marks,
        "queries_left": left.queries,
    }


def _told(room: "Room") -> dict[str, float]:
    return {"rho": room.rho, "delta": room.delta, "pure_epsilon": room.pure_epsilon}


def range_of(load: "Load", charges: "list[Charge]", budget: "Budget | None", delta: float) -> dict[str, Any]:
    """One range of offsets: which charges cover it, what they add up to, and what is left there."""
    covering = [
        charge.id
        for charge in charges
        if (budget is not None and budget.unit == "user")
        or charge.unit == "user"
        or charge.covers(load.partition, load.first_offset)
    ]
    left = None
    if budget is not None:
        left = _told(composition.room_beside([load], composition.rule(charges, budget), budget))
    return {
        "partition": load.partition,
        "first_offset": load.first_offset,
        "end_offset": load.end_offset,
        "charges": covering,
        "rho": load.rho,
        "charged_delta": load.delta,
        "epsilon": _finite(load.epsilon_at(delta)),
        "by_its_own_guarantee": load.by_exact(delta),
        "left": left,
    }


def _finite(epsilon: float) -> float | None:
    return epsilon if math.isfinite(epsilon) else None


def print_summary(console: Console, report: dict[str, Any]) -> None:
    budget, spent, left = report["budget"], report["spent"], report["left_everywhere"]
    unit = "" if report["unit"] is None else f" per {report['unit']}"
    told = "none: new charges are refused unless they are made with --unmetered"
    if budget is not None:
        told = f"epsilon {budget['epsilon']:g}, delta {budget['delta']:g}{unit}"
    epsilon = "unbounded" if spent["epsilon"] is None else f"{spent['epsilon']:.6g}"
    rows = [("source", escape(report["source"])), ("budget", told)]
    rows += [("", escape(line)) for line in _about_journal(report)]
    if report["charges"]:
        where = (
            "" if report["unit"] == "user" else f", on offsets {_offsets(spent, bool(spent['partition']))}"
        )
        rows.append(("spent", f"epsilon {epsilon} at delta {spent['delta']:g}{where}"))
        rows.append(("", f"rho {spent['rho']:.4g}, charged delta {spent['charged_delta']:.4g}"))
    else:
        rows.append(("spent", "nothing"))
    if "odometer" in report:
        odometer = report["odometer"]
        epsilon = "unbounded" if odometer["epsilon"] is None else f"{odometer['epsilon']:.6g}"
        rows.append(
            ("odometer", f"epsilon {epsilon} at delta {odometer['delta']:g}, whenever you choose to look")
        )
    if left is not None:
        rows.append(("left", _left(report)))
    console.print(facts(rows))


def _left(report: dict[str, Any]) -> str:
    """What is left of the budget, in what people count."""
    last, more = (report["charges"] or [None])[-1], report["more_like_the_last"]
    if last is None or more is None:
        return "all of it"
    room = f"{room_for(more, _MOST_COUNTED)} like the last, {escape(last['what'])}, on the same events"
    largest = report["left_everywhere"]["pure_epsilon"]
    smaller = f"; one of pure epsilon {largest:.2g} fits" if more == 0 and largest > 0 else ""
    return room + smaller


def _about_journal(report: dict[str, Any]) -> list[str]:
    """Who set the budget, and what to do where Redis and the journal differ."""
    journal, lines = report["journal"], []
    if journal["budgets"]:
        last = journal["budgets"][-1]
        lines.append(f"set by {last['by']} at {last['at']}")
    if not journal["agrees"]:
        written = [
            _numbers(journal["redis"]),
            _numbers(journal["budgets"][-1] if journal["budgets"] else None),
        ]
        lines.append(
            f"Redis has {written[0]}, the journal has {written[1]}, and the lower one counts: run `stream-dp budget "
            "set` with the one that you mean"
        )
    if journal["charges_redis_lacks"]:
        lines.append(
            f"Redis lacks {journal['charges_redis_lacks']} charges of the journal; the next charge puts them back"
        )
    for each in journal["passed_over"][:_ROWS]:
        lines.append(
            f"the record at offset {each['offset']} of the journal {each['why']}: it counts for nothing"
        )
    return lines


def _numbers(budget: dict[str, Any] | None) -> str:
    return "none" if budget is None else f"epsilon {budget['epsilon']:g}, delta {budget['delta']:g}"


def print_history(console: Console, report: dict[str, Any]) -> None:
    """What was spent after each charge, as bars over time, and when the budget is used up at this rate."""
    points = [each for each in report["history"] if each["epsilon"] is not None]
    if not points:
        return
    whole = max([each["epsilon"] for each in points] + [(report["budget"] or {}).get("epsilon", 0.0)])
    table = Table("spent after", "epsilon", "", "by", box=None, pad_edge=False)
    for each in points:
        bar = "█" * round(_BAR_WIDTH * each["epsilon"] / whole) if whole else ""
        table.add_row(
            escape(each["at"]), f"{each['epsilon']:.4g}", bar.ljust(_BAR_WIDTH, "·"), escape(each["charge"])
        )
    console.print()
    console.print(table)
    if (end := runs_out(points, report["budget"])) is not None:
        console.print(f"At this rate the budget is used up around {end:%Y-%m-%d}.")


def history_of(state: "State") -> list[dict[str, Any]]:
    """What was spent after each of the charges that tell their time; of many, as many as people see, the last included.

    Of each charge the range that counts now, so an epoch that has ended counts no more than it does.
    """
    made = state.in_order()
    places = [place for place, each in enumerate(made, start=1) if each.at is not None]
    step = -(-len(places) // _ROWS) or 1
    delta = state.budget.delta if state.budget is not None else None
    found = []
    for place in sorted(places[::-1][::step]):
        spent = composition.spent([each.now for each in made[:place]], state.unit or "event", delta)
        last = made[place - 1]
        found.append({"at": last.at, "charge": last.made.id, "epsilon": _finite(spent.epsilon)})
    return found


def runs_out(points: list[dict[str, Any]], budget: dict[str, Any] | None) -> "datetime | None":
    """When the budget is used up if spending goes on as between the first point and the last.

    None if that is unknown, or if they are less than a day apart.
    """
    if budget is None or len(points) < 2:
        return None
    first, last = points[0], points[-1]
    spent, left = last["epsilon"] - first["epsilon"], budget["epsilon"] - last["epsilon"]
    if spent <= 0 or left <= 0:
        return None
    try:
        began, ended = parse_time(first["at"]), parse_time(last["at"])
        if ended - began < timedelta(days=_LEAST_DAYS):
            return None
        return ended + (ended - began) * (left / spent)
    except (ValueError, OverflowError):  # a clock that told no time, or later than any date
        return None


def print_charges(console: Console, report: dict[str, Any]) -> None:
    """Every charge, and what is left of pay-what-you-get budgets."""
    if report["charges"]:
        table = Table(
            "charge", "what", "offsets", "rho", "delta", "alone: epsilon, delta", box=None, pad_edge=False
        )
        for charge in report["charges"]:
            exact = charge["exact"]
            table.add_row(
                escape(charge["id"]),
                escape(charge["what"]),
                _offsets_of(charge),
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


def print_ranges(console: Console, ranges: list[dict[str, Any]]) -> None:
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
    several = any(each["partition"] for each in ranges)
    for each in sorted(costly, key=lambda each: (each["partition"], each["first_offset"])):
        names = each["charges"]
        covering = (
            ", ".join(names) if len(names) <= 3 else f"{', '.join(names[:2])} and {len(names) - 2} more"
        )
        epsilon = "unbounded" if each["epsilon"] is None else f"{each['epsilon']:.4g}"
        left = each["left"]
        table.add_row(
            _offsets(each, several),
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


def rule_of(report: dict[str, Any]) -> str:
    """How a charge is found to fit, in words."""
    over = {
        "user": "All charges add up, whatever offsets they read, because a user's events may be anywhere.",
        "user-day": "The numbers are days, counted from 1970-01-01, instead of offsets.  Charges add up where "
        "they cover the same day, and the costliest day counts.",
    }.get(
        report["unit"],
        "An event has one offset in one partition, so charges add up where they cover the same offset, and the "
        "costliest offset counts.",
    )
    alone = "If there is only one charge, its own exact guarantee counts where it is smaller."
    if report["budget"] is None:
        return f"{over} {alone} No budget is set, so what is unmetered is charged without a limit."
    return f"{over} {_PLAINLY} {_fits(report['rule'], report['budget'])} {alone}"


_PLAINLY = (
    "A first charge fits if it is within the budget; later ones fit if all that read the same events stay within it "
    "together."
)


def _fits(rule: str, budget: dict[str, Any]) -> str:
    """What the sums must stay below, by the rule of this ledger."""
    own = f"the sum of their own deltas is at most {budget['charged_delta']:.4g}"
    if rule == "basic":
        return (
            f"They fit while their own epsilons add up to at most {budget['epsilon']:g} and {own}: "
            "the first charge left nothing of delta for a better sum."
        )
    return (
        f"They fit while {own}, and one of these two also holds: their pure epsilons add up to at most "
        f"{budget['epsilon']:g}, or all of them together tell no more than one Gaussian of rho {budget['rho']:.4g}. "
        "The first charge fixes how delta is shared between these."
    )


def _offsets_of(charge: dict[str, Any]) -> str:
    """The offsets that a charge covers in each partition that it names, in the order of the partitions."""
    first = offsets_text((charge["first_offset"], *charge["further_offsets"]))
    if charge["end_offset"] is None:
        return f"{first} on"
    return f"{first} to {offsets_text((charge['end_offset'], *charge['further_ends']))}"


def _offsets(range_: dict[str, Any], several: bool) -> str:
    partition = f"partition {range_['partition']}: " if several else ""
    if range_["end_offset"] is None:
        return f"{partition}{range_['first_offset']} on"
    return f"{partition}{range_['first_offset']} to {range_['end_offset']}"
