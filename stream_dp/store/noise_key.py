"""Where the 32-byte noise key comes from: Redis (made there when first needed), the environment, or a file.

Whoever holds the key can take the noise off every release.  It is never logged and never part of an error.
"""

import os
from collections.abc import Mapping
from typing import Any

from redis import Redis
from redis.client import Pipeline as Transaction
from redis.exceptions import ResponseError

from stream_dp.config.secret import SettingsError, read_secret
from stream_dp.errors import Refused
from stream_dp.privacy.keyed_noise import KEY_BYTES, new_key

_OUT = "restore it from a backup, or open a new epoch, which is charged, with --new-epoch"


IN_REDIS = (
    "the noise key is in Redis, and is lost with it: then no epoch can continue and nothing can be verified; make one "
    "with `stream-dp key new --file noise.key`, and set noise_key before the first start or with --new-epoch"
)
"""What is told of a key in Redis, which does for trying out."""


class NoKey(Refused):
    """The noise key cannot be had; the message says what to do."""


def noise_key(
    source: str,
    redis: Redis,
    stream: str,
    may_create: bool,
    environment: Mapping[str, str] = os.environ,
) -> bytes:
    """The key that `source` names: `redis`, `env:<NAME>` or `file:<path>`, the latter two in hexadecimal.

    With `redis`, a key is made where `may_create` says that no epoch goes on under the one that should be there; what
    is there and cannot be a key is kept as `key:damaged`.  Raises `NoKey`.
    """
    kind, _, place = source.partition(":")
    if kind in ("env", "file"):
        try:
            text = read_secret("noise key", source, environment)
        except SettingsError as missing:
            raise NoKey(str(missing)) from None
        return _parsed(text, f"the environment variable {place}" if kind == "env" else f"the file {place}")
    name = f"stream_dp:{{{stream}}}:key"
    if may_create:
        redis.transaction(lambda transaction: _make(transaction, name), name)
    key = _held(redis, name)
    if key is None:
        raise NoKey(f"Redis has lost the noise key of this stream: {_OUT}")
    if len(key) != KEY_BYTES:
        raise NoKey(
            f"what Redis holds as the noise key of this stream does not have {KEY_BYTES} bytes: {_OUT}"
        )
    return key


def _held(redis: Redis, name: str) -> bytes | None:
    """What Redis holds as the key; nothing that could be one where it is no string."""
    try:
        key: Any = redis.get(name)
    except ResponseError as error:
        if "WRONGTYPE" not in str(error):
            raise
        return b""
    return key if key is None else bytes(key)


def _make(transaction: Transaction, name: str) -> None:
    """Make a key unless there is one."""
    held = _held(transaction, name)
    transaction.multi()
    if held is None or len(held) != KEY_BYTES:
        if held is not None:
            transaction.rename(name, f"{name}:damaged")
        transaction.set(name, new_key())


def _parsed(text: str, place: str) -> bytes:
    try:
        key = bytes.fromhex(text)
    except ValueError:
        raise NoKey(f"{place} does not hold a noise key of {2 * KEY_BYTES} hexadecimal digits") from None
    if len(key) != KEY_BYTES:
        raise NoKey(f"{place} holds a noise key of {len(key)} bytes instead of {KEY_BYTES}")
    return key
