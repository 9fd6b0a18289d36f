"""What is charged and answered on a machine without servers: one file of ledgers in the user's state folder.

A file is known by its content, and else by its name: a copy of another name, and the same name with other rows, spend
the budget that it had.  Whoever asks about other people gives another source.
"""

from collections.abc import Iterator
from pathlib import PurePath

import msgspec

from stream_dp.config.times import now
from stream_dp.epochs.file_names import file_name
from stream_dp.epochs.people import whoever
from stream_dp.epochs.registry import FORMAT, Registered
from stream_dp.events.stored_files import StoredFile
from stream_dp.jobs.request import BadRequest, Source, Unit
from stream_dp.jobs.store import JobRecords
from stream_dp.privacy.composition import Budget, Charge
from stream_dp.store.ledger_file import Content, FileOf, LedgerFile, LocalLedger
from stream_dp.store.ledger_records import BudgetSet, LedgerRefused, Marks, Query, State, name_of_source

EPSILON, DELTA = 2.0, 1e-5
"""The budget of a source for which nobody has set one: two jobs at epsilon 1, or ten at epsilon 0.2."""

_BY = "stream_dp, because nobody else had"
_UNIT_IS_OPEN = (
    "nobody has said whom this protects: name the column of people with --user, and all rows of a person are protected "
    "together (of JSON Lines, say --unit user); or say --unit event, and each row is protected by itself"
)


class LocalBooks:
    """`Books` in a file of ledgers.  `unit`: what is protected, for a source that is not there yet."""

    def __init__(self, file: LedgerFile, unit: Unit | None, unmetered: bool) -> None:
        self.unmetered = unmetered
        self._file, self._unit = file, unit
        self._found: FileOf | None = None

    def owner_of_topic(self, topic: str, said: str | None) -> Registered:
        """See `Books.owner_of_topic`."""
        raise BadRequest(f"the topic {topic!r} is on a server: name that with --kafka")

    def owner_of_file(self, file: StoredFile, source: Source) -> Registered:
        """See `Books.owner_of_file`."""
        content = self._file.read()
        name, called = file_name(file, content.key), PurePath(file.name).name
        chosen = content.files.get(name) or source.name or name_of_source(called)
        unit = content.state(chosen).unit or self._unit
        if unit is None:
            raise BadRequest(_UNIT_IS_OPEN)
        self._found = FileOf(FORMAT, chosen, name, called)
        return Registered(FORMAT, "file", name, chosen, unit, whoever(), now(), called)

    def look(self, source: str) -> State:
        """See `Books.look`; the budget that a first charge sets is there already."""
        return self._ledger(source).state()

    def ledger(self, source: str) -> "_Charged":
        """See `Books.ledger`.  With the first charge the source has the file, and a budget."""
        return _Charged(self._ledger(source), not self.unmetered)

    def _ledger(self, source: str) -> LocalLedger:
        found = self._found

        def opening(content: Content) -> Iterator[bytes]:
            if found is not None and found.file not in content.files:
                yield msgspec.json.encode(found)
            elif found is not None and content.files[found.file] != source:
                raise LedgerRefused("another command has just charged this file to another source: ask again")
            state = content.state(source)
            if state.budget is None and not self.unmetered:
                budget = Budget(epsilon=EPSILON, delta=DELTA, unit=state.unit or self._unit or "user")
                yield msgspec.json.encode(BudgetSet(FORMAT, source, budget, _BY, now()))

        return LocalLedger(self._file, source, opening=opening)

    def jobs(self, stream: str) -> "_Jobs":
        """See `Books.jobs`."""
        return _Jobs(self._file, stream)


class _Charged:
    """A ledger in a file; it needs no second journal."""

    def __init__(self, ledger: LocalLedger, metered: bool) -> None:
        self._ledger, self._metered = ledger, metered

    def current(self) -> LocalLedger:
        """See `Charged.current`."""
        return self._ledger

    def charge(self, charge: Charge, marks: Marks | None = None, at: int | None = None) -> Charge:
        """See `Charged.charge`."""
        return self._ledger.charge(charge, marks, self._metered, at)

    def note_query(self, budget_id: str, query_id: str, query: Query, at: int | None = None) -> None:
        """See `Charged.note_query`: reserving and spending have written it down."""


class _Jobs(JobRecords):
    held_by = "the local ledger"

    def __init__(self, file: LedgerFile, stream: str) -> None:
        super().__init__(stream)
        self._file = file

    def _value(self, name: str, field: str) -> bytes | None:
        return self._file.field(name, field)

    def _write(self, name: str, field: str, value: bytes) -> None:
        self._file.write_once(name, field, value)
