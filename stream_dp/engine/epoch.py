"""An epoch: one nonce, one append-only log, one guarantee.  Frozen when it opens, kept in every checkpoint."""

from dataclasses import MISSING, dataclass, fields, replace
from hashlib import blake2b
from typing import Any

import msgspec

from stream_dp.config.days import Days, days_of
from stream_dp.config.settings import Settings
from stream_dp.counters.calibration import Guarantee, calibrate
from stream_dp.counters.discovery import DiscoveryMechanism
from stream_dp.counters.golden import check_golden_noise
from stream_dp.counters.registry import Mechanism
from stream_dp.counters.window import WindowMechanism
from stream_dp.engine.known_labels import NOTHING_KNOWN, KnownLabels, read_list
from stream_dp.engine.release_schedule import ReleaseSchedule
from stream_dp.errors import Refused
from stream_dp.events.barrier_chain import Barrier
from stream_dp.events.mapping.decoder import decoder_of
from stream_dp.events.mapping.golden import check_golden_mapping
from stream_dp.events.mapping.mapping import MAPPING_VERSION, Mapping
from stream_dp.privacy.keyed_noise import NOISE_VERSION, KeyedNoise, new_nonce
from stream_dp.privacy.release_tags import ReleaseTags
from stream_dp.privacy.vector import Vector


class EpochRefused(Refused):
    """The worker cannot go on under this epoch's guarantee; the message says what to change."""


@dataclass(frozen=True)
class Epoch:
    """What was guaranteed when the epoch opened: `first_offset` is where it starts to read the events topic.

    Of several partitions, `first_offset` is that of the first, and `further_offsets` has those of the others.
    Where rounds end by ticks, they are closed by the barriers that follow `after_barrier`.  Where so many events of
    several partitions end them, these barriers say in which order events come.
    The noise and the thresholds are kept as they were computed then, so that no later version of a library
    can change them.  `privacy` holds the settings by name; `nonce` is public and never used again.
    `mapping` says what an event is in a record; None: an event of our own format, in `<stream>.events`.
    `known` is the digest of the labels that it shows from its first round on, None where there are none.
    Where the unit is a user's day, `first_day` is the first one whose rounds are counted: see `days`.
    `log_rounds`: after how many rounds the commitment to its log begins anew, 0 if never.  Of windows it covers their
    last block alone, so that it can be computed from there.
    """

    number: int
    nonce: bytes
    first_offset: int
    privacy: dict[str, Any]
    mechanism: Mechanism
    guarantee: Guarantee
    noise_version: int = NOISE_VERSION
    after_barrier: Barrier | None = None
    further_offsets: Vector = ()
    mapping: Mapping | None = None
    known: str | None = None
    first_day: int = 0
    log_rounds: int = 0

    @classmethod
    def open(
        cls,
        settings: Settings,
        number: int,
        first_offset: int,
        horizon: int | None = None,
        further_offsets: Vector = (),
        known: KnownLabels = NOTHING_KNOWN,
        first_day: int = 0,
    ) -> "Epoch":
        """Calibrate and draw a fresh nonce.  Raises `SettingsError`, or `EpochRefused` where they guarantee nothing.

        `horizon`: rounds of this epoch, where they are not those of the settings, which `privacy` keeps in any case.
        `known`: the labels that it shows from its first round on.
        """
        try:
            mechanism, guarantee = calibrate(
                settings.epsilon,
                settings.delta,
                horizon or settings.calibrated_rounds,
                settings.items_per_unit,
                settings.mechanism,
                settings.unit,
                settings.shown,
                settings.tests(horizon or settings.horizon),
                settings.at_least,
                settings.cap_share,
            )
        except ValueError as error:
            raise EpochRefused(str(error)) from None
        mapping = Mapping.of(settings.mapping)
        decoder_of(mapping)  # a mistake in it is told before anything is charged
        if mapping is not None and mapping.maps:
            check_golden_mapping(mapping.format)
        counts_blocks = isinstance(mechanism, WindowMechanism) and settings.unit == "event"
        return cls(
            number,
            new_nonce(),
            first_offset,
            {**settings.privacy, "known_labels": known.listed},
            mechanism,
            guarantee,
            further_offsets=further_offsets,
            mapping=mapping,
            known=known.digest,
            first_day=first_day,
            log_rounds=mechanism.chain_rounds if counts_blocks else 0,
        )

    @property
    def days(self) -> Days | None:
        """The days of which a user's events are protected; None where the unit is another."""
        return days_of(self.privacy["time_zone"]) if self.guarantee.unit == "user-day" else None

    def day_of(self, closed: int) -> int:
        """The day of a round that was closed then; 0 where days mean nothing, and before the first round."""
        return self.days.of_round(closed) if self.days is not None and closed > 0 else 0

    @property
    def offsets(self) -> Vector:
        """Where it starts to read each partition of the events topic."""
        return self.first_offset, *self.further_offsets

    @property
    def topic(self) -> str:
        """The topic that it counts."""
        named = self.mapping.topic if self.mapping is not None else ""
        return named or f"{self.privacy['stream']}.events"

    @property
    def is_derived(self) -> bool:
        """Whether the events come from another source, whose offsets say nothing about those of the events topic."""
        return bool(self.privacy["data_source"] != self.topic)

    @property
    def in_public(self) -> "Epoch":
        """What everybody may know of it: not the offsets of a derived topic, which depend on what its records hold."""
        if not self.is_derived:
            return self
        return replace(
            self, first_offset=0, further_offsets=(0,) * len(self.further_offsets), after_barrier=None
        )

    @property
    def reads_headers(self) -> bool:
        """Whether headers of a record decide about its event."""
        return self.mapping is not None and self.mapping.reads_headers

    @property
    def fingerprint(self) -> str:
        """A digest of everything public that was frozen when the epoch opened.

        It stands in ledgers and certificates, so it must outlast a field that a later version adds: one that has a
        default is left out while it has that value.
        """
        frozen = _told(self.in_public) | {
            "noise_version": self.noise_version,
            "guarantee": _told(self.guarantee),
        }
        return blake2b(msgspec.json.encode(frozen), digest_size=16).hexdigest()

    def check_settings(self, settings: Settings) -> None:
        """Raise `EpochRefused` if the settings guarantee something else than this epoch did."""
        changed = [
            f"{name} is {self.privacy[name]} in the epoch and {value} in the settings"
            for name, value in frozen_settings(settings).items()
            if self.privacy[name] != value
        ]
        if self.mapping != (wanted := Mapping.of(settings.mapping)):
            changed += (wanted or Mapping()).changes_from(self.mapping)
        if changed:
            raise EpochRefused(
                f"epoch {self.number} of stream {settings.stream!r} was opened with other settings: "
                f"{'; '.join(changed)}; restore them, or open a new epoch, which is charged, with --new-epoch"
            )
        self.check_noise()

    def check_noise(self) -> None:
        """Raise `EpochRefused` if this program draws other noise than the one that opened it, or maps otherwise.

        Raises `WrongNoise` or `Refused` if this machine does.
        """
        if self.noise_version != NOISE_VERSION:
            raise EpochRefused(
                f"epoch {self.number} draws noise of version {self.noise_version} and this program of version "
                f"{NOISE_VERSION}: continue with the program that opened it, or open a new epoch, which is charged, "
                "with --new-epoch"
            )
        check_golden_noise(self.mechanism.name)
        self._check_mapping()

    def _check_mapping(self) -> None:
        """Raise `EpochRefused` if this program makes other events of records, `Refused` if this machine does."""
        if self.mapping is None or not self.mapping.maps:
            return
        if self.mapping.version != MAPPING_VERSION:
            raise EpochRefused(
                f"epoch {self.number} maps records by version {self.mapping.version} and this program by version "
                f"{MAPPING_VERSION}: continue with the program that opened it, or open a new epoch, which is charged, "
                "with --new-epoch"
            )
        check_golden_mapping(self.mapping.format)

    @property
    def last_round(self) -> int | None:
        """The horizon; None where the epoch has none."""
        return None if isinstance(self.mechanism, WindowMechanism) else self.mechanism.horizon

    @property
    def at_least(self) -> int | None:
        """No label of fewer events, or users, is found; None where it is not looked for at tests."""
        return self.mechanism.at_least if isinstance(self.mechanism, DiscoveryMechanism) else None

    @property
    def release_schedule(self) -> ReleaseSchedule:
        """Which rounds are released."""
        return ReleaseSchedule.of(self.privacy["release"])

    def release_tags(self, key: bytes) -> ReleaseTags:
        """The tags of its releases under the noise key `key`."""
        return ReleaseTags(key, self.privacy["stream"], self.nonce)

    def noise(self, key: bytes) -> KeyedNoise:
        """The noise of this epoch under the noise key `key`."""
        return KeyedNoise(key, self.privacy["stream"], self.nonce)


def frozen_settings(settings: Settings) -> dict[str, Any]:
    """What an epoch that was opened with these settings now would freeze of them.  Raises `SettingsError`."""
    return {**settings.privacy, "known_labels": read_list(settings.known_labels).listed}


def _told(frozen: Any) -> dict[str, Any]:
    """The fields of a dataclass as they are written down, without those that have their default."""
    told: dict[str, Any] = msgspec.to_builtins(frozen, order="deterministic")
    for field in fields(frozen):
        if field.default is not MISSING and getattr(frozen, field.name) == field.default:
            told.pop(field.name, None)  # of what was decoded, msgspec does not tell a default
    return told
