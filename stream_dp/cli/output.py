"""Standard output: as wide as the terminal, and never wrapped where a program or a file reads it."""

from rich.console import Console

_UNWRAPPED = 100_000
_BARS = 80


def output() -> Console:
    """What commands print to.  Without a terminal no line is folded, so that `grep` and `cut` find whole lines."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = _UNWRAPPED
    return console


def picture_width(console: Console) -> int:
    """How wide a picture of characters may be there."""
    return console.width if console.is_terminal else _BARS
