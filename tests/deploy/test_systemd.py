"""The units of systemd: accepted by systemd itself, running commands that exist, closed to the rest of the machine."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.docs.commands import parse

FOLDER = Path(__file__).parents[2] / "deploy" / "systemd"
PROGRAM = "/opt/stream-dp/bin/stream-dp"
PARTS = {
    "stream-dp-private@": ("worker", "barriers"),
    "stream-dp-public@": ("table", "windows", "history"),
    "stream-dp-dashboard": ("",),
}
"""Each unit, and what it may be started for."""
ALL = [(unit, part) for unit, parts in PARTS.items() for part in parts]


def text(unit: str) -> str:
    return (FOLDER / f"{unit}.service").read_text()


def test_there_are_no_others() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {f"{unit}.service" for unit in PARTS}


@pytest.mark.parametrize(("unit", "part"), ALL)
def test_the_command_exists_and_the_head_names_the_part(unit: str, part: str) -> None:
    [command] = re.findall(r"^ExecStart=(.+)", text(unit), flags=re.MULTILINE)
    program, *words = shlex.split(command.replace("%i", part))
    assert program == PROGRAM
    assert parse(words).startswith("stream-dp ")
    assert f"@{part}" in text(unit).splitlines()[0] or not part


def test_only_parts_that_see_events_are_given_the_key_and_the_way_to_redis() -> None:
    given = {unit: re.findall(r"^EnvironmentFile=(.+)", text(unit), flags=re.MULTILINE) for unit in PARTS}
    assert given == {
        "stream-dp-private@": ["/etc/stream-dp/private.env"],
        "stream-dp-public@": ["-/etc/stream-dp/public.env"],
        "stream-dp-dashboard": ["-/etc/stream-dp/public.env"],
    }


@pytest.mark.parametrize(("unit", "part"), ALL)
@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd is not installed here")
def test_systemd_accepts_it_and_finds_little_to_attack(unit: str, part: str, tmp_path: Path) -> None:
    name = f"{unit}{part}.service"
    (tmp_path / name).write_text(text(unit).replace(PROGRAM, "/bin/true"))
    verified = subprocess.run(
        ["systemd-analyze", "verify", str(tmp_path / name)], capture_output=True, text=True, check=False
    )
    assert (verified.returncode, [line for line in verified.stderr.splitlines() if unit in line]) == (0, [])
    command = ["systemd-analyze", "security", "--offline=true", "--threshold=20", "--no-pager"]
    subprocess.run([*command, str(tmp_path / name)], check=True, stdout=subprocess.DEVNULL)


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd is not installed here")
def test_a_unit_with_a_mistake_would_be_noticed(tmp_path: Path) -> None:
    wrong = tmp_path / "stream-dp-dashboard.service"
    wrong.write_text(
        text("stream-dp-dashboard").replace(PROGRAM, "/bin/true").replace("RestartSec", "RestartSecs")
    )
    verified = subprocess.run(
        ["systemd-analyze", "verify", str(wrong)], capture_output=True, text=True, check=False
    )
    assert "RestartSecs" in verified.stderr
