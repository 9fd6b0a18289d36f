"""One row of CSV as values: its columns by number and, if there is a header, by name."""

import csv
from collections.abc import Callable
from io import StringIO

from stream_dp.config.secret import SettingsError
from stream_dp.events.event import BadRecord
from stream_dp.events.mapping.paths import NO_ROW, Value

COLUMNS = "columns"
"""The name of the list of all columns, beside the names that a header gives."""


def csv_reader(delimiter: str, header: str | None) -> Callable[[str], Value]:
    """A function from the text of a record to its columns; a record that repeats the header brings no row.

    Raises `SettingsError` for a header that names no columns; the function raises `BadRecord`.
    """
    names = None if header is None else column_names(header, delimiter)

    def read(text: str) -> Value:
        row = _row(text, delimiter)
        if names is None:
            return {COLUMNS: row}
        if row == names:
            return NO_ROW
        if len(row) != len(names):
            raise BadRecord("it has not as many columns as the header")
        return {**dict(zip(names, row, strict=True)), COLUMNS: row}

    return read


def column_names(header: str, delimiter: str) -> list[str]:
    """The names that a header gives to the columns.  Raises `SettingsError`."""
    if len(delimiter) != 1 or delimiter in '"\r\n':
        raise SettingsError(
            f"[events] delimiter has to be one character such as a semicolon, not {delimiter!r}"
        )
    try:
        names = _row(header, delimiter)
    except BadRecord as bad:
        raise SettingsError(f"[events] header is no row of CSV: {bad}") from None
    if len({*names, COLUMNS}) <= len(names) or "" in names:
        raise SettingsError(
            f"[events] header has to give each column a name of its own, which is neither empty nor {COLUMNS!r}"
        )
    return names


def _row(text: str, delimiter: str) -> list[str]:
    try:
        rows = list(csv.reader(StringIO(text, newline=""), delimiter=delimiter, strict=True))
    except csv.Error:
        raise BadRecord("not a row of CSV") from None
    if len(rows) != 1 or not rows[0]:
        raise BadRecord("not one row of CSV")
    return rows[0]
