"""Replace a small file in one step, for the embedded servers (trying out and tests)."""

import os
from pathlib import Path


def write_atomically(path: Path, text: str) -> None:
    """Put `text` at `path`: a reader, or a restart after a crash, sees the old or the new file whole."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.new")
    with open(temporary, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
