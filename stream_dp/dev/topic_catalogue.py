"""The topics of the embedded broker (trying out and tests): folders of partition logs with their settings.

Layout: `topics/<name>/topic.json` with the settings, `topics/<name>/<partition>.log` with the records.
Settings are kept and reported, but records are never deleted or compacted, whatever a topic's settings say.
"""

import json
import re
import shutil
import uuid
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
DEFAULT_SETTINGS = {
    "cleanup.policy": "delete",
    "compression.type": "producer",
    "delete.retention.ms": "86400000",
    "flush.messages": "9223372036854775807",
    "flush.ms": "9223372036854775807",
    "max.compaction.lag.ms": "9223372036854775807",
    "max.message.bytes": str(MAX_BATCH_BYTES),
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
    """One topic: its partitions by number and the settings that were given for it."""

    name: str
    partitions: list[PartitionLog]
    settings: dict[str, str]

    @property
    def max_batch_bytes(self) -> int:
        return int(self.settings.get("max.message.bytes", MAX_BATCH_BYTES))


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
        draft = self._staging / uuid.uuid4().hex
        draft.mkdir()
        write_atomically(draft / "topic.json", json.dumps({"partitions": partitions, "settings": settings}))
        draft.rename(self._topics_folder / name)
        topic = self._topics[name] = _open(self._topics_folder / name)
        return topic

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
    logs = [PartitionLog(path / f"{number}.log") for number in range(recorded["partitions"])]
    return Topic(path.name, logs, recorded["settings"])


def _check_settings(settings: dict[str, str]) -> None:
    for name, value in settings.items():
        if name not in DEFAULT_SETTINGS:
            raise TopicRefused(
                InvalidConfigurationError, f"the embedded broker knows no topic setting {name!r}"
            )
        if name == "cleanup.policy" and value.replace(" ", "") not in _CLEANUP_POLICIES:
            raise TopicRefused(InvalidConfigurationError, "cleanup.policy: use delete, compact or both")
        if name == "message.timestamp.type" and value != "CreateTime":
            raise TopicRefused(InvalidConfigurationError, "message.timestamp.type: only CreateTime here")
        if name == "max.message.bytes" and not (value.isdecimal() and 0 < int(value) <= 100 * 2**20):
            raise TopicRefused(InvalidConfigurationError, "max.message.bytes: use 1 to 104857600")
