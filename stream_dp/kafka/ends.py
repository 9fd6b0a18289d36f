"""Where the partitions of a topic begin and end, asked of those who lead them.

An admin client of kafka-python 3.0.12 looks the leaders up anew for the beginnings and for the ends, one after the
other: five requests for what takes three.  A worker asks dozens of times before its first round.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from kafka import KafkaAdminClient, TopicPartition
from kafka.admin import OffsetSpec
from kafka.errors import NotLeaderForPartitionError, UnknownTopicOrPartitionError
from kafka.net.manager import KafkaConnectionManager
from kafka.protocol.consumer import IsolationLevel

_BOTH = OffsetSpec.EARLIEST, OffsetSpec.LATEST


def ends_of_all(admin: KafkaAdminClient, topic: str) -> list[tuple[int, int]]:
    """The first offset and the end of each partition, in the order of their numbers; an empty list for no topic."""
    leaders = _leaders(admin, topic)
    return _ends(admin, topic, range(len(leaders)), leaders)


def ends_of(admin: KafkaAdminClient, topic: str, partition: int) -> tuple[int, int]:
    """The first offset and the end of a partition.  Raises UnknownTopicOrPartitionError if there is none."""
    [found] = _ends(admin, topic, [partition], _leaders(admin, topic))
    return found


def _leaders(admin: KafkaAdminClient, topic: str) -> dict[int, int]:
    [told] = admin.describe_topics([topic])
    return {each["partition_index"]: each["leader_id"] for each in told["partitions"]}


def _ends(
    admin: KafkaAdminClient, topic: str, numbers: Iterable[int], leaders: dict[int, int]
) -> list[tuple[int, int]]:
    places = [TopicPartition(topic, number) for number in numbers]
    if unknown := [place for place in places if place.partition not in leaders]:
        raise UnknownTopicOrPartitionError(f"there is no {unknown[0]}")
    manager: KafkaConnectionManager = admin._manager
    try:
        firsts, ends = manager.run(_asked, admin, {place: leaders[place.partition] for place in places})
    except NotLeaderForPartitionError:
        # Another broker leads it by now, and kafka-python looks for that one until it is found.
        firsts, ends = (
            admin.list_partition_offsets(dict.fromkeys(places, spec), IsolationLevel.READ_COMMITTED)
            for spec in _BOTH
        )
    return [(int(firsts[place].offset), int(ends[place].offset)) for place in places]


async def _asked(
    admin: KafkaAdminClient, places: dict[TopicPartition, int]
) -> tuple[dict[Any, Any], dict[Any, Any]]:
    """What all leaders answer about the beginnings, and about the ends."""
    led = defaultdict(list)
    for place, leader in places.items():
        led[leader].append(place)
    found: tuple[dict[Any, Any], dict[Any, Any]] = {}, {}
    sent = [
        (answers, admin._manager.send(_request(admin, mine, spec), node_id=leader))
        for answers, spec in zip(found, _BOTH, strict=True)
        for leader, mine in led.items()
    ]
    for answers, answer in sent:
        answers.update(admin._list_partition_offsets_process_response(await answer))
    return found


def _request(admin: KafkaAdminClient, places: list[TopicPartition], spec: OffsetSpec) -> Any:
    return admin._list_partition_offsets_request(
        dict.fromkeys(places, spec), IsolationLevel.READ_COMMITTED.value
    )
