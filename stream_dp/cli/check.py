"""`stream-dp check`: would a worker start here, and would what it keeps survive?  It makes and changes nothing."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Literal

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from stream_dp.cli import options
from stream_dp.cli.mistakes import Mistake, sentence
from stream_dp.settings import Settings, SettingsError

if TYPE_CHECKING:
    from redis import Redis

    from stream_dp.store.ledger import Ledger


_REDIS_SECONDS = 10.0
_MARKS = {"ok": "[green]ok[/]", "warning": "[yellow]warning[/]", "failed": "[bold red]failed[/]"}


@dataclass(frozen=True)
class Finding:
    """One line of the checklist; `detail` of a failed one says what to change."""

    name: str
    state: Literal["ok", "warning", "failed"]
    detail: str


@options.grouped
def check(servers: options.Servers, as_json: options.Json = False) -> None:
    """Check settings, Kafka, Redis and noise before a worker starts; nothing is made or changed.

    The exit status is 0 if a worker could start, with warnings or without, and 2 if something must be changed.

    [bold]Examples[/]

      stream-dp check --stream shop

      stream-dp check --settings stream.toml --json
    """
    try:
        findings = list(_findings(servers.load()))
    except SettingsError as error:
        findings = [Finding("settings", "failed", str(error))]
    failed = any(finding.state == "failed" for finding in findings)
    if as_json:
        typer.echo(json.dumps({"ok": not failed, "checks": [asdict(finding) for finding in findings]}))
    else:
        _print(findings)
    if failed:
        raise typer.Exit(2)


def _print(findings: list[Finding]) -> None:
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for finding in findings:
        table.add_row(_MARKS[finding.state], f"[bold]{finding.name}[/]", escape(finding.detail))
    Console(highlight=False).print(table)


def _findings(settings: Settings) -> Iterator[Finding]:
    """The checklist, from what needs no server to what needs both."""
    items = f"{settings.items_per_unit:,} items per {settings.unit}"
    rounds = {"per-event": "a round at every event", "ticks": f"a round every {settings.tick_seconds:g} s"}
    every = rounds.get(settings.rounds) or f"a round {settings.rounds.replace('-', ' ')} events"
    yield Finding(
        "settings", "ok", f"stream {settings.stream!r}, privacy unit {settings.unit}, {items}, {every}"
    )
    yield _noise(settings)
    yield _promise(settings)
    yield from _kafka(settings)
    yield from _redis(settings)


def _attempt(name: str, error: Exception) -> Finding:
    """The failed line of an error that is the user's to mend; any other error is a defect and goes on."""
    told = sentence(error)
    if told is None:
        raise error
    return Finding(name, "failed", told)


def _noise(settings: Settings) -> Finding:
    from stream_dp.counters.golden import check_golden_noise
    from stream_dp.privacy.keyed_noise import WrongNoise, check_golden_draw

    try:
        check_golden_draw()
        check_golden_noise(settings.mechanism)
    except WrongNoise as error:
        return Finding("noise", "failed", str(error))
    return Finding("noise", "ok", "the golden draw is drawn here as everywhere")


def _promise(settings: Settings) -> Finding:
    """Whether the privacy settings can be kept, and what they mean for a count."""
    from stream_dp.comparison import calibrate_each, sight
    from stream_dp.epoch import Epoch, EpochRefused

    try:
        Epoch.open(settings, 1, 0)
    except EpochRefused as error:
        return Finding("promise", "failed", str(error))
    promise = settings.epsilon, settings.delta, settings.horizon, settings.items_per_unit
    calibrated, _ = calibrate_each(*promise, unit=settings.unit, shown=settings.shown)
    seen = {mechanism.name: sight(mechanism, guarantee).seen_mostly for mechanism, guarantee in calibrated}
    own = seen[settings.mechanism]
    better = ", ".join(f"{count:,} with {name}" for name, count in seen.items() if count < own)
    return Finding(
        "promise",
        "ok",
        f"epsilon {settings.epsilon:g}, delta {settings.delta:g} over {settings.horizon:,} rounds with "
        f"{settings.mechanism}: {_SEEN[settings.shown].format(f'{own:,}')}"
        + (f"; at the same guarantee {better}" if better else ""),
    )


_SEEN = {
    "kept": "a label whose events are spread evenly is shown (at least 95%) if it has {} of them by then",
    "each-round": "a round picked at random shows (95%) counts of {}",
}


def _kafka(settings: Settings) -> Iterator[Finding]:
    """Whether Kafka answers, and whether each topic is there or may be made, and can be a log."""
    from kafka.errors import KafkaError

    from stream_dp import log
    from stream_dp.cli.reach import require_kafka
    from stream_dp.journal import journal_topic

    try:
        require_kafka(settings.kafka)
        existing = log.topics(settings.kafka_address)
    except (Mistake, KafkaError, SettingsError) as error:
        yield _attempt("kafka", error)
        return
    yield Finding("kafka", "ok", f"answers at {settings.kafka}")
    topics = dict.fromkeys(
        (
            settings.events,
            settings.releases,
            settings.dead_letters,
            settings.epochs,
            journal_topic(settings.data_source),
        ),
        1,
    )
    if settings.rounds == "ticks":
        topics[settings.barriers] = 1
    if settings.shards:
        topics |= dict.fromkeys((settings.frames, settings.shard_releases), settings.shards)
    if settings.table in existing:
        topics[settings.table] = 1
    for topic, partitions in topics.items():
        if topic in existing:
            yield _topic(settings, topic, partitions)
            if topic == settings.releases:
                yield from _growth(settings)
        elif settings.create_topics:
            yield Finding("topic", "ok", f"{topic} does not exist yet: the worker will make it")
        else:
            yield Finding(
                "topic", "failed", f"{topic} does not exist: create it with {log.partitions_text(partitions)}"
            )


def _topic(settings: Settings, topic: str, partitions: int) -> Finding:
    from kafka.errors import KafkaError

    from stream_dp import log
    from stream_dp.barriers.topic import check_barriers_topic
    from stream_dp.framing import LARGEST_BATCH
    from stream_dp.journal import check_journal, journal_topic
    from stream_dp.table.topic import check_table_topic
    from stream_dp.time_limits import time_warnings

    batched = settings.releases, settings.frames, settings.shard_releases
    warnings: list[str] = []
    try:
        if topic == settings.dead_letters:
            return _dead_letters(settings)
        if topic in (settings.epochs, journal_topic(settings.data_source)):
            check_journal(settings.kafka_address, topic)
        elif topic == settings.barriers:
            warnings = check_barriers_topic(settings)
        elif topic == settings.table:
            check_table_topic(settings.kafka_address, topic)
            if warnings := time_warnings(settings, topic):
                return Finding("topic", "warning", "; ".join(warnings))
            return Finding("topic", "ok", f"{topic} has one partition and keeps the newest row of each label")
        else:
            largest_batch = LARGEST_BATCH if topic in batched else 0
            days = settings.releases_retention_days if topic == settings.releases else None
            warnings = log.check_topic(settings.kafka_address, topic, largest_batch, partitions, days)
            if topic in (settings.releases, settings.shard_releases):
                warnings += time_warnings(settings, topic)
    except (log.LogRefused, KafkaError) as error:
        return _attempt("topic", error)
    if warnings:
        return Finding("topic", "warning", "; ".join(warnings))
    if topic == settings.releases and settings.releases_retention_days != log.FOR_EVER:
        kept = f"keeps releases for {settings.releases_retention_days} days"
    else:
        kept = "forgets nothing"
    return Finding("topic", "ok", f"{topic} has {log.partitions_text(partitions)} and {kept}")


def _growth(settings: Settings) -> Iterator[Finding]:
    """How many bytes a day the releases take, once there are some."""
    from kafka.errors import KafkaError

    from stream_dp.release_sizes import growth_of

    try:
        growth = growth_of(settings)
    except KafkaError as error:
        yield _attempt("size", error)
        return
    if growth is None:
        yield Finding(
            "size",
            "ok",
            f"{settings.releases} is too young to be measured; `stream-dp plan` says what to expect",
        )
    elif growth.is_much:
        advice = growth.advice(settings.compression)
        yield Finding("size", "warning", f"{settings.releases} grows by {growth}: {advice}")
    else:
        yield Finding("size", "ok", f"{settings.releases} grows by {growth}")


def _dead_letters(settings: Settings) -> Finding:
    """Whether dead letters can be written.  Raises KafkaError."""
    from stream_dp.dead_letters import why_unwritable

    reason = why_unwritable(settings)
    if reason is not None:
        return Finding("topic", "failed", f"dead letters cannot be written: {reason}")
    topic = settings.dead_letters
    return Finding("topic", "ok", f"{topic} can be written; it holds raw data: restrict who may read it")


def _redis(settings: Settings) -> Iterator[Finding]:
    """Whether Redis answers, whether it keeps what it is told, and whether its state fits these settings."""
    from redis.exceptions import RedisError

    from stream_dp.cli.reach import require_redis
    from stream_dp.connections import redis_client
    from stream_dp.store.exposure import exposed

    try:
        require_redis(settings.redis)
        with redis_client(settings.redis_address, socket_timeout=_REDIS_SECONDS) as redis:
            redis.ping()
            yield Finding("redis", "ok", "answers")
            if warning := exposed(redis):
                yield Finding("redis", "warning", warning)
            yield from _durability(redis)
            yield from _ledger(settings, redis)
            yield from _state(settings, redis)
    except (Mistake, RedisError, SettingsError) as error:
        yield _attempt("redis", error)


def _durability(redis: "Redis") -> Iterator[Finding]:
    """Settings of Redis that decide whether a checkpoint outlives a crash.  A managed Redis may hide them."""
    from redis.exceptions import ResponseError

    try:
        persistence = redis.info("persistence")
        found = {name: redis.config_get(name).get(name, "") for name in ("appendfsync", "maxmemory-policy")}
    except ResponseError:
        yield Finding(
            "redis", "warning", "its settings cannot be read: make sure that it keeps an append-only file"
        )
        return
    if not persistence.get("aof_enabled"):
        yield Finding(
            "redis", "warning", "the append-only file is off, so a crash loses state: set appendonly yes"
        )
    elif found["appendfsync"] == "no":
        yield Finding(
            "redis",
            "warning",
            "appendfsync is no, so a crash loses state: set appendfsync everysec or always",
        )
    else:
        yield Finding("redis", "ok", f"keeps an append-only file (appendfsync {found['appendfsync']})")
    if str(found["maxmemory-policy"]) not in ("noeviction", ""):
        yield Finding(
            "redis",
            "failed",
            f"maxmemory-policy {found['maxmemory-policy']} may remove state: set maxmemory-policy noeviction",
        )


def _ledger(settings: Settings, redis: "Redis") -> Iterator[Finding]:
    """Whether the data source's ledger counts per the same unit, if it counts anything yet."""
    from stream_dp.store.ledger import Ledger, LedgerRefused

    try:
        ledger = Ledger(redis, settings.data_source)
        unit = ledger.state().unit
    except LedgerRefused as error:
        yield _attempt("ledger", error)
        return
    if unit not in (None, settings.unit):
        yield Finding(
            "ledger",
            "failed",
            f'the ledger of {ledger.source!r} counts per {unit}, and the two units cannot be added: set unit = "{unit}"'
            f' instead of "{settings.unit}"',
        )
        return
    yield _room(settings, ledger)


def _room(settings: Settings, ledger: "Ledger") -> Finding:
    """Whether the budget has room for an epoch of these settings, after those that are open or were charged."""
    import msgspec

    from stream_dp.epoch import Epoch, EpochRefused
    from stream_dp.epochs import charge_of
    from stream_dp.privacy import composition
    from stream_dp.store.ledger import LedgerRefused, require_room

    state, own = ledger.state(), f"{settings.stream}/epoch/"
    end = max((charge.end_offset or charge.first_offset for charge in state.charges()), default=0)
    if (
        state.unit == "event" and settings.data_source == settings.events
    ):  # an open epoch ends before the next
        closed = {
            name: msgspec.structs.replace(each, closed_at=end)
            for name, each in state.stored.items()
            if name.startswith(own) and each.now.end_offset is None
        }
        state = replace(state, stored=state.stored | closed)
    try:
        charge = charge_of(Epoch.open(settings, 0, end))
        require_room(ledger.source, state, charge, metered=not settings.unmetered)
    except EpochRefused as refused:
        return _attempt("budget", refused)
    except LedgerRefused as refused:
        return Finding("budget", "warning", f"the next epoch would be refused: {refused}")
    if state.budget is None:
        return Finding(
            "budget", "warning", "UNMETERED: the data source has no budget, and nothing is refused"
        )
    left = composition.room([*state.charges(), charge], state.budget, charge.first_offset, None)
    return Finding(
        "budget",
        "ok",
        f"epsilon {state.budget.epsilon:g}, delta {state.budget.delta:g} has room for an epoch of these settings; "
        f"after it there stays rho {left.rho:.4g}",
    )


def _state(settings: Settings, redis: "Redis") -> Iterator[Finding]:
    """Whether the stream's checkpoint, if there is one, goes on under these settings and this key."""
    from stream_dp.epoch import EpochRefused
    from stream_dp.store.checkpoints import CheckpointStore, StateDamaged
    from stream_dp.store.noise_key import NoKey, noise_key

    store = CheckpointStore(redis, settings.stream)
    holds_state = store.holds_state()
    if not holds_state:
        yield Finding("state", "ok", "none yet: the worker will open the first epoch")
        if settings.noise_key == "redis":
            yield Finding("noise key", "ok", "kept in Redis; made when the first epoch opens")
            return
    try:
        key = noise_key(settings.noise_key, redis, settings.stream, may_create=False)
    except NoKey as error:
        yield _attempt("noise key", error)
        return
    try:
        checkpoint = store.load(key) if holds_state else None
        if checkpoint is not None:
            checkpoint.epoch.check_settings(settings)
            progress = (
                f"epoch {checkpoint.epoch.number}, round {checkpoint.state.round:,} of "
                f"{checkpoint.epoch.mechanism.horizon:,}"
            )
            yield Finding("state", "ok", f"{progress}, whole and with the same privacy settings")
    except (EpochRefused, StateDamaged) as error:
        yield _attempt("state", error)
        return
    yield Finding("noise key", "ok", f"found in {settings.noise_key.partition(':')[0]}")
