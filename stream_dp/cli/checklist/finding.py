"""One line of the checklist, and how all of them are printed."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

import typer
from rich.markup import escape
from rich.table import Table

from stream_dp.cli.mistakes import sentence
from stream_dp.cli.output import output

_MARKS = {"ok": "[green]ok[/]", "warning": "[yellow]warning[/]", "failed": "[bold red]failed[/]"}


@dataclass(frozen=True)
class Finding:
    """One line of the checklist; `detail` of a failed one says what to change."""

    name: str
    state: Literal["ok", "warning", "failed"]
    detail: str


def not_passed(name: str, error: Exception) -> Finding:
    """The failed line of an error that is the user's to mend; any other error is a defect and goes on."""
    told = sentence(error)
    if told is None:
        raise error
    return Finding(name, "failed", told)


def tell(findings: Sequence[Finding], as_json: bool, listed: Sequence[str] = (), **more: object) -> None:
    """Print the findings and the lines that are `listed`, or as JSON what there is `more`.

    Ends with status 1 if one has failed.
    """
    failed = any(finding.state == "failed" for finding in findings)
    if as_json:
        told = {"ok": not failed, "checks": [asdict(finding) for finding in findings]}
        typer.echo(json.dumps(told | more))
    else:
        table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
        for finding in findings:
            table.add_row(_MARKS[finding.state], f"[bold]{finding.name}[/]", escape(finding.detail))
        output().print(table)
        if listed:
            typer.echo("\n" + "\n".join(listed))
    if failed:
        raise typer.Exit(1)
