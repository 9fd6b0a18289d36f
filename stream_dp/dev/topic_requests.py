"""Answers of the embedded broker (trying out and tests) about topics: metadata, create, delete, settings."""

import uuid
from typing import Any

from kafka.errors import (
    InvalidReplicationFactorError,
    InvalidRequestError,
    UnknownTopicOrPartitionError,
)
from kafka.protocol.admin import (
    CreatePartitionsResponse,
    CreateTopicsResponse,
    DeleteTopicsResponse,
    DescribeConfigsResponse,
    IncrementalAlterConfigsResponse,
)
from kafka.protocol.metadata import MetadataResponse

from stream_dp.dev.broker_state import NODE_ID, BrokerState
from stream_dp.dev.record_batch import LEADER_EPOCH
from stream_dp.dev.topic_catalogue import DEFAULT_SETTINGS, MAX_BATCH_BYTES, Topic, TopicRefused
from stream_dp.dev.wire import Call

_OLDEST_METADATA_WITH_AUTO_CREATE_CHOICE = 4
_TOPIC_RESOURCE, _BROKER_RESOURCE = 2, 4
_FROM_TOPIC, _FROM_DEFAULT = 1, 5
_SET_SETTING, _DELETE_SETTING = 0, 1
_BROKER_SETTINGS = {
    "auto.create.topics.enable": "true",
    "default.replication.factor": "1",
    "message.max.bytes": str(MAX_BATCH_BYTES),
    "num.partitions": "1",
}


async def metadata(state: BrokerState, call: Call) -> Any:
    """The node, and the asked topics (all if none is named); an unknown one is made with 1 partition."""
    asked = call.body.topics
    if asked is None or (not asked and call.version == 0):
        names = state.topics.names()
    else:
        names = [topic.name for topic in asked]
    create = call.version < _OLDEST_METADATA_WITH_AUTO_CREATE_CHOICE or call.body.allow_auto_topic_creation
    broker = MetadataResponse.MetadataResponseBroker(
        node_id=NODE_ID, host=state.host, port=state.port, rack=None
    )
    return MetadataResponse(
        throttle_time_ms=0,
        brokers=[broker],
        cluster_id="stream-dp-dev",
        controller_id=NODE_ID,
        topics=[_described(state, name, create) for name in names],
        authorized_operations=None,
    )


def _described(state: BrokerState, name: str, create: bool) -> Any:
    topic, error_code = state.topics.get(name), 0
    if topic is None and create:
        try:
            topic = state.topics.create(name)
        except TopicRefused as refused:
            error_code = refused.error.errno
    elif topic is None:
        error_code = UnknownTopicOrPartitionError.errno
    return MetadataResponse.MetadataResponseTopic(
        error_code=error_code,
        name=name,
        topic_id=topic.id if topic else uuid.UUID(int=0),
        is_internal=False,
        partitions=[_partition(number) for number in range(len(topic.partitions))] if topic else [],
        authorized_operations=None,
    )


def _partition(number: int) -> Any:
    return MetadataResponse.MetadataResponseTopic.MetadataResponsePartition(
        error_code=0,
        partition_index=number,
        leader_id=NODE_ID,
        leader_epoch=LEADER_EPOCH,
        replica_nodes=[NODE_ID],
        isr_nodes=[NODE_ID],
        offline_replicas=[],
    )


async def create_topics(state: BrokerState, call: Call) -> Any:
    """Create topics with their settings, or only say whether they could be created."""
    results = []
    for asked in call.body.topics:
        error_code, reason = 0, None
        try:
            _create(state, asked, call.body.validate_only)
        except TopicRefused as refused:
            error_code, reason = refused.error.errno, str(refused)
        results.append(
            CreateTopicsResponse.CreatableTopicResult(
                name=asked.name, error_code=error_code, error_message=reason
            )
        )
    return CreateTopicsResponse(throttle_time_ms=0, topics=results)


def _create(state: BrokerState, asked: Any, validate_only: bool) -> None:
    partitions = len(asked.assignments) or (1 if asked.num_partitions == -1 else asked.num_partitions)
    if not asked.assignments and asked.replication_factor not in (-1, 1):
        raise TopicRefused(InvalidReplicationFactorError, "the embedded broker is one node: replication is 1")
    settings = {setting.name: setting.value for setting in asked.configs if setting.value is not None}
    state.topics.check_new(asked.name, partitions, settings)
    if not validate_only:
        state.topics.create(asked.name, partitions, settings)


async def delete_topics(state: BrokerState, call: Call) -> Any:
    """Delete topics, their records and what groups committed for them."""
    results = []
    for name in call.body.topic_names:
        error_code = 0
        if state.topics.delete(name):
            state.offsets.forget_topic(name)
        else:
            error_code = UnknownTopicOrPartitionError.errno
        results.append(DeleteTopicsResponse.DeletableTopicResult(name=name, error_code=error_code))
    return DeleteTopicsResponse(throttle_time_ms=0, responses=results)


async def create_partitions(state: BrokerState, call: Call) -> Any:
    """Give topics more partitions."""
    results = []
    for asked in call.body.topics:
        error_code, reason, topic = 0, None, state.topics.get(asked.name)
        try:
            if topic is None:
                raise TopicRefused(UnknownTopicOrPartitionError, f"no topic {asked.name!r}")
            if not call.body.validate_only:
                state.topics.grow(topic, asked.count)
        except TopicRefused as refused:
            error_code, reason = refused.error.errno, str(refused)
        results.append(
            CreatePartitionsResponse.CreatePartitionsTopicResult(
                name=asked.name, error_code=error_code, error_message=reason
            )
        )
    return CreatePartitionsResponse(throttle_time_ms=0, results=results)


async def alter_configs(state: BrokerState, call: Call) -> Any:
    """Set settings of topics, or take them back to their defaults."""
    answers = []
    for resource in call.body.resources:
        error_code, reason = 0, None
        try:
            _alter(state, resource, call.body.validate_only)
        except TopicRefused as refused:
            error_code, reason = refused.error.errno, str(refused)
        answers.append(
            IncrementalAlterConfigsResponse.AlterConfigsResourceResponse(
                error_code=error_code,
                error_message=reason,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
        )
    return IncrementalAlterConfigsResponse(throttle_time_ms=0, responses=answers)


def _alter(state: BrokerState, resource: Any, validate_only: bool) -> None:
    topic = state.topics.get(resource.resource_name) if resource.resource_type == _TOPIC_RESOURCE else None
    if topic is None:
        raise TopicRefused(UnknownTopicOrPartitionError, f"no topic {resource.resource_name!r}")
    settings = dict(topic.settings)
    for change in resource.configs:
        if change.config_operation == _DELETE_SETTING:
            settings.pop(change.name, None)
        elif change.config_operation == _SET_SETTING:
            settings[change.name] = change.value
        else:
            raise TopicRefused(InvalidRequestError, "settings are set or deleted here, lists do not grow")
    if not validate_only:
        state.topics.configure(topic, settings)


async def describe_configs(state: BrokerState, call: Call) -> Any:
    """The settings of topics and of the broker, given ones and defaults."""
    return DescribeConfigsResponse(
        throttle_time_ms=0, results=[_settings(state, resource) for resource in call.body.resources]
    )


def _settings(state: BrokerState, resource: Any) -> Any:
    topic = state.topics.get(resource.resource_name) if resource.resource_type == _TOPIC_RESOURCE else None
    error_code, reason, values = 0, None, {}
    if topic is not None:
        values = _with_defaults(topic)
    elif resource.resource_type == _TOPIC_RESOURCE:
        error_code, reason = UnknownTopicOrPartitionError.errno, f"no topic {resource.resource_name!r}"
    elif resource.resource_type == _BROKER_RESOURCE:
        values = {name: (value, _FROM_DEFAULT) for name, value in _BROKER_SETTINGS.items()}
    else:
        error_code, reason = InvalidRequestError.errno, "only topics and the broker have settings here"
    wanted = resource.configuration_keys
    return DescribeConfigsResponse.DescribeConfigsResult(
        error_code=error_code,
        error_message=reason,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[
            _setting(name, value, source, read_only=topic is None)
            for name, (value, source) in values.items()
            if wanted is None or name in wanted
        ],
    )


def _with_defaults(topic: Topic) -> dict[str, tuple[str, int]]:
    values = {name: (value, _FROM_DEFAULT) for name, value in DEFAULT_SETTINGS.items()}
    return values | {name: (value, _FROM_TOPIC) for name, value in topic.settings.items()}


def _setting(name: str, value: str, source: int, read_only: bool) -> Any:
    return DescribeConfigsResponse.DescribeConfigsResult.DescribeConfigsResourceResult(
        name=name, value=value, read_only=read_only, config_source=source, is_sensitive=False, synonyms=[]
    )
