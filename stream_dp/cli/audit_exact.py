"""`stream-dp audit --exact`: the true delta of small mechanisms, counted over every outcome of their noise."""

import json
from collections.abc import Sequence

import typer
from rich.table import Table

from stream_dp.audit.exact_cases import Counted, cases, counted
from stream_dp.audit.exact_one_shot import one_shot_cases, one_shot_counted
from stream_dp.audit.one_shot_case import OneShotCounted
from stream_dp.cli.mistakes import Mistake
from stream_dp.cli.output import output, spaced, steps_bar
from stream_dp.counters import MECHANISMS, WINDOW


def audit_exactly(names: Sequence[str], as_json: bool) -> bool:
    """Count, print, and tell whether all correct mechanisms keep their guarantee and all broken ones do not."""
    known = [*MECHANISMS, WINDOW, *dict.fromkeys(case.name for case in one_shot_cases())]
    for name in names:
        if name not in known:
            raise Mistake(f"there is no mechanism {name!r} to count exactly: choose from {', '.join(known)}")
    running, once = cases(names), one_shot_cases(names)
    found, found_once = list["Counted"](), list["OneShotCounted"]()
    with steps_bar("", len(running) + len(once), hidden=as_json) as step:
        for case in running:
            step(0, case.mechanism.name)
            found.append(counted(case))
            step()
        for one in once:
            step(0, one.name)
            found_once.append(one_shot_counted(one))
            step()
    good = all(each.as_expected for each in found) and all(each.as_expected for each in found_once)
    if as_json:
        told = {
            "good": good,
            "cases": [each.report() for each in found],
            "one_shot": [each.report() for each in found_once],
        }
        typer.echo(json.dumps(told))
    else:
        _print(found, found_once, good)
    return good


def _print(found: "Sequence[Counted]", once: "Sequence[OneShotCounted]", good: bool) -> None:
    console = output()
    for broken, kind in ((False, "Correct"), (True, "Broken")):
        of_kind = "on purpose: " if broken else ""
        running = [each for each in found if bool(each.case.broken) == broken]
        at_once = [each for each in once if bool(each.case.broken) == broken]
        if running:
            console.print(_table(f"{kind} {of_kind}counters", running))
            console.print()
        if at_once:
            console.print(_table_once(f"{kind} {of_kind}one-shot mechanisms", at_once))
            console.print()
    everything = [(bool(each.case.broken), each.exceeded) for each in found]
    everything += [(bool(each.case.broken), each.exceeded) for each in once]
    correct = [exceeded for broken, exceeded in everything if not broken]
    caught = [exceeded for broken, exceeded in everything if broken]
    verdict = "[bold green]The audit passes[/]" if good else "[bold red]The audit FAILS[/]"
    console.print(
        f"{verdict}: {sum(correct)} of {len(correct)} guarantees exceeded, "
        f"{sum(caught)} of {len(caught)} broken mechanisms caught.",
        soft_wrap=True,
    )


def _table_once(title: str, rows: "Sequence[OneShotCounted]") -> Table:
    """The largest delta of any neighbours, beside the one that is claimed."""
    broken = bool(rows[0].case.broken)
    words = ("mechanism", "what is wrong") if broken else ("mechanism",)
    table = spaced(*words, right=("epsilon", "delta", "guarantee"), title=title)
    for each in rows:
        colour = "green" if each.as_expected else "bold red"
        table.add_row(
            each.case.name,
            *((each.case.broken,) if broken else ()),
            f"{each.case.epsilon:.3g}",
            f"[{colour}]{each.delta:.3g}[/]",
            f"{each.case.delta:.3g}",
        )
    return table


def _table(title: str, rows: "Sequence[Counted]") -> Table:
    """The largest delta of any neighbours, the one that the proof gives, and what part of that it is."""
    broken = bool(rows[0].case.broken)
    words = "counter", "shown", "what is wrong" if broken else "unit"
    numbers = () if broken else ("items", "rounds")
    table = spaced(*words, right=(*numbers, "epsilon", "delta", "guarantee", "ratio"), title=title)
    for each in rows:
        case, mechanism = each.case, each.case.mechanism
        rounds = " + ".join([f"{case.rounds}"] * (1 if case.carried is None else 2))
        what = (case.broken,) if broken else (case.unit, f"{mechanism.items_per_event}", rounds)
        colour = "green" if each.as_expected else "bold red"
        table.add_row(
            mechanism.name,
            (mechanism.shown if case.discovery is None else f"found at {len(case.discovery.rule.ends)} tests")
            + " + cells" * mechanism.cap_share,
            *what,
            f"{case.epsilon:g}",
            f"{each.delta:.3g}",
            f"{each.guaranteed:.3g}",
            f"[{colour}]{each.delta / each.guaranteed:.2f}[/]",
        )
    return table
