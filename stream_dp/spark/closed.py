"""Whether Spark and its folder keep what is counted to themselves: how much that is, and which labels, is private."""

import os
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from stream_dp.errors import Refused

_EVERYWHERE = {
    "spark.ui.enabled": ("false", "true", "its page answers without a login, and shows how much was counted"),
    "spark.eventLog.enabled": ("false", "false", "its event log keeps plans, sizes and errors"),
    "spark.io.encryption.enabled": ("true", "false", "what it keeps on disk would be in the clear"),
}
_BETWEEN_MACHINES = {
    "spark.authenticate": ("true", "false", "anybody could run tasks, and read the noise key with them"),
    "spark.network.crypto.enabled": (
        "true",
        "false",
        "counts and settings would cross the network in the clear",
    ),
}
"""By setting: the value that it must have, the one that Spark takes without it, and why."""


class SparkOpen(Refused):
    """Spark would show what is private; the message says which settings to add."""


def require_closed(settings: Mapping[str, str]) -> None:
    """Raise `SparkOpen` unless these settings of a Spark application keep what it counts to itself."""
    is_local = settings.get("spark.master", "local").startswith("local")
    wanted = _EVERYWHERE if is_local else _EVERYWHERE | _BETWEEN_MACHINES
    wrong = {
        name: (value, why)
        for name, (value, default, why) in wanted.items()
        if settings.get(name, default).lower() != value
    }
    if wrong:
        reasons = "; ".join(f"{name} = {value}, else {why}" for name, (value, why) in wrong.items())
        raise SparkOpen(f"Spark would show what is private: set {reasons}")


def submit_line(master: str, words: Sequence[str]) -> str:
    """The command that runs these words, a program with its own, on the cluster of `master`, and keeps it closed."""
    wanted = [f"--conf {name}={value}" for name, (value, *_) in (_EVERYWHERE | _BETWEEN_MACHINES).items()]
    return " ".join(["spark-submit --master", shlex.quote(master), *wanted, shlex.join(words)])


class FolderOpen(Refused):
    """Others could read what is counted; the message says what to change."""


def require_private(folder: Path) -> None:
    """Raise `FolderOpen` unless `folder`, and all that is in it, is for the user of this process alone."""
    for path in (folder, *folder.rglob("*")):
        with suppress(FileNotFoundError):  # it was removed meanwhile
            status = path.stat()
            if status.st_uid != os.geteuid():
                raise FolderOpen(
                    f"{path} holds true counts, and belongs to another user: give it to this one"
                )
            if status.st_mode & 0o077:
                raise FolderOpen(
                    f"{path} holds true counts, and others may look into it: run chmod -R go-rwx {folder}"
                )
