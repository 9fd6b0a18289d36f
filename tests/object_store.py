"""An object store of the tests, which speaks S3 on loopback: moto's server, in a thread of this process."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from moto.server import ThreadedMotoServer
from pyarrow import fs

BUCKET = "lake"


class ObjectStore:
    """A store with one bucket."""

    def __init__(self, address: str) -> None:
        self._files = fs.S3FileSystem(
            endpoint_override=address, allow_bucket_creation=True, connect_timeout=60, request_timeout=60
        )
        self._files.create_dir(BUCKET)

    def put(self, key: str, content: bytes) -> str:
        """Write an object; gives its name."""
        with self._files.open_output_stream(f"{BUCKET}/{key}", compression=None) as out:
            out.write(content)
        return f"s3://{BUCKET}/{key}"


@contextmanager
def object_store(patch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    """A store that answers within this block, and whose address and keys are in the environment."""
    server: Any = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        patch.setenv("AWS_ACCESS_KEY_ID", "somebody")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "something")
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        yield ObjectStore(os.environ["AWS_ENDPOINT_URL"])
    finally:
        server.stop()
