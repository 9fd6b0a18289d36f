"""CSV whose every line stands for itself, so that no line can make another one unreadable.

A parser of whole files would let one open quote swallow the rows of everybody who comes after it, and one bad row end
the reading.  A parser that takes a lone carriage return for the end of a row would make many rows, and so many units,
of one line.  Here a row is one line of UTF-8 that ends in LF or CR LF and holds no other CR, and whose quotes are
balanced and stand where RFC 4180 wants them; any other line is left out before the parser sees it.
"""

import codecs
import csv
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import IO, cast

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv

from stream_dp.jobs.rows import NAMES

_BLOCK_BYTES = 1 << 24
_LONGEST_LINE = 1 << 20
_WORKERS = 2
_LONGEST_HEADER = 1 << 20
_QUOTE, _NEWLINE = b'"\n'
Parsed = tuple[pa.Table, int]


def as_utf8(file: IO[bytes]) -> IO[bytes]:
    """The text of `file`, which stands at its beginning, in UTF-8 and without a byte order mark; UTF-16 is told by one.

    What is no text in UTF-16 becomes what is none in UTF-8.
    """
    mark = file.read(3)
    file.seek(0)
    if mark[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        return cast(IO[bytes], _FromUtf16(file))
    if mark == codecs.BOM_UTF8:
        file.read(3)
    return file


class _FromUtf16:
    """Text in UTF-16 as UTF-8: what was read before a damage is given out before it is raised."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._decoder = codecs.getincrementaldecoder("utf-16")("surrogatepass")
        self._rest = b""

    def read(self, size: int) -> bytes:
        """What about so many bytes hold, or nothing at the end."""
        if self._rest:
            found, self._rest = self._rest, b""
            return found
        while read := self._file.read(size):
            if text := self._decoder.decode(read):
                return text.encode("utf-8", "surrogatepass")
        if self._decoder.getstate()[0]:  # half a character at the end
            self._decoder.reset()
            return b"\xff"
        return b""

    def readline(self, limit: int) -> bytes:
        """The next line, or its first `limit` bytes."""
        line = b""
        while b"\n" not in line and len(line) < limit and (read := self.read(limit)):
            line += read
        end = min(limit, line.find(b"\n") + 1 or len(line))
        line, self._rest = line[:end], line[end:] + self._rest
        return line


def csv_header(file: IO[bytes], separator: str) -> list[str]:
    """The names of the columns, from where `file` stands; none where lines end in a CR alone.  Raises UnicodeError."""
    line = file.readline(_LONGEST_HEADER).decode()
    line = line.removesuffix("\n").removesuffix("\r")
    return [] if "\r" in line else next(csv.reader([line], delimiter=separator), [])


def csv_tables(file: IO[bytes], columns: int, wanted: list[int], separator: str = ",") -> Iterator[Parsed]:
    """Blocks of the lines of `file`: columns number `wanted`, dictionary-encoded, and how many lines were left out.

    `file` stands after the header, which named `columns` columns.
    """
    waiting: deque[Future[Parsed]] = deque()
    with ThreadPoolExecutor(_WORKERS) as pool:
        for block in _blocks(file):
            waiting.append(pool.submit(_parse, block, columns, wanted, separator))
            if len(waiting) > _WORKERS:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _blocks(file: IO[bytes]) -> Iterator[bytes]:
    """Whole lines, many at once, also those before a damage; the damage is raised after them."""
    rest = b""
    damage: Exception | None = None
    try:
        while read := file.read(_BLOCK_BYTES):
            read = rest + read
            end = read.rfind(b"\n") + 1
            rest = read[end:]
            rest = rest[:_LONGEST_LINE]  # what is longer is cut, and at most its own line suffers
            if end:
                yield read[:end]
    except Exception as found:
        damage = found
    if rest:
        yield rest + b"\n"
    if damage is not None:
        raise damage


def _parse(block: bytes, columns: int, wanted: list[int], separator: str) -> Parsed:
    lines = block.count(b"\n")
    names = [f"c{number}" for number in range(columns)]
    chosen = [names[number] for number in wanted]
    clean = _standing_alone(block, separator)
    table = pa.table({name: pa.array([], NAMES) for name in chosen})
    if clean.strip(b"\r\n"):
        table = pacsv.read_csv(
            pa.BufferReader(clean),
            read_options=pacsv.ReadOptions(column_names=names, block_size=len(clean) + 1, use_threads=False),
            parse_options=pacsv.ParseOptions(
                delimiter=separator, invalid_row_handler=_skip, newlines_in_values=True
            ),
            convert_options=pacsv.ConvertOptions(
                include_columns=chosen, column_types=dict.fromkeys(chosen, NAMES), check_utf8=False
            ),
        )
    return table, max(0, lines - len(table))


def _skip(_: object) -> str:
    return "skip"


def _standing_alone(block: bytes, separator: str) -> bytes:
    """The lines that are UTF-8, hold no CR but at their end, and are quoted as they should be."""
    if not _is_utf8(block):
        block = _kept(block, _is_utf8)
    if block.count(b"\r") > block.count(b"\r\n"):
        block = _kept(block, lambda line: b"\r" not in line.removesuffix(b"\r"))
    if b'"' not in block:
        return block
    data = np.frombuffer(block, np.uint8)
    quotes, ends = np.flatnonzero(data == _QUOTE), np.flatnonzero(data == _NEWLINE)
    if (np.searchsorted(quotes, ends) % 2).any():
        return _standing_alone(_kept(block, lambda line: line.count(b'"') % 2 == 0), separator)
    # Every line has an even number of quotes, so they open and close by turns.  Before the first byte comes the last,
    # which is a newline.
    opening, closing = quotes[0::2], quotes[1::2]
    may_open_after, may_close_before = np.zeros((2, 256), np.bool_)
    may_open_after[[*f'"{separator}\n'.encode()]] = True
    may_close_before[[*f'"{separator}\n\r'.encode()]] = True
    wrong = np.concatenate(
        [opening[~may_open_after[data[opening - 1]]], closing[~may_close_before[data[closing + 1]]]]
    )
    if not len(wrong):
        return block
    bad = set(np.searchsorted(ends, wrong).tolist())
    return b"\n".join(line for place, line in enumerate(block.split(b"\n")) if place not in bad)


def _kept(block: bytes, good: Callable[[bytes], bool]) -> bytes:
    """The good lines of a block that has others too."""
    lines = [line for line in block.split(b"\n")[:-1] if good(line)]
    return b"".join(line + b"\n" for line in lines)


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True
