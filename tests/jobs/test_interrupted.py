"""Reading that somebody interrupts, as a cancelled job does, ends there and says nothing more."""

import gc
import sys
from pathlib import Path

import pytest

from stream_dp.jobs import csv_rows
from stream_dp.jobs.file_rows import read_file
from stream_dp.jobs.request import Source
from stream_dp.jobs.rows import RowCollector
from stream_dp.jobs.source_file import find_file
from tests.jobs.test_rows import FORMATS, some_pairs


class Interrupted(Exception):
    """What somebody raises who asks that reading end."""


@pytest.mark.parametrize("name", FORMATS)
def test_reading_that_is_interrupted_ends_quietly(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv_rows, "_BLOCK_BYTES", 1_000)
    gc.collect()  # what other tests have left may say something
    gc.freeze()  # and need not be looked at again
    said: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", said.append)
    FORMATS[name](tmp_path / name, some_pairs(1_000))

    def interrupt(done: int, total: int) -> None:
        raise Interrupted

    file = find_file(Source(file=str(tmp_path / name)), "user")
    with pytest.raises(Interrupted):
        read_file(file, "user", RowCollector(), interrupt)
    gc.collect()
    assert not said
