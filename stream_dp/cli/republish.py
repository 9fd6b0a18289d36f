"""`stream-dp republish`: lost releases, written again from key and log."""

from typing import Annotated

import msgspec
import typer

from stream_dp.cli import options
from stream_dp.cli.output import progress_bar
from stream_dp.config.connections import redis_client
from stream_dp.verification.republish import republish as write_again


@options.grouped
def republish(
    *,
    servers: options.Servers,
    to: Annotated[
        str | None, typer.Option(help="The topic to write to; without it, the releases topic.")
    ] = None,
    epoch: Annotated[int | None, typer.Option(help="Number of the epoch; without it, all epochs.")] = None,
    trust_log: options.TrustLog = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what is missing, and write nothing.")
    ] = False,
    whole: Annotated[
        bool, typer.Option("--whole", help="Windows: look at all of the epoch, not only at its end.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Write lost releases again, byte for byte, from the noise key and the events topic.  It spends nothing.

    What is left is compared first, and if it does not follow from the log, nothing is written.

    Into the releases topic itself, only what comes after all that it holds can be written: nothing, if its oldest
    releases are lost; everything, if it was deleted and re-created. A worker that still runs is fenced off; start it
    again afterwards. Into another topic, the whole epoch is written while the worker runs.

    Of a stream with `mechanism = "window"`, the log of the last three blocks, and of up to ten minutes before them,
    is enough to write again what was lost at the end; with --whole, or into another topic, all of it is compared.

    [bold]Examples[/]

      stream-dp republish --stream shop --dry-run

      stream-dp republish --stream shop

      stream-dp republish --stream shop --epoch 1 --to shop.restored --json
    """
    chosen = servers.load()
    with progress_bar("Computing releases again", hidden=as_json) as progress:
        lacking = write_again(
            chosen, redis_client(chosen.redis_address), to, epoch, trust_log, dry_run, progress, whole
        )
    epochs = [
        {
            "epoch": each.recorded.epoch.number,
            "first_round": each.rounds[0],
            "last_round": each.rounds[-1],
            "releases": len(each.rounds),
        }
        for each in lacking
    ]
    topic = to or chosen.releases
    if as_json:
        done = {"stream": chosen.stream, "topic": topic, "written": not dry_run, "epochs": epochs}
        typer.echo(msgspec.json.encode(done).decode())
        return
    if not epochs:
        typer.echo(f"No release is missing from the topic {topic}.")
    for each in epochs:
        what = "would be written" if dry_run else "were written"
        typer.echo(
            f"{each['releases']:,} releases of epoch {each['epoch']}, rounds {each['first_round']:,} to "
            f"{each['last_round']:,}, {what} to {topic}."
        )
