"""The rows of files: JSON Lines of events, CSV (commas, semicolons or tabs between) and Parquet.

Nothing in a file is an error here: rows that cannot be used are left out and counted, and where a file is damaged (cut
off, or a page of Parquet that does not decode), reading ends.
"""

import gzip
import logging
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice, pairwise
from typing import IO, Any, NamedTuple, cast

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from stream_dp.events.event import BadRecord, Event, decode_event
from stream_dp.jobs.column_rows import add_batch, find_column
from stream_dp.jobs.csv_rows import as_utf8, csv_header, csv_tables
from stream_dp.jobs.request import Unit
from stream_dp.jobs.rows import Progress, RowCollector
from stream_dp.jobs.source_file import DAMAGE, RowFile, is_packed, unpacked

Reached = Callable[[int], None]

_ROWS_AT_ONCE = 1 << 20
_BYTES_AT_ONCE = 1 << 20
_LINES_AT_ONCE = 50_000
_PIECE_BYTES = 1 << 25

logger = logging.getLogger(__name__)


class Piece(NamedTuple):
    """What can be read alone: of Parquet the groups of rows from `first` to before `end`, else lines between two bytes.

    `size`: how large it is, in rows of Parquet, else in bytes.
    """

    number: int
    first: int
    end: int
    size: int


def pieces_of(file: RowFile) -> list[Piece]:
    """The pieces of `file`: groups of rows of Parquet, and lines of text that begin between two bytes.

    What is packed, and CSV in UTF-16, can only be read from its beginning: it is one piece.
    """
    if file.kind == "parquet":
        with file.stored.open_for_arrow() as raw, pq.ParquetFile(raw) as opened:
            groups = opened.metadata.num_row_groups
            return [
                Piece(number, number, number + 1, opened.metadata.row_group(number).num_rows)
                for number in range(groups)
            ]
    size = file.stored.size
    with file.stored.open() as raw:
        whole = is_packed(file.stored) or (file.kind == "csv" and raw.read(2) in (BOM_UTF16_LE, BOM_UTF16_BE))
    edges = [*range(0, size, size + 1 if whole else _PIECE_BYTES), size]
    return [Piece(number, *edge, edge[1] - edge[0]) for number, edge in enumerate(pairwise(edges))]


def read_file(file: RowFile, unit: Unit, collector: RowCollector, progress: Progress) -> None:
    """Add all rows of `file` to `collector`."""
    try:
        pieces = pieces_of(file)
        if file.kind == "csv":  # whose rows are units of one item each, so nobody asks where they stand
            pieces = [Piece(0, 0, pieces[-1].end, pieces[-1].end)] if pieces else []
        read_pieces(file, pieces, unit, collector, progress)
    except DAMAGE as damage:
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
            except DAMAGE as damage:
                _tell_damage(file, damage)
            done += piece.size
            progress(done, total)


def _report(progress: Progress, before: int, total: int, reached: int) -> None:
    progress(before + reached, total)


def _tell_damage(file: RowFile, damage: Exception) -> None:
    logger.warning("the file %s is damaged, its rows count up to there: %s", file.stored.name, damage)


@contextmanager
def _opened(file: RowFile) -> Iterator[Any]:
    """The file itself, or its reader where it is Parquet.  It yields nothing where it is no Parquet any more."""
    if file.kind != "parquet":
        with file.stored.open() as raw:
            yield raw
        return
    with file.stored.open_for_arrow() as raw:
        flat = [name for name, kind in _columns_of(file, pq.read_schema(raw)) if not pa.types.is_nested(kind)]
    with file.stored.open_for_arrow() as raw, pq.ParquetFile(raw, read_dictionary=flat) as opened:
        yield opened


def _columns_of(file: RowFile, schema: pa.Schema) -> list[tuple[str, pa.DataType]]:
    """The columns to read, and their types; those that are gone are left out."""
    found = [find_column(schema, name) for name in (file.item, file.user, file.query) if name]
    return [each for each in found if each is not None]


def _read_lines(
    file: RowFile, raw: IO[bytes], piece: Piece, unit: Unit, collector: RowCollector, progress: Reached
) -> None:
    lines = _lines_from(unpacked(file.stored, raw), piece)
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
    text = as_utf8(unpacked(file.stored, raw))
    header = csv_header(text, file.separator)
    if not set(names) <= set(header):
        raise EOFError("its header is gone")
    wanted = [header.index(name) for name in names]
    if piece.first or (text is raw and piece.end < file.stored.size):
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
    names = [name for name, _ in _columns_of(file, opened.schema_arrow)]
    done = 0
    for batch in opened.iter_batches(_ROWS_AT_ONCE, row_groups=range(piece.first, piece.end), columns=names):
        add_batch(batch, file.user, file.item, collector, file.query)
        done += len(batch)
        progress(done)
