"""`stream-dp calibrate`: what a promise costs, and what given noise promises, before anything runs."""

import json
from collections.abc import Callable
from math import comb, log, sqrt
from pathlib import Path
from statistics import NormalDist
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from stream_dp.cli import options
from stream_dp.cli.mistakes import Mistake
from stream_dp.settings import Settings

if TYPE_CHECKING:
    from stream_dp.calibration import Guarantee
    from stream_dp.counters.binary import BinaryMechanism

_DEFAULTS: dict[str, Any] = {field.name: field.default for field in msgspec.structs.fields(Settings)}


def calibrate(
    mechanism: Annotated[Literal["binary"], typer.Option(help="The continual counter.")] = "binary",
    horizon: Annotated[int, typer.Option(help="Rounds promised in advance; 2^k - 1 is cheapest.")] = (
        _DEFAULTS["horizon"]
    ),
    items_per_event: Annotated[
        int, typer.Option(help="The most distinct items of one event that count.")
    ] = _DEFAULTS["items_per_event"],
    epsilon: Annotated[
        float | None,
        typer.Option(help="Promise for all rounds together.", show_default=str(_DEFAULTS["epsilon"])),
    ] = None,
    delta: Annotated[
        float | None,
        typer.Option(help="Chance that the promise fails.", show_default=str(_DEFAULTS["delta"])),
    ] = None,
    sigma_squared: Annotated[
        float | None, typer.Option(help="Instead of epsilon: variance of one noise draw.")
    ] = None,
    threshold_delta: Annotated[
        float | None, typer.Option(help="Instead of delta: chance that a label escapes.")
    ] = None,
    rounds: Annotated[
        str | None, typer.Option(metavar="R,R,...", help="Also print the threshold tau of these rounds.")
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE.png", help="Draw the noise, the threshold and other epsilons."),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Compute the noise and the thresholds of a promise (epsilon, delta), or the promise of given noise.

    [bold]Examples[/]

      stream-dp calibrate --epsilon 1 --delta 1e-6 --horizon 65535 --items-per-event 4

      stream-dp calibrate --sigma-squared 9 --threshold-delta 1e-8 --rounds 1,2,3 --json

      stream-dp calibrate --epsilon 2 --delta 1e-6 --plot noise.png
    """
    from stream_dp.cli import calibrate_plot

    if plot is not None:
        calibrate_plot.check_kind(plot)
    asked = _rounds(rounds, horizon)
    noise, guarantee = _calibrated(
        horizon, items_per_event, (epsilon, delta), (sigma_squared, threshold_delta)
    )
    report = _report(noise, guarantee, asked)
    if as_json:
        typer.echo(json.dumps(report))
    else:
        _print(report, guarantee)
    if plot is not None:
        calibrate_plot.draw(noise, guarantee, plot)


def _calibrated(
    horizon: int,
    items_per_event: int,
    promise: tuple[float | None, float | None],
    noise: tuple[float | None, float | None],
) -> "tuple[BinaryMechanism, Guarantee]":
    """The mechanism and its guarantee; without either pair, those of the default settings."""
    from stream_dp import calibration

    if promise != (None, None) and noise != (None, None):
        raise Mistake("give either --epsilon and --delta, or --sigma-squared and --threshold-delta, not both")
    try:
        if noise == (None, None):
            if promise == (None, None):
                promise = _DEFAULTS["epsilon"], _DEFAULTS["delta"]
            epsilon, delta = _both(promise, "--epsilon", "--delta")
            return calibration.calibrate(epsilon, delta, horizon, items_per_event)
        sigma_squared, threshold_delta = _both(noise, "--sigma-squared", "--threshold-delta")
        given = calibration.guarantee_of(sigma_squared, threshold_delta, horizon, items_per_event)
    except ValueError as error:
        raise Mistake(str(error)) from None
    except OverflowError:
        given = None  # e^epsilon is beyond all numbers
    if given is None or given[1].delta >= 1:
        raise Mistake("so little noise promises nothing at all: raise --sigma-squared")
    return given


def _both(pair: tuple[float | None, float | None], first: str, second: str) -> tuple[float, float]:
    if pair[0] is None or pair[1] is None:
        given, missing = (second, first) if pair[0] is None else (first, second)
        raise Mistake(f"{given} needs {missing} beside it: add {missing}")
    return pair[0], pair[1]


def _rounds(text: str | None, horizon: int) -> list[int]:
    if text is None:
        return []
    try:
        rounds = [int(word) for word in text.split(",")]
    except ValueError:
        raise Mistake(f"--rounds takes whole numbers such as 1,2,3, not {text!r}") from None
    for number in rounds:
        if not 1 <= number <= horizon:
            raise Mistake(
                f"round {number} is not between 1 and the horizon {horizon}: change --rounds or --horizon"
            )
    return rounds


def rounds_by_nodes(horizon: int) -> dict[int, int]:
    """How many of the rounds 1..`horizon` are the union of m nodes (have m bits set), for every m that occurs.

    >>> rounds_by_nodes(6)
    {1: 3, 2: 3}
    """
    found = [0] * (horizon.bit_length() + 1)
    above = 0  # bits set in the part of the horizon above the place
    for place in reversed(range(horizon.bit_length())):
        if horizon >> place & 1:
            for below in range(place + 1):  # numbers that agree above, have 0 here and anything below
                found[above + below] += comb(place, below)
            above += 1
    found[above] += 1
    return {nodes: count for nodes, count in enumerate(found) if nodes and count}


def mean_over_rounds(value: Callable[[int], float], spread: dict[int, int]) -> float:
    """The mean of a round's value, which depends on its number of nodes m alone: taken at round 2^m - 1.

    >>> mean_over_rounds(int.bit_count, rounds_by_nodes(6))
    1.5
    """
    return sum(value(2**nodes - 1) * count for nodes, count in spread.items()) / sum(spread.values())


def _report(noise: "BinaryMechanism", guarantee: "Guarantee", rounds: list[int]) -> dict[str, Any]:
    from stream_dp.counters.binary import levels

    spread = rounds_by_nodes(noise.horizon)

    def over_rounds(value: Callable[[int], float]) -> dict[str, Any]:
        """Mean and maximum over all rounds."""
        return {
            "mean": mean_over_rounds(value, spread),
            "max": max(value(2**nodes - 1) for nodes in spread),
        }

    taus = {"rounds": {str(number): noise.tau(number) for number in rounds}} if rounds else {}
    tail = NormalDist().inv_cdf(noise.threshold_delta / (noise.items_per_event * noise.horizon))
    return {
        "mechanism": noise.name,
        "horizon": noise.horizon,
        "items_per_event": noise.items_per_event,
        "epsilon": guarantee.epsilon,
        "delta": guarantee.delta,
        "levels": levels(noise.horizon),
        "rho": noise.rho,
        "sigma_squared": noise.sigma_squared,
        "threshold_delta": noise.threshold_delta,
        "conversion": guarantee.conversion,
        "sd": over_rounds(noise.sd),
        "tau": over_rounds(noise.tau) | taus,
        "papers_threshold": 1 - sqrt(noise.sigma_squared * (levels(noise.horizon) + 1)) * tail,
    }


def _papers_sigma_squared(report: dict[str, Any]) -> float:
    """The variance that rho + 2 sqrt(rho ln(1/delta)) would ask for at the same promise, half of delta each."""
    root = sqrt(log(2 / report["delta"]))
    rho = (sqrt(root**2 + report["epsilon"]) - root) ** 2
    return report["items_per_event"] * report["levels"] / (2 * rho)


def _print(report: dict[str, Any], guarantee: "Guarantee") -> None:
    """The report for people, with what the papers would have asked for beside it."""
    papers = report["papers_threshold"]
    papers_noise = _papers_sigma_squared(report)
    # Their threshold is 1 + something proportional to sigma.
    papers_both = 1 + (papers - 1) * sqrt(papers_noise / report["sigma_squared"])
    rows = [
        ("mechanism", report["mechanism"]),
        ("horizon", f"{report['horizon']:,} rounds, {report['levels']} levels"),
        ("items per event", f"{report['items_per_event']:,}"),
        ("epsilon, delta", f"{report['epsilon']:.6g}, {report['delta']:.6g}"),
        ("rho (zCDP)", f"{report['rho']:.6g}"),
        ("sigma squared", f"{report['sigma_squared']:,.6g} of one draw"),
        ("threshold delta", f"{report['threshold_delta']:.6g}, part of delta"),
        ("conversion", report["conversion"]),
        ("sd of a count", f"{report['sd']['mean']:,.2f} on average, at most {report['sd']['max']:,.2f}"),
        ("threshold tau", f"{report['tau']['mean']:,.1f} on average, at most {report['tau']['max']:,}"),
        *((f"  in round {number}", f"{tau:,}") for number, tau in report["tau"].get("rounds", {}).items()),
        ("the papers'", f"{papers:,.1f} in every round with this noise"),
        ("", f"{papers_both:,.1f} with the noise that their conversion asks for"),
    ]
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for name, value in rows:
        table.add_row(f"[bold]{name}[/]", value)
    console = Console(highlight=False)
    console.print(table)
    console.print(f"\n{guarantee.sentence}")
