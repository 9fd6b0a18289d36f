"""The reader meets records that are no releases, and goes on to those that are."""

import time
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from stream_dp.config.settings import Settings
from stream_dp.dashboard.board import Board
from stream_dp.dashboard.guarantee import guarantee
from stream_dp.dashboard.reader import Reader
from stream_dp.engine.epoch import Epoch
from stream_dp.epochs.journal import EpochOpened, EpochStarted
from stream_dp.privacy.keyed_noise import key_check
from stream_dp.releases.whole_release import decode_whole_release
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


@pytest.mark.parametrize("unmetered", [True, False])
def test_an_epoch_without_a_budget_is_said_beside_its_guarantee(unmetered: bool) -> None:
    reader = Reader("fake:1", "flights.releases", "flights.results", Board())
    epoch = Epoch.open(Settings(stream="flights"), 1, 0)
    opened = EpochOpened(epoch, key_check(bytes(32)), 0, unmetered)
    shown = msgspec.structs.replace(release(7, {"a": 300}), nonce=epoch.nonce.hex())
    reader.board.take(shown, 0.0, 0.0, 0, time.monotonic(), live=True)
    version = reader.board.version
    values = [msgspec.json.encode(each) for each in (opened, EpochStarted(1))]
    records: list[Any] = [SimpleNamespace(value=value) for value in (*values, *FOREIGN.values())]
    reader._take_epochs(records)
    assert reader.board.is_unmetered(shown) == unmetered
    assert not reader.board.is_unmetered(release(7, {"a": 300}))
    assert reader.board.version - version == unmetered
    assert ("UNMETERED" in guarantee(shown, reader.board.is_unmetered(shown))) == unmetered


@pytest.mark.parametrize("value", FOREIGN.values(), ids=FOREIGN)
def test_a_record_that_is_no_release_is_passed_over(value: bytes | None) -> None:
    reader = Reader("fake:1", "flights.releases", "flights.results", Board())
    shown = decode_whole_release(msgspec.json.encode(release(7, {"a": 300})))
    records: list[Any] = [
        SimpleNamespace(offset=offset, timestamp=0, value=content)
        for offset, content in enumerate((value, msgspec.json.encode(shown)))
    ]
    reader._take_releases(Consumer(), records)
    assert reader.board.view(time.monotonic()).release == shown
