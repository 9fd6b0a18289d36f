"""The reader meets records that are no releases, and goes on to those that are."""

import time
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from stream_dp.dashboard.board import Board
from stream_dp.dashboard.reader import Reader
from stream_dp.releases.topic import decode_whole_release
from tests.example_releases import release

FOREIGN = {
    "no value": None,
    "no JSON": b"no release",
    "no UTF-8": b'{"stream":"\xff"}',
    "nested too deep": b'{"unknown":' + b"[" * 100_000,
    "another stream": msgspec.json.encode(msgspec.structs.replace(release(9, {}), stream="another")),
}


class Consumer:
    """What the reader asks its consumer while it takes releases."""

    def highwater(self, _: object) -> int:
        return 2


@pytest.mark.parametrize("value", FOREIGN.values(), ids=FOREIGN)
def test_a_record_that_is_no_release_is_passed_over(value: bytes | None) -> None:
    reader = Reader("fake:1", "flights.releases", "flights.results", Board())
    shown = decode_whole_release(msgspec.json.encode(release(7, {"a": 300})))
    records: list[Any] = [
        SimpleNamespace(offset=offset, timestamp=0, value=content)
        for offset, content in enumerate((value, msgspec.json.encode(shown)))
    ]
    reader._take_releases(Consumer(), records)
    assert reader.board.sight(time.monotonic()).release == shown
