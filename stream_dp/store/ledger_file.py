"""A file of ledgers in SQLite, for a machine without servers: what was charged, and what became of jobs.

    journal   the records of all its ledgers in their order: no record is ever changed
    head      how many records there are, and a digest of all of them
    jobs      what is remembered of each job

A record is one that stands in the journal of a ledger in Kafka (ledger_records.py), or says which source a file belongs
to.  The first one holds the key by which files are named.  What was spent is what the records add up to, and nothing
else: there is no second place that could say otherwise.  A file that is not as it was written, down to a single bit, is
refused.  What nobody can tell is that a file was deleted, or put back from a copy of an earlier time.

Every change is one transaction, and is on the disk before the call returns.
"""

import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from secrets import token_hex
from typing import Any

import msgspec

from stream_dp.config.times import now
from stream_dp.errors import NotReady
from stream_dp.privacy.keyed_noise import new_key
from stream_dp.store.any_ledger import AnyLedger
from stream_dp.store.journal_fold import JournalFold
from stream_dp.store.ledger_records import (
    FORMAT,
    BudgetSet,
    Change,
    Entry,
    LedgerDamaged,
    LedgerRefused,
    State,
)

_TABLES = """
CREATE TABLE journal (number INTEGER PRIMARY KEY, record BLOB NOT NULL);
CREATE TABLE head (number INTEGER NOT NULL, digest BLOB NOT NULL);
CREATE TABLE jobs (name TEXT, field TEXT, value BLOB NOT NULL, PRIMARY KEY (name, field));
INSERT INTO head VALUES (0, x'');
"""
_PATIENCE_SECONDS = 60
_DIGEST_BYTES = 16
_NOTHING = State(None, None, {})
_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_UNUSABLE = {
    sqlite3.SQLITE_PERM: "this user may not",
    sqlite3.SQLITE_READONLY: "it cannot be written",
    sqlite3.SQLITE_IOERR: "the disk fails",
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened, or its folder not be written",
}


def ledger_path() -> Path:
    """Where this user's ledgers are."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "stream_dp" / "ledger.sqlite"


class Begun(msgspec.Struct, frozen=True):
    """The first record: the key by which files are named.  SECRET."""

    v: int
    key: bytes


class FileOf(msgspec.Struct, frozen=True):
    """A record: the file of this keyed digest belongs to `source`; `called`: its name then, for people."""

    v: int
    source: str
    file: str
    called: str


@dataclass
class Content:
    """What the records of a file add up to: `files` has the source of each file by its name."""

    key: bytes = b""
    number: int = 0
    digest: bytes = b""
    files: dict[str, str] = field(default_factory=dict)
    journals: dict[str, JournalFold] = field(default_factory=dict)

    def journal(self, source: str) -> JournalFold:
        """What stands there of a source."""
        return self.journals.get(source) or JournalFold(source)

    def state(self, source: str) -> State:
        """The ledger of a source."""
        return self.journal(source).completed(_NOTHING)

    def take(self, record: bytes) -> None:
        """The next record.  Raises ValueError for one that was not written here."""
        self.digest, number = _digest(self.digest, record), self.number
        self.number += 1
        if number == 0:
            begun = msgspec.json.decode(record, type=Begun)
            if begun.v != FORMAT:
                raise ValueError
            self.key = begun.key
            return
        told = msgspec.json.decode(record, type=_Told)
        if told.file is not msgspec.UNSET:
            self.files[told.file] = told.source
            return
        journal = self.journals.setdefault(told.source, JournalFold(told.source))
        journal.take(record, number)
        if journal.foreign:
            raise ValueError


class _Told(msgspec.Struct):
    source: str
    file: str | msgspec.UnsetType = msgspec.UNSET


class LedgerFile:
    """The file at `path`, which is made if there is none, for its owner alone; None is one in memory.

    Any number of processes may use it at once.  Every method raises `LedgerRefused`, or `NotReady` while another
    process does not let go of it.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        try:
            if path is not None:
                _make(path)
                self._opened = path.stat()
                _check_owner(path, self._opened)
        except OSError as error:
            raise LedgerRefused(
                f"cannot use the ledger {path}: {error.strerror}; nothing was charged"
            ) from None
        with self._spoken():
            if path is None:
                self._database = _connected(":memory:")
                _begin(self._database)
            else:
                self._database = _connected(f"{path.absolute().as_uri()}?mode=rw")

    def close(self) -> None:
        """Let go of the file."""
        self._database.close()

    def read(self) -> Content:
        """What it holds now."""
        with self._transaction("BEGIN"):
            return self._content()

    def append(self, records: Callable[[Content], Iterable[bytes]]) -> Content:
        """Append what `records` makes of the content, which nobody changes meanwhile; returns it."""
        with self._transaction("BEGIN IMMEDIATE"):
            content = self._content()
            _append(self._database, content.number, content.digest, records(content))
        return content

    def field(self, name: str, field: str) -> bytes | None:
        """A field of a job as it was written."""
        with self._transaction("BEGIN"):
            query = "SELECT value FROM jobs WHERE name = ? AND field = ?"
            found = self._database.execute(query, (name, field)).fetchone()
        return None if found is None else bytes(found[0])

    def write_once(self, name: str, field: str, value: bytes) -> None:
        """Write a field of a job, unless it stands there."""
        with self._transaction("BEGIN IMMEDIATE"):
            self._database.execute("INSERT OR IGNORE INTO jobs VALUES (?, ?, ?)", (name, field, value))

    def _content(self) -> Content:
        content = Content()
        try:
            for (record,) in self._database.execute("SELECT record FROM journal ORDER BY number"):
                content.take(record)
            head = self._database.execute("SELECT number, digest FROM head").fetchall()
        except (msgspec.DecodeError, LedgerDamaged, UnicodeError, TypeError, ValueError):
            raise self._damaged() from None
        if head != [(content.number, content.digest)] or not content.number:
            raise self._damaged()
        return content

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[None]:
        with self._spoken():
            self._database.execute(begin)
            self._check_in_place()
            with self._database:  # commits, or undoes what was begun
                yield

    @contextmanager
    def _spoken(self) -> Iterator[None]:
        """Say what is wrong with the file in a sentence."""
        try:
            yield
        except sqlite3.ProgrammingError:  # no fault of the file
            raise
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if code in _BUSY:
                raise NotReady(
                    f"another process has kept the ledger {self._path} to itself for {_PATIENCE_SECONDS} seconds: try "
                    "again"
                ) from None
            if code in _UNUSABLE:
                raise LedgerRefused(
                    f"cannot use the ledger {self._path}, because {_UNUSABLE[code]}: nothing is released"
                ) from None
            raise self._damaged() from None

    def _check_in_place(self) -> None:
        """Raise `LedgerRefused` if another file, or none, has taken the place of the open one."""
        try:
            moved = self._path is not None and not os.path.samestat(self._path.stat(), self._opened)
        except OSError:
            moved = True
        if moved:
            self._database.rollback()
            raise LedgerRefused(
                f"the ledger {self._path} was deleted or replaced while it was in use: nothing is released"
            )

    def _damaged(self) -> LedgerDamaged:
        return LedgerDamaged(
            f"the ledger {self._path} is damaged, so nobody knows what was spent: restore it from a backup that has "
            "all that was asked since; deleting it forgets what was spent"
        )


class LocalLedger(AnyLedger):
    """The ledger of one source in a file; `by`: who sets budgets.

    `opening`: what the first change puts before its own records, and what every look sees as if it were there.
    """

    def __init__(
        self,
        file: LedgerFile,
        source: str,
        by: str = "",
        opening: Callable[[Content], Iterable[bytes]] = lambda content: (),
    ) -> None:
        super().__init__(source)
        self._file, self._by, self._opening = file, by, opening
        self.state()

    def state(self) -> State:
        """See `AnyLedger.state`."""
        content = self._file.read()
        self._open(content)
        self.journal = content.journal(self.source)
        return content.state(self.source)

    def held(self) -> State:
        """See `AnyLedger.held`: it has nothing but its journal."""
        return self.state()

    def update(self, change: Callable[[State], Change]) -> State:
        """See `AnyLedger.update`."""

        def records(content: Content) -> list[bytes]:
            opening = self._open(content)
            before = content.state(self.source)
            wanted = self._records(before, change(before).applied(before))
            return opening + wanted if wanted else []

        return self._file.append(records).state(self.source)

    def _open(self, content: Content) -> list[bytes]:
        opening = list(self._opening(content))
        for record in opening:
            content.take(record)
        return opening

    def _records(self, before: State, after: State) -> list[bytes]:
        """What makes the one of the other."""
        found: list[BudgetSet | Entry] = []
        budget = after.budget
        if budget is not None and budget != before.budget:
            found.append(BudgetSet(FORMAT, self.source, budget, self._by, now()))
        for name, each in after.stored.items():
            if before.stored.get(name) != each:
                told: Any = (FORMAT, self.source, each.now, budget, each.number, each.marks, each.at)
                found.append(Entry(*told))
        return [msgspec.json.encode(each) for each in found]


def _connected(name: str) -> sqlite3.Connection:
    database = sqlite3.connect(name, isolation_level=None, timeout=_PATIENCE_SECONDS, uri=True)
    database.execute(
        "PRAGMA synchronous = EXTRA"
    )  # else a power cut can bring back the state before a change
    return database


def _begin(database: sqlite3.Connection) -> None:
    database.executescript(_TABLES)
    _append(database, 0, b"", [msgspec.json.encode(Begun(FORMAT, new_key()))])


def _append(database: sqlite3.Connection, number: int, digest: bytes, records: Iterable[bytes]) -> None:
    for record in records:
        number, digest = number + 1, _digest(digest, record)
        database.execute("INSERT INTO journal VALUES (?, ?)", (number, record))
        database.execute("UPDATE head SET number = ?, digest = ?", (number, digest))


def _digest(before: bytes, record: bytes) -> bytes:
    return blake2b(before + record, digest_size=_DIGEST_BYTES).digest()


def _make(path: Path) -> None:
    """Write a new file at `path`, for its owner alone, unless there is one.  Raises OSError."""
    if path.exists():
        return
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    whole = path.with_name(f".{path.name}.{token_hex(8)}.new")
    os.close(os.open(whole, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    try:
        with closing(_connected(whole.absolute().as_uri())) as database:
            _begin(database)
        os.link(whole, path)  # fails if another process was faster; its key counts
    except FileExistsError:
        pass
    finally:
        whole.unlink()


def _check_owner(path: Path, found: os.stat_result) -> None:
    """Raise `LedgerRefused` if others can read or change the file: it holds the keys of the noise."""
    if os.name != "posix":
        return
    if found.st_uid != os.geteuid():
        raise LedgerRefused(f"the ledger {path} belongs to another user: nothing was charged")
    if found.st_mode & 0o077:
        raise LedgerRefused(
            f"others may read or write the ledger {path}, which holds the keys of the noise: run `chmod 600 {path}`"
        )
