"""Which files of events can be read: one list for all commands."""

from pathlib import PurePath

KINDS = ".jsonl, .csv, .tsv (each also as .gz) or .parquet"
"""The endings, in words."""


def kind_of(name: str) -> tuple[str, bool]:
    """What a file holds by the end of its name: "jsonl", "csv" or "parquet", and whether it is packed by gzip.

    A .tsv file is a "csv" whose separator is a tab.  Raises ValueError, which names the endings that can be read.

    >>> kind_of("history.JSONL.gz")
    ('jsonl', True)
    """
    suffixes = [suffix.lower() for suffix in PurePath(name).suffixes[-2:]]
    packed = suffixes[-1:] == [".gz"]
    kind = "".join(suffixes[-2:-1] if packed else suffixes[-1:])[1:]
    kind = "csv" if kind == "tsv" else kind
    if kind not in ("jsonl", "csv") and (packed or kind != "parquet"):
        raise ValueError(f"the file {name!r} is of an unknown kind: its name should end in {KINDS}")
    return kind, packed
