"""What clients of aiokafka ask about topics, every few seconds, without creating any."""

from typing import Any

from aiokafka.client import AIOKafkaClient
from aiokafka.protocol.metadata import MetadataRequest

METADATA_MILLISECONDS = 10_000
"""How old a client's list of partitions may be.  A group's leader that has not heard of its topic in time divides
nothing until the next list, and aiokafka may miss a topic that is added while it asks."""


def make_no_topics(client: AIOKafkaClient) -> None:
    """Let a client ask for topics without making them.

    Otherwise it would make one in the place of one that was deleted; aiokafka 0.14 has no option for this.
    """
    connect = client._get_conn

    async def connected(*place: Any, **options: Any) -> Any:
        connection = await connect(*place, **options)
        if connection is not None and "send" not in vars(connection):
            send = connection.send

            def ask(request: Any, *arguments: Any, **named: Any) -> Any:
                if isinstance(request, MetadataRequest):
                    request._allow_auto_topic_creation = False
                return send(request, *arguments, **named)

            connection.send = ask
        return connection

    client._get_conn = connected
