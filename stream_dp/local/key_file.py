"""The key file of a histogram in your own program: its noise key, its epoch, and what it counted.

One key releases one log: whoever could let it release two would take noise off both.  So the file remembers a keyed
digest of all events up to each round, and a round is released only if its digest is the one that stands there.  For
the same reason it is locked while it is open, and what it remembers is on the disk before anything is released.

The first line holds the key and the epoch as JSON, the second a keyed digest of the first: a bit that turned over in a
threshold would show labels that nothing protects.  The digests of the rounds follow, 16 bytes each.
"""

import os
import secrets
import sys
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import msgspec

from stream_dp.engine.epoch import Epoch
from stream_dp.errors import Refused
from stream_dp.privacy.keyed_noise import KEY_BYTES, new_key

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

_VERSION = 1
_LONGEST_HEADER = 1 << 16
_DIGEST_BYTES = 16
_LOCKED_BYTE = 1 << 40  # Windows locks bytes, here one that is behind all that is read and written
_BINARY = getattr(os, "O_BINARY", 0)  # Windows would write other line ends


class KeyFileRefused(Refused):
    """A key file cannot be used, or other events came than those that it was used for; the message says what to do."""


class _Header(msgspec.Struct, frozen=True):
    """The first line of the file."""

    v: int
    key: bytes
    epoch: Epoch


@dataclass
class KeyFile:
    """A key file that is open; `key` is secret: with it the noise can be taken off every release."""

    path: Path
    key: bytes
    epoch: Epoch
    _file: int
    _start: int
    _checked: int = 0

    @classmethod
    def open(cls, path: Path, opened: Epoch) -> "KeyFile":
        """The file at `path`, which is made for the epoch `opened` where there is none.  Raises `KeyFileRefused`."""
        try:
            _make(path, opened)
            file = os.open(path, os.O_RDWR | _BINARY)
        except OSError as error:
            raise KeyFileRefused(f"cannot use the key file {path}: {error.strerror}") from None
        try:
            _lock(file, path)
            read = os.read(file, _LONGEST_HEADER)
            line = read.partition(b"\n")[0]
            header = _decoded(line)
            sealed = b"" if header is None else line + b"\n" + _seal(header.key, line)
            if header is None or not read.startswith(sealed):
                raise KeyFileRefused(
                    f"{path} is not a key file, or is damaged: restore it, or name another one"
                )
            return cls(path, header.key, header.epoch, file, len(sealed))
        except BaseException:
            os.close(file)
            raise

    def check(self, digests: list[bytes]) -> None:
        """Compare the digests of the rounds that come next with those of earlier runs, and put the new ones on disk.

        Raises `KeyFileRefused` at the first round of other events than before, or if the disk takes nothing; then
        nothing may be released.
        """
        wanted = b"".join(digest[:_DIGEST_BYTES] for digest in digests)
        place = self._start + self._checked * _DIGEST_BYTES
        os.lseek(self._file, place, os.SEEK_SET)
        known = _read(self._file, len(wanted))
        known = known[: len(known) // _DIGEST_BYTES * _DIGEST_BYTES]  # of a write that was cut off
        if not wanted.startswith(known):
            pairs = zip(_pieces(known), _pieces(wanted), strict=False)
            other = next(number for number, (before, now) in enumerate(pairs, 1) if before != now)
            raise KeyFileRefused(
                f"round {self._checked + other:,} holds different events from last time: {self.path} has released "
                "that round already, and its key must release one log only. Give the same events in the same "
                "order and append new ones, or name another key_file, which spends (epsilon, delta) once more"
            )
        if new := wanted[len(known) :]:
            try:
                os.lseek(self._file, place + len(known), os.SEEK_SET)
                _write(self._file, new)
                os.fsync(self._file)
            except OSError as error:
                raise KeyFileRefused(f"cannot write the key file {self.path}: {error.strerror}") from None
        self._checked += len(digests)

    def close(self) -> None:
        """Let others use the file."""
        os.close(self._file)

    def __enter__(self) -> "KeyFile":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _lock(file: int, path: Path) -> None:
    """Keep everybody else out until the file is closed, this program included.  Raises `KeyFileRefused`."""
    try:
        if sys.platform == "win32":
            os.lseek(file, _LOCKED_BYTE, os.SEEK_SET)
            msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
            os.lseek(file, 0, os.SEEK_SET)
        else:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise KeyFileRefused(
            f"{path} is in use: close the Histogram that has it open, here or in another process, or name another "
            "key_file, which spends (epsilon, delta) once more"
        ) from None


def _make(path: Path, opened: Epoch) -> None:
    """Write a file with a new key at `path`, for its owner alone, unless there is one."""
    if path.exists():
        return
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    whole = path.with_name(f".{path.name}.{secrets.token_hex(8)}.new")
    file = os.open(whole, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BINARY, 0o600)
    try:
        key = new_key()
        line = msgspec.json.encode(_Header(_VERSION, key, opened))
        _write(file, line + b"\n" + _seal(key, line))
        os.fsync(file)
    finally:
        os.close(file)
    try:
        os.link(whole, path)  # fails where another program was faster; its key counts
    except FileExistsError:
        pass
    finally:
        whole.unlink()


def _decoded(line: bytes) -> _Header | None:
    try:
        header = msgspec.json.decode(line, type=_Header)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return header if header.v == _VERSION and len(header.key) == KEY_BYTES else None


def _seal(key: bytes, line: bytes) -> bytes:
    """The second line of the file."""
    return (
        blake2b(line, key=key, digest_size=_DIGEST_BYTES, person=b"sdp-key-file").hexdigest().encode() + b"\n"
    )


def _pieces(digests: bytes) -> list[bytes]:
    return [digests[place : place + _DIGEST_BYTES] for place in range(0, len(digests), _DIGEST_BYTES)]


def _read(file: int, size: int) -> bytes:
    found = b""
    while len(found) < size and (more := os.read(file, size - len(found))):
        found += more
    return found


def _write(file: int, data: bytes) -> None:
    while data:
        data = data[os.write(file, data) :]
