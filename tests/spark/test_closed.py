"""What Spark must be told before it may count a stream."""

import os
import re
import shlex
from pathlib import Path

import pytest

from stream_dp.spark.closed import FolderOpen, SparkOpen, require_closed, require_private, submit_line

LOCAL = {"spark.master": "local[2]", "spark.ui.enabled": "false", "spark.io.encryption.enabled": "True"}
CLUSTER = LOCAL | {
    "spark.master": "spark://host:7077",
    "spark.authenticate": "true",
    "spark.network.crypto.enabled": "true",
}


def test_what_is_closed_is_let_through() -> None:
    require_closed(LOCAL)
    require_closed(CLUSTER)


@pytest.mark.parametrize("name", [name for name in CLUSTER if name != "spark.master"])
def test_each_setting_is_asked_for(name: str) -> None:
    left_out = {other: value for other, value in CLUSTER.items() if other != name}
    with pytest.raises(SparkOpen, match=re.escape(f"set {name} = ")):
        require_closed(left_out)


def test_an_event_log_is_refused_on_one_machine_too() -> None:
    with pytest.raises(SparkOpen, match=r"set spark\.eventLog\.enabled = false"):
        require_closed(LOCAL | {"spark.eventLog.enabled": "true"})


def test_the_command_for_a_cluster_says_all_that_is_asked_for() -> None:
    words = shlex.split(submit_line("spark://host:7077", ["a program.py", "spark", "--state", "a folder"]))
    assert words[:3] == ["spark-submit", "--master", "spark://host:7077"]
    assert words[-4:] == ["a program.py", "spark", "--state", "a folder"]
    assert {*words[3:-4:2]} == {"--conf"}
    said = dict(word.split("=") for word in words[4:-4:2])
    require_closed(said | {"spark.master": words[2]})


def test_a_folder_that_others_may_look_into_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    (folder / "shop").mkdir(mode=0o700, parents=True)
    folder.chmod(0o700)
    file = folder / "shop" / "turn-1.0"
    file.touch(mode=0o600)
    require_private(folder)
    for path in (folder, folder / "shop", file):
        mode = path.stat().st_mode
        for bit in (0o001, 0o002, 0o004, 0o010, 0o020, 0o040):
            path.chmod(mode | bit)
            with pytest.raises(FolderOpen, match=re.escape(f"{path} holds true counts, and others may look")):
                require_private(folder)
        path.chmod(mode)
    require_private(folder)


def test_a_folder_of_somebody_else_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o700)
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    with pytest.raises(FolderOpen, match="belongs to another user"):
        require_private(tmp_path)
