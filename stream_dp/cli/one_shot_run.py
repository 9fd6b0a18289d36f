"""One job from the command line: calibrate it, charge it, run it, and show what it released."""

import json
import logging
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import typer

from stream_dp.cli import one_shot_view as view
from stream_dp.cli.local_books import ledger_file, no_server_is_named
from stream_dp.cli.mistakes import Mistake
from stream_dp.cli.one_shot_options import Job, in_options
from stream_dp.cli.output import output, progress_bar
from stream_dp.cli.reach import require_kafka, require_redis
from stream_dp.cli.result_files import check_output, write_result
from stream_dp.config.connections import redis_client
from stream_dp.config.settings import Settings
from stream_dp.config.times import clock
from stream_dp.jobs.books import Books, ServedBooks
from stream_dp.jobs.defaults import DEFAULT_K, default_mechanism
from stream_dp.jobs.forecast import Forecast, forecast
from stream_dp.jobs.mechanisms import MECHANISMS, calibrate, takes
from stream_dp.jobs.publishing import check_place, publish
from stream_dp.jobs.request import BadRequest, JobName, JobRequest, request_from
from stream_dp.jobs.result import JobResult, whole
from stream_dp.jobs.runner import JobRunner
from stream_dp.jobs.spark import ENGINES
from stream_dp.jobs.steps import Site, prepare
from stream_dp.local.books import LocalBooks

_COMMANDS = "command line"
"""Stands in the place of a stream's name for jobs that a command asks for; no stream can have this name."""


def run(name: JobName, given: dict[str, Any], job: Job) -> None:
    """Run a job with these parameters and the options that all jobs take; a `mechanism` of None is chosen."""
    chosen = given["mechanism"]
    told = {each: _content(each, value) for each, value in given.items() if value is not None}
    mechanism = chosen or default_mechanism(name, told, beside_a_stream=job.file is None)
    usual = {"delta": job.delta, "k": DEFAULT_K.get(name)}
    asked: dict[str, Any] = {
        "id": job.id or f"command-{secrets.token_hex(8)}",
        "job": name,
        "epsilon": job.epsilon,
        "unit": job.unit,
        **{each: value for each, value in usual.items() if takes(name, mechanism, each)},
        **told,
        "mechanism": mechanism,
    }
    try:
        request = request_from(asked | {"source": job.source_field()})
        assert isinstance(request, JobRequest)
        settings, site = _site(request, job)
        if chosen is None and job.id is not None and not job.dry_run:
            with _books(request, settings, job) as books:
                request = JobRunner(site, books, _COMMANDS).as_admitted(_bound(request, site))
        calibrated = calibrate(request)
        released = MECHANISMS[name][request.mechanism].releases
        if job.output is not None:
            check_output(job.output, only_a_rank=released == "rank")
        if job.dry_run:
            view.show_cost(request, calibrated, _forecast(request, settings, site, job), job.as_json)
            return
    except BadRequest as refused:
        raise Mistake(in_options(refused, job)) from None
    result = _answer(_bound(request, site), settings, site, job)
    if job.output is not None:
        write_result(result, job.output)
    if job.as_json:
        typer.echo(msgspec.json.encode(result).decode())
    else:
        view.show_result(output(), result)


def _content(name: str, value: Any) -> Any:
    """The lines of a file of public labels, or the object of their frequencies; other values as they are."""
    if not isinstance(value, Path):
        return value
    try:
        text = value.read_text(encoding="utf-8")
    except OSError as error:
        raise Mistake(f"cannot read {value}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise Mistake(f"{value} is not UTF-8 text") from None
    if name != "frequencies":
        return [line for line in text.splitlines() if line]
    try:
        return json.loads(text)
    except ValueError:
        raise Mistake(f"{value} is not valid JSON: it should hold an object of labels and numbers") from None


def _bound(request: JobRequest, site: Site) -> JobRequest:
    """The request with the topic that it means, so that its id stands for no other."""
    if request.source.file is not None or request.source.topic is not None:
        return request
    return msgspec.structs.replace(request, source=msgspec.structs.replace(request.source, topic=site.events))


def _site(request: JobRequest, job: Job) -> tuple[Settings | None, Site]:
    """Settings and what they say of the source; a stream need not be named where the request says what to read.

    A file without any server named is charged on this machine, and there are no settings.
    """
    if request.source.file is not None and not job.publish and no_server_is_named(job):
        return None, Site(kafka="", engine=ENGINES[job.engine]())
    named = request.source.file is not None or request.source.topic is not None
    if (
        named
        and not job.publish
        and job.stream is None
        and job.settings is None
        and not Path("stream.toml").exists()
    ):
        settings = replace(job, stream="none").load()
        return settings, Site(settings.kafka_address, engine=ENGINES[job.engine]())
    settings = job.load()
    return settings, Site(
        settings.kafka_address,
        settings.events,
        settings.data_source,
        mapping=settings.mapping,
        engine=ENGINES[job.engine](),
    )


@contextmanager
def _books(request: JobRequest, settings: Settings | None, job: Job) -> Iterator[Books]:
    """Where the job is charged and remembered.  Raises `Mistake`, and `LedgerRefused` on this machine."""
    if settings is None:
        unit = request.unit or ("user" if request.source.user is not None else None)
        with ledger_file(only_look=job.dry_run) as file:
            yield LocalBooks(file, unit, job.unmetered)
        return
    require_redis(settings.redis)
    require_kafka(settings.kafka)
    with redis_client(settings.redis_address) as redis:
        yield ServedBooks(settings.kafka_address, redis, settings.create_topics, settings.unmetered)


def _forecast(request: JobRequest, settings: Settings | None, site: Site, job: Job) -> Forecast | str:
    """What the charge would meet; where that cannot be looked up, the reason."""
    try:
        with _books(request, settings, job) as books:
            return forecast(prepare(request, site, books), books)
    except BadRequest as refused:
        return in_options(refused, job)
    except Mistake as unknown:
        return str(unknown)


def _answer(request: JobRequest, settings: Settings | None, site: Site, job: Job) -> JobResult:
    """The stored result of the job, or a new one, published if that is asked.  Raises `Mistake` for a refusal."""
    bar = progress_bar("Reading", hidden=job.as_json)
    with _books(request, settings, job) as books, _rows_on_stderr(), bar as progress:
        runner = JobRunner(
            site,
            books,
            _COMMANDS,
            report=progress,
            charging=partial(_tell_id, request.id) if job.id is None else lambda: None,
        )
        known = runner.store.result(request.id) is not None
        if job.publish and settings is not None:
            check_place(settings, request.id, runner.store.result(request.id))
        parts = runner.answer(request, clock())
        result = whole(parts)
        if result.status != "done":
            raise Mistake(result.reason or f"the job is {result.status}")
        if job.publish and settings is not None:
            is_new = publish(settings, request.id, parts)
            told = "now holds this result, and dashboards show it" if is_new else "held this result already"
            typer.echo(f"{settings.results} {told}.", err=True)
        if settings is None and not known and result.source is not None:
            typer.echo(view.local_note(result.source, books.look(result.source)), err=True)
    if known:
        typer.echo(
            f"This is what job {request.id} released at {result.ts}; it was not run again, and nothing is charged. For "
            "a new result give another --id.",
            err=True,
        )
    return result


def _tell_id(name: str) -> None:
    """Say how to go on with what is about to be charged."""
    typer.echo(
        f"If this is interrupted, run it again with --id {name} to continue; it is charged once.", err=True
    )


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
