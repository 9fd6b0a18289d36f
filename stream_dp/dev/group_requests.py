"""Answers of the embedded broker (trying out and tests) about consumer groups and their offsets."""

from typing import Any

from kafka.errors import (
    CoordinatorNotAvailableError,
    InvalidGroupIdError,
    NoError,
    TransactionalIdAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from kafka.protocol.admin import ListGroupsResponse
from kafka.protocol.consumer import (
    HeartbeatResponse,
    JoinGroupResponse,
    LeaveGroupResponse,
    OffsetCommitResponse,
    OffsetFetchResponse,
    SyncGroupResponse,
)
from kafka.protocol.metadata import FindCoordinatorResponse

from stream_dp.dev.broker_state import NODE_ID, BrokerState
from stream_dp.dev.consumer_groups import JoinRequest
from stream_dp.dev.record_batch import LEADER_EPOCH
from stream_dp.dev.wire import Call

_GROUP_COORDINATOR, _TRANSACTION_COORDINATOR = 0, 1
_OLDEST_JOIN_WITH_ID_FIRST = 4
_OLDEST_JOIN_WITH_REBALANCE_TIMEOUT = 1
_OLDEST_LEAVE_OF_MANY = 3


async def find_coordinator(state: BrokerState, call: Call) -> Any:
    """This node, for groups; transactions have no coordinator here."""
    kind = call.body.key_type if call.version >= 1 else _GROUP_COORDINATOR
    if kind == _GROUP_COORDINATOR:
        return FindCoordinatorResponse(
            throttle_time_ms=0,
            error_code=0,
            error_message=None,
            node_id=NODE_ID,
            host=state.host,
            port=state.port,
        )
    refused = kind == _TRANSACTION_COORDINATOR
    error = TransactionalIdAuthorizationFailedError if refused else CoordinatorNotAvailableError
    return FindCoordinatorResponse(
        throttle_time_ms=0,
        error_code=error.errno,
        error_message="the embedded broker has no transactions" if refused else None,
        node_id=-1,
        host="",
        port=-1,
    )


async def join_group(state: BrokerState, call: Call) -> Any:
    """Wait for the group's next generation."""
    body = call.body
    if not body.group_id:
        return _not_joined(InvalidGroupIdError.errno, body.member_id)
    with_timeout = call.version >= _OLDEST_JOIN_WITH_REBALANCE_TIMEOUT
    rebalance_ms = body.rebalance_timeout_ms if with_timeout else body.session_timeout_ms
    joined = await state.group(body.group_id).join(
        JoinRequest(
            member_id=body.member_id,
            client_id=call.client_id,
            protocol_type=body.protocol_type,
            protocols={protocol.name: bytes(protocol.metadata) for protocol in body.protocols},
            session_timeout=body.session_timeout_ms / 1000,
            rebalance_timeout=rebalance_ms / 1000,
            id_first=call.version >= _OLDEST_JOIN_WITH_ID_FIRST,
            instance=body.group_instance_id,
        )
    )
    if joined.error is not NoError:
        return _not_joined(joined.error.errno, joined.member_id)
    return JoinGroupResponse(
        throttle_time_ms=0,
        error_code=0,
        generation_id=joined.generation,
        protocol_name=joined.protocol,
        leader=joined.leader,
        member_id=joined.member_id,
        members=[
            JoinGroupResponse.JoinGroupResponseMember(
                member_id=member_id, group_instance_id=instance, metadata=metadata
            )
            for member_id, instance, metadata in joined.members
        ],
    )


def _not_joined(error_code: int, member_id: str) -> Any:
    return JoinGroupResponse(
        throttle_time_ms=0,
        error_code=error_code,
        generation_id=-1,
        protocol_name="",
        leader="",
        member_id=member_id,
        members=[],
    )


async def sync_group(state: BrokerState, call: Call) -> Any:
    """Hand the leader's assignment to a member."""
    assignments = {given.member_id: bytes(given.assignment) for given in call.body.assignments}
    group = state.group(call.body.group_id)
    body = call.body
    error, assignment = await group.sync(
        body.member_id, body.generation_id, assignments, body.group_instance_id
    )
    return SyncGroupResponse(throttle_time_ms=0, error_code=error.errno, assignment=assignment)


async def heartbeat(state: BrokerState, call: Call) -> Any:
    """Keep a member's session alive."""
    body = call.body
    error = state.group(body.group_id).heartbeat(body.member_id, body.generation_id, body.group_instance_id)
    return HeartbeatResponse(throttle_time_ms=0, error_code=error.errno)


async def leave_group(state: BrokerState, call: Call) -> Any:
    """Take members out of a group at once."""
    group = state.group(call.body.group_id)
    if call.version < _OLDEST_LEAVE_OF_MANY:
        return LeaveGroupResponse(throttle_time_ms=0, error_code=group.leave(call.body.member_id).errno)
    members = [
        LeaveGroupResponse.MemberResponse(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            error_code=group.leave(member.member_id, member.group_instance_id).errno,
        )
        for member in call.body.members
    ]
    return LeaveGroupResponse(throttle_time_ms=0, error_code=0, members=members)


async def commit_offsets(state: BrokerState, call: Call) -> Any:
    """Keep a group's offsets, if the asker may."""
    body = call.body
    group = state.group(body.group_id)
    error = group.may_commit(body.member_id, body.generation_id_or_member_epoch, body.group_instance_id)
    answers = []
    for topic in body.topics:
        partitions = []
        for part in topic.partitions:
            error_code = error.errno
            if error is NoError and state.topics.log(topic.name, part.partition_index) is None:
                error_code = UnknownTopicOrPartitionError.errno
            elif error is NoError:
                state.offsets.commit(
                    body.group_id,
                    topic.name,
                    part.partition_index,
                    part.committed_offset,
                    part.committed_metadata or "",
                )
            partitions.append(
                OffsetCommitResponse.OffsetCommitResponseTopic.OffsetCommitResponsePartition(
                    partition_index=part.partition_index, error_code=error_code
                )
            )
        answers.append(OffsetCommitResponse.OffsetCommitResponseTopic(name=topic.name, partitions=partitions))
    return OffsetCommitResponse(throttle_time_ms=0, topics=answers)


async def fetch_offsets(state: BrokerState, call: Call) -> Any:
    """A group's committed offsets, -1 where there is none; all of them if no topic is named."""
    group = call.body.group_id
    if call.body.topics is None:
        asked = state.offsets.of_group(group)
    else:
        asked = {topic.name: topic.partition_indexes for topic in call.body.topics}
    answers = [
        OffsetFetchResponse.OffsetFetchResponseTopic(
            name=topic, partitions=[_committed(state, group, topic, number) for number in partitions]
        )
        for topic, partitions in asked.items()
    ]
    return OffsetFetchResponse(throttle_time_ms=0, topics=answers, error_code=0)


def _committed(state: BrokerState, group: str, topic: str, partition: int) -> Any:
    offset, metadata = state.offsets.get(group, topic, partition)
    return OffsetFetchResponse.OffsetFetchResponseTopic.OffsetFetchResponsePartition(
        partition_index=partition,
        committed_offset=offset,
        committed_leader_epoch=LEADER_EPOCH if offset >= 0 else -1,
        metadata=metadata,
        error_code=0,
    )


async def list_groups(state: BrokerState, call: Call) -> Any:
    """Every group that has members or committed offsets."""
    names = sorted(set(state.groups) | state.offsets.groups())
    groups = [
        ListGroupsResponse.ListedGroup(group_id=name, protocol_type=state.group(name).protocol_type)
        for name in names
    ]
    return ListGroupsResponse(throttle_time_ms=0, error_code=0, groups=groups)
