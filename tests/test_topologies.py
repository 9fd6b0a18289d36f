"""What Faust does around a service, and what it is kept from."""

import tempfile
from pathlib import Path

import faust
import pytest

from stream_dp.config.settings import Settings
from topologies.host import hosted


async def test_an_app_makes_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where everybody may write, its name would be known before."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    app = hosted(faust.Service(), "shop.running-histogram", Settings(stream="shop"))
    await app.on_first_start()
    assert not list(tmp_path.iterdir())
