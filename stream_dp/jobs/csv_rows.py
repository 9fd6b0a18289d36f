"""CSV whose every line stands for itself, so that no line can make another one unreadable.

A parser of whole files would let one open quote swallow the rows of everybody who comes after it, and one bad row end
the reading.  Here a row is one line of UTF-8 whose quotes are balanced and stand where RFC 4180 wants them; any other
line is left out before the parser sees it.
"""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import IO

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv

from stream_dp.jobs.rows import NAMES

_BLOCK_BYTES = 1 << 24
_LONGEST_LINE = 1 << 20
_WORKERS = 2
_QUOTE, _NEWLINE = b'"\n'
_MAY_OPEN_AFTER, _MAY_CLOSE_BEFORE = np.zeros(256, np.bool_), np.zeros(256, np.bool_)
_MAY_OPEN_AFTER[list(b'",\n')] = True
_MAY_CLOSE_BEFORE[list(b'",\n\r')] = True
Parsed = tuple[pa.Table, int]


def csv_tables(file: IO[bytes], columns: int, wanted: list[int]) -> Iterator[Parsed]:
    """Blocks of the lines of `file`: columns number `wanted`, dictionary-encoded, and how many lines were left out.

    `file` stands after the header, which named `columns` columns.
    """
    waiting: deque[Future[Parsed]] = deque()
    with ThreadPoolExecutor(_WORKERS) as pool:
        for block in _blocks(file):
            waiting.append(pool.submit(_parse, block, columns, wanted))
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


def _parse(block: bytes, columns: int, wanted: list[int]) -> Parsed:
    lines = block.count(b"\n")
    names = [f"c{number}" for number in range(columns)]
    chosen = [names[number] for number in wanted]
    clean = _standing_alone(block)
    table = pa.table({name: pa.array([], NAMES) for name in chosen})
    if clean.strip(b"\r\n"):
        table = pacsv.read_csv(
            pa.BufferReader(clean),
            read_options=pacsv.ReadOptions(column_names=names, block_size=len(clean) + 1, use_threads=False),
            parse_options=pacsv.ParseOptions(invalid_row_handler=_skip, newlines_in_values=True),
            convert_options=pacsv.ConvertOptions(
                include_columns=chosen, column_types=dict.fromkeys(chosen, NAMES), check_utf8=False
            ),
        )
    return table, max(0, lines - len(table))


def _skip(_: object) -> str:
    return "skip"


def _standing_alone(block: bytes) -> bytes:
    """The lines that are UTF-8 and quoted as they should be."""
    if not _is_utf8(block):
        block = _kept(block, _is_utf8)
    if b'"' not in block:
        return block
    data = np.frombuffer(block, np.uint8)
    quotes, ends = np.flatnonzero(data == _QUOTE), np.flatnonzero(data == _NEWLINE)
    if (np.searchsorted(quotes, ends) % 2).any():
        return _standing_alone(_kept(block, lambda line: line.count(b'"') % 2 == 0))
    # Every line has an even number of quotes, so they open and close by turns.  Before the first byte comes the last,
    # which is a newline.
    opening, closing = quotes[0::2], quotes[1::2]
    wrong = np.concatenate(
        [opening[~_MAY_OPEN_AFTER[data[opening - 1]]], closing[~_MAY_CLOSE_BEFORE[data[closing + 1]]]]
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
