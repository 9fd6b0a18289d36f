"""What the embedded broker (trying out and tests) holds: topics, offsets, producer ids and groups."""

import fcntl
import os
from dataclasses import dataclass, field
from pathlib import Path

from stream_dp.dev.committed_offsets import CommittedOffsets
from stream_dp.dev.consumer_groups import Group
from stream_dp.dev.private_folder import private_folder
from stream_dp.dev.producer_ids import ProducerIds
from stream_dp.dev.topic_catalogue import TopicCatalogue

NODE_ID = 1


class FolderInUse(Exception):
    """Another broker runs on the same folder."""


@dataclass
class BrokerState:
    """Everything requests read and change; `port` is the one clients are told to connect to."""

    host: str
    port: int
    topics: TopicCatalogue
    offsets: CommittedOffsets
    producer_ids: ProducerIds
    lock: int
    groups: dict[str, Group] = field(default_factory=dict)

    def group(self, name: str) -> Group:
        return self.groups.setdefault(name, Group())

    def close(self) -> None:
        for group in self.groups.values():
            group.close()
        self.topics.close()
        self.offsets.close()
        os.close(self.lock)


def open_state(folder: Path, host: str, port: int) -> BrokerState:
    """Open (or create) the broker's data below `folder`, repaired after a crash.

    Raises FolderInUse, and FolderNotPrivate if others can read what is in it.
    """
    private_folder(folder)
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise FolderInUse(
            f"another embedded broker runs on {folder}; stop it or name another folder"
        ) from None
    return BrokerState(
        host,
        port,
        TopicCatalogue(folder),
        CommittedOffsets(folder / "committed_offsets.jsonl"),
        ProducerIds(folder / "next_producer_id"),
        lock,
    )
