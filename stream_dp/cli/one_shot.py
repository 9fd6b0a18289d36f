"""`stream-dp top-k`, `set-union` and `histogram`: one job over a topic or a file, charged to its source's ledger."""

import json
import logging
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import typer
from rich.console import Console
from rich.progress import Progress

from stream_dp.cli import one_shot_view as view
from stream_dp.cli import options
from stream_dp.cli.mistakes import Mistake
from stream_dp.cli.pictures import check_picture
from stream_dp.cli.reach import require_kafka, require_redis
from stream_dp.cli.result_files import check_output, write_result
from stream_dp.config.connections import redis_client
from stream_dp.config.file_kinds import KINDS
from stream_dp.config.settings import Settings
from stream_dp.config.times import clock
from stream_dp.jobs.forecast import Forecast, forecast
from stream_dp.jobs.mechanisms import (
    GAUSSIAN_ALPHA,
    GAUSSIAN_COUNT_ITEMS,
    GAUSSIAN_UNION_ITEMS,
    LAPLACE_ITEMS,
    MOST_BY_GUMBEL,
    calibrate,
    default_mechanism,
)
from stream_dp.jobs.request import BadRequest, JobRequest, request_from
from stream_dp.jobs.result import JobResult, whole
from stream_dp.jobs.runner import JobRunner
from stream_dp.jobs.steps import Site, prepare

_COMMANDS = "command line"
"""What stands in the place of a stream for jobs that are asked for by command; no stream is called so."""

_READ, _GUARANTEE, _SHOW = "What to read", "What to guarantee", "What to show"

Epsilon = Annotated[float, typer.Option(help="Epsilon of the guarantee.", rich_help_panel=_GUARANTEE)]
ItemsPerUser = Annotated[
    int | None,
    typer.Option(
        help="A user of more items counts with a sample of so many.",
        show_default=f"{GAUSSIAN_UNION_ITEMS} for unions with Gaussian noise, {GAUSSIAN_COUNT_ITEMS} for counts with "
        f"it, {LAPLACE_ITEMS} with Laplace noise",
        rich_help_panel=_GUARANTEE,
    ),
]
Plot = Annotated[
    Path | None, typer.Option(metavar="FILE.png", help="Draw the counts.", rich_help_panel=_SHOW)
]


@dataclass(frozen=True)
class Job(options.Servers):
    """What all jobs are told: what to guarantee, what to read, and whether to run at all."""

    epsilon: Epsilon = 1.0
    delta: Annotated[
        float,
        typer.Option(
            help="Delta of the guarantee.",
            rich_help_panel=_GUARANTEE,
        ),
    ] = 1e-6
    unit: Annotated[
        Literal["user", "event"] | None,
        typer.Option(
            help="What is protected: all of one user, or one event.",
            show_default="that of the data source",
            rich_help_panel=_GUARANTEE,
        ),
    ] = None
    topic: Annotated[
        str | None,
        typer.Option(metavar="TOPIC", help="Topic to read; without it the stream's.", rich_help_panel=_READ),
    ] = None
    start: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="PLACE",
            help="First record: an offset, a time such as 2026-01-31T12:00:00Z, or earliest.",
            rich_help_panel=_READ,
        ),
    ] = "earliest"
    to: Annotated[
        str,
        typer.Option(metavar="PLACE", help="The record to end before, or latest.", rich_help_panel=_READ),
    ] = "latest"
    file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help=f"File instead of a topic: {KINDS}.", rich_help_panel=_READ),
    ] = None
    user_column: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Column of users in the file.", show_default="user", rich_help_panel=_READ
        ),
    ] = None
    item_column: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Column of items. [default: item or items]", rich_help_panel=_READ),
    ] = None
    source: Annotated[
        str | None,
        typer.Option(
            "--source",
            metavar="NAME",
            help="Refuse unless this is the data source whose budget is spent; `stream-dp source list` tells it.",
            rich_help_panel=_READ,
        ),
    ] = None
    id: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Name of the job: one that was interrupted goes on, one that is done is shown again. "
            "It is charged once.",
            show_default="a new one",
        ),
    ] = None
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write the result to a file too: .parquet, .csv or .json.",
            rich_help_panel=_SHOW,
        ),
    ] = None
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Only show what it would cost and leave of the budget; nothing is charged."
        ),
    ] = False
    unmetered: options.Unmetered = False

    def load(self) -> Settings:
        """The settings with what the options say.  Raises `SettingsError`."""
        return options.metered(super().load(), self.unmetered)

    as_json: options.Json = False

    def source_field(self) -> dict[str, Any]:
        """The field `source` of the request; --from and --to have no meaning for a file."""
        found: dict[str, Any] = {
            "topic": self.topic,
            "user": self.user_column,
            "item": self.item_column,
            "name": self.source,
        }
        if self.file is None:
            found |= {"from": _place(self.start), "to": _place(self.to)}
        elif (self.start, self.to) == ("earliest", "latest"):
            found["file"] = str(self.file)
        else:
            raise Mistake(
                "--from and --to choose records of a topic, and a file is read whole: leave them out"
            )
        return {key: value for key, value in found.items() if value is not None}


@options.grouped
def top_k(
    *,
    mechanism: Annotated[
        str | None,
        typer.Option(
            help="laplace, gaussian, gumbel, pay-what-you-get, stable, stable-fixed-k, gap or gap-gaussian.",
            show_default=f"gumbel up to k = {MOST_BY_GUMBEL}, then gaussian",
        ),
    ] = None,
    k: Annotated[int, typer.Option("-k", "--k", help="The most labels to release.")] = 10,
    least: Annotated[
        int | None,
        typer.Option(
            help="stable, gap, gap-gaussian: the least k that may be chosen.",
            show_default="1",
            rich_help_panel=_GUARANTEE,
        ),
    ] = None,
    kbar: Annotated[
        int | None,
        typer.Option(
            help="How many labels are looked at, k or more.",
            show_default="50 k, at least 5000",
            rich_help_panel=_GUARANTEE,
        ),
    ] = None,
    items_per_user: ItemsPerUser = None,
    penalty: Annotated[
        float | None,
        typer.Option(
            help="stable-fixed-k: what each rank away from k weighs.",
            show_default="1",
            rich_help_panel=_GUARANTEE,
        ),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="pay-what-you-get: the budget to draw from; the first job of this name opens it.",
            rich_help_panel=_GUARANTEE,
        ),
    ] = None,
    marks: Annotated[
        int | None,
        typer.Option(
            help="pay-what-you-get: how many labels its jobs may release in all.", rich_help_panel=_GUARANTEE
        ),
    ] = None,
    queries: Annotated[
        int | None,
        typer.Option(help="pay-what-you-get: how many jobs may draw from it.", rich_help_panel=_GUARANTEE),
    ] = None,
    job: Job,
    plot: Plot = None,
) -> None:
    """Release the labels that most users hold, of a topic or a file.

    laplace and gaussian release counts too, and a user counts with at most --items-per-user items; the others let users
    hold any number of items.

    [bold]Examples[/]

      stream-dp top-k --stream shop -k 20

      stream-dp top-k --file orders.parquet --source orders --mechanism gaussian --items-per-user 10 --plot top.png

      stream-dp top-k --stream shop --mechanism stable -k 100 --least 20 --dry-run

      stream-dp top-k --stream shop -k 20 --id best-of-may --output best.parquet

      stream-dp top-k --stream shop --mechanism pay-what-you-get --budget anna --marks 200 --queries 20 -k 10
    """
    mechanism = mechanism or default_mechanism("top-k", k)
    delta = None if mechanism == "gap" else job.delta
    asked = {
        "delta": delta,
        "k": k,
        "least": least,
        "kbar": kbar,
        "items_per_user": items_per_user,
        "penalty": penalty,
        "budget": budget,
        "marks": marks,
        "queries": queries,
    }
    _run({"job": "top-k", "mechanism": mechanism, **asked}, job, plot)


@options.grouped
def set_union(
    *,
    mechanism: Annotated[
        str,
        typer.Option(
            help="sips, policy, policy-gaussian, weighted, weighted-gaussian, count, count-gaussian, greedy or "
            "greedy-transfer."
        ),
    ] = "policy-gaussian",
    items_per_user: ItemsPerUser = None,
    alpha: Annotated[
        float | None,
        typer.Option(
            help="policy and greedy: how many noise scales above the threshold a label is filled up to.",
            show_default=f"{GAUSSIAN_ALPHA:g} for policy-gaussian, else 3",
            rich_help_panel=_GUARANTEE,
        ),
    ] = None,
    tokens: Annotated[
        int | None,
        typer.Option(help="greedy: how many items a user may help.", rich_help_panel=_GUARANTEE),
    ] = None,
    frequencies: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="greedy-transfer: JSON object of labels and how frequent they are in PUBLIC data.",
            rich_help_panel=_READ,
        ),
    ] = None,
    job: Job,
) -> None:
    """Release as many as possible of the labels that users hold, without counts.

    All but greedy and greedy-transfer let a user count with a sample of --items-per-user items.

    [bold]Examples[/]

      stream-dp set-union --stream shop --items-per-user 20

      stream-dp set-union --file orders.csv --source shop.events --mechanism greedy --json
    """
    public = None if frequencies is None else _json_object(frequencies)
    asked = {
        "delta": job.delta,
        "items_per_user": items_per_user,
        "alpha": alpha,
        "tokens": tokens,
        "frequencies": public,
    }
    _run({"job": "set-union", "mechanism": mechanism, **asked}, job)


@options.grouped
def histogram(
    *,
    mechanism: Annotated[
        str, typer.Option(help="laplace, gaussian; for public bins known or sparse-vector.")
    ] = "gaussian",
    items_per_user: ItemsPerUser = None,
    bins: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="known, sparse-vector: PUBLIC labels, one a line.", rich_help_panel=_READ
        ),
    ] = None,
    eta: Annotated[
        float | None, typer.Option(help="known: weight of the high-pass filter.", rich_help_panel=_GUARANTEE)
    ] = None,
    threshold: Annotated[
        int | None, typer.Option(help="sparse-vector: the count to reach.", rich_help_panel=_GUARANTEE)
    ] = None,
    most: Annotated[
        int | None, typer.Option(help="sparse-vector: the most bins to release.", rich_help_panel=_GUARANTEE)
    ] = None,
    job: Job,
    plot: Plot = None,
) -> None:
    """Release how many users hold each label, of a topic or a file.

    [bold]Examples[/]

      stream-dp histogram --stream shop --from 2026-01-01T00:00:00Z --to 2026-02-01T00:00:00Z --items-per-user 5

      stream-dp histogram --file orders.csv --source orders --mechanism known --bins labels.txt --plot counts.png
    """
    asked = {
        "delta": None if mechanism in ("known", "sparse-vector") else job.delta,
        "items_per_user": items_per_user,
        "bins": None if bins is None else _lines(bins),
        "eta": eta,
        "threshold": threshold,
        "most": most,
    }
    _run({"job": "histogram", "mechanism": mechanism, **asked}, job, plot)


def _place(text: str) -> int | str:
    return int(text) if text.isascii() and text.isdigit() else text


def _run(fields: dict[str, Any], job: Job, plot: Path | None = None) -> None:
    """Ask for the job with these fields, and what `job` says besides."""
    asked = {"id": job.id or f"command-{secrets.token_hex(8)}", "epsilon": job.epsilon, "unit": job.unit}
    asked |= {name: value for name, value in fields.items() if value is not None}
    try:
        request = request_from(asked | {"source": job.source_field()})
        assert isinstance(request, JobRequest)
        calibrated = calibrate(request)
        settings, site = _site(request, job)
        if plot is not None and not calibrated.releases_counts:
            raise Mistake(
                f"the mechanism {request.mechanism} releases no counts to plot: choose one that does, such as gaussian"
            )
        if plot is not None:
            check_picture(plot)
        if job.output is not None:
            check_output(job.output, only_a_rank=request.mechanism.startswith("gap"))
        if job.dry_run:
            view.show_cost(request, calibrated, _forecast(request, settings, site), job.as_json)
            return
    except BadRequest as refused:
        raise Mistake(str(refused)) from None
    _require_servers(settings)
    result = _answer(_bound(request, site), settings, site, job)
    if job.output is not None:
        write_result(result, job.output)
    if job.as_json:
        typer.echo(msgspec.json.encode(result).decode())
    else:
        view.show_result(Console(highlight=False), result)
    if plot is not None:
        view.draw(result, plot)


def _bound(request: JobRequest, site: Site) -> JobRequest:
    """The request with the topic that it means, so that its id stands for no other."""
    if request.source.file is not None or request.source.topic is not None:
        return request
    return msgspec.structs.replace(request, source=msgspec.structs.replace(request.source, topic=site.events))


def _site(request: "JobRequest", job: Job) -> "tuple[Settings, Site]":
    """Settings and what they say of the source; a stream need not be named where the request says what to read."""
    named = request.source.file is not None or request.source.topic is not None
    if named and job.stream is None and job.settings is None and not Path("stream.toml").exists():
        settings = replace(job, stream="none").load()
        return settings, Site(
            settings.kafka_address, create_topics=settings.create_topics, unmetered=settings.unmetered
        )
    settings = job.load()
    return settings, Site(
        settings.kafka_address,
        settings.events,
        settings.data_source,
        create_topics=settings.create_topics,
        unmetered=settings.unmetered,
        mapping=settings.mapping,
    )


def _require_servers(settings: Settings) -> None:
    require_redis(settings.redis)
    require_kafka(settings.kafka)


def _forecast(request: "JobRequest", settings: Settings, site: "Site") -> "Forecast | str":
    """What the charge would meet; where that cannot be looked up, the reason."""
    try:
        _require_servers(settings)
        with redis_client(settings.redis_address) as redis:
            return forecast(prepare(request, site), site, redis)
    except (Mistake, BadRequest) as unknown:
        return str(unknown)


def _answer(request: JobRequest, settings: Settings, site: Site, job: Job) -> JobResult:
    """The stored result of the job, or a new one.  Raises `Mistake` for a job that is refused."""
    bar = Progress(console=Console(stderr=True), transient=True, disable=job.as_json)
    with redis_client(settings.redis_address) as redis, _rows_on_stderr(), bar:
        task = bar.add_task("Reading")
        runner = JobRunner(
            site,
            redis,
            _COMMANDS,
            report=lambda done, total: bar.update(task, completed=done, total=total),
        )
        known = runner.store.result(request.id) is not None
        if job.id is None:
            typer.echo(
                f"Should this be interrupted, run it with --id {request.id} too: it goes on, and is charged once.",
                err=True,
            )
        result = whole(runner.answer(request, clock()))
    if result.status != "done":
        raise Mistake(result.reason or f"the job is {result.status}")
    if known:
        typer.echo(
            f"This is what job {request.id} released at {result.ts}; it was not run again, and nothing is charged. For "
            "a new result give another --id.",
            err=True,
        )
    return result


@contextmanager
def _rows_on_stderr() -> Iterator[None]:
    """Let the operator see how many rows the job read and left out: these numbers are private, and in no result."""
    rows, shown = logging.getLogger("stream_dp.jobs.steps"), logging.StreamHandler()
    before = rows.level
    rows.setLevel(logging.INFO)
    rows.addHandler(shown)
    try:
        yield
    finally:
        rows.removeHandler(shown)
        rows.setLevel(before)


def _lines(file: Path) -> list[str]:
    return [line for line in _text(file).splitlines() if line]


def _json_object(file: Path) -> Any:
    try:
        return json.loads(_text(file))
    except ValueError:
        raise Mistake(f"{file} is not valid JSON: it should hold an object of labels and numbers") from None


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise Mistake(f"cannot read {file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise Mistake(f"{file} is not UTF-8 text") from None
