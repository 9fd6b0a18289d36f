"""`stream-dp key new`: a key that only its owner may read, that is never shown and never replaced."""

import json
import os
import stat
from pathlib import Path

import pytest
from redis import Redis
from typer.testing import CliRunner

from stream_dp.cli import app
from stream_dp.store.noise_key import noise_key


def made(file: Path) -> tuple[int, str]:
    ran = CliRunner().invoke(app, ["key", "new", "--file", str(file)])
    return ran.exit_code, ran.output


def key_in(file: Path) -> bytes:
    return noise_key(f"file:{file}", Redis(), "s", may_create=False)


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_a_key_is_for_its_owner_alone_and_not_shown(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        status, told = made(tmp_path / "key")
    finally:
        os.umask(before)
    assert status == 0
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600
    assert len(key_in(tmp_path / "key")) == 32
    assert (tmp_path / "key").read_text().strip() not in told


def test_machines_are_told_the_setting_and_not_the_key(tmp_path: Path) -> None:
    file = tmp_path / "key"
    ran = CliRunner().invoke(app, ["key", "new", "--file", str(file), "--json"])
    assert json.loads(ran.stdout) == {"file": str(file), "noise_key": f"file:{file}"}
    assert len(key_in(file)) == 32


def test_no_two_keys_are_the_same(tmp_path: Path) -> None:
    assert (made(tmp_path / "a")[0], made(tmp_path / "b")[0]) == (0, 0)
    assert key_in(tmp_path / "a") != key_in(tmp_path / "b")


def test_a_key_is_never_replaced(tmp_path: Path) -> None:
    file, link = tmp_path / "key", tmp_path / "link"
    made(file)
    before = file.read_bytes()
    link.symlink_to(tmp_path / "elsewhere")
    for place in (file, link):
        status, told = made(place)
        assert (status, told.count("\n")) == (2, 1)
        assert "exists" in told
    assert file.read_bytes() == before
    assert not (tmp_path / "elsewhere").exists()


def test_a_place_that_cannot_be_is_said(tmp_path: Path) -> None:
    status, told = made(tmp_path / "none" / "key")
    assert status == 2
    assert "No such file" in told
