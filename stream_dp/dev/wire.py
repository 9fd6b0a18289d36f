"""Kafka requests and responses as bytes, with kafka-python's own protocol classes in both directions.

Those classes are written for clients, so their versions are pinned in pyproject.toml.
Part of the embedded broker, which is for trying out and for tests.
"""

import struct
from dataclasses import dataclass
from typing import Any

from kafka.errors import UnsupportedVersionError
from kafka.protocol.admin import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
    ListGroupsRequest,
)
from kafka.protocol.api_key import ApiKey
from kafka.protocol.consumer import (
    FetchRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListOffsetsRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from kafka.protocol.metadata import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FindCoordinatorRequest,
    MetadataRequest,
)
from kafka.protocol.producer import InitProducerIdRequest, ProduceRequest

MAX_REQUEST_BYTES = 100 * 2**20
_LONGEST_NUMBER = 5  # bytes

# Request class and the oldest and newest version served. All but ApiVersions and Metadata, whose version 10 tells a
# topic's identity, stay below the "flexible" versions; in those, "tagged fields" follow each header.
# librdkafka turns compression off unless Produce 0 is offered, so it is, and refused when used.
SERVED: dict[int, tuple[Any, int, int]] = {
    ApiKey.Produce: (ProduceRequest, 0, 8),
    ApiKey.Fetch: (FetchRequest, 4, 11),
    ApiKey.ListOffsets: (ListOffsetsRequest, 1, 5),
    ApiKey.Metadata: (MetadataRequest, 0, 10),
    ApiKey.OffsetCommit: (OffsetCommitRequest, 2, 7),
    ApiKey.OffsetFetch: (OffsetFetchRequest, 1, 5),
    ApiKey.FindCoordinator: (FindCoordinatorRequest, 0, 2),
    ApiKey.JoinGroup: (JoinGroupRequest, 0, 5),
    ApiKey.Heartbeat: (HeartbeatRequest, 0, 3),
    ApiKey.LeaveGroup: (LeaveGroupRequest, 0, 3),
    ApiKey.SyncGroup: (SyncGroupRequest, 0, 3),
    ApiKey.ListGroups: (ListGroupsRequest, 0, 2),
    ApiKey.ApiVersions: (ApiVersionsRequest, 0, 4),
    ApiKey.CreateTopics: (CreateTopicsRequest, 2, 4),
    ApiKey.DeleteTopics: (DeleteTopicsRequest, 1, 3),
    ApiKey.InitProducerId: (InitProducerIdRequest, 0, 1),
    ApiKey.DescribeConfigs: (DescribeConfigsRequest, 1, 2),
    ApiKey.CreatePartitions: (CreatePartitionsRequest, 0, 1),
    ApiKey.IncrementalAlterConfigs: (IncrementalAlterConfigsRequest, 0, 0),
}

_REQUEST_HEADER = struct.Struct(">hhih")
_RESPONSE_HEADER = struct.Struct(">ii")


class MalformedRequest(Exception):
    """The bytes are no request this broker serves; the connection is closed, as Apache Kafka does."""


@dataclass(frozen=True)
class Call:
    """One request: the protocol class's decoded `body`, and what its header said."""

    key: int
    version: int
    correlation_id: int
    client_id: str
    body: Any


def read_call(frame: memoryview) -> Call:
    """Decode a request without its length field; raises MalformedRequest.

    An ApiVersions request has `body` None: nothing in it matters, and its version may be unknown.
    """
    try:
        key, version, correlation_id, client_length = _REQUEST_HEADER.unpack_from(frame)
        body_start = _REQUEST_HEADER.size + max(client_length, 0)
        client_id = bytes(frame[_REQUEST_HEADER.size : body_start]).decode()
        if key == ApiKey.ApiVersions:
            return Call(key, version, correlation_id, client_id, None)
        request, oldest, newest = SERVED[key]
        if not oldest <= version <= newest:
            raise MalformedRequest(f"version {version} of request type {key} is not served")
        if request.flexible_version_q(version):
            body_start = _after_tagged_fields(frame, body_start)
        body = request.decode(frame[body_start:], version=version)
    except (KeyError, ValueError, IndexError, struct.error) as error:
        raise MalformedRequest(f"a request could not be decoded: {error}") from error
    return Call(key, version, correlation_id, client_id, body)


def _after_tagged_fields(frame: memoryview, start: int) -> int:
    """Where the tagged fields that begin at `start` end; nobody needs to know what they say."""
    fields, place = _unsigned(frame, start)
    for _ in range(fields):
        _, place = _unsigned(frame, place)
        size, place = _unsigned(frame, place)
        place += size
    return place


def _unsigned(frame: memoryview, start: int) -> tuple[int, int]:
    """A number of variable length, seven bits a byte, and where it ends.  Raises IndexError, ValueError."""
    number = 0
    for place in range(start, start + _LONGEST_NUMBER):
        number |= (frame[place] & 0x7F) << 7 * (place - start)
        if frame[place] < 0x80:
            return number, place + 1
    raise ValueError("a number has no end")


def response_bytes(call: Call, response: Any) -> tuple[bytes, bytearray]:
    """A response as (length and header, body), so that a large body is not copied once more."""
    version = call.version
    if call.key == ApiKey.ApiVersions and version > SERVED[ApiKey.ApiVersions][2]:
        version = 0  # how a client that asked for too new a version is told the right ones
    body = response.encode(version=version)
    # The header of an answer to ApiVersions is never flexible: its reader may not know that version.
    flexible = call.key != ApiKey.ApiVersions and response.flexible_version_q(version)
    tagged_fields = b"\0" if flexible else b""
    header = _RESPONSE_HEADER.pack(4 + len(tagged_fields) + len(body), call.correlation_id)
    return header + tagged_fields, body


def api_versions(call: Call) -> Any:
    """The answer to ApiVersions: what this broker serves."""
    known = call.version <= SERVED[ApiKey.ApiVersions][2]
    versions = [
        ApiVersionsResponse.ApiVersion(api_key=int(key), min_version=oldest, max_version=newest)
        for key, (_, oldest, newest) in SERVED.items()
    ]
    error_code = 0 if known else UnsupportedVersionError.errno
    return ApiVersionsResponse(error_code=error_code, api_keys=versions, throttle_time_ms=0)
