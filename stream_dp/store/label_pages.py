"""The text of labels as Redis keeps it: a list of pages, which hold what `LabelTexts.code` gives, one after the other.

All pages but the last are full, so a checkpoint replaces at most one page and appends others, however few labels each
checkpoint adds.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from redis import Redis
from redis.client import Pipeline as Transaction

from stream_dp.engine.label_texts import LabelTexts
from stream_dp.store.checkpoint_records import damaged
from stream_dp.store.fence import damage_of

PAGE = 1 << 16
_AT_ONCE = 1 << 8  # pages


def read_pages(redis: Redis, key: str, first: int, end: int) -> Iterator[bytes]:
    """The pages from `first` up to `end` that are there."""
    with damage_of("labels"):
        for start in range(first, end, _AT_ONCE):
            pages: Any = redis.lrange(key, start, min(start + _AT_ONCE, end) - 1)
            if not pages:
                return
            yield from pages


def from_last_page(labels: LabelTexts, there: int) -> bytes:
    """What `write_pages` needs where Redis holds the first `there` bytes."""
    return labels.code(there - there % PAGE).tobytes()


def write_pages(transaction: Transaction, key: str, code: bytes, there: int) -> None:
    """Write what `from_last_page` gave."""
    if len(code) == there % PAGE:
        return
    if there % PAGE:
        transaction.rpop(key)
    for start in range(0, len(code), PAGE):
        transaction.rpush(key, code[start : start + PAGE])


def with_code(labels: LabelTexts, code: bytes | bytearray, size: int) -> LabelTexts:
    """These labels and those that `code` adds, `size` in all.  Raises `StateDamaged`."""
    try:
        found = labels.copy()
        found.extend_code(np.frombuffer(code, np.uint8), size - len(labels))
    except ValueError:
        raise damaged("labels") from None
    return found
