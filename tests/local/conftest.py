"""A key file for each test."""

from pathlib import Path

import pytest


@pytest.fixture
def key(tmp_path: Path) -> Path:
    return tmp_path / "shop.key"
