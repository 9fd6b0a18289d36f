"""Whether Redis answers and keeps what it is told, and whether its state fits these settings."""

from collections.abc import Iterator

from redis import Redis
from redis.exceptions import RedisError, ResponseError

from stream_dp.cli.checklist.budget import epoch_is_open, room_in_budget
from stream_dp.cli.checklist.finding import Finding, not_passed
from stream_dp.cli.mistakes import Mistake
from stream_dp.cli.reach import require_redis
from stream_dp.config.connections import redis_client
from stream_dp.config.settings import Settings, SettingsError
from stream_dp.engine.epoch import EpochRefused
from stream_dp.store.checkpoints import CheckpointStore, StateDamaged
from stream_dp.store.exposure import exposed
from stream_dp.store.noise_key import IN_REDIS, NoKey, noise_key

_REDIS_SECONDS = 10.0
_TELLS_WHEN_WRITTEN = (7, 2)
_TOO_OLD = "cannot say when a charge is on its disk: use Valkey, or Redis from 7.2 on"


def redis_and_state(settings: Settings) -> Iterator[Finding]:
    """Whether Redis answers, whether it keeps what it is told, and whether its state fits these settings."""
    try:
        require_redis(settings.redis)
        with redis_client(settings.redis_address, socket_timeout=_REDIS_SECONDS) as redis:
            redis.ping()
            yield Finding("redis", "ok", "answers")
            if warning := exposed(redis):
                yield Finding("redis", "warning", warning)
            yield from _durability(redis)
            yield from room_in_budget(settings, redis, needed=not epoch_is_open(settings))
            yield from _state(settings, redis)
    except (Mistake, RedisError, SettingsError) as error:
        yield not_passed("redis", error)


def _durability(redis: Redis) -> Iterator[Finding]:
    """Settings of Redis that decide whether what it was told outlives a crash.  A managed Redis may hide them."""
    version = str(redis.info("server").get("redis_version", ""))
    tells = _numbers(version) >= _TELLS_WHEN_WRITTEN
    try:
        persistence = redis.info("persistence")
        found = {name: redis.config_get(name).get(name, "") for name in ("appendfsync", "maxmemory-policy")}
    except ResponseError:
        if tells:
            detail = "its settings cannot be read: make sure that it keeps an append-only file, and fsyncs it always"
            yield Finding("redis", "warning", detail)
        else:
            yield Finding("redis", "failed", f"Redis {version} {_TOO_OLD}")
        return
    if not persistence.get("aof_enabled"):
        detail = "the append-only file is off, so a crash loses state and charges: set appendonly yes"
        yield Finding("redis", "failed", detail)
    elif found["appendfsync"] != "always":
        lost = f"appendfsync is {found['appendfsync']}, so a crash loses what was written last"
        detail = f"{lost}: set appendfsync always"
        yield Finding("redis", "failed", detail if tells else f"{detail}, because Redis {version} {_TOO_OLD}")
    else:
        yield Finding("redis", "ok", "keeps an append-only file (appendfsync always)")
    if str(found["maxmemory-policy"]) not in ("noeviction", ""):
        yield Finding(
            "redis",
            "failed",
            f"maxmemory-policy {found['maxmemory-policy']} may remove state: set maxmemory-policy noeviction",
        )


def _numbers(version: str) -> tuple[int, ...]:
    """
    >>> _numbers("7.2.4") >= _TELLS_WHEN_WRITTEN
    True
    """
    return tuple(int(each) for each in version.split(".") if each.isdigit())


def _state(settings: Settings, redis: Redis) -> Iterator[Finding]:
    """Whether the stream's checkpoint, if there is one, goes on under these settings and this key."""
    store = CheckpointStore(redis, settings.stream)
    holds_state = store.holds_state()
    if not holds_state:
        yield Finding("state", "ok", "none yet: the worker will open the first epoch")
        if settings.noise_key == "redis":
            yield Finding("noise key", "warning", IN_REDIS)
            return
    try:
        key = noise_key(settings.noise_key, redis, settings.stream, may_create=False)
    except NoKey as error:
        yield not_passed("noise key", error)
        return
    try:
        checkpoint = store.load(key) if holds_state else None
        if checkpoint is not None:
            checkpoint.epoch.check_settings(settings)
            last = checkpoint.epoch.last_round
            progress = f"epoch {checkpoint.epoch.number}, round {checkpoint.state.round:,}"
            progress += "" if last is None else f" of {last:,}"
            yield Finding("state", "ok", f"{progress}, whole and with the same privacy settings")
    except (EpochRefused, StateDamaged) as error:
        yield not_passed("state", error)
        return
    if settings.noise_key == "redis":
        yield Finding("noise key", "warning", IN_REDIS)
    else:
        yield Finding("noise key", "ok", f"found in {settings.noise_key.partition(':')[0]}")
