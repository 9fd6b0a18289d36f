"""`stream-dp`: one command for every tool.  Each command lives in the module of its name.

Modules that take long to import (faust, scipy, Kafka clients) are imported inside the commands that need them.
"""

import logging
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape
from typer.core import TyperGroup

from stream_dp import __version__
from stream_dp.cli import (
    audit,
    barriers,
    budget,
    calibrate,
    changes,
    check,
    dashboard,
    demo,
    dev,
    jobs,
    key,
    one_shot,
    plan,
    preview,
    replay,
    republish,
    shards,
    source,
    table,
    tail,
    verify,
    worker,
)
from stream_dp.cli.mistakes import sentence
from stream_dp.operations import stacks


class Commands(TyperGroup):
    """The commands; a user's mistake in any of them ends it with one sentence and status 2."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was asked for."""
        try:
            return super().invoke(ctx)
        except Exception as error:
            told = None if isinstance(error, typer.Exit | typer.Abort) else sentence(error)
            if told is None:
                raise
            Console(stderr=True).print(f"[bold red]error:[/] {escape(told)}", highlight=False, soft_wrap=True)
            raise typer.Exit(2) from None


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="""Differentially private streaming histograms over labels nobody listed in advance.

    [bold]Examples[/]

      stream-dp demo

      stream-dp worker --stream shop

      stream-dp tail --stream shop
    """,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("demo")(demo.demo)
app.command("worker")(worker.worker)
app.command("shard")(shards.shard)
app.command("merge")(shards.merge)
app.command("barriers")(barriers.barriers)
app.command("tail")(tail.tail)
app.command("changes")(changes.changes)
app.command("table")(table.table)
app.command("replay")(replay.replay)
app.command("dashboard")(dashboard.dashboard)
app.command("calibrate")(calibrate.calibrate)
app.command("preview")(preview.preview)
app.command("plan")(plan.plan)
app.command("check")(check.check)
app.command("audit")(audit.audit)
app.command("verify")(verify.verify)
app.command("rebuild")(verify.rebuild)
app.command("republish")(republish.republish)
app.command("top-k")(one_shot.top_k)
app.command("set-union")(one_shot.set_union)
app.command("histogram")(one_shot.histogram)
app.add_typer(jobs.app, name="jobs")
app.add_typer(key.app, name="key")
app.add_typer(budget.app, name="budget")
app.add_typer(source.app, name="source")
app.add_typer(dev.app, name="dev")


@app.callback(invoke_without_command=True)
def _root(version: bool = typer.Option(False, "--version", help="Print the version and exit.")) -> None:
    logging.getLogger("kafka").setLevel(logging.CRITICAL)  # commands say themselves what is out of reach
    if version:
        typer.echo(__version__)
        raise typer.Exit


def main() -> None:
    """Run the command line."""
    stacks.tell_on_signal()
    app()
