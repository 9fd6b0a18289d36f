"""The settings of a stream, which of them an epoch freezes, and the names of its topics."""

from typing import Annotated, Any, Literal

import msgspec

from stream_dp.config.checkpoint_pace import CheckpointPace
from stream_dp.config.connections import KafkaAddress, KafkaSecurity, RedisAddress, SaslMechanism, TlsFiles
from stream_dp.config.days import Days, UnknownZone
from stream_dp.config.secret import SecretPlace, SettingsError
from stream_dp.config.setting_values import (
    LARGEST_BATCH_ROUNDS,
    BatchRounds,
    CheckpointEvery,
    Discover,
    File,
    Listener,
    Mechanism,
    NoiseKey,
    Positive,
    Release,
    Rounds,
)
from stream_dp.config.times import SECONDS
from stream_dp.config.topic_names import TopicNames
from stream_dp.counters.discovery_schedule import FEWEST_ROUNDS, FEWEST_TICKS, PARTS, rounds_of_tests

__all__ = ["PRIVACY", "Settings", "SettingsError"]


class Settings(TopicNames, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything a worker needs to know.  The README explains each name; `PRIVACY` are frozen for an epoch."""

    kafka: str = "localhost:9092"
    redis: str = "redis://localhost:6379/0"
    kafka_security: KafkaSecurity = "PLAINTEXT"
    kafka_ca_file: str | None = None
    kafka_client_cert: str | None = None
    kafka_client_key: str | None = None
    kafka_sasl_mechanism: SaslMechanism | None = None
    kafka_username: str | None = None
    kafka_password: SecretPlace | None = None
    redis_ca_file: str | None = None
    redis_client_cert: str | None = None
    redis_client_key: str | None = None
    redis_password: SecretPlace | None = None
    noise_key: NoiseKey = "redis"

    unmetered: bool = False
    unit: Literal["event", "user", "user-day"] = "event"
    time_zone: str = "UTC"
    mechanism: Mechanism = "blt"
    epsilon: Annotated[float, msgspec.Meta(gt=0)] = 1.0
    delta: Annotated[float, msgspec.Meta(gt=0, lt=1)] = 1e-6
    horizon: Positive = 65_535
    window: Positive | None = None
    items_per_event: Positive = 4
    items_per_user: Positive | None = None
    cap_share: bool = False
    rounds: Rounds = "per-event"
    tick_seconds: Annotated[float, msgspec.Meta(ge=0.1)] = 1.0
    write_barriers: bool = True
    release: Release = "every-round"
    shown: Literal["kept", "each-round"] = "kept"
    discover: Discover = "default"
    at_least: Positive = 1
    known_labels: File | None = None
    at_horizon: Literal["stop", "roll", "double"] = "stop"

    engine: Literal["worker", "spark"] = "worker"

    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] = "zstd"
    releases_retention_days: Annotated[int, msgspec.Meta(ge=-1, le=36_500)] = -1
    batch_rounds: BatchRounds = LARGEST_BATCH_ROUNDS
    checkpoint_every: CheckpointEvery = "1s"
    create_topics: bool = True
    metrics_address: Listener | None = None
    operator_address: Listener | None = None

    def __post_init__(self) -> None:
        """Raises `SettingsError` for settings that contradict each other."""
        if self.unit != "event" and self.items_per_user is None:
            counts = "an epoch counts" if self.unit == "user" else "a day counts"
            raise SettingsError(
                f"the privacy unit is the {self.unit}: set items_per_user, the most items of one user that {counts}, "
                'or unit = "event"'
            )
        if self.unit == "event" and self.items_per_user is not None:
            raise SettingsError(
                'items_per_user bounds nothing where the privacy unit is the event: set unit = "user", or leave it out'
            )
        if self.releases_retention_days == 0:
            raise SettingsError(
                "releases_retention_days is a number of days, or -1 to keep releases forever, not 0"
            )
        self._check_days()
        self._check_window()
        self._check_tests()
        if self.engine != "worker":
            self._check_engine()

    def _check_days(self) -> None:
        """Raise `SettingsError` for days that nothing tells, or that nothing needs."""
        if self.unit != "user-day":
            if self.time_zone != "UTC":
                raise SettingsError(
                    'time_zone says when the days of unit = "user-day" begin: leave it out, or set that unit'
                )
            return
        try:
            Days(self.time_zone)
        except UnknownZone as unknown:
            raise SettingsError(
                f'{unknown}: give a name such as "Europe/Berlin" as time_zone, and where it is one, install the '
                "zones of your system (the package tzdata)"
            ) from None
        if self.rounds != "ticks":
            raise SettingsError(
                f'barriers tell when a day ends: unit = "user-day" takes rounds = "ticks", not "{self.rounds}"'
            )

    def _check_engine(self) -> None:
        """Raise `SettingsError` for what an engine cannot count."""
        if self.rounds != "ticks":
            raise SettingsError(
                f'an engine reads partitions apart, and barriers say where their rounds end: set rounds = "ticks" '
                f'instead of "{self.rounds}", or leave engine = "{self.engine}" out'
            )
        if not self.finds_at_tests:
            raise SettingsError(
                f'an engine finds labels at tests: leave engine = "{self.engine}" out, or set mechanism = "blt", '
                'shown = "kept" and discover = "default"'
            )

    def _check_tests(self) -> None:
        """Raise `SettingsError` for tests that the mechanism does not make, or that nothing times."""
        if not self.finds_at_tests:
            if self.discover not in ("default", "every-round"):
                raise SettingsError(
                    f'mechanism = "{self.mechanism}" looks for new labels in every round: leave discover out, or set '
                    'mechanism = "blt"'
                )
            if self.at_least > 1:
                raise SettingsError(
                    'at_least needs labels that are found at tests: leave it out, or set mechanism = "blt", '
                    'shown = "kept" and discover = "default"'
                )
            return
        if self.shown != "kept":
            raise SettingsError(
                f'a label that a test has found stays: leave shown = "{self.shown}" out, or set discover = '
                '"every-round"'
            )
        if self.discover[-1] in "smhd" and self.rounds != "ticks":
            raise SettingsError(
                f'only ticks take a known time: give discover as a number of rounds, such as "every-2048", not '
                f'"{self.discover}", or set rounds = "ticks"'
            )
        if not self.tests(self.horizon):
            raise SettingsError(
                f'discover = "{self.discover}" makes no test within the horizon of {self.horizon:,} rounds: test more '
                'often, or set discover = "every-round"'
            )

    def _check_window(self) -> None:
        """Raises `SettingsError` for what a mechanism without end has no use for."""
        if self.mechanism != "window":
            if self.window is not None:
                raise SettingsError(
                    f'window says how many rounds mechanism = "window" counts, not {self.mechanism}: set '
                    'mechanism = "window", or leave window out; a running histogram has `stream-dp windows`'
                )
            return
        if self.window is None:
            raise SettingsError(
                'mechanism = "window" counts the last rounds: say how many, such as window = 60'
            )
        if self.unit == "user":
            raise SettingsError(
                'a user would be in every window that a stream ever shows: mechanism = "window" takes unit = "event" '
                'or unit = "user-day"'
            )
        refused: dict[str, tuple[Any, Any, str]] = {
            "cap_share": (self.cap_share, False, "only running counts have cells beside their labels"),
            "shown": (self.shown, "kept", "a label is shown for a window after it last passed its threshold"),
            "known_labels": (self.known_labels, None, "labels are shown for what the last rounds held"),
            "at_horizon": (self.at_horizon, "stop", "there is no horizon"),
        }
        for name, (value, default, why) in refused.items():
            if value != default:
                raise SettingsError(f'{name} means nothing with mechanism = "window" ({why}): leave it out')

    @property
    def calibrated_rounds(self) -> int:
        """The rounds that noise is calibrated for: those of an epoch, or of a window."""
        return self.window or self.horizon

    @property
    def finds_at_tests(self) -> bool:
        """Whether new labels are looked for in a few rounds, the tests, and not in every one.

        By default they are, if labels stay.
        """
        if self.mechanism != "blt" or self.discover == "every-round":
            return False
        return self.discover != "default" or self.shown == "kept"

    def tests(self, horizon: int) -> tuple[int, ...]:
        """The test rounds of an epoch of so many rounds; none where each round looks for new labels."""
        if not self.finds_at_tests:
            return ()
        ticks = self.rounds == "ticks"
        fewest = FEWEST_TICKS if ticks else FEWEST_ROUNDS
        if self.discover != "default":
            return rounds_of_tests(horizon, self._rounds_of(self.discover.removeprefix("every-")), fewest)
        hour = self._rounds_of("1h") if ticks else horizon
        return rounds_of_tests(horizon, hour if hour < horizon // PARTS else None, fewest)

    def _rounds_of(self, span: str) -> int:
        """How many rounds a span takes: a number of them, or a time of ticks."""
        if span.isdecimal():
            return int(span)
        return max(1, int(int(span[:-1]) * SECONDS[span[-1]] / self.tick_seconds))

    @property
    def checkpoint_pace(self) -> CheckpointPace:
        """When state is saved again."""
        return CheckpointPace.of(self.checkpoint_every)

    @property
    def items_per_unit(self) -> int:
        """The most items that are counted of one event, of one user in the whole epoch, or of one user on one day."""
        return self.items_per_user or self.items_per_event

    @property
    def kafka_address(self) -> KafkaAddress:
        """Where Kafka is, with what it takes to be let in."""
        tls = TlsFiles(self.kafka_ca_file, self.kafka_client_cert, self.kafka_client_key)
        login = self.kafka_sasl_mechanism, self.kafka_username, self.kafka_password
        return KafkaAddress(self.kafka, self.kafka_security, tls, *login)

    @property
    def redis_address(self) -> RedisAddress:
        """Where Redis is, with what it takes to be let in."""
        tls = TlsFiles(self.redis_ca_file, self.redis_client_cert, self.redis_client_key)
        return RedisAddress(self.redis, tls, self.redis_password)

    @property
    def privacy(self) -> dict[str, Any]:
        """The settings that an epoch freezes, by name; `discover` as it works out with the others."""
        discover = self.discover if self.finds_at_tests else "every-round"
        return {name: getattr(self, name) for name in PRIVACY} | {"discover": discover}


PRIVACY = (
    "stream",
    "data_source",
    "unit",
    "mechanism",
    "epsilon",
    "delta",
    "horizon",
    "items_per_event",
    "items_per_user",
    "cap_share",
    "rounds",
    "release",
    "shown",
    "discover",
    "at_least",
    "window",
    "time_zone",
)
"""Settings whose change under a running epoch would break its guarantee.

`rounds` is one of them because the same log cut otherwise is another release under the same noise, and `release` so
that what is missing can be told from what is left out; `tick_seconds` is not, because barriers end rounds where they
stand, however often they are written.
"""
