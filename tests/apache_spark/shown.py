"""What can be found of labels and counts in what Spark writes, in whatever form."""

import json
import re
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path


def forms(label: str) -> set[bytes]:
    """A label as it may stand in a file: in several encodings, in base 64 at any place, in hexadecimal, escaped."""
    raw = label.encode()
    found = {raw, label.encode("utf-16-le"), label.encode("utf-16-be"), json.dumps(label)[1:-1].encode()}
    found |= {form.hex().encode() for form in (raw, label.encode("utf-16-le"))}
    found.add(raw.hex().upper().encode())
    for skipped in range(3):
        for encode in (b64encode, urlsafe_b64encode):
            whole = encode(b"\0" * skipped + raw)
            first, last = -(-skipped * 8 // 6), (skipped + len(raw)) * 8 // 6
            found.add(whole[first:last])
    return found


def shown_in(contents: Mapping[str, bytes], labels: Iterable[str], counts: Iterable[int] = ()) -> list[str]:
    """Where labels and counts are to be seen, by the names of contents."""
    wanted = {form: label for label in labels for form in forms(label)}
    texts = re.compile(b"|".join(map(re.escape, sorted(wanted)))) if wanted else None
    numbers = "|".join(rf"{count}|{count:,}" for count in counts)
    digits = re.compile(rf"(?<![\d.:,])(?:{numbers})(?!\d|,\d|:)".encode()) if numbers else None
    return [
        f"{name}: {match[0]!r}"
        for name, content in contents.items()
        for pattern in (texts, digits)
        if pattern is not None
        for match in pattern.finditer(content)
    ]


def files_of(*folders: Path) -> dict[str, bytes]:
    """These files, and all in these folders, with their names, which may tell something too."""
    return dict(_files(folders))


def _files(folders: Iterable[Path]) -> Iterator[tuple[str, bytes]]:
    for folder in folders:
        for path in (folder, *folder.rglob("*")):
            if path.is_file():
                yield str(path), str(path).encode() + b"\n" + path.read_bytes()
