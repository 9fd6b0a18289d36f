"""Where a command may draw to, known before it computes or charges anything."""

from importlib import import_module
from os import W_OK, access
from pathlib import Path

from stream_dp.cli.mistakes import Mistake
from stream_dp.errors import needs_extra

_KINDS = (".png", ".svg", ".pdf")


def check_picture(file: Path) -> None:
    """Refuse a file that no picture could be written to, or where nothing is installed that draws one."""
    folder = file.absolute().parent
    if file.suffix.lower() not in _KINDS:
        raise Mistake(f"cannot draw to {file}: let the name of the file end in .png, .svg or .pdf")
    if not folder.is_dir():
        raise Mistake(f"cannot draw to {file}: there is no folder {folder}")
    with needs_extra("--plot", "plot"):
        import_module("matplotlib")
    if file.is_dir() or not access(file if file.exists() else folder, W_OK):
        raise Mistake(f"cannot draw to {file}: it cannot be written")
