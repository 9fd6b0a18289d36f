"""Answers of the embedded broker (trying out and tests) about records: produce, fetch, list offsets."""

import asyncio
import time
from typing import Any, NamedTuple

from kafka.errors import (
    InvalidTimestampError,
    InvalidTxnStateError,
    KafkaStorageError,
    OffsetOutOfRangeError,
    TransactionalIdAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    UnsupportedForMessageFormatError,
)
from kafka.protocol.consumer import FetchResponse, ListOffsetsResponse, OffsetSpec
from kafka.protocol.producer import InitProducerIdResponse, ProduceResponse

from stream_dp.dev.broker_state import BrokerState
from stream_dp.dev.partition_log import PartitionLog
from stream_dp.dev.record_batch import LEADER_EPOCH, BatchRefused, check_produced
from stream_dp.dev.wire import Call

_OLDEST_PRODUCE_WITH_FORMAT_2 = 3


async def produce(state: BrokerState, call: Call) -> Any:
    """Append each partition's batch; no answer with acks=0."""
    responses = [
        ProduceResponse.TopicProduceResponse(
            name=topic.name,
            partition_responses=[
                _produced(state, call, topic.name, part.index, part.records) for part in topic.partition_data
            ],
        )
        for topic in call.body.topic_data
    ]
    if call.body.acks == 0:
        return None
    return ProduceResponse(responses=responses, throttle_time_ms=0)


def _produced(state: BrokerState, call: Call, name: str, partition: int, records: bytes | None) -> Any:
    error_code, base_offset, reason = 0, -1, None
    try:
        base_offset = _append(state, call, name, partition, records)
    except BatchRefused as refused:
        error_code, reason = refused.error.errno, str(refused)
    except OSError as failed:
        error_code, reason = KafkaStorageError.errno, f"the log could not be written: {failed.strerror}"
    return ProduceResponse.TopicProduceResponse.PartitionProduceResponse(
        index=partition,
        error_code=error_code,
        base_offset=base_offset,
        log_append_time_ms=-1,
        log_start_offset=0,
        record_errors=[],
        error_message=reason,
    )


def _append(state: BrokerState, call: Call, name: str, partition: int, records: bytes | None) -> int:
    topic, log = state.topics.get(name), state.topics.log(name, partition)
    if topic is None or log is None:
        raise BatchRefused(
            UnknownTopicOrPartitionError, f"there is no partition {partition} of topic {name!r}"
        )
    if call.version < _OLDEST_PRODUCE_WITH_FORMAT_2:
        raise BatchRefused(UnsupportedForMessageFormatError, "only record format v2 is stored")
    if call.body.transactional_id is not None:
        raise BatchRefused(InvalidTxnStateError, "the embedded broker has no transactions")
    batch = None if records is None else memoryview(records)
    header = check_produced(batch, topic.max_batch_bytes)
    assert batch is not None
    if header.max_timestamp > time.time() * 1000 + topic.furthest_milliseconds:
        raise BatchRefused(InvalidTimestampError, "a record lies too far in the future for the topic")
    return log.append(header, batch)


class _Read(NamedTuple):
    """One partition a consumer asks for; `log` is None if there is none or the offset is not in it."""

    topic: str
    partition: int
    max_bytes: int
    log: PartitionLog | None
    position: int
    error_code: int

    @property
    def available(self) -> int:
        return 0 if self.log is None else min(self.log.size - self.position, self.max_bytes)


async def fetch(state: BrokerState, call: Call) -> Any:
    """Records from the asked offsets on; waits up to max_wait for min_bytes, but never on an error."""
    reads = [_locate(state, topic.topic, part) for topic in call.body.topics for part in topic.partitions]
    if all(read.log is not None for read in reads):
        await _wait_for(reads, call.body.min_bytes, call.body.max_wait_ms / 1000)
    budget = call.body.max_bytes
    answers: dict[str, list[Any]] = {}
    nothing_yet = True
    for read in reads:
        answer = _fetched(read, budget, nothing_yet)
        budget -= len(answer.records)
        nothing_yet = nothing_yet and not answer.records
        answers.setdefault(read.topic, []).append(answer)
    responses = [
        FetchResponse.FetchableTopicResponse(topic=topic, partitions=partitions)
        for topic, partitions in answers.items()
    ]
    return FetchResponse(throttle_time_ms=0, error_code=0, session_id=0, responses=responses)


def _locate(state: BrokerState, topic: str, part: Any) -> _Read:
    log = state.topics.log(topic, part.partition)
    if log is None:
        return _Read(topic, part.partition, 0, None, 0, UnknownTopicOrPartitionError.errno)
    if not 0 <= part.fetch_offset <= log.end_offset:
        return _Read(topic, part.partition, 0, None, 0, OffsetOutOfRangeError.errno)
    position = log.position(part.fetch_offset)
    return _Read(topic, part.partition, part.partition_max_bytes, log, position, 0)


async def _wait_for(reads: list[_Read], min_bytes: int, seconds: float) -> None:
    """Return when the partitions hold `min_bytes` together, one of them is deleted, or time is up."""
    logs = [read.log for read in reads if read.log is not None]

    def enough() -> bool:
        return sum(read.available for read in reads) >= min_bytes or any(log.closed for log in logs)

    if enough() or seconds <= 0:
        return
    arrival = asyncio.Event()
    for log in logs:
        log.arrivals.add(arrival)
    try:
        async with asyncio.timeout(seconds):
            while not enough():
                arrival.clear()
                await arrival.wait()
    except TimeoutError:
        pass
    finally:
        for log in logs:
            log.arrivals.discard(arrival)


def _fetched(read: _Read, budget: int, whole_first: bool) -> Any:
    error_code, records, end = read.error_code, b"", -1
    if read.log is not None and read.log.closed:
        error_code = UnknownTopicOrPartitionError.errno
    elif read.log is not None:
        end = read.log.end_offset
        limit = min(read.max_bytes, budget)
        if read.log.size > read.position and (limit > 0 or whole_first):
            records = read.log.read(read.position, limit, whole_first)
    return FetchResponse.FetchableTopicResponse.PartitionData(
        partition_index=read.partition,
        error_code=error_code,
        high_watermark=end,
        last_stable_offset=end,
        log_start_offset=0 if error_code == 0 else -1,
        aborted_transactions=None,
        preferred_read_replica=-1,
        records=records,
    )


async def list_offsets(state: BrokerState, call: Call) -> Any:
    """The first, the next or a timestamp's offset of each partition."""
    answers = [
        ListOffsetsResponse.ListOffsetsTopicResponse(
            name=topic.name,
            partitions=[
                _offset(state, topic.name, part.partition_index, part.timestamp) for part in topic.partitions
            ],
        )
        for topic in call.body.topics
    ]
    return ListOffsetsResponse(throttle_time_ms=0, topics=answers)


def _offset(state: BrokerState, name: str, partition: int, timestamp: int) -> Any:
    log = state.topics.log(name, partition)
    error_code, offset, time = 0, -1, -1
    if log is None:
        error_code = UnknownTopicOrPartitionError.errno
    elif timestamp == OffsetSpec.LATEST:
        offset = log.end_offset
    elif timestamp == OffsetSpec.EARLIEST:
        offset = 0
    else:
        offset, time = log.offset_for_time(timestamp)
    return ListOffsetsResponse.ListOffsetsTopicResponse.ListOffsetsPartitionResponse(
        partition_index=partition,
        error_code=error_code,
        timestamp=time,
        offset=offset,
        leader_epoch=LEADER_EPOCH,
    )


async def init_producer_id(state: BrokerState, call: Call) -> Any:
    """A new producer id; transactions are refused, for the broker could not keep their promises."""
    if call.body.transactional_id is not None:
        error_code = TransactionalIdAuthorizationFailedError.errno
        return InitProducerIdResponse(
            throttle_time_ms=0, error_code=error_code, producer_id=-1, producer_epoch=-1
        )
    new_id = state.producer_ids.new()
    return InitProducerIdResponse(throttle_time_ms=0, error_code=0, producer_id=new_id, producer_epoch=0)
