"""`stream-dp tail`: a stream's releases, live in the terminal or as JSON lines.  It reads the releases topic only."""

from collections.abc import Callable
from contextlib import nullcontext
from datetime import datetime
from threading import Event
from typing import Annotated, Any, TypeVar

import msgspec
import typer
from rich.console import Console

from stream_dp.cli import options
from stream_dp.cli.histogram_view import HistogramView, LiveView
from stream_dp.cli.mistakes import Mistake
from stream_dp.cli.reach import await_releases, require_kafka, require_topic
from stream_dp.cli.stopping import until_stopped
from stream_dp.cli.window_view import WindowView, span_of
from stream_dp.config.settings import Settings
from stream_dp.config.times import parse_time
from stream_dp.releases.lookup import history_begins, release_at
from stream_dp.releases.release import Release
from stream_dp.releases.subscription import Subscription
from stream_dp.releases.topic import ReleasesTopic
from stream_dp.releases.whole_release import WholeRelease
from stream_dp.releases.window_readers import Windows
from stream_dp.releases.window_record import record_of
from stream_dp.releases.windows import FALSE_DISCOVERIES, Span, Window

Shown = TypeVar("Shown")
_POLL_SECONDS = 0.1


@options.grouped
def tail(
    *,
    source: options.Subscriber,
    start: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="earliest|latest|ROUND|TIME",
            help="The first release to show; of a time, the one that was newest then.",
        ),
    ] = "latest",
    at: Annotated[
        str | None,
        typer.Option(metavar="ROUND|TIME", help="Show one release only: the newest at or before."),
    ] = None,
    epoch: Annotated[
        int | None,
        typer.Option(min=1, help="Show this epoch only.", show_default="all; of a round, the newest"),
    ] = None,
    rounds: Annotated[int | None, typer.Option(min=1, help="End after this many releases.")] = None,
    window: Annotated[
        str | None,
        typer.Option(
            metavar="SPAN",
            help="Show what happened in the last 90s, 5m, 1h or 7d, or in the last rounds, given as a number.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print every release as a line of JSON.")] = False,
) -> None:
    """Show a stream's running histogram as it is released, until stopped with Ctrl-C.

    People see at most ten releases a second. `--json` prints all of them, each whole and once.

    TIME is ISO 8601 and means when releases were published; without a zone it is UTC.

    A stream that has released nothing yet is waited for, unless a round or a time is asked for.

    [bold]Examples[/]

      stream-dp tail --stream shop

      stream-dp tail --stream shop --kafka broker:9092 --from 1000 --rounds 50 --json

      stream-dp tail --stream shop --at 2026-01-31T12:00:00Z --json

      stream-dp tail --stream shop --window 5m
    """
    first = (
        start if start in ("earliest", "latest") else _round_or_time(start, "--from", "earliest, latest, ")
    )
    if at is not None and (start != "latest" or rounds is not None or window is not None):
        raise Mistake("--at shows one release: leave --from, --rounds and --window out")
    span = None if window is None else span_of(window)
    moment = None if at is None else _round_or_time(at, "--at")
    found = source.load()
    require_kafka(found.kafka)
    if moment is not None:
        require_topic(found.kafka_address, found.releases)
        _show(found, moment, epoch, as_json)
        return
    stopping = until_stopped()
    if isinstance(first, str):
        if not await_releases(found, stopping):
            return
    else:  # the past of a topic that is not there yet
        require_topic(found.kafka_address, found.releases)
    _follow(found, first, epoch, rounds, span, as_json, stopping)


def _round_or_time(text: str, option: str, others: str = "") -> int | datetime:
    if text.isascii() and text.isdigit() and 0 < len(text) < 19 and int(text) > 0:
        return int(text)
    try:
        return parse_time(text)
    except ValueError:
        raise Mistake(
            f"{option} takes {others}a round such as 1000 or a time such as 2026-01-31T12:00:00Z, not {text!r}"
        ) from None


def _show(settings: Settings, at: int | datetime, epoch: int | None, as_json: bool) -> None:
    """Print the newest release at or before a round or a time."""
    release = release_at(settings.kafka_address, settings.releases, at, epoch)
    if release is None:
        what = f"a release of {f'round {at}' if isinstance(at, int) else at.isoformat()} or before"
        of = "" if epoch is None else f" of epoch {epoch}"
        begins = _history_begins(settings)
        raise Mistake(
            f"the topic {settings.releases!r} does not hold {what}{of}: ask for a later one; {begins}"
        )
    if as_json:
        typer.echo(_line(release))
        return
    with HistogramView(Console()) as view:
        view.show(release)


def _history_begins(settings: Settings) -> str:
    releases = ReleasesTopic(settings.kafka_address, settings.releases)
    try:
        return history_begins(releases)
    finally:
        releases.close()


def _follow(
    settings: Settings,
    start: str | int | datetime,
    epoch: int | None,
    rounds: int | None,
    span: "Span | None",
    as_json: bool,
    stopping: Event,
) -> None:
    """Show or print every release, or the window behind it, as they come."""
    with Subscription(settings.kafka_address, settings.releases, start, epoch) as subscription:
        if span is None:
            _show_all(subscription, rounds, _itself, _line, _histogram_view, as_json, stopping)
            return
        with Windows(subscription.again, span, FALSE_DISCOVERIES) as windows:

            def window_line(window: Window) -> bytes:
                return msgspec.json.encode(record_of(window, span))

            _show_all(subscription, rounds, windows.window, window_line, _window_view, as_json, stopping)


def _show_all(
    subscription: "Subscription",
    rounds: int | None,
    made_of: Callable[["WholeRelease"], Shown],
    line: Callable[[Shown], bytes],
    view: Callable[[], "LiveView[Any]"],
    as_json: bool,
    stopping: Event,
) -> None:
    """Draw the newest of what is `made_of` the releases, or print all of it as lines."""
    left = rounds
    with nullcontext() if as_json else view() as drawn:
        while not stopping.is_set() and (left is None or left > 0):
            releases = subscription.poll(_POLL_SECONDS)[:left]
            left = None if left is None else left - len(releases)
            if drawn is None:
                for release in releases:
                    typer.echo(line(made_of(release)))
            else:
                drawn.show(made_of(releases[-1]) if releases else None)


def _itself(release: "WholeRelease") -> "WholeRelease":
    return release


def _histogram_view() -> "LiveView[Release]":
    return HistogramView(Console())


def _window_view() -> "LiveView[Window]":
    return WindowView(Console())


def _line(release: "WholeRelease") -> bytes:
    """A release and its 95% intervals as JSON; `first_shown` is null where it cannot be known."""
    low, high = release.intervals()
    known = {
        "low": low.round(1).tolist(),
        "high": high.round(1).tolist(),
        "first_shown": [release.first_shown(label) for label in release.labels],
    }
    return msgspec.json.encode(msgspec.to_builtins(release) | known)
