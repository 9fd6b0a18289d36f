"""One connection to a broker, spoken to in single requests with kafka-python's protocol classes."""

import socket
import struct
from typing import Any

from kafka.protocol.consumer import FetchRequest, FetchResponse
from kafka.protocol.metadata import MetadataRequest, MetadataResponse
from kafka.protocol.producer import ProduceRequest, ProduceResponse
from kafka.record.memory_records import MemoryRecords

GIVE_UP_SECONDS = 120.0


class Line:
    """One connection to the broker, one request at a time."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=GIVE_UP_SECONDS)

    def send(self, request: Any, version: int, said: int | None = None) -> None:
        """Send a request as it is written in this version, which its header may be told to say otherwise."""
        request.API_VERSION = version
        request.with_header(correlation_id=7)
        frame = bytearray(request.encode(version=version, header=True, framed=True))
        if said is not None:
            frame[6:8] = struct.pack(">h", said)
        self._socket.sendall(frame)

    def receive(self, response: Any, version: int) -> Any:
        (length,) = struct.unpack(">i", self._read(4))
        return response.decode(self._read(length), version=version, header=True)

    def _read(self, count: int) -> bytes:
        data = self._socket.recv(count, socket.MSG_WAITALL)
        if len(data) < count:
            raise ConnectionError("the broker hung up")
        return data

    def ask(self, request: Any, response: Any, version: int) -> Any:
        self.send(request, version)
        return self.receive(response, version)

    def create(self, topic: str) -> None:
        """By asking for its metadata, as clients do."""
        topics = [MetadataRequest.MetadataRequestTopic(name=topic)]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=True)
        assert self.ask(request, MetadataResponse, 4).topics[0].error_code == 0

    def produce(self, topic: str, data: bytes, acks: int = -1) -> Any:
        self.send(produce_request(topic, data, acks), 7)
        return self.receive(ProduceResponse, 7).responses[0].partition_responses[0] if acks else None

    def fetch(self, topic: str, offset: int, **limits: int) -> Any:
        response = self.ask(fetch_request(topic, offset, **limits), FetchResponse, 11)
        return response.responses[0].partitions[0]


def produce_request(topic: str, data: bytes, acks: int = -1) -> Any:
    part = ProduceRequest.TopicProduceData.PartitionProduceData(index=0, records=data)
    topic_data = [ProduceRequest.TopicProduceData(name=topic, partition_data=[part])]
    return ProduceRequest(transactional_id=None, acks=acks, timeout_ms=1000, topic_data=topic_data)


def fetch_request(topic: str, offset: int, **limits: int) -> Any:
    asked = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 2**20} | limits
    part = FetchRequest.FetchTopic.FetchPartition(
        partition=0, fetch_offset=offset, partition_max_bytes=asked["max_bytes"]
    )
    topics = [FetchRequest.FetchTopic(topic=topic, partitions=[part])]
    return FetchRequest(isolation_level=0, topics=topics, forgotten_topics_data=[], rack_id="", **asked)


def values(records: bytes) -> list[bytes]:
    found, batches = MemoryRecords(bytes(records)), []
    while (one := found.next_batch()) is not None:
        batches += [record.value for record in one]
    return batches
