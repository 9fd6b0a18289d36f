"""What Spark's Python processes say when they fail: Spark writes it to its logs, so no row and no label is in it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from traceback import extract_tb


class TaskFailed(Exception):
    """A task has failed.  The message has the kind of the error, and what it says or which lines of code led to it."""


@contextmanager
def untold(*spoken: type[Exception]) -> Iterator[None]:
    """Let all errors but those that are `spoken` say nothing of the data.  Raises `TaskFailed`."""
    try:
        yield
    except spoken as failure:
        raise TaskFailed(f"{type(failure).__name__}: {failure}") from None
    except Exception as failure:
        lines = [f"{Path(each.filename).name}:{each.lineno}" for each in extract_tb(failure.__traceback__)]
        raise TaskFailed(f"{type(failure).__name__} in {' > '.join(lines)}") from None
