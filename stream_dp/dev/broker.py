"""An embedded broker that speaks Kafka's protocol, for trying out and for tests.

Run it with `python -m stream_dp.dev.broker --folder data`.
One node on the loopback interface: raw record batches in one file a partition, consumer groups and
idempotent producers.
It does not replicate, authenticate, delete by retention, compact, or run transactions (it refuses them).
"""

import argparse
import asyncio
import json
import os
import signal
import sys
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from kafka.protocol.api_key import ApiKey

from stream_dp.dev import group_requests, record_requests, topic_requests
from stream_dp.dev.atomic_file import write_atomically
from stream_dp.dev.broker_state import BrokerState, FolderInUse, open_state
from stream_dp.dev.partition_log import LogDamaged
from stream_dp.dev.private_folder import FOR_OTHERS, FolderNotPrivate
from stream_dp.dev.wire import (
    MAX_REQUEST_BYTES,
    MalformedRequest,
    api_versions,
    read_call,
    response_bytes,
)
from stream_dp.operations import stacks

READY_FILE = "broker.json"  # {"pid", "port"}: there while the broker accepts connections
_READ_AHEAD = 4 * 2**20

_ANSWERS: dict[int, Callable[[BrokerState, Any], Awaitable[Any]]] = {
    ApiKey.Produce: record_requests.produce,
    ApiKey.Fetch: record_requests.fetch,
    ApiKey.ListOffsets: record_requests.list_offsets,
    ApiKey.InitProducerId: record_requests.init_producer_id,
    ApiKey.Metadata: topic_requests.metadata,
    ApiKey.CreateTopics: topic_requests.create_topics,
    ApiKey.DeleteTopics: topic_requests.delete_topics,
    ApiKey.CreatePartitions: topic_requests.create_partitions,
    ApiKey.DescribeConfigs: topic_requests.describe_configs,
    ApiKey.IncrementalAlterConfigs: topic_requests.alter_configs,
    ApiKey.FindCoordinator: group_requests.find_coordinator,
    ApiKey.JoinGroup: group_requests.join_group,
    ApiKey.SyncGroup: group_requests.sync_group,
    ApiKey.Heartbeat: group_requests.heartbeat,
    ApiKey.LeaveGroup: group_requests.leave_group,
    ApiKey.OffsetCommit: group_requests.commit_offsets,
    ApiKey.OffsetFetch: group_requests.fetch_offsets,
    ApiKey.ListGroups: group_requests.list_groups,
}


async def serve(folder: Path, host: str, port: int) -> None:
    """Run until SIGTERM or SIGINT; `port` 0 takes a free one.

    Raises FolderInUse, and OSError if the port is taken.
    """
    state = open_state(folder, host, port)
    ready = folder / READY_FILE
    connections: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(_converse(state, reader, writer))
        connections.add(task)
        task.add_done_callback(connections.discard)

    try:
        server = await asyncio.start_server(accept, host, port, limit=_READ_AHEAD, backlog=128)
        state.port = server.sockets[0].getsockname()[1]
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        write_atomically(ready, json.dumps({"pid": os.getpid(), "port": state.port}))
        await stop.wait()
        ready.unlink(missing_ok=True)
        server.close()
        for task in connections:
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)
    finally:
        state.close()


async def _converse(state: BrokerState, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer one client's requests, one after the other, until it hangs up or sends what is no request."""
    try:
        while True:
            length = int.from_bytes(await reader.readexactly(4))
            if length > MAX_REQUEST_BYTES:
                raise MalformedRequest(f"a request of {length} bytes is too long")
            call = read_call(memoryview(await reader.readexactly(length)))
            if call.key == ApiKey.ApiVersions:
                response = api_versions(call)
            else:
                response = await _ANSWERS[call.key](state, call)
            if response is not None:
                writer.writelines(response_bytes(call, response))
                await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass  # the client hung up
    except MalformedRequest as malformed:
        print(f"connection closed: {malformed}", file=sys.stderr, flush=True)
    except Exception:  # a defect of the broker costs one connection and is told in its log
        traceback.print_exc()
    finally:
        writer.close()


def main() -> None:
    """Read the command line and serve; a user's mistake ends it with one sentence."""
    parser = argparse.ArgumentParser(
        description="Embedded Kafka-protocol broker, for trying out and for tests."
    )
    parser.add_argument("--folder", type=Path, required=True, help="where topics are kept")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument(
        "--port", type=int, default=9092, help="port, 0 for a free one (default: %(default)s)"
    )
    asked = parser.parse_args()
    stacks.tell_on_signal()
    os.umask(FOR_OTHERS)
    try:
        asyncio.run(serve(asked.folder, asked.host, asked.port))
    except (FolderInUse, FolderNotPrivate, LogDamaged) as error:
        sys.exit(f"stream-dp broker: {error}.")
    except OSError as error:
        sys.exit(
            f"stream-dp broker: cannot listen on {asked.host}:{asked.port} or use {asked.folder}: {error}."
        )


if __name__ == "__main__":
    main()
