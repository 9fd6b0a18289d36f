"""The file of a source, found before anything is charged: which columns are read, and why a file is refused.

JSON Lines of events, CSV (commas, semicolons or tabs between) and Parquet; the first two also as .gz.  Only the name,
the kind and the columns of a file may be refused.
"""

import gzip
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal, cast

import pyarrow as pa
import pyarrow.parquet as pq

from stream_dp.config.file_kinds import kind_of
from stream_dp.errors import ExtraMissing
from stream_dp.events.stored_files import OBJECT, LocalFile, NoSuchObject, State, StoredFile, stored_file
from stream_dp.jobs.column_rows import fields, find_column
from stream_dp.jobs.csv_rows import as_utf8, csv_header
from stream_dp.jobs.request import BadRequest, Source, Unit

DAMAGE = (pa.ArrowException, OSError, EOFError, UnicodeError, zlib.error)
"""What reading a damaged file raises."""

_SEPARATORS = (",", ";", "\t")
_MANY = {"item": "items", "user": "users", "query": "queries"}


@dataclass(frozen=True)
class RowFile:
    """A file that can be read: its kind and the columns to read; JSON Lines have none.

    `separator` is that of CSV; `query` the column of what votes are about, if they are votes.
    """

    stored: StoredFile
    kind: Literal["jsonl", "csv", "parquet"]
    user: str = ""
    item: str = ""
    separator: str = ","
    query: str = ""

    @property
    def mark(self) -> str:
        """What changes when the file is written again.  PRIVATE: it tells the file's size."""
        return self.stored.mark

    @property
    def state(self) -> State:
        """What no change of the content leaves as it was.  PRIVATE like the mark."""
        return self.stored.state


def locate(source: Source, folder: Path | str | None = None) -> StoredFile:
    """The file of a source, below `folder` where one is given; raises `BadRequest`.

    A folder is one of this machine, or `s3://bucket/prefix`.
    """
    try:
        file = _named(source.file or "", folder)
        if isinstance(file, LocalFile) and not file.path.is_file():
            raise BadRequest(f"there is no file {source.file!r}")
        _ = file.state  # of an object: whether there is one, and whether it may be read
    except (NoSuchObject, ExtraMissing) as refused:
        raise BadRequest(str(refused)) from None
    except (OSError, ValueError) as error:
        raise _unreadable(source, error) from None
    return file


def _named(name: str, folder: Path | str | None) -> StoredFile:
    if folder is None:
        return stored_file(name)
    outside = BadRequest(f"the file {name!r} is outside the folder of files that jobs may read")
    if isinstance(folder, str):
        below = folder.rstrip("/") + "/"
        file = stored_file(name if name.startswith(OBJECT) else below + name)
        if not file.name.startswith(below):
            raise outside
        return file
    path = (folder / name).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise outside
    return LocalFile(path)


def find_file(source: Source, unit: Unit, folder: Path | str | None = None) -> RowFile:
    """The file of a source with the columns that are read; raises `BadRequest`."""
    file = locate(source, folder)
    try:
        return _with_columns(file, source, unit)
    except NoSuchObject as gone:
        raise BadRequest(str(gone)) from None
    except (OSError, ValueError) as error:
        raise _unreadable(source, error) from None


def _unreadable(source: Source, error: Exception) -> BadRequest:
    reason = getattr(error, "strerror", None) or type(error).__name__
    return BadRequest(f"the file {source.file!r} cannot be read: {reason}")


def _with_columns(file: StoredFile, source: Source, unit: Unit) -> RowFile:
    try:
        kind, _ = kind_of(file.name)
    except ValueError as unknown:
        raise BadRequest(str(unknown)) from None
    if kind == "jsonl":
        if (source.user, source.item, source.query) != (None, None, None):
            raise BadRequest("a file of JSON Lines holds events, with user and items: leave the columns out")
        return RowFile(file, "jsonl")
    if kind == "csv":
        return _csv_file(file, source, unit)
    try:
        with file.open_for_arrow() as content:
            schema = pq.read_schema(content)
    except pa.ArrowException:
        raise BadRequest(f"the file {source.file!r} is not in the format Parquet") from None
    columns = [name for name, _ in fields(schema)]
    asked = {source.item, source.user, source.query} - {None, *columns}
    columns += [str(name) for name in asked if find_column(schema, str(name)) is not None]
    item, user = _chosen(source, unit, columns)
    return RowFile(file, "parquet", user, item, query=source.query or "")


def _chosen(source: Source, unit: Unit, columns: list[str]) -> tuple[str, str]:
    """The column of items and that of users, "" where every row is a unit of its own."""
    item = source.item or ("item" if "item" in columns else "items")
    user = "" if unit == "event" else source.user or "user"
    for name, kind in ((item, "item"), (user, "user"), (source.query, "query")):
        if name and columns.count(name) != 1:
            raise BadRequest(
                f"the file {source.file!r} has no single column {name!r}: name the column of {_MANY[kind]} with "
                f"--{kind}, or {kind} in the source of a request"
            )
    if item == user:
        raise BadRequest(
            f"{item!r} cannot be the column of items and of users at once: name another one with --item or "
            "--user, or item or user in the source of a request"
        )
    if source.query in (item, user):
        raise BadRequest(
            f"{source.query!r} cannot be the column of queries and another one at once: name another one with "
            "--query, or query in the source of a request"
        )
    return item, user


def _csv_file(file: StoredFile, source: Source, unit: Unit) -> RowFile:
    """The columns by the first separator with which the header has those that are wanted."""
    reasons = []
    for separator in _SEPARATORS:
        try:
            item, user = _chosen(source, unit, _csv_columns(file, separator))
        except BadRequest as refused:
            reasons.append(refused)
        else:
            return RowFile(file, "csv", user, item, separator, source.query or "")
    raise reasons[0]


def _csv_columns(file: StoredFile, separator: str) -> list[str]:
    with file.open() as raw:
        try:
            return csv_header(as_utf8(unpacked(file, raw)), separator)
        except (EOFError, UnicodeError, zlib.error):
            return []


def is_packed(file: StoredFile) -> bool:
    """Whether its name ends in .gz."""
    return file.name.lower().endswith(".gz")


def unpacked(file: StoredFile, raw: IO[bytes]) -> IO[bytes]:
    """The content of a file whose bytes are `raw`: unpacked where its name ends in .gz."""
    return cast(IO[bytes], gzip.GzipFile(fileobj=raw)) if is_packed(file) else raw
