"""A job's result as a file: a table of its labels as CSV or Parquet, or all of it as JSON."""

from collections.abc import Callable
from os import W_OK, access, replace
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from stream_dp.cli.mistakes import Mistake
from stream_dp.jobs.result import JobResult
from stream_dp.jobs.votes import columns_of


def check_output(file: Path, only_a_rank: bool) -> None:
    """Refuse, before anything is charged, a file that the result could not be written to."""
    kind, folder = file.suffix.lower(), file.absolute().parent
    if kind not in _WRITERS:
        raise Mistake(f"cannot write to {file}: let the name of the file end in .parquet, .csv or .json")
    if only_a_rank and kind != ".json":
        raise Mistake(f"cannot write to {file}: this mechanism releases a rank and no labels; take .json")
    if not folder.is_dir():
        raise Mistake(f"cannot write to {file}: there is no folder {folder}")
    if file.is_dir() or not access(folder, W_OK):
        raise Mistake(f"cannot write to {file}: it cannot be written")


def write_result(result: JobResult, file: Path) -> None:
    """Put the whole result into the file, or leave what was there.  Raises `Mistake`."""
    beside = file.with_name(f".{file.name}.part")
    try:
        _WRITERS[file.suffix.lower()](result, beside)
        replace(beside, file)
    except OSError as error:
        raise Mistake(
            f"cannot write to {file}: {error.strerror}; the result is kept, and --id {result.id} with the same options "
            "and another file gives it again, at no cost"
        ) from None
    finally:
        beside.unlink(missing_ok=True)


def _table(result: JobResult) -> pa.Table:
    """The labels, and if there are counts, these with their intervals and with what they are of.

    That is the same in every row, because rows are cut out and passed on.  The metadata of the schema has the rest.
    """
    labels = result.labels
    columns: dict[str, pa.Array] = {}
    if result.job == "label-votes":
        examples, labels = columns_of(labels)
        columns["query"] = pa.array(examples, pa.string())
    columns["label"] = pa.array(labels, pa.string())
    if result.counts is not None:
        for name, column in (("count", result.counts), ("low", result.low), ("high", result.high)):
            if column is not None:
                columns[name] = pa.array(column, pa.int64())
        if result.counts_what is not None:
            columns["counts_what"] = pa.repeat(result.counts_what, len(labels))
    about = msgspec.json.encode(msgspec.structs.replace(result, labels=[], counts=None, low=None, high=None))
    return pa.table(columns).replace_schema_metadata({"stream_dp.result": about})


def _write_json(result: JobResult, file: Path) -> None:
    file.write_bytes(msgspec.json.encode(result) + b"\n")


_WRITERS: dict[str, Callable[[JobResult, Path], None]] = {
    ".json": _write_json,
    ".csv": lambda result, file: pacsv.write_csv(_table(result), file),
    ".parquet": lambda result, file: pq.write_table(_table(result), file),
}
