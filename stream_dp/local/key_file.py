"""The key file of a histogram in your own program: its noise key, its epoch, and what it counted.

One key releases one log: whoever could let it release two would take noise off both.  So the file remembers a keyed
digest of all events up to each round, and a round is released only if its digest is the one that stands there.

The first line holds the key and the epoch as JSON, the second a keyed digest of the first: a bit that turned over in a
threshold would show labels that nothing protects.  The digests of the rounds follow, 16 bytes each.
"""

import os
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import msgspec

from stream_dp.engine.epoch import Epoch
from stream_dp.errors import Refused
from stream_dp.privacy.keyed_noise import KEY_BYTES, new_key

_VERSION = 1
_LONGEST_HEADER = 1 << 16
_DIGEST_BYTES = 16
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
        """Compare the digests of the rounds that come next with those of earlier runs, and remember the new ones.

        Raises `KeyFileRefused` at the first round of other events than before; nothing is remembered then.
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
        os.lseek(self._file, place + len(known), os.SEEK_SET)
        _write(self._file, wanted[len(known) :])
        self._checked += len(digests)

    def close(self) -> None:
        """Make sure that what was remembered is on the disk."""
        os.fsync(self._file)
        os.close(self._file)

    def __enter__(self) -> "KeyFile":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _make(path: Path, opened: Epoch) -> None:
    """Write a file with a new key at `path`, for its owner alone, unless there is one."""
    if path.exists():
        return
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    whole = path.with_name(f".{path.name}.{os.getpid()}.new")
    file = os.open(whole, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _BINARY, 0o600)
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
