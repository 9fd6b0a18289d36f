"""`stream-dp audit`: try to refute what the mechanisms claim, and show that broken ones are caught."""

import json
import secrets
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.table import Table

from stream_dp.audit.catalogue import pairs
from stream_dp.audit.examine import Finding, Pair, examine
from stream_dp.cli import options
from stream_dp.cli.audit_exact import audit_exactly
from stream_dp.cli.mistakes import Mistake
from stream_dp.cli.output import output, spaced, steps_bar

_MOST_SEED_BYTES = 64


def audit(
    mechanism: Annotated[
        list[str] | None,
        typer.Option(help="Examine only this one; may be repeated.", show_default="all"),
    ] = None,
    runs: Annotated[
        int | None,
        typer.Option(min=1000, help="Runs of each of two inputs.", show_default="what each pair needs"),
    ] = None,
    seed: Annotated[
        str | None,
        typer.Option(metavar="HEX", help="The same seed gives the same audit.", show_default="a fresh one"),
    ] = None,
    exact: Annotated[
        bool,
        typer.Option(
            "--exact",
            help="Count the true delta on small data instead, over every outcome of the noise.",
        ),
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Run the real mechanisms on neighbouring inputs, and bound epsilon from below by their outputs.

    A claim below its bound is refuted; a true claim is with probability at most 1e-6.
    Mechanisms that are broken on purpose are examined too, and must be caught.
    The status is 0 only if all correct ones pass and all broken ones are caught.

    With --exact nothing is sampled: delta comes out exactly, for all neighbours. Every outcome of the noise goes
    through the real histogram, on horizons of 2 to 4 rounds, and through one-shot mechanisms on data of a few users.
    --mechanism then names a counter such as blt, or a job with its mechanism, such as "top-k gumbel".

    [bold]Examples[/]

      stream-dp audit

      stream-dp audit --mechanism running-histogram --seed 01 --json

      stream-dp audit --exact
    """
    if exact:
        if runs is not None or seed is not None:
            raise Mistake("--exact draws nothing: leave --runs and --seed out")
        if not audit_exactly(mechanism or [], as_json):
            raise typer.Exit(1)
        return
    key = _seed(seed)
    chosen = _chosen(mechanism or [])
    findings = _examined(chosen, key, runs, quiet=as_json)
    good = all(finding.as_expected for finding in findings)
    if as_json:
        report = {"seed": key.hex(), "good": good, "pairs": [finding.report() for finding in findings]}
        typer.echo(json.dumps(report))
    else:
        _print(findings, key)
    if not good:
        raise typer.Exit(1)


def _seed(text: str | None) -> bytes:
    if text is None:
        return secrets.token_bytes(16)
    try:
        key = bytes.fromhex(text)
    except ValueError:
        key = b""
    if not 1 <= len(key) <= _MOST_SEED_BYTES:
        raise Mistake(f"--seed takes 1 to {_MOST_SEED_BYTES} bytes in hexadecimal such as 01ff, not {text!r}")
    return key


def _chosen(names: Sequence[str]) -> "list[Pair]":
    everything = pairs()
    known = list(dict.fromkeys(pair.mechanism for pair in everything))
    for name in names:
        if name not in known:
            raise Mistake(f"there is no mechanism {name!r} to audit: choose from {', '.join(known)}")
    return [pair for pair in everything if not names or pair.mechanism in names]


def _examined(chosen: "Sequence[Pair]", seed: bytes, runs: int | None, *, quiet: bool) -> "list[Finding]":
    """All findings; people watch them come on standard error."""
    findings = []
    with steps_bar("", len(chosen), hidden=quiet) as step:
        for pair in chosen:
            step(0, pair.mechanism)
            findings.append(examine(pair, seed, runs))
            step()
    return findings


def _print(findings: "Sequence[Finding]", seed: bytes) -> None:
    console = output()
    for control, title in ((False, "Correct mechanisms"), (True, "Broken on purpose")):
        rows = [finding for finding in findings if finding.pair.control == control]
        if rows:
            console.print(_table(title, rows))
            console.print()
    wrong = [finding for finding in findings if not finding.as_expected]
    broken = sum(finding.pair.control for finding in findings)
    verdict = "[bold green]The audit passes[/]" if not wrong else "[bold red]The audit FAILS[/]"
    flagged = sum(finding.flagged and not finding.pair.control for finding in findings)
    caught = sum(finding.flagged and finding.pair.control for finding in findings)
    console.print(
        f"{verdict}: {flagged} of {len(findings) - broken} claims of correct mechanisms refuted, "
        f"{caught} of {broken} broken ones caught.",
        soft_wrap=True,
    )
    console.print(f"[dim]Repeat it with --seed {seed.hex()}[/]", soft_wrap=True)


def _table(title: str, rows: "Sequence[Finding]") -> Table:
    numbers = "epsilon, delta", "at least", "share"
    table = spaced("mechanism", "neighbours differ in", right=numbers, title=title)
    table.add_column("verdict")
    previous = None
    for finding in rows:
        pair, bound = finding.pair, finding.bound
        share = bound.epsilon / pair.epsilon if bound.epsilon or not pair.delta else bound.delta / pair.delta
        colour = "green" if finding.as_expected else "bold red"
        table.add_row(
            pair.mechanism if pair.mechanism != previous else "",
            pair.name.removeprefix("BROKEN: "),
            f"{pair.epsilon:.3g}, {pair.delta:.2g}",
            f"{bound.epsilon:.2f}" if bound.epsilon else f"0, {bound.delta:.2g}",
            f"{share:.0%}",
            f"[{colour}]{finding.verdict}[/]",
        )
        previous = pair.mechanism
    return table
