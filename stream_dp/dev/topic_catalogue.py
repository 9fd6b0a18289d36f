"""The topics of the embedded broker (trying out and tests): folders of partition logs with their settings.

Layout: `topics/<name>/topic.json` with the settings and the identity, `topics/<name>/<partition>.log` with the records.
Settings are kept and reported, but records are never deleted, compacted or refused for their age, whatever a topic's
settings say.
"""

import json
import re
import shutil
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from kafka.errors import (
    BrokerResponseError,
    InvalidConfigurationError,
    InvalidPartitionsError,
    InvalidTopicError,
    TopicAlreadyExistsError,
)

from stream_dp.dev.atomic_file import write_atomically
from stream_dp.dev.partition_log import PartitionLog

MAX_BATCH_BYTES = 1_048_588  # Apache Kafka's default for message.max.bytes
MAX_PARTITIONS = 1000
_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_FURTHEST = "message.timestamp.after.max.ms"
DEFAULT_SETTINGS = {
    "cleanup.policy": "delete",
    "compression.type": "producer",
    "delete.retention.ms": "86400000",
    "flush.messages": "9223372036854775807",
    "flush.ms": "9223372036854775807",
    "max.compaction.lag.ms": "9223372036854775807",
    "max.message.bytes": str(MAX_BATCH_BYTES),
    _FURTHEST: "9223372036854775807",
    "message.timestamp.before.max.ms": "9223372036854775807",
    "message.timestamp.type": "CreateTime",
    "min.cleanable.dirty.ratio": "0.5",
    "min.compaction.lag.ms": "0",
    "min.insync.replicas": "1",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "segment.bytes": "1073741824",
    "segment.ms": "604800000",
}
_CLEANUP_POLICIES = {"delete", "compact", "compact,delete", "delete,compact"}


class TopicRefused(Exception):
    """The topic cannot be created as asked; `error` is the protocol's error class to answer with."""

    def __init__(self, error: type[BrokerResponseError], reason: str) -> None:
        super().__init__(reason)
        self.error = error


@dataclass
class Topic:
    """One topic: its partitions by number, the settings that were given for it, and an identity of its own.

    A topic that is deleted and made again has another identity.
    """

    name: str
    partitions: list[PartitionLog]
    settings: dict[str, str]
    id: uuid.UUID

    @property
    def max_batch_bytes(self) -> int:
        return int(self.settings.get("max.message.bytes", MAX_BATCH_BYTES))

    @property
    def furthest_milliseconds(self) -> int:
        """How far in the future a record may lie."""
        return int(self.settings.get(_FURTHEST, DEFAULT_SETTINGS[_FURTHEST]))


class TopicCatalogue:
    """All topics below one folder; opened, and repaired after a crash, at construction."""

    def __init__(self, folder: Path) -> None:
        self._topics_folder = folder / "topics"
        self._staging = folder / "staging"  # a topic is built here and appears whole, or not at all
        shutil.rmtree(self._staging, ignore_errors=True)
        self._staging.mkdir()
        self._topics_folder.mkdir(exist_ok=True)
        self._topics = {path.name: _open(path) for path in sorted(self._topics_folder.iterdir())}

    def names(self) -> list[str]:
        return list(self._topics)

    def get(self, name: str) -> Topic | None:
        return self._topics.get(name)

    def log(self, name: str, partition: int) -> PartitionLog | None:
        """The log of one partition, or None if there is no such topic or partition."""
        topic = self._topics.get(name)
        if topic is None or not 0 <= partition < len(topic.partitions):
            return None
        return topic.partitions[partition]

    def check_new(self, name: str, partitions: int, settings: dict[str, str]) -> None:
        """Raise TopicRefused if `create` would refuse."""
        if not _NAME.fullmatch(name) or name in (".", ".."):
            raise TopicRefused(
                InvalidTopicError, f"topic name {name!r}: use 1 to 249 of a-z, A-Z, 0-9, '.', '_' and '-'"
            )
        if name in self._topics:
            raise TopicRefused(TopicAlreadyExistsError, f"topic {name!r} exists already")
        if not 1 <= partitions <= MAX_PARTITIONS:
            raise TopicRefused(InvalidPartitionsError, f"a topic has 1 to {MAX_PARTITIONS} partitions here")
        _check_settings(settings)

    def create(self, name: str, partitions: int = 1, settings: dict[str, str] | None = None) -> Topic:
        """Create a topic on disk and in memory; raises TopicRefused."""
        settings = settings or {}
        self.check_new(name, partitions, settings)
        identity = uuid.uuid4()
        draft = self._staging / identity.hex
        draft.mkdir()
        _record(draft, partitions, settings, identity)
        draft.rename(self._topics_folder / name)
        topic = self._topics[name] = _open(self._topics_folder / name)
        return topic

    def grow(self, topic: Topic, partitions: int) -> None:
        """Give a topic more partitions; raises TopicRefused."""
        if not len(topic.partitions) < partitions <= MAX_PARTITIONS:
            raise TopicRefused(
                InvalidPartitionsError,
                f"topic {topic.name!r} has {len(topic.partitions)} partitions and can only get more, up to "
                f"{MAX_PARTITIONS}",
            )
        folder = self._topics_folder / topic.name
        _record(folder, partitions, topic.settings, topic.id)
        topic.partitions += _logs(folder, range(len(topic.partitions), partitions))

    def configure(self, topic: Topic, settings: dict[str, str]) -> None:
        """Put these settings in the place of all that were given for a topic; raises TopicRefused."""
        _check_settings(settings)
        _record(self._topics_folder / topic.name, len(topic.partitions), settings, topic.id)
        topic.settings = settings

    def delete(self, name: str) -> bool:
        """Delete a topic and its records; False if there is no such topic."""
        topic = self._topics.pop(name, None)
        if topic is None:
            return False
        for log in topic.partitions:
            log.close()
        doomed = self._staging / uuid.uuid4().hex
        (self._topics_folder / name).rename(doomed)
        shutil.rmtree(doomed)
        return True

    def close(self) -> None:
        for topic in self._topics.values():
            for log in topic.partitions:
                log.close()
        self._topics.clear()


def _open(path: Path) -> Topic:
    recorded = json.loads((path / "topic.json").read_text())
    if "id" not in recorded:  # from before topics had one
        recorded["id"] = uuid.uuid4().hex
        _record(path, recorded["partitions"], recorded["settings"], uuid.UUID(recorded["id"]))
    logs = _logs(path, range(recorded["partitions"]))
    return Topic(path.name, logs, recorded["settings"], uuid.UUID(recorded["id"]))


def _logs(folder: Path, numbers: Iterable[int]) -> list[PartitionLog]:
    return [PartitionLog(folder / f"{number}.log") for number in numbers]


def _record(folder: Path, partitions: int, settings: dict[str, str], identity: uuid.UUID) -> None:
    told = {"partitions": partitions, "settings": settings, "id": identity.hex}
    write_atomically(folder / "topic.json", json.dumps(told))


def _check_settings(settings: dict[str, str]) -> None:
    for name, value in settings.items():
        if name not in DEFAULT_SETTINGS:
            raise TopicRefused(
                InvalidConfigurationError, f"the embedded broker does not know the topic setting {name!r}"
            )
        if name == "cleanup.policy" and value.replace(" ", "") not in _CLEANUP_POLICIES:
            raise TopicRefused(InvalidConfigurationError, "cleanup.policy: use delete, compact or both")
        if name == "message.timestamp.type" and value != "CreateTime":
            raise TopicRefused(InvalidConfigurationError, "message.timestamp.type: only CreateTime here")
        if name == "max.message.bytes" and not (value.isdecimal() and 0 < int(value) <= 100 * 2**20):
            raise TopicRefused(InvalidConfigurationError, "max.message.bytes: use 1 to 104857600")
        if name == _FURTHEST and not value.isdecimal():
            raise TopicRefused(InvalidConfigurationError, f"{_FURTHEST}: use a number of milliseconds")
