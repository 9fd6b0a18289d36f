"""Files to read: on this machine, or objects of a store that speaks S3, which are called `s3://bucket/key`.

Keys, region and address of a store come from where AWS's own tools find them, and never from the name of a file:
whoever may name a file would otherwise choose where this process sends its signature.
"""

import io
import os
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, Protocol

import pyarrow as pa
from pyarrow import fs

from stream_dp.errors import ExtraMissing, Refused, StoreUnreachable, StreamDpError

OBJECT = "s3://"
"""What the name of an object begins with."""

State = tuple[int | str, ...]

_ADDRESS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
_REGION = ("AWS_REGION", "AWS_DEFAULT_REGION")
_NAME = re.compile(rf"{OBJECT}([A-Za-z0-9._-]+)/(.+)", re.DOTALL)
_BYTES_AT_ONCE = 1 << 23
_PATIENCE = {"connect_timeout": 10, "request_timeout": 60}
"""Seconds; the library's own 1 and 3 give up a store that is only busy."""
_DENIED = ("ACCESS_DENIED", "HTTP status 403", "INVALID_ACCESS_KEY_ID", "SIGNATURE_DOES_NOT_MATCH")
_GONE = ("NO_SUCH_KEY", "NO_SUCH_BUCKET", "RESOURCE_NOT_FOUND", "HTTP status 404")
_IDENTITY = ("Content-Length", "ETag", "Last-Modified", "VersionId")


class NoSuchObject(Refused):
    """The store has no such object, or does not let this process read it; the message says what to change."""


class StoredFile(Protocol):
    """A file that is read, perhaps several times and by several processes."""

    @property
    def name(self) -> str:
        """What people call it."""
        ...

    @property
    def state(self) -> State:
        """What no change of the content leaves as it was.  PRIVATE: it tells the size.  Raises OSError."""
        ...

    @property
    def mark(self) -> str:
        """What changes when it is written again.  PRIVATE, like `state`.  Raises OSError."""
        ...

    @property
    def shared_state(self) -> State:
        """What of `state` is the same on all machines that have the file.  Raises OSError."""
        ...

    @property
    def size(self) -> int:
        """In bytes.  Raises OSError."""
        ...

    def open(self) -> IO[bytes]:
        """Its content, at any place.  Raises OSError for a file, `NoSuchObject`, `StoreUnreachable` for an object."""
        ...

    def open_for_arrow(self) -> Any:
        """The same, as Arrow reads it fastest."""
        ...


@dataclass(frozen=True)
class LocalFile:
    """A `StoredFile` on this machine, or on a disk that several machines have at the same path."""

    path: Path

    @property
    def name(self) -> str:
        """See `StoredFile.name`."""
        return str(self.path)

    @property
    def state(self) -> State:
        """See `StoredFile.state`."""
        status = self.path.stat()
        return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino

    @property
    def mark(self) -> str:
        """See `StoredFile.mark`."""
        status = self.path.stat()
        return f"{status.st_size}:{status.st_mtime_ns}:{status.st_ino}"

    @property
    def shared_state(self) -> State:
        """See `StoredFile.shared_state`."""
        status = self.path.stat()
        return status.st_size, status.st_mtime_ns

    @property
    def size(self) -> int:
        """See `StoredFile.size`."""
        return self.path.stat().st_size

    def open(self) -> IO[bytes]:
        """See `StoredFile.open`."""
        return self.path.open("rb")

    def open_for_arrow(self) -> Any:
        """See `StoredFile.open_for_arrow`."""
        return pa.OSFile(str(self.path))


@dataclass(frozen=True)
class StoredObject:
    """A `StoredFile` in an object store.  An object is replaced whole, and then has another tag."""

    bucket: str
    key: str

    @property
    def name(self) -> str:
        """See `StoredFile.name`."""
        return f"{OBJECT}{self.bucket}/{self.key}"

    @property
    def state(self) -> State:
        """See `StoredFile.state`."""
        with self._opened() as found:
            told = {name: value.decode() for name, value in found.metadata().items()}
        return tuple(told.get(name, "") for name in _IDENTITY)

    @property
    def mark(self) -> str:
        """See `StoredFile.mark`."""
        return ":".join(map(str, self.state))

    @property
    def shared_state(self) -> State:
        """See `StoredFile.shared_state`."""
        return self.state

    @property
    def size(self) -> int:
        """See `StoredFile.size`."""
        with self._opened() as found:
            return found.size()

    def open(self) -> IO[bytes]:
        """See `StoredFile.open`."""
        return io.BufferedReader(_ObjectReader(self, self._opened()), _BYTES_AT_ONCE)

    def open_for_arrow(self) -> Any:
        """See `StoredFile.open_for_arrow`."""
        return self.open()

    def _opened(self) -> pa.NativeFile:
        address = next((os.environ[name] for name in _ADDRESS if os.environ.get(name)), None)
        try:
            return _store(address, self.bucket).open_input_file(f"{self.bucket}/{self.key}")
        except OSError as error:
            raise self.told(error) from None

    def told(self, error: OSError) -> StreamDpError:
        """What an error of the store means."""
        if isinstance(error, FileNotFoundError) or any(word in str(error) for word in _GONE):
            return NoSuchObject(f"there is no object {self.name!r}: look at its bucket and key")
        if any(word in str(error) for word in _DENIED):
            return NoSuchObject(
                f"the store does not let {self.name!r} be read: give AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a "
                "profile, that may read it"
            )
        return StoreUnreachable(
            f"the store of {self.name!r} cannot be reached ({error}): see that it runs, and that AWS_ENDPOINT_URL "
            "names it if it is not that of AWS"
        )


class _ObjectReader(io.RawIOBase):
    """The bytes of an object.  Raises `StoreUnreachable`: an answer that is cut off is no end of the file."""

    def __init__(self, stored: StoredObject, found: pa.NativeFile) -> None:
        self._stored, self._found = stored, found

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return int(self._found.seek(offset, whence))

    def tell(self) -> int:
        return int(self._found.tell())

    def readinto(self, buffer: Any) -> int:
        try:
            return int(self._found.readinto(buffer))
        except OSError as error:
            raise self._stored.told(error) from None

    def close(self) -> None:
        if not self.closed:
            self._found.close()
        super().close()


def stored_file(name: str | Path) -> StoredFile:
    """The file that is called so.  Raises `NoSuchObject` for a name that no object can have."""
    if isinstance(name, Path) or not name.startswith(OBJECT):
        return LocalFile(Path(name))
    found = _NAME.fullmatch(name)
    if found is None or {"", ".", ".."} & set(found[2].split("/")):
        raise NoSuchObject(f"{name!r} names no object: write s3://bucket/key")
    return StoredObject(found[1], found[2])


@lru_cache
def _store(address: str | None, bucket: str) -> Any:
    """The `S3FileSystem` that has a bucket: AWS, or the store at an address.  Raises `ExtraMissing`, OSError."""
    try:
        kind = fs.S3FileSystem
    except ImportError:
        raise ExtraMissing(
            "this pyarrow was built without S3, so it reads no s3:// names: install the one that PyPI has"
        ) from None
    if address is not None:
        return kind(endpoint_override=address, **_PATIENCE)
    named = any(os.environ.get(name) for name in _REGION)
    return kind(region=None if named else fs.resolve_s3_region(bucket), **_PATIENCE)
