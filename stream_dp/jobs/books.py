"""Where jobs are charged and remembered: on servers, or wherever else an implementation of `Books` keeps that."""

from typing import Protocol

from redis import Redis

from stream_dp.config.connections import Kafka
from stream_dp.epochs.file_names import file_key, file_name
from stream_dp.epochs.journaled_ledger import JournaledLedger, look
from stream_dp.epochs.registry import Registered, Registry, not_registered
from stream_dp.events.stored_files import StoredFile
from stream_dp.jobs.request import BadRequest, Source
from stream_dp.jobs.store import JobRecords, JobStore
from stream_dp.privacy.composition import Charge
from stream_dp.store.any_ledger import AnyLedger
from stream_dp.store.ledger_records import Marks, Query, State


class Charged(Protocol):
    """A ledger that jobs are charged to, before anything is released."""

    def current(self) -> AnyLedger:
        """What it holds now."""
        ...

    def charge(self, charge: Charge, marks: Marks | None = None, at: int | None = None) -> Charge:
        """See `AnyLedger.charge`."""
        ...

    def note_query(self, budget_id: str, query_id: str, query: Query, at: int | None = None) -> None:
        """Record what became of a query of a pay-what-you-get budget."""
        ...


class Books(Protocol):
    """What was registered, charged and answered.  `unmetered`: whether sources without a budget may be charged."""

    unmetered: bool

    def owner_of_topic(self, topic: str, said: str | None) -> Registered:
        """Whose budget a topic spends.  `said`: what the settings say, for the refusal.

        Raises `BadRequest` and `LedgerRefused`, as the next does.
        """
        ...

    def owner_of_file(self, file: StoredFile, source: Source) -> Registered:
        """Whose budget a file spends."""
        ...

    def look(self, source: str) -> State:
        """The ledger of a source as it stands; nothing is made.  Raises `LedgerRefused`."""
        ...

    def ledger(self, source: str) -> Charged:
        """The ledger of a source, to charge it.  Raises `LedgerRefused`."""
        ...

    def jobs(self, stream: str) -> JobRecords:
        """What is remembered of the jobs of a stream."""
        ...


class ServedBooks:
    """Redis, and the journals in Kafka.  `create_topics`: whether the journal of a ledger is made if there is none."""

    def __init__(
        self, kafka: Kafka, redis: Redis, create_topics: bool = True, unmetered: bool = False
    ) -> None:
        self.unmetered = unmetered
        self._kafka, self._redis, self._create_topics = kafka, redis, create_topics

    def owner_of_topic(self, topic: str, said: str | None) -> Registered:
        """See `Books.owner_of_topic`: the registry alone decides."""
        found = Registry(self._kafka).owner("topic", topic)
        if found is None:
            raise BadRequest(not_registered("topic", topic, said))
        return found

    def owner_of_file(self, file: StoredFile, source: Source) -> Registered:
        """See `Books.owner_of_file`."""
        registry = Registry(self._kafka)
        key = file_key(registry, self._redis)
        found = None if key is None else registry.owner("file", file_name(file, key))
        if found is None:
            raise BadRequest(not_registered("file", str(source.file)))
        return found

    def look(self, source: str) -> State:
        """See `Books.look`."""
        return look(self._kafka, self._redis, source).state()

    def ledger(self, source: str) -> JournaledLedger:
        """See `Books.ledger`."""
        return JournaledLedger(self._kafka, self._redis, source, self._create_topics, self.unmetered)

    def jobs(self, stream: str) -> JobStore:
        """See `Books.jobs`."""
        return JobStore(self._redis, stream)
