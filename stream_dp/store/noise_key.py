"""Where the 32-byte noise key comes from: Redis (made there when first needed), the environment, or a file.

Whoever holds the key can take the noise off every release.  It is never logged and never part of an error.
"""

import os
from collections.abc import Mapping
from typing import Any

from redis import Redis

from stream_dp.privacy.keyed_noise import KEY_BYTES, new_key
from stream_dp.secret import SettingsError, read_secret


class NoKey(Exception):
    """The noise key cannot be had; the message says what to do."""


def noise_key(
    source: str,
    redis: Redis,
    stream: str,
    may_create: bool,
    environment: Mapping[str, str] = os.environ,
) -> bytes:
    """The key that `source` names: `redis`, `env:<NAME>` or `file:<path>`, the latter two in hexadecimal.

    With `redis`, a key is made where `may_create` says that no epoch has used one yet.  Raises `NoKey`.
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
        redis.set(name, new_key(), nx=True)
    key: Any = redis.get(name)
    if key is None:
        raise NoKey(
            "Redis has lost the noise key of this stream: restore it from a backup, or open a new epoch, which is "
            "charged, with --new-epoch"
        )
    return _checked(key, "Redis")


def _parsed(text: str, place: str) -> bytes:
    try:
        return _checked(bytes.fromhex(text), place)
    except ValueError:
        raise NoKey(f"{place} does not hold a noise key of {2 * KEY_BYTES} hexadecimal digits") from None


def _checked(key: bytes, place: str) -> bytes:
    if len(key) != KEY_BYTES:
        raise NoKey(f"{place} holds a noise key of {len(key)} bytes instead of {KEY_BYTES}")
    return key
