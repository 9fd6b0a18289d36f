"""`stream-dp replay`: recorded events into an events topic again, at their own pace or another."""

import json
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from stream_dp.cli import options
from stream_dp.cli.mistakes import Mistake
from stream_dp.cli.output import progress_bar
from stream_dp.cli.reach import require_kafka, require_redis, require_topic
from stream_dp.cli.registry import decoding
from stream_dp.config.connections import redis_client
from stream_dp.config.file_kinds import KINDS
from stream_dp.config.reading import load_settings
from stream_dp.config.settings import Settings
from stream_dp.config.times import iso_timestamp, parse_time
from stream_dp.epochs.file_names import file_key, file_name
from stream_dp.epochs.registry import Registry
from stream_dp.events.mapping.decoder import Decoder
from stream_dp.events.stored_files import LocalFile
from stream_dp.kafka import log
from stream_dp.replay.replay import (
    Held,
    by_their_times,
    check_held,
    check_partitions,
    evenly,
    held_by,
    missing,
)
from stream_dp.replay.replay import replay as send_again
from stream_dp.replay.rules import check_target, is_counted
from stream_dp.replay.source import FileSource, Survey, TopicSource, survey


def replay(
    file: Annotated[
        Path | None,
        typer.Argument(help=f"A file of events: {KINDS}.", show_default=False),
    ] = None,
    topic: Annotated[str | None, typer.Option(help="Replay a topic instead of a file.")] = None,
    start: Annotated[
        str | None, typer.Option("--from", metavar="OFFSET|TIME", help="Where in the topic to begin.")
    ] = None,
    end: Annotated[
        str | None,
        typer.Option("--to", metavar="OFFSET|TIME", help="Where in the topic to end, not included."),
    ] = None,
    into: Annotated[
        str | None,
        typer.Option(metavar="TOPIC", help="The topic to write to; without it, the stream's events topic."),
    ] = None,
    source: Annotated[
        str | None, typer.Option(metavar="NAME", help="The data source that the events belong to; see below.")
    ] = None,
    rate: Annotated[float | None, typer.Option(help="How many rows a second.", show_default=False)] = None,
    fast: Annotated[bool, typer.Option("--as-fast-as-possible", help="Do not wait at all.")] = False,
    speed: Annotated[
        float | None,
        typer.Option(
            help="Speed, as a multiple of the original pace; needs --public-times.", show_default=False
        ),
    ] = None,
    keep_timestamps: Annotated[
        bool,
        typer.Option(
            "--keep-timestamps",
            help="Store the original times, not that of the replay; needs --public-times.",
        ),
    ] = False,
    public_times: Annotated[
        bool,
        typer.Option(
            "--public-times", help="The times in the rows are public: nobody is protected by hiding them."
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would be replayed, and whether it may be.")
    ] = False,
    settings: options.SettingsFile = None,
    stream: options.Stream = None,
    kafka: options.Kafka = None,
    as_json: options.Json = False,
) -> None:
    """Replay recorded events into a stream, each exactly once.  After a crash, run it again: it continues.

    To compute the releases of an epoch again from its own unchanged log costs nothing: that is `stream-dp verify` or
    `stream-dp rebuild`. Any other replay is one more guarantee about the same events. The target stream must charge the
    data source that they belong to: a topic is its own source, a file names one with --source, and the target's
    setting `source` must say the same. The target's events topic must hold nothing else.

    Records of a topic with several partitions go into the same partitions of a topic that has as many, rows of a file
    into all partitions in turn.

    [bold]Examples[/]

      stream-dp replay history.jsonl.gz --stream shop --source shop.events --as-fast-as-possible

      stream-dp replay --topic shop.events --from 2026-01-31T12:00:00Z --settings again.toml --rate 100

      stream-dp replay flights.csv --stream flights --source flights.events --speed 60 --public-times

      stream-dp replay history.csv --stream shop --source shop.events --dry-run --json
    """
    if (file is None) == (topic is None):
        raise Mistake("say what to replay: either a file, or a topic with --topic")
    if file is not None and (start is not None or end is not None):
        raise Mistake("--from and --to choose a part of a topic: leave them out for a file")
    _check_pace(rate, fast, speed, dry_run)
    if (speed is not None or keep_timestamps) and not public_times:
        raise Mistake(
            "releases would follow the times in the rows, and one row's could move all that come after it: pace by "
            "rows with --rate, without --keep-timestamps, or add --public-times if the times are public"
        )
    chosen = _settings(settings, stream, kafka, into)
    if into is None and not chosen.owns_events:
        raise Mistake(
            f"the events topic {chosen.events!r} is not the stream's own, so nothing is written there unasked: give "
            f"--into {chosen.events} if it is a copy of yours"
        )
    done = _replay(
        chosen,
        into or chosen.events,
        (file, topic, _place(start, "--from"), _place(end, "--to")),
        source,
        (rate, speed),
        keep_timestamps,
        dry_run,
        hidden=as_json,
    )
    _tell(done, as_json)


def _check_pace(rate: float | None, fast: bool, speed: float | None, dry_run: bool) -> None:
    given = [each for each in (rate, speed) if each is not None]
    if len(given) + fast > 1 or (not given and not fast and not dry_run):
        raise Mistake(
            "say how fast the rows come, in one way: with --rate ROWS (a second), --as-fast-as-possible, or --speed "
            "TIMES (as fast as they came, by their public times)"
        )
    if given and not 0 < given[0] < float("inf"):
        raise Mistake(f"--rate and --speed take a number above 0, such as 60, not {given[0]:g}")


def _settings(file: Path | None, stream: str | None, kafka: str | None, into: str | None) -> Settings:
    """Of the target's stream; a topic that no stream counts needs none, and lends its name."""
    if into is None or into.endswith(".events") or stream is not None:
        return load_settings(file, stream=stream, kafka=kafka)
    return options.settings_or_name(into, file, kafka)


def _place(text: str | None, option: str) -> int | datetime | None:
    if text is None or (text.isascii() and text.isdigit()):
        return None if text is None else int(text)
    try:
        return parse_time(text)
    except ValueError:
        raise Mistake(
            f"{option} takes an offset such as 1000 or a time such as 2026-01-31T12:00:00Z, not {text!r}"
        ) from None


def _replay(
    settings: Settings,
    into: str,
    what: tuple[Path | None, str | None, int | datetime | None, int | datetime | None],
    name: str | None,
    pace: tuple[float | None, float | None],
    keep_timestamps: bool,
    dry_run: bool,
    hidden: bool,
) -> dict[str, Any]:
    file, topic, start, end = what
    rate, speed = pace
    require_kafka(settings.kafka)
    if topic is not None:
        require_topic(settings.kafka_address, topic)
    kafka, counted = settings.kafka_address, is_counted(settings, into)
    digest = None if file is None else _name_of(file, settings)
    check_target(settings, into, topic, name, digest)
    with decoding(settings.mapping if into == settings.events else None) as decode:
        read = FileSource(LocalFile(file), decode, digest or "") if file is not None else None
    found = TopicSource(kafka, topic or "", start, end, by_times=speed is not None) if read is None else read
    if settings.create_topics and not dry_run and (settings.owns_events or into != settings.events):
        log.create_topics(kafka, into, partitions=found.partitions)
    held = Held()
    if not dry_run or log.existing(kafka, into):
        log.check_topic(kafka, into, many_partitions=True)
        check_partitions(found, into, log.partitions_of(kafka, into))
        held = held_by(kafka, into, found.digest)
    check_held(held, found, into, counted)
    if dry_run:
        with decoding(settings.mapping if into == settings.events else None) as decode:
            return _plan(found, decode, held, into)
    if speed is not None and isinstance(found, FileSource) and found.survey.first is None and len(found):
        raise Mistake("no row of the file has a time (ts), so it has no pace: give --rate")
    with progress_bar("Replaying", hidden) as progress:
        rows = missing(found, held)
        if rate is not None:
            rows = evenly(rows, rate)
        elif speed is not None:
            rows = by_their_times(rows, speed)
        already, whole = len(held), len(found)
        sent = send_again(
            kafka, found, rows, into, keep_timestamps, lambda sent: progress(already + sent, whole)
        )
    return {"into": into, "replayed": sent, "already": len(held)}


def _name_of(file: Path, settings: Settings) -> str:
    """What a file is called in the registry, and in the headers of its rows."""
    require_redis(settings.redis)
    with redis_client(settings.redis_address) as redis:
        key = file_key(Registry(settings.kafka_address), redis, may_create=True)
    assert key is not None
    try:
        return file_name(LocalFile(file), key)
    except OSError as error:
        raise Mistake(f"cannot read {file}: {error.strerror}") from None


def _plan(source: FileSource | TopicSource, decode: Decoder, held: Held, into: str) -> dict[str, Any]:
    found: Survey = source.survey if isinstance(source, FileSource) else survey(source, decode)
    return {
        "into": into,
        "events": found.events,
        "bad": found.bad,
        "untimed": found.untimed,
        "first": None if found.first is None else iso_timestamp(found.first),
        "last": None if found.last is None else iso_timestamp(found.last),
        "already": len(held),
    }


def _tell(done: dict[str, Any], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(done))
    elif "replayed" in done:
        earlier = f"; {done['already']:,} were there already" if done["already"] else ""
        typer.echo(f"Replayed {done['replayed']:,} rows into {done['into']}{earlier}.")
    else:
        span = f", from {done['first']} to {done['last']}" if done["first"] else ""
        typer.echo(
            f"{done['events']:,} events{span}; {done['bad']:,} bad rows, which close their rounds as empty events; "
            f"{done['untimed']:,} rows without a time; {done['already']:,} are in {done['into']} already."
        )
