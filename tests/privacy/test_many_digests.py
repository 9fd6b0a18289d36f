"""Digests of many texts at once are those that hashlib gives for each."""

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np
import pytest

from stream_dp.privacy.many_digests import CHAINED_BYTES, chained_digests, digests

RANDOM = np.random.default_rng(7)
KEYS = [RANDOM.bytes(size) for size in (1, 32, 64)]
TEXTS = [RANDOM.bytes(size) for size in (0, 1, 95, 96, 97, 127, 128, 129, 0, 256, 1_000)]
ALIKE = [
    RANDOM.bytes(size) for size in (*range(1, 129, 5), *range(129, 257, 7), *[0] * 9, *range(257, 385, 9))
]
"""Many that follow each other have as many blocks."""


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("size", [8, 16, 32])
@pytest.mark.parametrize("texts", [[], TEXTS[:1], TEXTS, ALIKE])
def test_each_is_that_of_its_text(key: bytes, size: int, texts: Sequence[bytes]) -> None:
    assert digests(key, texts, size) == [blake2b(text, key=key, digest_size=size).digest() for text in texts]


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("texts", [[], TEXTS[:1], TEXTS])
def test_in_a_chain_each_is_that_of_the_one_before_and_its_text(key: bytes, texts: Sequence[bytes]) -> None:
    last, expected = bytes(range(CHAINED_BYTES)), []
    for text in texts:
        last = blake2b(last + text, key=key, digest_size=CHAINED_BYTES).digest()
        expected.append(last)
    assert chained_digests(key, bytes(range(CHAINED_BYTES)), texts) == expected
    assert not texts or chained_digests(key, bytes(CHAINED_BYTES), texts) != expected
