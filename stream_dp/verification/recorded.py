"""An epoch as its topics hold it: what is on record of it, its log, and what was released of it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import takewhile

from redis import Redis

from stream_dp.barriers.key import barrier_key
from stream_dp.barriers.topic import read_barriers
from stream_dp.config.settings import Settings
from stream_dp.engine.epoch import Epoch, EpochRefused
from stream_dp.engine.known_labels import KnownLabels
from stream_dp.epochs.journal import EpochClosed, EpochJournal, EpochOpened, check_key
from stream_dp.epochs.published import published, published_of, value_digest
from stream_dp.epochs.schemas_topic import schema_records
from stream_dp.events.barrier_chain import Barrier, BarrierChain
from stream_dp.events.merged_log import Fetched, LogEntry, merged
from stream_dp.events.record import Record
from stream_dp.events.rounds import events_of
from stream_dp.events.schema_book import SchemaBook
from stream_dp.kafka import log
from stream_dp.pipeline.pipeline import Pipeline, ReleasedPart
from stream_dp.privacy.keyed_noise import check_golden_draw
from stream_dp.privacy.vector import Vector, at, larger
from stream_dp.releases.release import decode_release
from stream_dp.store.checkpoints import Checkpoint, CheckpointStore
from stream_dp.store.noise_key import noise_key
from stream_dp.verification.block_start import BlockStart, block_start
from stream_dp.verification.verify import comparable
from stream_dp.workers.events_reader import ends_of

Progress = Callable[[int, int], None]
"""Called with how many records are done, and how many there are."""


@dataclass(frozen=True)
class RecordedEpoch:
    """An epoch as it is on record, with its key, what it knew of labels, and what closed it, if anything.

    `blocks` says where the blocks of its windows begin, as far as that is on record.  `schemas` are the records of the
    schemas topic, where its events name schemas.
    """

    opened: EpochOpened
    key: bytes
    closed: EpochClosed | None
    known: KnownLabels
    blocks: dict[int, int]
    schemas: tuple[bytes | None, ...] = ()

    @property
    def epoch(self) -> Epoch:
        """What was guaranteed."""
        return self.opened.epoch

    def pipeline(self, start: BlockStart | None = None) -> Pipeline:
        """One at the beginning of the epoch, or at `start`, which knows the schemas that its events name."""
        if start is None:
            pipeline = Pipeline(self.epoch, self.key, self.epoch.topic, known=self.known)
        else:
            pipeline = start.pipeline(self.epoch, self.key)
        pipeline.intake.schemas.take(*self.schemas)
        return pipeline


def recorded_epoch(settings: Settings, redis: Redis, number: int | None = None) -> RecordedEpoch:
    """The epoch `number` (default: the last one) from the epochs topic, with the noise key it was opened with.

    Raises `EpochRefused`, `LogRefused`, `NoKey` or `WrongNoise`.
    """
    check_golden_draw()
    log.check_topic(settings.kafka_address, settings.epochs)
    find_key = partial(noise_key, settings.noise_key, redis, settings.stream, may_create=False)
    journal = EpochJournal(settings, find_key)
    opened = [entry for entry in journal.opened if number in (None, entry.epoch.number)]
    if not opened:
        wanted = "no epoch" if number is None else f"no epoch {number}"
        raise EpochRefused(f"{wanted} of stream {settings.stream!r} was ever opened")
    key = find_key()
    last = opened[-1]
    check_key(last, key)
    last.epoch.check_noise()
    closed, mapping = journal.closed.get(last.epoch.number), last.epoch.mapping
    names_schemas = mapping is not None and mapping.needs_schemas
    schemas = tuple(schema_records(settings)) if names_schemas else ()
    blocks = {block: offset for block, (offset, _) in journal.blocks.get(last.epoch.number, {}).items()}
    return RecordedEpoch(last, key, closed, journal.known_labels(last.epoch), blocks, schemas)


def start_of_epoch(settings: Settings, recorded: RecordedEpoch) -> BlockStart | None:
    """With which block to begin instead of the epoch; None if with none: see `block_start`."""
    return block_start(settings, recorded.opened, recorded.key, recorded.blocks)


def checkpoint_of(settings: Settings, redis: Redis, recorded: RecordedEpoch) -> Checkpoint | None:
    """The checkpoint of an epoch, if Redis has one."""
    checkpoint = CheckpointStore(redis, settings.stream).load(recorded.key)
    return checkpoint if checkpoint is not None and checkpoint.epoch.nonce == recorded.epoch.nonce else None


def last_released(recorded: RecordedEpoch, checkpoint: Checkpoint | None) -> int:
    """A round up to which all releases of an epoch were sent, as far as that is known without looking at them."""
    if recorded.closed is not None and not recorded.closed.end_unknown:
        return recorded.epoch.mechanism.horizon
    return checkpoint.position.released if checkpoint is not None else 0


def published_parts(
    settings: Settings, recorded: RecordedEpoch, start: BlockStart | None = None, topic: str | None = None
) -> Iterator[tuple[int, ReleasedPart]]:
    """The releases of the epoch in the order of their topic, each with its offset; those from `start` on.

    `topic`: another than the releases topic, of which `start` says nothing.
    """
    if start is None:
        found = published_of(settings, recorded.opened, topic)
    else:
        nonce = recorded.epoch.nonce.hex()
        later = published(settings, start.releases_offset)
        found = (
            each for each in later if each.release.nonce == nonce and each.release.round >= start.first_round
        )
    for offset, release, value in found:
        yield offset, ReleasedPart(release.round, release.part, value)


class Released:
    """What the releases topic holds of an epoch: `rounds` is the last whole one, after which `next_offset` stands."""

    def __init__(
        self, published: Iterator[tuple[int, ReleasedPart]], first_offset: int, first_compared: int
    ) -> None:
        """`first_compared`: see `comparable`."""
        self.rounds, self.next_offset = 0, first_offset
        self._values: dict[tuple[int, int], bytes] = {}
        for offset, part in published:
            for each in comparable([part], first_compared):
                self._values[each.round, each.part] = value_digest(each.value)
            if part.part == decode_release(part.value).parts and part.round > self.rounds:
                self.rounds, self.next_offset = part.round, offset + 1

    def differs(self, part: ReleasedPart) -> bool:
        """Whether the topic holds another release in its place; it may hold none."""
        digest = value_digest(part.value)
        return self._values.pop((part.round, part.part), digest) != digest

    def lacks(self, part: ReleasedPart) -> bool:
        """Whether the topic holds none in its place, up to the last whole one."""
        return part.round <= self.rounds and (part.round, part.part) not in self._values

    def not_given_up_to(self, last: int) -> int:
        """A round up to this one of which a release was never given to `differs`; 0 if there is none."""
        return max((number for number, _ in self._values if number <= last), default=0)


def epoch_entries(
    settings: Settings, recorded: RecordedEpoch, progress: Progress, start: BlockStart | None = None
) -> Iterator[LogEntry]:
    """The log that the epoch counts: its events, and its barriers where it has any; or what comes from `start` on."""
    epoch, closed = recorded.epoch, recorded.closed
    offsets, after = (epoch.offsets, epoch.after_barrier) if start is None else (start.offsets, start.barrier)
    events = _Events(settings, recorded, offsets, progress)
    if epoch.after_barrier is None:
        return (record for _, batch in events.of(0) for record in batch)
    assert after is not None, "a block of such an epoch begins behind a barrier"
    chain = BarrierChain(barrier_key(recorded.key), settings.stream, after)
    barriers = read_barriers(settings, chain.last.next_offset, ends_of(settings, epoch).barriers or 0)
    by_events = events_of(epoch.privacy["rounds"]) is not None
    if closed is None:
        return merged(chain, barriers, events.of, *offsets, barriers_first=by_events)
    ends, last = closed.ends, closed.end_barrier
    if not by_events:
        if last is not None:
            barriers = takewhile(lambda _: chain.last.number < last, barriers)
        return merged(chain, barriers, events.of, *offsets)
    # It may have ended among the events that a barrier has put into their order.
    barriers = takewhile(lambda _: larger(chain.last.ends, ends) != chain.last.ends, barriers)
    log_of = merged(chain, barriers, events.of, *offsets, barriers_first=True)
    return (each for each in log_of if isinstance(each, Barrier) or each.offset < at(ends, each.partition))


class _Events:
    """The events of an epoch, as far as their partitions hold them, and how many of all have been read."""

    def __init__(
        self, settings: Settings, recorded: RecordedEpoch, starts: Vector, progress: Progress
    ) -> None:
        """`starts`: from which offsets on."""
        self._settings, self._promise, self._progress = settings, recorded, progress
        held, closed = log.offsets_of_all(settings.kafka_address, recorded.epoch.topic), recorded.closed
        if (
            recorded.epoch.after_barrier is not None
            and events_of(recorded.epoch.privacy["rounds"]) is not None
        ):
            closed = None  # it ends where its rounds do, among what a barrier has put into order
        self._ranges = [
            (
                max(offsets.first, at(starts, number)),
                offsets.end if closed is None else min(offsets.end, at(closed.ends, number)),
            )
            for number, offsets in enumerate(held)
        ]
        self._done = [0] * len(held)

    def of(self, partition: int) -> Iterator[Fetched]:
        """The records of a partition as they are fetched, each time with the offset up to which all have been."""
        epoch, fetched = self._promise.epoch, self._fetched(partition)
        if epoch.mapping is not None and epoch.mapping.needs_schemas:
            book = SchemaBook(self._promise.key, epoch.nonce, self._promise.schemas)
            return _as_far_as_settled(fetched, book)
        return fetched

    def _fetched(self, partition: int) -> Iterator[Fetched]:
        if partition >= len(self._ranges):
            return
        kafka, topic = self._settings.kafka_address, self._promise.epoch.topic
        first, end = self._ranges[partition]
        total = sum(max(0, ends - starts) for starts, ends in self._ranges)
        for reached, batch in log.read_batches(kafka, topic, first, end, partition):
            yield reached, [Record.of(each) for each in batch]
            self._done[partition] = reached - first
            self._progress(sum(self._done), total)


def _as_far_as_settled(fetched: Iterator[Fetched], book: SchemaBook) -> Iterator[Fetched]:
    """Events up to the first that names a schema which is not on record: nothing from there on was ever counted."""
    for reached, batch in fetched:
        for number, record in enumerate(batch):
            if book.unsettled([record.value]):
                yield record.offset, batch[:number]
                return
        yield reached, batch
