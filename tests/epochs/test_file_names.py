"""The key that names files: made once, and nothing is named by another one unless an operator says so."""

from types import SimpleNamespace
from typing import Any

import pytest

from stream_dp.epochs.file_names import FILE_KEY, file_key
from stream_dp.epochs.registry import Registry
from stream_dp.privacy.keyed_noise import key_check
from stream_dp.store.ledger_records import LedgerDamaged, LedgerRefused


class OneRedis(dict[str, bytes]):
    """What is asked of Redis."""

    def setnx(self, name: str, value: bytes) -> None:
        self.setdefault(name, value)


def registry(file_key: str | None = None) -> Any:
    return SimpleNamespace(file_key=file_key)


def test_there_is_one_key_and_one_that_is_lost_is_not_replaced_unasked() -> None:
    redis: Any = OneRedis()
    assert file_key(registry(), redis) is None
    key = file_key(registry(), redis, may_create=True)
    assert key is not None
    registered = registry(key_check(key))
    assert file_key(registered, redis, may_create=True) == key
    for lost in (OneRedis(), OneRedis({FILE_KEY: bytes(32)}), OneRedis({FILE_KEY: key[:-1]})):
        other: Any = lost
        with pytest.raises(LedgerRefused, match=r"restore that from a backup .* --new-key"):
            file_key(registered, other, may_create=True)
        assert file_key(registered, other, may_create=True, anew=True) != key


def test_a_file_that_is_named_without_a_key_is_refused() -> None:
    books = Registry.__new__(Registry)
    books._found, books._sources, books._ledgers, books.file_key = {}, {}, {}, None
    record = b'{"v":1,"kind":"file","name":"9f","source":"x","unit":"event","by":"b","at":"a"%b}'
    with pytest.raises(LedgerDamaged, match="confirms guesses of its rows: delete the topic"):
        books.take(record % b"")
    books.take(record % b',"key":"00"')
    assert books.file_key == "00"
