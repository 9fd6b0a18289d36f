"""`stream-dp budget`: what a data source may spend, what it has spent, and how that adds up."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import typer
from redis import Redis

from stream_dp.cli import options
from stream_dp.cli.budget_view import (
    conversion,
    print_charges,
    print_history,
    print_ranges,
    print_summary,
    range_of,
    report_of,
    rule_of,
)
from stream_dp.cli.local_books import ledger_file, no_server_is_named
from stream_dp.cli.mistakes import Mistake
from stream_dp.cli.output import output
from stream_dp.cli.reach import require_kafka, require_redis
from stream_dp.config.connections import redis_client
from stream_dp.config.reading import load_settings
from stream_dp.config.settings import Settings
from stream_dp.epochs.journaled_ledger import JournaledLedger, look
from stream_dp.epochs.people import whoever
from stream_dp.epochs.registry import Registry
from stream_dp.privacy import composition
from stream_dp.privacy.composition import Unit
from stream_dp.store.any_ledger import AnyLedger
from stream_dp.store.ledger import Ledger, LedgerRefused
from stream_dp.store.ledger_file import LocalLedger


@dataclass(frozen=True)
class Place:
    """Which ledger is meant, and where it is."""

    source: Annotated[
        str | None,
        typer.Option(
            "--source",
            metavar="TOPIC",
            help="Events topic, or name of a file; without it the source of the stream.",
        ),
    ] = None
    settings: options.SettingsFile = None
    stream: options.Stream = None
    kafka: options.Kafka = None
    redis: options.Redis = None

    @property
    def is_local(self) -> bool:
        """Whether the ledger is on this machine."""
        return no_server_is_named(self)

    @property
    def name(self) -> str:
        """The source itself, or that of the stream."""
        return self.source or self.load().data_source

    @contextmanager
    def local_ledger(self, by: str | None = None, only_look: bool = False) -> "Iterator[LocalLedger]":
        """The ledger on this machine; without a name the only one there is."""
        with _spoken(), ledger_file(only_look) as file:
            known = sorted(file.read().journals)
            if self.source is None and len(known) != 1:
                raise Mistake(
                    f"name a data source with --source: {', '.join(known) or 'nothing was charged on this machine'}"
                )
            yield LocalLedger(file, self.source or known[0], by or whoever())

    def load(self) -> "Settings":
        """The settings; a source needs no stream beside it, and only where servers are is wanted then."""
        stream = self.stream or (self.source and "unnamed")
        return load_settings(self.settings, stream=stream, kafka=self.kafka, redis=self.redis)

    @contextmanager
    def redis_of(self) -> "Iterator[Redis]":
        """A client of Redis; what a ledger refuses is the user's to mend."""
        found = self.load()
        require_redis(found.redis)
        with redis_client(found.redis_address) as client, _spoken():
            yield client

    @contextmanager
    def ledger(self) -> "Iterator[AnyLedger]":
        """The ledger as Redis and its journal have it, or a file here; nothing is made or changed.

        Where Kafka does not answer, as Redis alone has it, and that is said.
        """
        if self.is_local:
            with self.local_ledger(only_look=True) as here:
                yield here
            return
        found = self.load()
        with self.redis_of() as redis:
            try:
                require_kafka(found.kafka)
            except Mistake as away:
                typer.echo(f"the journal was not read, so this is what Redis alone holds: {away}", err=True)
                yield Ledger(redis, self.name)
                return
            yield look(found.kafka_address, redis, self.name)


@contextmanager
def _spoken() -> "Iterator[None]":
    """What a ledger refuses is the user's to mend."""
    try:
        yield
    except LedgerRefused as refused:
        raise Mistake(str(refused)) from None


app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="""Show, set and explain the privacy budget of a data source.

    [bold]Examples[/]

      stream-dp budget set --source shop.events --epsilon 2 --delta 1e-6

      stream-dp budget show --source shop.events
    """,
)


@app.command()
@options.grouped
def show(
    place: Place,
    odometer: Annotated[
        bool,
        typer.Option(
            "--odometer",
            help="Also show what holds if the releases decide when to stop.",
        ),
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Show the budget of a data source, what is spent of it, and every charge.

    [bold]Examples[/]

      stream-dp budget show --source shop.events

      stream-dp budget show --stream shop --redis redis://cache:6379/0 --json
    """
    with place.ledger() as ledger:
        report = report_of(ledger, odometer)
    if as_json:
        typer.echo(json.dumps(report))
        return
    console = output()
    print_summary(console, report)
    print_charges(console, report)
    print_history(console, report)


@app.command("set")
@options.grouped
def set_(
    *,
    epsilon: Annotated[float, typer.Option(help="The most that all releases from the source may cost.")],
    delta: Annotated[
        float,
        typer.Option(help="Delta of the guarantee: the probability with which epsilon may fail."),
    ],
    unit: Annotated[
        Literal["event", "user", "user-day"] | None,
        typer.Option(
            help="What the guarantee protects: one event, or one user with all of their events.",
            show_default="that of the source, else of the stream, else event",
        ),
    ] = None,
    own_deltas: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="Share of delta that is set aside for the charges' own deltas, from 0.001 to 0.99; before anything is "
            "charged.",
            show_default="settled by the first charge",
        ),
    ] = None,
    by: options.By = None,
    ledger: options.Ledger = None,
    place: Place,
    as_json: options.Json = False,
) -> None:
    """Set the budget of a data source, or change it; a budget below what is spent already is refused.

    The topic of that name belongs to the source from then on, as `stream-dp source register --topic` would say.
    The budget is written into the source's ledger, a Kafka topic, and into Redis, and the lower of the two counts.

    [bold]Examples[/]

      stream-dp budget set --source shop.events --epsilon 2 --delta 1e-6

      stream-dp budget set --source shop.events --epsilon 4 --delta 1e-6 --unit user --by "the privacy board"

      stream-dp budget set --source shop.events --epsilon 2 --delta 1e-6 --ledger privacy.shop

      stream-dp budget set --source shop.events --epsilon 1 --delta 1e-6 --own-deltas 0.05
    """
    if place.is_local:
        _set_here(place, epsilon, delta, unit, own_deltas, by, as_json)
        return
    settings = place.load()
    require_kafka(settings.kafka)
    with place.redis_of() as redis:
        registry = Registry(settings.kafka_address)
        seen = look(settings.kafka_address, redis, place.name)
        chosen = unit or registry.unit_of(place.name) or seen.state().unit or settings.unit
        try:
            seen.check_budget(seen.state(), seen.wanted_budget(epsilon, delta, chosen, own_deltas))
            topics = [place.name] if place.source else dict.fromkeys((place.name, settings.events))
            for topic in topics:
                registry.register(
                    "topic",
                    topic,
                    place.name,
                    chosen,
                    by,
                    create_topics=settings.create_topics,
                    ledger=ledger,
                )
            journaled = JournaledLedger(settings.kafka_address, redis, place.name, settings.create_topics)
            journaled.set_budget(epsilon, delta, chosen, by, own_deltas)
        except ValueError as error:
            raise Mistake(str(error)) from None
        report = report_of(journaled.current())
    _show_set(report, as_json)


def _set_here(
    place: Place,
    epsilon: float,
    delta: float,
    unit: Unit | None,
    own_deltas: float | None,
    by: str | None,
    as_json: bool,
) -> None:
    """Set the budget of a ledger on this machine."""
    with place.local_ledger(by) as ledger:
        counts = unit or ledger.state().unit
        if counts is None:
            raise Mistake("say whom the budget protects: --unit user, or --unit event")
        try:
            ledger.set_budget(epsilon, delta, counts, own_deltas)
        except ValueError as error:
            raise Mistake(str(error)) from None
        report = report_of(ledger)
    _show_set(report, as_json)


def _show_set(report: dict[str, Any], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(report))
        return
    console = output()
    print_summary(console, report)
    console.print(conversion(report["budget"]), style="dim", soft_wrap=True)


@app.command()
@options.grouped
def explain(place: Place, as_json: options.Json = False) -> None:
    """Explain how the charges add up over the offsets, and what would still fit where.

    [bold]Examples[/]

      stream-dp budget explain --source shop.events

      stream-dp budget explain --source shop.events --json
    """
    with place.ledger() as ledger:
        report = report_of(ledger)
        state = ledger.state()
    charges = state.charges()
    loads = composition.loads(charges, state.unit or "event")
    ranges = [range_of(load, charges, state.budget, report["spent"]["delta"]) for load in loads]
    if as_json:
        typer.echo(json.dumps(report | {"ranges": ranges}))
        return
    console = output()
    print_summary(console, report)
    if ranges:
        console.print()
        print_ranges(console, ranges)
    console.print(f"\n{rule_of(report)}")
