"""What commands print: on standard output, and how far they are on the error output.

Standard output is as wide as the terminal, and never wrapped where a program or a file reads it.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

_UNWRAPPED = 100_000
_BARS = 80
_SPACED = (0, 2, 0, 0)


def output() -> Console:
    """What commands print to.  Without a terminal no line is folded, so that `grep` and `cut` find whole lines."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = _UNWRAPPED
    return console


def picture_width(console: Console) -> int:
    """How wide a picture of characters may be there."""
    return console.width if console.is_terminal else _BARS


def facts(rows: Iterable[tuple[str, str]]) -> Table:
    """Names in bold, each with what is known of it."""
    table = Table(show_header=False, box=None, padding=_SPACED)
    table.add_column()
    table.add_column(overflow="fold")
    for name, fact in rows:
        table.add_row(f"[bold]{name}[/]", fact)
    return table


def spaced(*left: str, right: Iterable[str] = (), title: str | None = None) -> Table:
    """A table without rows, with columns of words and then columns of numbers."""
    table = Table(box=None, padding=_SPACED, title=title, title_justify="left", title_style="bold")
    for name in left:
        table.add_column(name)
    for name in right:
        table.add_column(name, justify="right", no_wrap=True)
    return table


@contextmanager
def progress_bar(what: str, hidden: bool = False) -> Iterator[Callable[[int, int], None]]:
    """A bar on the error output, moved by what is done and how much there is."""
    with Progress(console=Console(stderr=True), transient=True, disable=hidden) as bar:
        task = bar.add_task(what)
        yield lambda done, of: bar.update(task, completed=done, total=of)


@contextmanager
def steps_bar(what: str, steps: int, hidden: bool = False) -> Iterator[Callable[..., None]]:
    """A bar on the error output, moved by each call by one step, or by so many; it may say what comes next."""
    with Progress(console=Console(stderr=True), transient=True, disable=hidden) as bar:
        task = bar.add_task(what, total=steps)

        def step(done: int = 1, what: str | None = None) -> None:
            bar.update(task, advance=done, description=what)

        yield step
