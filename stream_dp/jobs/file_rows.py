"""Files as rows: JSON Lines of events, CSV (commas, semicolons or tabs between) and Parquet; the first two also as .gz.

Only the name, the kind and the columns of a file may be refused, before anything is charged.  After that nothing in it
is an error: rows that cannot be used are left out and counted, and where a file is damaged (cut off, or a page of
Parquet that does not decode), reading ends.
"""

import gzip
import logging
import zlib
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from itertools import islice, pairwise
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple, cast

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from stream_dp.config.file_kinds import kind_of
from stream_dp.events.event import BadRecord, Event, decode_event
from stream_dp.jobs.csv_rows import as_utf8, csv_header, csv_tables
from stream_dp.jobs.request import BadRequest, Source, Unit
from stream_dp.jobs.rows import NAMES, SEPARATOR, RowCollector, as_binary

Reached = Callable[[int], None]
Progress = Callable[[int, int], None]
"""Told how far reading is, and of how much, in bytes, offsets or rows; may raise to end it."""

_ROWS_AT_ONCE = 1 << 20
_BYTES_AT_ONCE = 1 << 20
_LINES_AT_ONCE = 50_000
_PIECE_BYTES = 1 << 25
_SEPARATORS = (",", ";", "\t")
_MANY = {"item": "items", "user": "users", "query": "queries"}
_DAMAGE = (pa.ArrowException, OSError, EOFError, UnicodeError, zlib.error)

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RowFile:
    """A file that can be read: its kind and the columns to read; JSON Lines have none.

    `separator` is that of CSV; `query` the column of what votes are about, if they are votes.
    """

    path: Path
    kind: Literal["jsonl", "csv", "parquet"]
    user: str = ""
    item: str = ""
    separator: str = ","
    query: str = ""

    @property
    def mark(self) -> str:
        """What changes when the file is written again.  PRIVATE: it tells the file's size."""
        status = self.path.stat()
        return f"{status.st_size}:{status.st_mtime_ns}:{status.st_ino}"

    @property
    def state(self) -> tuple[int, int, int, int]:
        """What no change of the content leaves as it was.  PRIVATE like the mark."""
        status = self.path.stat()
        return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


class Piece(NamedTuple):
    """What can be read alone: of Parquet the groups of rows from `first` to before `end`, else lines between two bytes.

    `size`: how large it is, in rows of Parquet, else in bytes.
    """

    number: int
    first: int
    end: int
    size: int


def digest_of(path: Path, progress: Progress = lambda done, total: None) -> str:
    """SHA-256 of a file's bytes: a copy has the same, whatever its name.  Raises OSError."""
    digest, done, total = sha256(), 0, path.stat().st_size
    with path.open("rb") as content:
        while chunk := content.read(_BYTES_AT_ONCE):
            digest.update(chunk)
            done += len(chunk)
            progress(done, total)
    return digest.hexdigest()


def locate(source: Source, folder: Path | None = None) -> Path:
    """Where the file of a source is, below `folder` where one is given; raises `BadRequest`."""
    path = Path(source.file or "")
    if folder is not None:
        path = (folder / path).resolve()
        if not path.is_relative_to(folder.resolve()):
            raise BadRequest(f"the file {source.file!r} is outside the folder of files that jobs may read")
    try:
        if not path.is_file():
            raise BadRequest(f"there is no file {source.file!r}")
    except (OSError, ValueError) as error:
        raise _unreadable(source, error) from None
    return path


def find_file(source: Source, unit: Unit, folder: Path | None = None) -> RowFile:
    """The file of a source with the columns that are read; raises `BadRequest`."""
    path = locate(source, folder)
    try:
        return _with_columns(path, source, unit)
    except (OSError, ValueError) as error:
        raise _unreadable(source, error) from None


def _unreadable(source: Source, error: Exception) -> BadRequest:
    reason = getattr(error, "strerror", None) or type(error).__name__
    return BadRequest(f"the file {source.file!r} cannot be read: {reason}")


def pieces_of(file: RowFile) -> list[Piece]:
    """The pieces of `file`: groups of rows of Parquet, and lines of text that begin between two bytes.

    What is packed or in UTF-16 can only be read from its beginning: it is one piece.
    """
    if file.kind == "parquet":
        with pq.ParquetFile(file.path) as opened:
            groups = opened.metadata.num_row_groups
            return [
                Piece(number, number, number + 1, opened.metadata.row_group(number).num_rows)
                for number in range(groups)
            ]
    size = file.path.stat().st_size
    with file.path.open("rb") as raw:
        whole = file.path.suffix.lower() == ".gz" or raw.read(2) in (BOM_UTF16_LE, BOM_UTF16_BE)
    edges = [*range(0, size, size + 1 if whole else _PIECE_BYTES), size]
    return [Piece(number, *edge, edge[1] - edge[0]) for number, edge in enumerate(pairwise(edges))]


def read_file(file: RowFile, unit: Unit, collector: RowCollector, progress: Progress) -> None:
    """Add all rows of `file` to `collector`."""
    try:
        pieces = pieces_of(file)
        if file.kind == "csv":  # whose rows are units of one item each, so nobody asks where they stand
            pieces = [Piece(0, 0, pieces[-1].end, pieces[-1].end)] if pieces else []
        read_pieces(file, pieces, unit, collector, progress)
    except _DAMAGE as damage:
        _tell_damage(file, damage)


def read_pieces(
    file: RowFile,
    pieces: Sequence[Piece],
    unit: Unit,
    collector: RowCollector,
    progress: Progress = lambda done, total: None,
) -> None:
    """Add the rows of these pieces of `file` to `collector`; where a piece is damaged, its rows count up to there."""
    read = {"jsonl": _read_lines, "csv": _read_csv, "parquet": _read_group}[file.kind]
    done, total = 0, sum(piece.size for piece in pieces)
    with _opened(file) as opened:
        for piece in pieces:
            collector.begin(piece.number)
            try:
                read(file, opened, piece, unit, collector, partial(_report, progress, done, total))
            except _DAMAGE as damage:
                _tell_damage(file, damage)
            done += piece.size
            progress(done, total)


def _report(progress: Progress, before: int, total: int, reached: int) -> None:
    progress(before + reached, total)


def _tell_damage(file: RowFile, damage: Exception) -> None:
    logger.warning("the file %s is damaged, its rows count up to there: %s", file.path, damage)


def _with_columns(path: Path, source: Source, unit: Unit) -> RowFile:
    try:
        kind, _ = kind_of(path)
    except ValueError as unknown:
        raise BadRequest(str(unknown)) from None
    if kind == "jsonl":
        if (source.user, source.item, source.query) != (None, None, None):
            raise BadRequest("a file of JSON Lines holds events, with user and items: leave the columns out")
        _check_utf8(path)
        return RowFile(path, "jsonl")
    if kind == "csv":
        return _csv_file(path, source, unit)
    try:
        schema = pq.read_schema(path)
    except pa.ArrowException:
        raise BadRequest(f"the file {source.file!r} is not in the format Parquet") from None
    fields = _fields(schema)
    item, user = _chosen(source, unit, [name for name, _ in fields])
    kinds = dict(fields)
    _check_type(item, kinds[item], may_be_list=True)
    for name in filter(None, (user, source.query)):
        _check_type(name, kinds[name], may_be_list=False)
    return RowFile(path, "parquet", user, item, query=source.query or "")


def _chosen(source: Source, unit: Unit, columns: list[str]) -> tuple[str, str]:
    """The column of items and that of users, "" where every row is a unit of its own."""
    item = source.item or ("item" if "item" in columns else "items")
    user = "" if unit == "event" else source.user or "user"
    for name, kind in ((item, "item"), (user, "user"), (source.query, "query")):
        if name and columns.count(name) != 1:
            raise BadRequest(
                f"the file {source.file!r} has no single column {name!r}: name the column of {_MANY[kind]} with "
                f"--{kind}-column, or {kind} in the source of a request"
            )
    if item == user:
        raise BadRequest(
            f"{item!r} cannot be the column of items and of users at once: name another one with --item-column or "
            "--user-column, or item or user in the source of a request"
        )
    if source.query in (item, user):
        raise BadRequest(
            f"{source.query!r} cannot be the column of queries and another one at once: name another one with "
            "--query-column, or query in the source of a request"
        )
    return item, user


def _csv_file(path: Path, source: Source, unit: Unit) -> RowFile:
    """The columns by the first separator with which the header has those that are wanted."""
    reasons = []
    for separator in _SEPARATORS:
        try:
            item, user = _chosen(source, unit, _csv_columns(path, separator))
        except BadRequest as refused:
            reasons.append(refused)
        else:
            return RowFile(path, "csv", user, item, separator, source.query or "")
    raise reasons[0]


def _csv_columns(path: Path, separator: str) -> list[str]:
    with path.open("rb") as raw:
        try:
            return csv_header(as_utf8(_unpacked(path, raw)), separator)
        except (EOFError, UnicodeError, zlib.error):
            return []


def _check_utf8(path: Path) -> None:
    """JSON Lines in UTF-16, which their first bytes tell, would all be malformed."""
    with path.open("rb") as raw:
        try:
            start = _unpacked(path, raw).read(2)
        except _DAMAGE:
            return
    if start in (BOM_UTF16_LE, BOM_UTF16_BE):
        raise BadRequest(
            f"the file {str(path)!r} is in UTF-16, and JSON Lines have to be in UTF-8: convert it"
        )


def _unpacked(path: Path, raw: IO[bytes]) -> IO[bytes]:
    return cast(IO[bytes], gzip.GzipFile(fileobj=raw)) if path.suffix.lower() == ".gz" else raw


_NAMING = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_string_view,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_binary_view,
    pa.types.is_integer,
)


def _check_type(name: str, kind: pa.DataType, may_be_list: bool) -> None:
    if may_be_list and _is_list(kind):
        kind = kind.value_type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if not any(test(kind) for test in _NAMING):
        raise BadRequest(f"the column {name!r} holds {kind}, which names nothing: it should hold text")


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _fields(fields: Iterable[pa.Field], above: str = "") -> list[tuple[str, pa.DataType]]:
    """All columns with their types; the fields of a struct are columns too, such as `customer.id`."""
    found = []
    for each in fields:
        found.append((above + each.name, each.type))
        if pa.types.is_struct(each.type):
            found += _fields(each.type, f"{above}{each.name}.")
    return found


def _column(batch: pa.RecordBatch, name: str) -> pa.Array:
    """A column by its name, or by the names on the way to it in structs."""
    if name in batch.schema.names:
        return batch.column(name)
    first, *rest = name.split(".")
    return pc.struct_field(batch.column(first), rest)


@contextmanager
def _opened(file: RowFile) -> Iterator[Any]:
    """The file itself, or its reader where it is Parquet.  It yields nothing where it is no Parquet any more."""
    if file.kind != "parquet":
        with file.path.open("rb") as raw:
            yield raw
        return
    kinds = dict(_fields(pq.read_schema(file.path)))
    flat = [name for name in (file.item, file.user, file.query) if name and not _is_list(kinds[name])]
    with pq.ParquetFile(file.path, read_dictionary=flat) as opened:
        yield opened


def _read_lines(
    file: RowFile, raw: IO[bytes], piece: Piece, unit: Unit, collector: RowCollector, progress: Reached
) -> None:
    lines = _lines_from(_unpacked(file.path, raw), piece)
    mark = b"" if piece.first else BOM_UTF8
    while True:
        chunk: list[bytes] = []
        try:
            chunk.extend(islice(lines, _LINES_AT_ONCE))
        finally:  # where the file is damaged, the lines before that count
            if chunk:
                chunk[0] = chunk[0].removeprefix(mark)
                mark = b""
            collector.add_events(chunk, unit, _decode_line)
        if not chunk:
            return
        progress(raw.tell() - piece.first)


def _lines_from(file: IO[bytes], piece: Piece) -> Iterator[bytes]:
    """The lines that begin in a piece; all of a file that is packed."""
    if isinstance(file, gzip.GzipFile):
        yield from file
        return
    place = _first_line(file, piece)
    for line in file:
        if place >= piece.end:
            return
        yield line
        place += len(line)


def _first_line(file: IO[bytes], piece: Piece) -> int:
    """Go to the first line that begins in a piece, and return where that is."""
    file.seek(max(0, piece.first - 1))
    while piece.first and (skipped := file.readline(_BYTES_AT_ONCE)) and not skipped.endswith(b"\n"):
        pass
    return file.tell()


class _LinesOfPiece:
    """The lines that begin in a piece, to be read as a file."""

    def __init__(self, file: IO[bytes], piece: Piece) -> None:
        self._file, self._place, self._end = file, _first_line(file, piece), piece.end

    def read(self, size: int) -> bytes:
        """What about so many bytes hold, or nothing at the end."""
        if self._place >= self._end:
            return b""
        found = self._file.read(min(size, self._end - self._place))
        if self._place + len(found) >= self._end and not found.endswith(b"\n"):
            found += self._file.readline(_BYTES_AT_ONCE)
        self._place += len(found)
        return found


class _NumberedEvent(msgspec.Struct, gc=False):
    """An event whose user is a number, as databases export them."""

    items: list[str]
    user: int


_NUMBERED_DECODER = msgspec.json.Decoder(_NumberedEvent)


def _decode_line(line: bytes | None) -> Event:
    """An event; a user that is a number is the user of that name.  Raises `BadRecord`."""
    try:
        return decode_event(line)
    except BadRecord:
        try:
            numbered = _NUMBERED_DECODER.decode(line or b"")
        except (msgspec.DecodeError, UnicodeError):
            numbered = None
        if numbered is None:
            raise
        return decode_event(msgspec.json.encode({"items": numbered.items, "user": str(numbered.user)}))


def _read_csv(
    file: RowFile, raw: IO[bytes], piece: Piece, unit: Unit, collector: RowCollector, progress: Reached
) -> None:
    names = [name for name in (file.item, file.user, file.query) if name]
    raw.seek(0)
    text = as_utf8(_unpacked(file.path, raw))
    header = csv_header(text, file.separator)
    if not set(names) <= set(header):
        raise EOFError("its header is gone")
    wanted = [header.index(name) for name in names]
    if piece.first or (text is raw and piece.end < file.path.stat().st_size):
        start = max(piece.first, raw.tell())  # a piece may end before the header does
        text = cast(IO[bytes], _LinesOfPiece(raw, piece._replace(first=start)))
    for table, left_out in csv_tables(text, len(header), wanted, file.separator):
        collector.malformed += left_out
        for batch in table.rename_columns(names).to_batches():
            add_batch(batch, file.user, file.item, collector, file.query)
        progress(raw.tell() - piece.first)


def _read_group(
    file: RowFile,
    opened: pq.ParquetFile,
    piece: Piece,
    unit: Unit,
    collector: RowCollector,
    progress: Reached,
) -> None:
    names = [name for name in (file.item, file.user, file.query) if name]
    done = 0
    for batch in opened.iter_batches(_ROWS_AT_ONCE, row_groups=range(piece.first, piece.end), columns=names):
        add_batch(batch, file.user, file.item, collector, file.query)
        done += len(batch)
        progress(done)


def add_batch(
    batch: pa.RecordBatch, user: str | None, item: str, collector: RowCollector, query: str = ""
) -> None:
    """One item a row, or a list of them; without a column of users every row is its own unit.

    `query`: the column of what votes are about, which makes votes of items.
    """
    items = _column(batch, item)
    owners: np.ndarray | None = None
    if _is_list(items.type):
        owners = pc.list_parent_indices(items).to_numpy()
        items = pc.list_flatten(items)
    if query:
        about = _column(batch, query)
        items = _votes(about if owners is None else about.take(pa.array(owners)), items)
    if not user:
        numbers = collector.new_units(len(batch))
        collector.add(numbers if owners is None else numbers[owners], items)
        return
    users = _column(batch, user)
    collector.add(users if owners is None else users.take(pa.array(owners)), items)


def _votes(queries: pa.Array, labels: pa.Array) -> pa.Array:
    """For each row one name of what the vote is about and what it is for; null where one of them is."""
    plain = [
        names.dictionary_decode() if pa.types.is_dictionary(names.type) else names
        for names in (queries, labels)
    ]
    return pc.binary_join_element_wise(
        *map(as_binary, plain), pa.scalar(SEPARATOR.encode(), NAMES.value_type)
    )


def check_columns(schema: pa.Schema, user: str | None, item: str, query: str = "") -> None:
    """Raise `BadRequest` where these columns are not there, are the same, or name nothing."""
    kinds = dict(_fields(schema))
    for name in filter(None, (item, user, query)):
        if name not in kinds:
            raise BadRequest(f"there is no column {name!r}; there are {', '.join(kinds)}")
        _check_type(name, kinds[name], may_be_list=name == item)
    if item == user:
        raise BadRequest(f"the column {item!r} cannot name both users and items")
