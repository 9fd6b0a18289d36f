"""Which data source each topic and each file belongs to: the topic `stream_dp.sources`, one for a whole Kafka.

A request says what it wants to read, and the registry says whose budget pays for it.  It is a log in which the first
record about a topic or a file counts, and nothing ever moves to another source.  Whoever may only ask for jobs cannot
write there.  Nothing is kept in Redis, so no Redis that was lost or restored says anything else.

It also says which topic a source's charges are written to: the first record about the source decides.  Nobody writes a
charge before reading such a record, and it never changes, so all who charge a source write to the same topic.
"""

from pathlib import Path
from typing import Literal

import msgspec
from kafka.errors import KafkaError

from stream_dp.config.connections import Kafka
from stream_dp.config.secret import SettingsError
from stream_dp.config.times import clock, iso_second
from stream_dp.config.topic_names import SOURCES
from stream_dp.epochs.journal import append, check_journal
from stream_dp.epochs.people import whoever
from stream_dp.kafka import log
from stream_dp.kafka.rights import NotPermitted, require_seen
from stream_dp.privacy.composition import Unit
from stream_dp.store.ledger_records import (
    ForeignRecord,
    LedgerDamaged,
    LedgerRefused,
    check_source,
    read_journal,
)

TOPIC = SOURCES
FORMAT = 1
Kind = Literal["topic", "file"]
_RECORDS_LOOKED_AT = 100  # of a topic that is to become a ledger


class Registered(msgspec.Struct, frozen=True):
    """A record of the registry: `name` is a topic, or the keyed digest of a file, and `source` whose budget it spends.

    `unit` is what the source's ledger counts per.  `called`: what the file was called, for people.  `key`: the check
    value of the key that a file is named by.  `ledger`: the topic of the source's charges, if it is not the default.
    """

    v: int
    kind: Kind
    name: str
    source: str
    unit: Unit
    by: str
    at: str
    called: str | None = None
    key: str | None = None
    ledger: str | None = None


class Registry:
    """What `stream_dp.sources` says, as of the last time that it was read."""

    def __init__(self, kafka: Kafka) -> None:
        """Raises `LedgerRefused` and KafkaError.  Where there is no such topic, nothing is registered."""
        self._kafka = kafka
        self._read = 0
        self._found: dict[tuple[Kind, str], Registered] = {}
        self._sources: dict[str, Registered] = {}  # the first record of each
        self._ledgers: dict[str, str] = {}  # whose charges each topic of charges has
        self.file_key: str | None = None  # the check value of the key by which the last file was named
        self.read_on()

    def read_on(self) -> None:
        """Read what has been appended since.  Whoever has had the registry for a while does it before `register`."""
        if not log.existing(self._kafka, TOPIC):
            require_seen(self._kafka, TOPIC)
            return
        held = log.offsets(self._kafka, TOPIC)
        if held.first:
            raise LedgerDamaged(f"the topic {TOPIC!r} has lost its first {held.first} records: restore it")
        for record in log.read(self._kafka, TOPIC, self._read, held.end):
            self.take(record.value or b"")
        self._read = held.end

    def take(self, value: bytes) -> None:
        """The next record; one that says otherwise than those before it counts for nothing."""
        try:
            record = msgspec.json.decode(value, type=Registered)
        except (msgspec.DecodeError, UnicodeError):
            raise LedgerDamaged(f"the topic {TOPIC!r} holds a record that no registry wrote") from None
        if record.kind == "file" and record.key is None:
            raise LedgerDamaged(
                f"the topic {TOPIC!r} names a file by a hash without a key, which confirms guesses of its rows: delete "
                "the topic, and register everything again with `stream-dp source register`"
            )
        if self._objection(record) is None and (record.kind, record.name) not in self._found:
            self._found[record.kind, record.name] = record
            self.file_key = record.key or self.file_key
            self._sources.setdefault(record.source, record)
            self._ledgers[self.ledger_of(record.source)] = record.source

    def all(self) -> list[Registered]:
        """What is registered, in the order in which it was."""
        return list(self._found.values())

    def unit_of(self, source: str) -> Unit | None:
        """What the source counts per; None where nothing is registered as its own."""
        return self._sources[source].unit if source in self._sources else None

    def ledger_of(self, source: str) -> str:
        """The topic of the source's charges.  It is settled once anything is registered as the source's."""
        found = self._sources.get(source)
        return default_ledger(source) if found is None or found.ledger is None else found.ledger

    def owner(self, kind: Kind, name: str) -> Registered | None:
        """To which source a topic or a file belongs; a topic that is a source by its name belongs to itself."""
        found = self._found.get((kind, name))
        if found is None and kind == "topic" and name in self._sources:
            found = msgspec.structs.replace(self._sources[name], kind="topic", name=name, called=None)
        return found

    def register(
        self,
        kind: Kind,
        name: str,
        source: str,
        unit: Unit,
        by: str | None = None,
        called: str | None = None,
        create_topics: bool = True,
        at: int | None = None,
        key: str | None = None,
        ledger: str | None = None,
    ) -> Registered:
        """Have a topic or a file belong to `source`, however often; returns what counts.

        An operator's act: whoever registers a copy of events as a source of its own gives it a budget of its own.
        `at`: when, in milliseconds; else now.  `key` and `ledger`: see `Registered`; a `ledger` that differs from the
        source's is refused.
        Raises `LedgerRefused` and KafkaError.
        """
        at = clock() if at is None else at
        record = Registered(
            FORMAT, kind, name, source, unit, by or whoever(), iso_second(at), called, key, ledger
        )
        if self.has(record):
            return record
        if create_topics and not log.existing(self._kafka, TOPIC):
            log.create_topics(self._kafka, TOPIC)
        if ledger is not None:
            _require_usable(self._kafka, ledger, source, create_topics)
        try:
            check_journal(self._kafka, TOPIC)
            append(self._kafka, TOPIC, msgspec.json.encode(record), at)
        except log.LogRefused as refused:
            raise LedgerRefused(str(refused)) from None
        except NotPermitted as refused:
            raise LedgerRefused(f"{not_registered(kind, name, source)}; or else: {refused}") from None
        self.read_on()
        self.has(record)  # somebody else may have been first
        return record

    def has_topic(self, name: str, source: str, unit: Unit) -> bool:
        """Whether a topic is registered like this.  Raises `LedgerRefused` if it cannot be any more."""
        return self.has(Registered(FORMAT, "topic", name, source, unit, by="", at=""))

    def has(self, record: Registered) -> bool:
        """Whether it is registered exactly like this.  Raises `LedgerRefused` if it cannot be any more."""
        check_source(record.source)
        objection = self._objection(record)
        if objection is not None:
            raise LedgerRefused(objection)
        if self.owner(record.kind, record.name) is not None:
            return True
        name = record.name
        if (
            record.kind == "topic"
            and name != record.source
            and log.existing(self._kafka, default_ledger(name))
        ):
            raise LedgerRefused(
                f"the topic {name!r} is a data source of its own, with charges in {default_ledger(name)!r}: register "
                "it without --source"
            )
        return False

    def _objection(self, record: Registered) -> str | None:
        """Why the record cannot count beside those before it; None where it can."""
        what = f"the {record.kind} {record.called or record.name!r}"
        owner, above = self.owner(record.kind, record.name), self.owner("topic", record.source)
        if owner is not None and owner.source != record.source:
            return (
                f"{what} belongs to the data source {owner.source!r} and spends its budget, not that of "
                f"{record.source!r}: nothing moves to another source"
            )
        if above is not None and above.source != record.source:
            return f"{record.source!r} is not a data source of its own: it belongs to {above.source!r}, so name that"
        if (misplaced := self._misplaced(record)) is not None:
            return misplaced
        unit = self.unit_of(record.source)
        if unit not in (None, record.unit):
            return (
                f"the data source {record.source!r} counts per {unit}, and the two units cannot be added: leave the "
                f"unit out, or give {unit}"
            )
        return None

    def _misplaced(self, record: Registered) -> str | None:
        """Why the source's charges cannot be where the record has them, or why it names a ledger; None if neither."""
        source, settled = record.source, record.source in self._sources
        ledger = record.ledger or self.ledger_of(source)
        if settled and ledger != self.ledger_of(source):
            return (
                f"the charges of {source!r} are written to {self.ledger_of(source)!r}, and a ledger never moves: leave "
                "--ledger out"
            )
        if self._ledgers.get(ledger, source) != source:
            return f"the topic {ledger!r} has the charges of {self._ledgers[ledger]!r}: name another one with --ledger"
        if (
            ledger in (source, record.name, TOPIC)
            or ledger in self._sources
            or ("topic", ledger) in self._found
        ):
            return f"the topic {ledger!r} holds no charges: name a topic of its own with --ledger"
        if record.kind == "topic" and record.name in self._ledgers:
            return f"the topic {record.name!r} is a ledger and holds no events: register a topic of events"
        return None


def default_ledger(source: str) -> str:
    """The topic of the source's charges if nobody has named another one."""
    return f"{source}.ledger"


def ledger_as_far_as_known(kafka: Kafka, source: str) -> str:
    """The topic of the source's charges for those who list rights: the default if this user cannot ask."""
    try:
        return Registry(kafka).ledger_of(source)
    except (KafkaError, LedgerRefused, SettingsError):
        return default_ledger(source)


def _require_usable(kafka: Kafka, ledger: str, source: str, create_topics: bool) -> None:
    """Raise `LedgerRefused` unless the topic can be the ledger of `source`; it may have been before."""
    check_source(ledger)
    default = default_ledger(source)
    if ledger != default and log.existing(kafka, default) and log.offsets(kafka, default).end:
        raise LedgerRefused(
            f"the charges of {source!r} are written to {default!r}, and a ledger never moves: leave --ledger out"
        )
    if not log.existing(kafka, ledger):
        if not create_topics:
            raise LedgerRefused(f"the topic {ledger!r} does not exist: create it with one partition")
        return
    check_journal(kafka, ledger)
    for record in log.read(kafka, ledger, 0, min(log.offsets(kafka, ledger).end, _RECORDS_LOOKED_AT)):
        try:
            read_journal(source, record.value or b"")
        except (ForeignRecord, LedgerDamaged) as foreign:
            raise LedgerRefused(
                f"the topic {ledger!r} has a record that {foreign}: name an empty topic, or one that does not exist"
            ) from None


def not_registered(kind: Kind, name: str, source: str | None = None) -> str:
    """The refusal of what nobody has registered, with the command that does it."""
    if kind == "topic":
        more = f" --source {source}" if source not in (None, name) else ""
        return (
            f"nobody has said whose budget the topic {name!r} spends, so nothing was read: an operator registers it "
            f"with `stream-dp source register --topic {name}{more}`"
            + ("" if more else ", and with --source NAME if its events come from another source")
        )
    return (
        f"nobody has said whose budget the file {name!r} spends, or it was changed since, so nothing was read: an "
        f"operator registers it with `stream-dp source register --file {Path(name)} --source NAME --unit user`, where "
        "NAME is the events topic that it was exported from, or a name of its own"
    )
