"""Folders of the embedded servers: they hold raw events and the noise key, so they are their owner's alone."""

import os
import stat
from pathlib import Path

FOR_OTHERS = 0o077
"""The bits of a file's mode by which anybody but its owner could use it, and the umask that leaves them out."""


class FolderNotPrivate(Exception):
    """A folder is open to others and cannot be closed; the message says what to change."""


def private_folder(folder: Path) -> None:
    """Make `folder` where it does not exist, and close it and all that it holds to others.  Raises `FolderNotPrivate`.

    An older version may have left files there that others can read.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    paths = [folder]
    for inside, folders, files in os.walk(folder):
        paths += [Path(inside, name) for name in (*folders, *files)]
    for path in paths:
        try:
            mode = path.lstat().st_mode
            if not stat.S_ISLNK(mode) and mode & FOR_OTHERS:
                path.chmod(stat.S_IMODE(mode) & ~FOR_OTHERS)
        except FileNotFoundError:  # a temporary file
            continue
        except PermissionError:
            raise FolderNotPrivate(
                f"others can use {path}, which is to hold private data, and its rights cannot be changed by this user: "
                f"run `chmod -R go= {folder}` as its owner, or name another folder"
            ) from None
