"""What files are called in `stream_dp.sources`, and in the headers of replayed rows: by a keyed digest of their bytes.

A plain hash would confirm a guess: whoever knows all rows of a file but one could try each value of the last.  The key
is one for everybody who uses this Redis, so that a file has one name.  It is made when the first file is named.
"""

import hmac
from collections.abc import Callable
from typing import Any

from redis import Redis

from stream_dp.epochs.registry import TOPIC, Registry
from stream_dp.events.stored_files import StoredFile
from stream_dp.privacy.keyed_noise import key_check, new_key, subkey
from stream_dp.store.ledger_records import LedgerRefused

FILE_KEY = "stream_dp:files:key"
"""The name in Redis of the key.  SECRET."""

_BYTES_AT_ONCE = 1 << 20


def file_key(registry: Registry, redis: Redis, may_create: bool = False, anew: bool = False) -> bytes | None:
    """The key that names files; None if there is none yet and none may be made.

    Raises `LedgerRefused` if files were registered under another key, unless names are to begin `anew`.
    """
    held: Any = redis
    key = held.get(FILE_KEY)
    registered = registry.file_key
    if registered not in (None, key and key_check(key)) and not anew:
        raise LedgerRefused(
            f"the files in {TOPIC!r} were registered under a key that Redis does not hold under {FILE_KEY!r}: restore "
            "that from a backup of Redis, or register every file again, under the source that it had, beginning with "
            "`stream-dp source register --new-key`"
        )
    if key is None and may_create:
        held.setnx(FILE_KEY, new_key())
        key = held.get(FILE_KEY)
    return key if key is None else bytes(key)


def file_name(
    file: StoredFile, key: bytes, progress: Callable[[int, int], None] = lambda done, total: None
) -> str:
    """HMAC-SHA-256 of a file's bytes: a copy has the same, whatever it is called.  Raises OSError."""
    digest, done, total = hmac.new(subkey(key, b"file"), digestmod="sha256"), 0, file.size
    with file.open() as content:
        while chunk := content.read(_BYTES_AT_ONCE):
            digest.update(chunk)
            done += len(chunk)
            progress(done, total)
    return digest.hexdigest()
