"""`stream-dp calibrate`: what a guarantee costs with each mechanism."""

import json
from dataclasses import asdict
from typing import Annotated, Any

import typer

from stream_dp.cli import options
from stream_dp.cli.mistakes import Mistake
from stream_dp.cli.options import DEFAULTS
from stream_dp.cli.output import facts, output, spaced
from stream_dp.counters import EVERY_ROUND
from stream_dp.counters.calibration import Guarantee
from stream_dp.counters.protocol import CalibratedCounter
from stream_dp.counters.registry import DISCRETE
from stream_dp.counters.window import WindowMechanism
from stream_dp.planning.comparison import (
    calibrate_each,
    compared_name,
    counters_asked,
    survey,
    survey_tau,
    visibility,
)
from stream_dp.privacy.wording import MONTH, WEEK, of_longer, of_units


def calibrate(
    mechanism: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="One counter in detail; without it, all of them are compared."),
    ] = None,
    discover: options.Discover = None,
    horizon: Annotated[
        int,
        typer.Option(
            help="Rounds, fixed in advance. One event is one round, unless the settings say otherwise."
        ),
    ] = DEFAULTS["horizon"],
    window: options.Window = None,
    items_per_event: Annotated[
        int, typer.Option(help="The most distinct items of one event, or of one user, that are counted.")
    ] = DEFAULTS["items_per_event"],
    unit: options.Protected = "event",
    epsilon: Annotated[
        float, typer.Option(help="Epsilon of the guarantee, for all rounds together.")
    ] = DEFAULTS["epsilon"],
    delta: Annotated[
        float,
        typer.Option(help="Delta of the guarantee, for all rounds together; choose it far below 1 / events."),
    ] = DEFAULTS["delta"],
    shown: options.ShownRule = DEFAULTS["shown"],
    rounds: Annotated[
        str | None, typer.Option(metavar="R,R,...", help="Also print the threshold tau of these rounds.")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Compare what the mechanisms show at one guarantee (epsilon, delta).

    [bold]Examples[/]

      stream-dp calibrate --epsilon 1 --delta 1e-6 --horizon 65535 --items-per-event 4

      stream-dp calibrate --window 60

      stream-dp calibrate --shown each-round

      stream-dp calibrate --mechanism binary --rounds 1,2,3 --json
    """
    names, [length] = counters_asked(mechanism, discover, window, [horizon], unit)
    asked = _rounds(rounds, length)
    calibrated, refused = calibrate_each(epsilon, delta, length, items_per_event, names, unit, shown)
    compared = (mechanism, discover, window) == (None, None, None)
    reports = [_report(*each, asked) for each in calibrated]
    if as_json:
        typer.echo(json.dumps(_comparison(reports, refused) if compared else reports[0]))
    elif compared:
        _print_comparison(_comparison(reports, refused), calibrated[0][1])
    else:
        _print(reports[0], *calibrated[0])


def _rounds(text: str | None, horizon: int) -> list[int]:
    rounds = [] if text is None else options.numbers(text, int, "--rounds", "whole numbers")
    for number in rounds:
        if not 1 <= number <= horizon:
            raise Mistake(
                f"round {number} is not between 1 and the horizon {horizon}: change --rounds or --horizon"
            )
    return rounds


def _report(noise: "CalibratedCounter", guarantee: "Guarantee", rounds: list[int]) -> dict[str, Any]:
    """One mechanism, and the survey's statement for the same guarantee."""
    kind = DISCRETE.get(noise.name)
    drawn = {name: getattr(noise, name) for name in ("sigma_squared",) if hasattr(noise, name)}
    if kind is not None:
        drawn["nodes_per_event"] = kind.nodes_per_event(noise.horizon)
    if noise.name == "binary":
        drawn["levels"] = drawn["nodes_per_event"]  # of its tree, in each of which an event is in one node
    seen = asdict(visibility(noise, guarantee))
    if rounds:
        seen["tau"]["rounds"] = {str(number): noise.tau(number) for number in rounds}
    window = noise.window if isinstance(noise, WindowMechanism) else None
    length = window or noise.horizon
    return {
        "unit": guarantee.unit,
        **({"horizon": length} if window is None else {"window": length}),
        "items_per_event": noise.items_per_event,
        "epsilon": guarantee.epsilon,
        "delta": guarantee.delta,
        "threshold_delta": guarantee.threshold_delta,
        "shown": noise.shown,
        **seen,
        **drawn,
        **_of_longer(guarantee),
        "survey": asdict(survey(guarantee.epsilon, guarantee.delta, length, noise.items_per_event)),
    }


def _of_longer(guarantee: "Guarantee") -> dict[str, Any]:
    """What a week and a month of one user have together, where the unit is one day."""
    if guarantee.unit != "user-day":
        return {}
    spans = {
        name: of_units(guarantee.epsilon, guarantee.delta, days)
        for name, days in (("week", WEEK), ("month", MONTH))
    }
    return {name: {"epsilon": epsilon, "delta": delta} for name, (epsilon, delta) in spans.items()}


def _told(guarantee: "Guarantee") -> str:
    """The guarantee in a sentence, and what it does not promise."""
    return guarantee.sentence + of_longer(guarantee.unit, guarantee.epsilon, guarantee.delta)


_SHARED = ("unit", "week", "month", "horizon", "items_per_event", "epsilon", "delta", "shown", "survey")
_NOTES = {
    "kept": (
        "the least count with which a label whose events are spread evenly is shown by the last round, with this "
        "probability at least; once shown it stays. Of the survey's statement, which keeps none, a round picked at "
        "random"
    ),
    "each-round": "the least count that a round picked at random shows with this probability",
}
_SETTINGS_OF = {
    "binary": {"mechanism": "binary"},
    EVERY_ROUND: {"mechanism": "blt", "discover": "every-round"},
    "blt": {"mechanism": "blt", "discover": "default"},
}
_SEEN = {
    "kept": "of a label whose events are spread evenly, at least so often",
    "each-round": "in a round picked at random",
    "window": "of a label whose events are spread evenly over a window, at its end",
}


def _comparison(reports: list[dict[str, Any]], refused: dict[str, str]) -> dict[str, Any]:
    """All reports, what they share said once, and by name why the other mechanisms refuse.

    `best` shows the most labels, and `settings` are how a stream gets it.
    """
    own = {
        compared_name(report["mechanism"], report["discover"]): {
            name: value for name, value in report.items() if name not in _SHARED
        }
        for report in reports
    }
    best = min(own, key=lambda name: own[name]["seen_mostly"])
    return {name: reports[0][name] for name in _SHARED if name in reports[0]} | {
        "mechanisms": own,
        "best": best,
        "settings": _SETTINGS_OF[best],
        "refused": refused,
    }


def _print(report: dict[str, Any], noise: "CalibratedCounter", guarantee: "Guarantee") -> None:
    """One mechanism for people, with the papers' conversion and the survey's statement beside it."""
    survey, sd, tau = report["survey"], report["sd"], report["tau"]
    of_what = "window" if "window" in report else "count"
    factor = (report["rho"] / survey["rho"]) ** 0.5
    rows = [
        ("mechanism", compared_name(report["mechanism"], report["discover"])),
        ("window", f"{report['window']:,} rounds, for ever")
        if "window" in report
        else ("horizon", f"{report['horizon']:,} rounds"),
        (f"items per {report['unit']}", f"{report['items_per_event']:,}"),
        ("epsilon, delta", f"{report['epsilon']:.6g}, {report['delta']:.6g}"),
        ("rho (zCDP)", f"{report['rho']:.6g}"),
        ("  the papers'", f"{survey['rho']:.6g}, so {factor:.2f} times the noise: {survey['conversion']}"),
        ("conversion", report["conversion"]),
    ]
    if "sigma_squared" in report:
        nodes = f"; one item of an event is in {report['nodes_per_event']} of them"
        rows.append(("sigma squared", f"{report['sigma_squared']:,.6g} of one draw{nodes}"))
    rows += [
        ("threshold delta", f"{report['threshold_delta']:.6g}, part of delta"),
        (
            f"sd of a {of_what}",
            f"{sd['mean']:,.2f} on average, at most {sd['max']:,.2f}",
        ),
        ("threshold tau", f"{tau['mean']:,.1f} on average, at most {tau['max']:,}"),
        *((f"  in round {number}", f"{each:,}") for number, each in tau.get("rounds", {}).items()),
        ("  the survey's", f"{survey['tau']['max']:,} in every round, by its own conversion"),
    ]
    if report["mechanism"] == "binary":
        size = noise.horizon, noise.items_per_event
        same = survey_tau(report["sigma_squared"], report["threshold_delta"], *size)
        rows.append(("", f"{same:,} in every round, with the noise above"))
    rows.append(("seen half", f"a count of {report['seen_half']:,}, {_SEEN[report['shown']]}"))
    rows.append(("seen at 95%", f"a count of {report['seen_mostly']:,}"))
    console = output()
    console.print(facts(rows))
    console.print(f"\n{_told(guarantee)}")


def _print_comparison(told: dict[str, Any], guarantee: "Guarantee") -> None:
    """The survey's statement and every mechanism, a row each."""
    rows = {"survey": told["survey"]} | told["mechanisms"]
    asked = [number for report in told["mechanisms"].values() for number in report["tau"].get("rounds", {})]
    asked = list(dict.fromkeys(asked))
    numbers = "sd", "max", "tau", "max", *(f"in {number}" for number in asked), "half", "95%", "rho"
    table = spaced("mechanism", right=numbers)
    table.add_column("conversion", no_wrap=True)
    for name, row in rows.items():
        sd, tau = row["sd"], row["tau"]
        own = [f"{tau['rounds'][number] if 'rounds' in tau else tau['max']:,}" for number in asked]
        means = f"{sd['mean']:,.1f}", f"{sd['max']:,.1f}", f"{tau['mean']:,.1f}", f"{tau['max']:,}"
        counts = f"{row['seen_half']:,}", f"{row['seen_mostly']:,}"
        conversion = "the papers'" if name == "survey" else row["conversion"]
        table.add_row(f"[bold]{name}[/]", *means, *own, *counts, f"{row['rho']:.4f}", conversion)
    console = output()
    console.print(
        f"epsilon {told['epsilon']:g}, delta {told['delta']:g}, {told['horizon']:,} rounds, "
        f"{told['items_per_event']:,} items per {told['unit']}"
    )
    console.print(table)
    for reason in told["refused"].values():
        console.print(reason)
    console.print("\nThe most labels are shown with these settings:\n")
    for name, value in told["settings"].items():
        console.print(f'  {name} = "{value}"')
    console.print(
        "\nsd of a count and threshold tau: mean over the rounds, and the highest.\n"
        f"half, 95%: {_NOTES[told['shown']]}.\n"
        "blt: a new label is looked for at tests, and tau is theirs; blt every-round: in every round.\n"
        f"survey: Theorem 11 of the survey by Rogers (2023), with {told['survey']['conversion']}."
    )
    console.print(f"\n{_told(guarantee)}")
