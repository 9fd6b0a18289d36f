"""`stream-dp demo`: real flights through an embedded Kafka and Redis and a real worker, shown as they are released.

The demo is an ordinary subscriber: what it shows comes from the releases topic alone.
"""

import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import chain, repeat
from math import isfinite
from os import environ
from pathlib import Path
from subprocess import Popen
from threading import Event
from typing import Annotated, Any

import typer
from kafka import KafkaProducer
from rich.console import Console

from stream_dp.cli.histogram_view import HistogramView
from stream_dp.cli.mistakes import Mistake
from stream_dp.cli.stopping import until_stopped
from stream_dp.cli.window_view import WindowView, span_of
from stream_dp.config.connections import redis_client
from stream_dp.config.reading import ENVIRONMENT_PREFIX
from stream_dp.config.settings import Settings
from stream_dp.dev.child_process import free_port, is_free, spawn, stop_owned
from stream_dp.dev.flights import ITEMS_PER_EVENT, flight_events
from stream_dp.dev.servers import Servers, embedded
from stream_dp.epochs.journaled_ledger import JournaledLedger
from stream_dp.kafka import log
from stream_dp.kafka.clients import producer_client
from stream_dp.releases.subscription import Subscription
from stream_dp.releases.whole_release import WholeRelease
from stream_dp.releases.window_readers import Windows
from stream_dp.releases.windows import FALSE_DISCOVERIES, Span

STREAM = "flights"
EPSILON, DELTA, HORIZON = 2.0, 1e-6, 65_535
_RATE = 200.0  # events a second that people can follow
_AT_ONCE = 2_000  # events before that pace begins: until labels are seen there is nothing to follow
_MOST_AHEAD = 5_000  # events fed that are not released yet
_POLL_SECONDS = 0.05
_SNIPPET = """\
import json
from kafka import KafkaConsumer
for r in KafkaConsumer("{topic}", bootstrap_servers="{kafka}"):
    print(json.loads(r.value)["round"], json.loads(r.value)["labels"][:5])"""


def demo(
    rounds: Annotated[
        int | None,
        typer.Option(min=1, help="End after this many rounds were released.", show_default="until Ctrl-C"),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="Events fed a second, after 2,000 at once; 0 is as fast as possible.",
            show_default="200, with --rounds 0",
        ),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            help="Where servers keep data and logs; used again, the demo continues.",
            show_default="a temporary one",
        ),
    ] = None,
    dashboard: Annotated[
        bool, typer.Option("--dashboard/--no-dashboard", help="Show it on a web page too; not with --json.")
    ] = True,
    window: Annotated[
        str | None,
        typer.Option(
            metavar="SPAN",
            help="Show what happened in the last 90s, 5m or 1h, or in the last rounds, given as a number.",
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="With --rounds: print only a JSON summary.")
    ] = False,
) -> None:
    """Watch private histograms of 336,776 real flights grow: everything runs here and ends with Ctrl-C.

    An embedded Kafka and Redis and a worker release counts of destinations, carriers and routes after each.

    [bold]Examples[/]

      stream-dp demo

      stream-dp demo --window 5m

      stream-dp demo --rounds 2000 --json
    """
    if as_json and rounds is None:
        raise Mistake("--json prints a summary at the end: give --rounds, which says when")
    if rate is not None and not isfinite(rate):
        raise Mistake(f"--rate is a number of events a second, not {rate:g}; 0 is as fast as possible")
    if rounds is not None and rounds > HORIZON:
        raise Mistake(
            f"the demo guarantees privacy for {HORIZON:,} rounds in all: ask for no more with --rounds"
        )
    if as_json and window is not None:
        raise Mistake("--window changes what is shown, and --json shows nothing: leave one of them out")
    span = None if window is None else span_of(window)
    stopping = until_stopped()
    speed = rate if rate is not None else _RATE if rounds is None else 0.0
    with ExitStack() as running:
        place = folder or Path(running.enter_context(tempfile.TemporaryDirectory(prefix="stream-dp-demo-")))
        _run(running, place, rounds, speed, as_json, dashboard and not as_json, span, stopping)
    if not as_json:
        typer.echo("The worker, Kafka and Redis are stopped.")


def _run(
    running: ExitStack,
    folder: Path,
    rounds: int | None,
    rate: float,
    as_json: bool,
    dashboard: bool,
    span: Span | None,
    stopping: Event,
) -> None:
    """Start everything, feed and show until the end; `running` stops it all, the last started first."""
    # People read what is going on from standard output, machines read nothing but the summary there.
    console = Console(quiet=as_json)
    console.print("Starting an embedded Kafka and Redis and a worker ...", style="dim")
    started = time.monotonic()
    try:
        settings = _settings(running.enter_context(embedded(folder.absolute())), rounds is None)
    except OSError as error:
        raise Mistake(
            f"cannot keep data in {folder} ({error.strerror}): name another one with --folder"
        ) from None
    _set_budget(settings)
    children = [running.enter_context(_child("worker", settings, folder))]
    port = _page_port() if dashboard else None
    if port is not None:
        children.append(running.enter_context(_child("dashboard", settings, folder, "--port", str(port))))
    feed = running.enter_context(_feed(settings, rounds, rate))
    subscription = running.enter_context(_subscription(settings, feed.already))
    page = None if port is None else f"http://127.0.0.1:{port}/{f'?window={span}' if span else ''}"
    introduction = _introduction(settings, folder, rounds, page)
    console.print(introduction, highlight=False, markup=False, soft_wrap=True)
    view = None if as_json else _View(running, console, introduction.count("\n") + 2, subscription, span)
    tally = Tally(started)
    while not stopping.is_set() and (rounds is None or tally.releases < rounds):
        _require_running(children)
        _advance(feed, subscription, tally, view)
    if as_json:
        if rounds is not None and tally.releases < rounds:
            raise Mistake("stopped before all rounds were released, so there is no summary")
        typer.echo(json.dumps(tally.summary(settings)))


def _settings(servers: "Servers", goes_on: bool) -> Settings:
    return Settings(
        stream=STREAM,
        kafka=servers.kafka,
        redis=servers.redis_url,
        epsilon=EPSILON,
        delta=DELTA,
        horizon=HORIZON,
        items_per_event=ITEMS_PER_EVENT,
        at_horizon="roll" if goes_on else "stop",
    )


def _set_budget(settings: Settings) -> None:
    """What an operator does first, with `stream-dp budget set`: one epoch fits, and a second over the same events not.

    A folder that is used again has it already.
    """
    with redis_client(settings.redis_address) as redis:
        journaled = JournaledLedger(settings.kafka_address, redis, settings.data_source)
        if journaled.current().budget() is None:
            journaled.set_budget(settings.epsilon, settings.delta, settings.unit, "stream-dp demo")


@dataclass(frozen=True)
class Child:
    """A `stream-dp` command that runs beside the demo, with its output in `log`."""

    name: str
    process: "Popen[bytes]"
    log: Path


@contextmanager
def _child(command: str, settings: Settings, folder: Path, *options: str) -> Iterator[Child]:
    """Run `stream-dp <command> <options>` on the demo's stream; it ends with the block, or with this process."""
    file, log = folder / "stream.toml", folder / f"{command}.log"
    names = ("stream", "kafka", "redis", "epsilon", "delta", "horizon", "items_per_event", "at_horizon")
    file.write_text("".join(f"{name} = {json.dumps(getattr(settings, name))}\n" for name in names))
    foreign = [word for name in environ if name.startswith(ENVIRONMENT_PREFIX) for word in ("-u", name)]
    words = [
        "env",
        *foreign,
        sys.executable,
        "-m",
        "stream_dp.cli",
        command,
        "--settings",
        str(file.absolute()),
        *options,
    ]
    process = spawn(words, log, owned=True)
    try:
        yield Child(command, process, log)
    finally:
        stop_owned(process)


def _page_port() -> int:
    """The first free port from the dashboard's usual one on."""
    return next((port for port in range(8080, 8180) if is_free(port)), None) or free_port()


def _require_running(children: list[Child]) -> None:
    """Raise `Mistake` if a child has ended."""
    for child in children:
        code = child.process.poll()
        if code is not None:
            lines = child.log.read_text(errors="replace").strip().splitlines() or [
                f"it ended with status {code}"
            ]
            reasons = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")] or lines
            raise Mistake(f"the {child.name} has ended: {reasons[-1]} (demo --folder NAME keeps its log)")


@dataclass
class Feed:
    """Flights on their way into the events topic.

    The first one goes alone: when it is released the worker is up.  The next go at once, and the clock of the rest
    begins.
    """

    producer: "KafkaProducer"
    topic: str
    flights: Iterator[bytes]
    already: int
    left: int
    rate: float
    fed: int = 0
    began: float = 0.0

    def advance(self, released: int) -> None:
        """Feed what is due now."""
        now = time.monotonic()
        if not released:
            due = 1
        elif self.rate:
            self.began = self.began or now
            due = _AT_ONCE + int((now - self.began) * self.rate)
        else:
            due = released + _MOST_AHEAD
        while self.left and self.fed < due:
            self.producer.send(self.topic, next(self.flights))
            self.fed, self.left = self.fed + 1, self.left - 1


@contextmanager
def _feed(settings: Settings, rounds: int | None, rate: float) -> Iterator[Feed]:
    """Flights from where an earlier demo of the same folder stopped: `rounds`, or the year again and again."""
    log.create_topics(settings.kafka, settings.events, settings.releases, settings.dead_letters)
    already = log.offsets(settings.kafka, settings.events).end
    if rounds and already + rounds > HORIZON:
        raise Mistake(
            f"{already:,} of the {HORIZON:,} rounds that the demo guarantees privacy for are used up in this folder: "
            "use another --folder, or fewer --rounds"
        )
    producer = producer_client(settings.kafka, linger_ms=5)
    try:
        flights = chain(flight_events(already), chain.from_iterable(map(flight_events, repeat(0))))
        yield Feed(producer, settings.events, flights, already, rounds or sys.maxsize, rate)
    finally:
        producer.close(timeout=5)


def _subscription(settings: Settings, already: int) -> "Subscription":
    return Subscription(settings.kafka, settings.releases, already + 1 if already < HORIZON else "latest")


@dataclass
class Tally:
    """What has been released since the demo `started`."""

    started: float
    releases: int = 0
    last: WholeRelease | None = None
    first_at: float = 0.0
    last_at: float = 0.0

    def count(self, releases: Sequence[WholeRelease]) -> None:
        """Take note of what one poll brought."""
        self.last_at = time.monotonic()
        self.first_at = self.first_at or self.last_at
        self.releases += len(releases)
        self.last = releases[-1]

    @property
    def events_per_second(self) -> float:
        """Rounds a second after the first one; of a single round, since the start."""
        if self.last_at > self.first_at:
            return (self.releases - 1) / (self.last_at - self.first_at)
        return self.releases / (self.last_at - self.started)

    def summary(self, settings: Settings) -> dict[str, Any]:
        """What was released at the end, and under which guarantee."""
        assert self.last is not None
        last = self.last
        ranked = last.largest_first()
        return {
            "stream": last.stream,
            "kafka": settings.kafka,
            "rounds": last.round,
            "releases": self.releases,
            "horizon": last.horizon,
            "items_per_event": last.items_per_event,
            "epsilon": last.epsilon,
            "delta": last.delta,
            "sd": last.sd,
            "events_per_second": round(self.events_per_second, 1),
            "labels": [
                {"label": label, "count": count, "sd": sd}
                for label, count, sd in zip(ranked.labels, ranked.counts, ranked.label_sds, strict=True)
            ],
        }


class _View:
    """The newest release in the terminal, or the window behind it."""

    def __init__(
        self,
        running: ExitStack,
        console: Console,
        lines_above: int,
        subscription: Subscription,
        span: Span | None,
    ) -> None:
        if span is None:
            self._show: Callable[[WholeRelease | None, str], None] = running.enter_context(
                HistogramView(console, lines_above)
            ).show
            return
        view = running.enter_context(WindowView(console, lines_above))
        windows = running.enter_context(Windows(subscription.again, span, FALSE_DISCOVERIES))
        self._show = lambda release, status: view.show(
            None if release is None else windows.window(release), status
        )

    def show(self, newest: WholeRelease | None, status: str) -> None:
        """See `LiveView.show`."""
        self._show(newest, status)


def _advance(feed: Feed, subscription: Subscription, tally: Tally, view: _View | None) -> None:
    """Feed what is due, read what was released, show it."""
    feed.advance(tally.releases)
    releases = subscription.poll(_POLL_SECONDS)
    if releases:
        tally.count(releases)
    if view is not None:
        status = f"{feed.already + feed.fed:,} flights fed, {tally.events_per_second:,.0f} rounds a second"
        view.show(tally.last if releases else None, status if tally.last else "")


def _introduction(settings: Settings, folder: Path, rounds: int | None, page: str | None) -> str:
    """Where to look, and how to read the releases from elsewhere while the demo runs."""
    snippet = _SNIPPET.format(topic=settings.releases, kafka=settings.kafka)
    logs = f" Worker's log: {folder / 'worker.log'}" if folder.exists() else ""
    end = "Ctrl-C ends everything." if rounds is None else f"It ends after {rounds:,} rounds."
    dashboard = f"Dashboard: {page}\n" if page is not None else ""
    return f"{end}{logs}\n{dashboard}Subscribe from another terminal, with Python:\n\n{snippet}\n"
