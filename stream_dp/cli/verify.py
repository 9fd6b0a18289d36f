"""`stream-dp verify` and `stream-dp rebuild`: what was released, and the state behind it, from key and log alone."""

from typing import Annotated

import msgspec
import typer
from rich.console import Console

from stream_dp.cli import options
from stream_dp.cli.output import progress_bar
from stream_dp.config.connections import redis_client
from stream_dp.verification.rebuild import rebuild as put_back
from stream_dp.verification.rebuild import verify_epoch


@options.grouped
def verify(
    *,
    servers: options.Servers,
    epoch: Annotated[int | None, typer.Option(help="Number of the epoch; without it, the last one.")] = None,
    show_difference: Annotated[
        bool, typer.Option(help="Show the first difference.  PRIVATE: it can reveal what the log contains.")
    ] = False,
    whole: Annotated[
        bool, typer.Option("--whole", help="Windows: compare all of the epoch, not only the last two blocks.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Recompute all releases of an epoch from its noise key and the events topic, and compare them.

    Of a stream with `mechanism = "window"` it compares those of the last two blocks, if the log of the last three, and
    of up to ten minutes before, tells them; `first_round` in the certificate says where it began.

    Anybody may see the certificate that it prints.  The exit status is 0 if every release follows from the log.

    [bold]Examples[/]

      stream-dp verify --stream shop

      stream-dp verify --stream shop --epoch 1 --json
    """
    chosen = servers.load()
    with progress_bar("Computing releases again", hidden=as_json) as progress:
        outcome = verify_epoch(chosen, redis_client(chosen.redis_address), epoch, progress, whole)
    certificate, difference = outcome.certificate, outcome.difference
    console = Console(soft_wrap=True)
    if as_json:
        typer.echo(msgspec.json.encode(certificate).decode())
    else:
        for name, value in msgspec.to_builtins(certificate).items():
            console.print(f"[bold]{name:>12}[/]  {value}", highlight=False)
        colour = "green" if certificate.sound else "red"
        console.print(f"[bold {colour}]{certificate.verdict.sentence}[/]")
    if show_difference and difference is not None:
        for name, part in (("recomputed", difference.recomputed), ("published", difference.published)):
            text = "nothing" if part is None else part.decode(errors="replace")
            typer.echo(f"round {difference.round}, part {difference.part}, {name}: {text}", err=True)
    raise typer.Exit(0 if certificate.sound else 1)


@options.grouped
def rebuild(
    *,
    servers: options.Servers,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace the state that Redis still holds.")
    ] = False,
    trust_log: options.TrustLog = False,
    whole: Annotated[
        bool, typer.Option("--whole", help="Windows: compute all of the epoch, not only the last two blocks.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Restore a stream's lost state in Redis from its noise key and its topics.  Nothing is released.

    Stop the stream's worker first: one that still runs is fenced off. Whatever releases are left are compared with what
    the log gives. Where none are left, nothing shows that it is the log that was counted, and --trust-log takes that on
    trust: over another log, the worker would use noise twice.

    Of a stream with `mechanism = "window"`, the log of the last three blocks, and of up to ten minutes before them,
    is enough, if none of the releases since then is missing.

    [bold]Examples[/]

      stream-dp rebuild --stream shop

      stream-dp rebuild --settings stream.toml --replace --json
    """
    chosen = servers.load()
    with progress_bar("Rebuilding the state", hidden=as_json) as progress:
        checkpoint = put_back(chosen, redis_client(chosen.redis_address), progress, replace, trust_log, whole)
    done = {"stream": chosen.stream, "epoch": checkpoint.epoch.number, "round": checkpoint.state.round}
    if as_json:
        typer.echo(msgspec.json.encode(done).decode())
    else:
        typer.echo(
            "Rebuilt stream {stream}: epoch {epoch}, round {round}.  The worker may start.".format(**done)
        )
