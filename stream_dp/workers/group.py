"""How members of the stream's consumer groups present themselves to Kafka, and how soon a silent one is replaced."""

import asyncio
from collections.abc import Iterable
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from stream_dp.config.settings import Settings, SettingsError

SESSION_MILLISECONDS = 6_000
"""A member that is silent for so long is out: the least that Kafka allows by default."""

REBALANCE_MILLISECONDS = 120_000
"""How long the group waits for a member that lives and is busy, such as one that loads a shard or saves its shards.

aiokafka would wait no longer than for a silent one.  Whoever takes longer than that would be put out, find its shards
with another, and put that one out in turn when it comes back: both would load shards forever and count nothing.
"""

_HEARTBEAT_MILLISECONDS = 500
_ANSWER_SECONDS = 3.0


def membership(settings: Settings, group: str) -> dict[str, Any]:
    """Options of a consumer that is a member of the stream's group of this name."""
    return {
        "group_id": f"{settings.stream}.{group}",
        "session_timeout_ms": SESSION_MILLISECONDS,
        "heartbeat_interval_ms": _HEARTBEAT_MILLISECONDS,
        "rebalance_timeout_ms": REBALANCE_MILLISECONDS,
    }


def require_shards(settings: Settings) -> None:
    """Raise `SettingsError` where the stream is not divided."""
    if not settings.shards:
        raise SettingsError(
            "the stream is not divided into shards: set shards to their number, for the stream's worker too"
        )


async def ends_of(
    reader: AIOKafkaConsumer, places: Iterable[TopicPartition]
) -> dict[TopicPartition, int] | None:
    """Where these partitions end; None if Kafka does not answer: its clients wait in silence for a broker."""
    try:
        ends: dict[TopicPartition, int] = await asyncio.wait_for(
            reader.end_offsets(list(places)), _ANSWER_SECONDS
        )
    except (KafkaError, TimeoutError):
        return None
    return ends
