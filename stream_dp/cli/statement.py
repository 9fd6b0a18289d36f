"""`stream-dp statement`: who is protected, by how much, at what cost, and how to check it, on one page to sign."""

from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from stream_dp import __version__
from stream_dp.cli import options
from stream_dp.cli.budget_view import report_of
from stream_dp.cli.mistakes import Mistake
from stream_dp.cli.reach import require_kafka, require_redis
from stream_dp.cli.statement_page import NOT_PROTECTED, Charged, SetBudget, Statement, html, markdown
from stream_dp.config.connections import redis_client
from stream_dp.config.settings import Settings
from stream_dp.config.times import iso_timestamp
from stream_dp.epochs.journal import EpochJournal
from stream_dp.epochs.journaled_ledger import look
from stream_dp.kafka import log
from stream_dp.privacy.wording import counted, for_viewers, never_shown, odds


class Form(StrEnum):
    """How the statement is written."""

    MARKDOWN = "markdown"
    HTML = "html"


@options.grouped
def statement(
    *,
    servers: options.Servers,
    form: Annotated[
        Form | None,
        typer.Option("--format", help="How to write it.", show_default="by the name of FILE, else markdown"),
    ] = None,
    to: Annotated[
        Path | None,
        typer.Option("--to", metavar="FILE", help="Write it there.", show_default="to the terminal"),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Write for a privacy officer what a stream guarantees and what not, and what is spent and left.

    It is made from the stream's journal and its source's ledger.  It holds nothing private, and fits on one printed
    page.

    [bold]Examples[/]

      stream-dp statement --stream shop

      stream-dp statement --stream shop --to statement.html

      stream-dp statement --stream shop --json
    """
    chosen = servers.load()
    found = statement_of(chosen)
    form = form or (Form.HTML if to and to.suffix == ".html" else Form.MARKDOWN)
    written = _json(found) if as_json else html(found) if form is Form.HTML else markdown(found)
    if to is None:
        typer.echo(written, nl=False)
        return
    try:
        to.write_text(written)
    except OSError as error:
        raise Mistake(f"{to} cannot be written: {error.strerror}") from None


def statement_of(settings: Settings) -> Statement:
    """The statement of the stream's last epoch.  Raises `Mistake` if there is none, `LogRefused` or `LedgerRefused`."""
    require_kafka(settings.kafka)
    require_redis(settings.redis)
    journal = EpochJournal(settings) if log.existing(settings.kafka_address, settings.epochs) else None
    if journal is None or (opened := journal.last) is None:
        raise Mistake(f"stream {settings.stream} has no epoch yet: start its worker first")
    epoch, guarantee = opened.epoch, opened.epoch.guarantee
    with redis_client(settings.redis_address) as redis:
        report = report_of(look(settings.kafka_address, redis, settings.data_source))
    closed = journal.closed_at.get(epoch.number)
    budget = report["budget"]
    return Statement(
        stream=settings.stream,
        source=settings.data_source,
        written=iso_timestamp(int(datetime.now(UTC).timestamp() * 1000)),
        program=__version__,
        epoch=epoch.number,
        opened=iso_timestamp(journal.opened_at[epoch.number]),
        closed=None if closed is None else iso_timestamp(closed),
        unit=guarantee.unit,
        epsilon=guarantee.epsilon,
        delta=guarantee.delta,
        odds=odds(guarantee.epsilon),
        protected=f"{guarantee.sentence} {for_viewers(guarantee.unit, guarantee.epsilon, guarantee.delta)}",
        not_protected=list(NOT_PROTECTED[guarantee.unit]),
        counted=counted(guarantee.unit, epoch.mechanism.items_per_event)
        + " Releases say, with noise, which share that concerns." * epoch.mechanism.cap_share,
        at_least=epoch.at_least,
        never_shown=never_shown(guarantee.unit, epoch.at_least or 1),
        mechanism=epoch.mechanism.name,
        rounds=epoch.privacy["rounds"],
        horizon=epoch.last_round,
        unmetered=opened.unmetered,
        budget=None if budget is None else (budget["epsilon"], budget["delta"]),
        set_by=[
            SetBudget(each["at"], each["by"], each["epsilon"], each["delta"])
            for each in report["journal"]["budgets"]
        ],
        spent=(report["spent"]["epsilon"], report["spent"]["delta"]),
        more_like_the_last=report["more_like_the_last"],
        charges=[_charged(each) for each in report["charges"]],
        settings_digest=epoch.fingerprint,
        key_check=opened.key_check,
        known_labels=epoch.known,
    )


def _charged(charge: dict[str, Any]) -> Charged:
    exact = charge["exact"] or (None, None)
    return Charged(charge["at"], charge["what"], charge["rho"], charge["delta"], *exact)


def _json(found: Statement) -> str:
    return msgspec.json.encode(found).decode() + "\n"
