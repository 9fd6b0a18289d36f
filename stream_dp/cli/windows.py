"""`stream-dp windows`: what happened lately, in a topic that alerting can subscribe to."""

from typing import Annotated

import typer

from stream_dp.cli import options
from stream_dp.cli.log_options import Log, start_logging
from stream_dp.cli.mistakes import Mistake
from stream_dp.cli.reach import require_kafka
from stream_dp.cli.stopping import until_stopped
from stream_dp.cli.window_view import span_of
from stream_dp.counters import WINDOW
from stream_dp.workers.windows import keep_windows


@options.grouped
def windows(
    *,
    source: options.Subscriber,
    window: Annotated[
        list[str],
        typer.Option(
            metavar="SPAN",
            help="How far to reach back: 90s, 5m, 1h or 7d, or a number of rounds; may be given several times.",
        ),
    ] = ["5m", "1h"],  # noqa: B006  # typer copies it
    every: options.Every = 1.0,
    start: options.Beginning = "latest",
    log: Log,
) -> None:
    """Write how often each label occurred lately, and what rises and falls, into `<stream>.windows`, until stopped.

    It reads released values only, needs neither key nor Redis, and goes on where it stopped.

    [bold]Examples[/]

      stream-dp windows --stream shop --window 5m --window 1h

      stream-dp windows --settings stream.toml --from earliest --json
    """
    found = source.load()
    if found.mechanism == WINDOW:
        raise Mistake(f'each release of mechanism = "window" is a window already: read {found.releases}')
    if len({*window}) < len(window):
        raise Mistake(f"--window names one twice: {', '.join(window)}")
    spans = [span_of(each) for each in window]
    start_logging(log, found.stream)
    require_kafka(found.kafka)
    keep_windows(found, spans, until_stopped(), start, every)
