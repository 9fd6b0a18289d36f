"""Settles what schema numbers stand for before a worker counts the records that name them."""

import asyncio
import logging
import time
from collections.abc import Iterable
from contextlib import ExitStack

from stream_dp.config.events_section import EventsSection
from stream_dp.config.settings import Settings
from stream_dp.engine.epoch import Epoch, EpochRefused
from stream_dp.epochs.schemas_topic import SchemasTopic
from stream_dp.events.mapping.schema import Schema
from stream_dp.events.schema_book import SchemaBook
from stream_dp.kafka.schema_registry import NoSchema, RegistryAway, SchemaRegistry
from stream_dp.operations.watch import Watch

logger = logging.getLogger(__name__)

UNKNOWN_SECONDS = 1.0
"""A number that the registry says it does not know is unknown when it still says so after this time."""

ERROR_SECONDS = 30.0
"""One for which it answers otherwise, and gives no schema, is after this time, or one record would stop the stream."""

_ASK_AGAIN_SECONDS = 0.5
_AT_ONCE = 16
"""Numbers that are asked for at the same time: a record of somebody who wants to do harm may name any."""

_MOST_TOLD = 20
"""Unknown numbers that a session logs."""


_Answer = tuple[int, Schema | None, float] | RegistryAway | None


def settler_of(
    settings: Settings, epoch: Epoch, book: SchemaBook, watch: Watch, stopping: asyncio.Event
) -> "SchemaSettler | None":
    """What it takes to read records by the schemas that they name, into `book`; None where they name none.

    Raises `EpochRefused` where the settings name no registry any more.
    """
    section = settings.mapping
    if epoch.mapping is None or not epoch.mapping.needs_schemas:
        return None
    if section is None or section.schema_registry is None:
        raise EpochRefused(
            f"epoch {epoch.number} reads records by a schema registry, and the settings name none"
        )
    return SchemaSettler(SchemasTopic(settings, book), section, book, watch, stopping)


class SchemaSettler:
    """Asks the registry and puts its answers on record, for one session of a worker."""

    def __init__(
        self,
        record: SchemasTopic,
        section: EventsSection,
        book: SchemaBook,
        watch: Watch,
        stopping: asyncio.Event,
    ) -> None:
        """`stopping`: once it is set, no answer is waited for."""
        self._book, self._watch, self._record, self._stopping = book, watch, record, stopping
        self._registry = SchemaRegistry(section)
        self._since: dict[int, float] = {}
        self._next = 0.0
        self._told = 0
        self._outage: ExitStack | None = None

    def begin(self) -> None:
        """Read what is settled.  Raises `LogRefused`."""
        self._record.read_on()

    def close(self) -> None:
        """Leave the registry."""
        self._end_outage()
        self._registry.close()

    async def settle(self, values: Iterable[bytes | None]) -> bool:
        """Whether all numbers that these values name are settled.  If not, a little time has passed: ask again."""
        unsettled = self._book.unsettled(values)
        if not unsettled:
            return True
        wait = self._next - time.monotonic()
        if wait > 0:
            await asyncio.sleep(min(wait, _ASK_AGAIN_SECONDS))
        for begin in range(0, len(unsettled), _AT_ONCE):
            asked = [
                asyncio.to_thread(self._answer, number) for number in unsettled[begin : begin + _AT_ONCE]
            ]
            with self._watch.progress.waiting("schema-registry"):
                answers = await self._unless_stopped(asyncio.gather(*asked))
            if self._stopping.is_set():
                return False
            self._next = time.monotonic() + _ASK_AGAIN_SECONDS
            away = next((each for each in answers if isinstance(each, RegistryAway)), None)
            if away is not None:
                self._begin_outage(away)
                return False
            self._end_outage()
            if found := [each for each in answers if isinstance(each, tuple)]:
                await asyncio.to_thread(self._record.settle, found)
        return not self._book.unsettled(values)

    async def _unless_stopped(self, answers: "asyncio.Future[list[_Answer]]") -> list[_Answer]:
        """The answers, or that the registry is away as soon as this process is to stop."""
        stopped = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait((answers, stopped), return_when=asyncio.FIRST_COMPLETED)
            if not answers.done():
                self._registry.close()
            return await answers
        finally:
            stopped.cancel()

    def _answer(self, number: int) -> _Answer:
        """What is to be put on record of a number; None while that is not clear."""
        since = self._since.setdefault(number, time.monotonic())
        try:
            return number, self._registry.schema(number), 0.0
        except RegistryAway as away:
            return away
        except NoSchema as none:
            limit = UNKNOWN_SECONDS if none.sure else ERROR_SECONDS
            if time.monotonic() - since < limit:
                return None
            self._tell_unknown(number, none)
            return number, None, limit

    def _tell_unknown(self, number: int, why: NoSchema) -> None:
        self._told += 1
        if self._told > _MOST_TOLD:
            return
        logger.warning(
            "the schema registry at %s gives no schema %d (%s): records that name it count as empty events%s",
            self._registry.address,
            number,
            why,
            "; only the dead letters tell of further numbers" if self._told == _MOST_TOLD else "",
        )

    def _begin_outage(self, why: RegistryAway) -> None:
        self._since.clear()  # the time that it was away says nothing about a number
        if self._outage is None:
            logger.warning(
                "the schema registry at %s cannot be asked (%s): the records that need it wait, and all behind them",
                self._registry.address,
                why,
            )
            self._outage = ExitStack()
            self._outage.enter_context(self._watch.progress.waiting("schema-registry"))
            self._watch.operator.outages["schema-registry"].inc()
            self._watch.registry_away = True

    def _end_outage(self) -> None:
        outage, self._outage = self._outage, None
        if outage is not None:
            outage.close()
            self._watch.registry_away = False
            logger.info("the schema registry at %s answers", self._registry.address)
