"""A stream from its noise key and its topics alone: to put its state back into Redis, or to check its releases."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice, takewhile

from redis import Redis

from stream_dp.barriers.key import barrier_key
from stream_dp.barriers.topic import read_barriers
from stream_dp.config.settings import Settings
from stream_dp.engine.epoch import Epoch, EpochRefused
from stream_dp.engine.histogram import HistogramState
from stream_dp.engine.known_labels import KnownLabels
from stream_dp.epochs.journal import EpochClosed, EpochJournal, EpochOpened, check_key
from stream_dp.epochs.lifecycle import Epochs
from stream_dp.epochs.published import published, published_of, start_of, value_digest
from stream_dp.epochs.schemas_topic import schema_records
from stream_dp.events.barrier_chain import Barrier, BarrierChain
from stream_dp.events.log_digest import NOTHING
from stream_dp.events.merged_log import Fetched, LogEntry, merged
from stream_dp.events.record import Record
from stream_dp.events.rounds import events_of
from stream_dp.events.schema_book import SchemaBook
from stream_dp.kafka import log
from stream_dp.kafka.clients import kept_clients
from stream_dp.pipeline.pipeline import Pipeline, Position, ReleasedPart
from stream_dp.privacy.keyed_noise import check_golden_draw, key_check
from stream_dp.privacy.vector import Vector, at, larger
from stream_dp.releases.release import decode_release
from stream_dp.sinks.releases import sink_of
from stream_dp.store.checkpoints import Checkpoint, CheckpointStore, Sharding, StateDamaged
from stream_dp.store.noise_key import noise_key
from stream_dp.verification.block_start import BlockStart, block_start
from stream_dp.verification.verify import Outcome, comparable, verify
from stream_dp.workers.events_reader import ends_of
from stream_dp.workers.owned_partition import state_of_partition
from stream_dp.workers.resume import take_over

Progress = Callable[[int, int], None]
"""Called with how many records are done, and how many there are."""

_RECORDS_AT_ONCE = 500


@dataclass(frozen=True)
class RecordedEpoch:
    """An epoch as it is on record, with its key, what it knew of labels, and what closed it, if anything.

    `schemas` are the records of the schemas topic, where its events name schemas.
    """

    opened: EpochOpened
    key: bytes
    closed: EpochClosed | None
    known: KnownLabels
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
    journal = EpochJournal(settings)
    opened = [entry for entry in journal.opened if number in (None, entry.epoch.number)]
    if not opened:
        wanted = "no epoch" if number is None else f"no epoch {number}"
        raise EpochRefused(f"{wanted} of stream {settings.stream!r} was ever opened")
    key = noise_key(settings.noise_key, redis, settings.stream, may_create=False)
    last = opened[-1]
    check_key(last, key)
    last.epoch.check_noise()
    last.epoch.check_rounds()
    closed, mapping = journal.closed.get(last.epoch.number), last.epoch.mapping
    names_schemas = mapping is not None and mapping.needs_schemas
    schemas = tuple(schema_records(settings)) if names_schemas else ()
    return RecordedEpoch(last, key, closed, journal.known_labels(last.epoch), schemas)


@kept_clients()
def verify_epoch(
    settings: Settings,
    redis: Redis,
    number: int | None = None,
    progress: Progress = lambda done, of: None,
    whole: bool = False,
) -> Outcome:
    """Compare the releases of an epoch with what its key and log give again.

    Of windows, that is those of the last two blocks, where they can be computed from the log of three; with `whole`,
    those from the epoch's beginning on, as of any other mechanism.
    """
    recorded = recorded_epoch(settings, redis, number)
    checkpoint = checkpoint_of(settings, redis, recorded)
    start = None if whole else start_of_epoch(settings, recorded, checkpoint)
    released = last_released(settings, recorded, checkpoint)
    parts = (part for _, part in published_parts(settings, recorded, start))
    return compared(settings, recorded, parts, checkpoint, released, start, progress)


def start_of_epoch(
    settings: Settings, recorded: RecordedEpoch, checkpoint: Checkpoint | None
) -> BlockStart | None:
    """With which block to begin instead of the epoch; None if with none: see `block_start`."""
    return block_start(settings, recorded.opened, recorded.key, checkpoint, recorded.schemas)


def compared(
    settings: Settings,
    recorded: RecordedEpoch,
    parts: Iterator[ReleasedPart],
    checkpoint: Checkpoint | None,
    released: int,
    start: BlockStart | None,
    progress: Progress,
) -> Outcome:
    """What `verify` says of releases of an epoch, `parts`, or of those from `start` on."""
    epoch, counted, rounds = recorded.epoch, NOTHING, 0
    if checkpoint is not None and epoch.log_rounds:
        after_start = start is None or checkpoint.state.round >= start.first_round
        counted, rounds = (checkpoint.position.log, checkpoint.state.round) if after_start else (NOTHING, 0)
    elif checkpoint is not None and start is None:
        counted = checkpoint.position.log
    return verify(
        epoch,
        recorded.key,
        epoch.topic,
        epoch_entries(settings, recorded, progress, start),
        parts,
        counted,
        released,
        recorded.known,
        recorded.schemas,
        start,
        rounds,
    )


def checkpoint_of(settings: Settings, redis: Redis, recorded: RecordedEpoch) -> Checkpoint | None:
    """The checkpoint of an epoch, if Redis has one."""
    checkpoint = CheckpointStore(redis, settings.stream).load(recorded.key)
    return checkpoint if checkpoint is not None and checkpoint.epoch.nonce == recorded.epoch.nonce else None


def last_released(settings: Settings, recorded: RecordedEpoch, checkpoint: Checkpoint | None) -> int:
    """A round up to which all releases of an epoch were sent, as far as that is known without looking at them.

    Of a stream in shards it is not: checkpoints of its worker tell what was handed to the shards.
    """
    if settings.shards:
        return 0
    if recorded.closed is not None and not recorded.closed.end_unknown:
        return recorded.epoch.mechanism.horizon
    return checkpoint.position.released if checkpoint is not None else 0


@kept_clients()
def rebuild(
    settings: Settings,
    redis: Redis,
    progress: Progress = lambda done, of: None,
    replace: bool = False,
    trust_log: bool = False,
    whole: bool = False,
) -> Checkpoint:
    """Put the state of the open epoch back into Redis, as it was after its last whole release; nothing is released.

    Of windows, that is computed from the log of their last three blocks where all releases of these are there and
    agree, or else, or with `whole`, from the epoch's beginning on.

    What is left of its releases is compared with what the log gives.  Where nothing is left, nothing shows that the log
    is the one that was counted: `trust_log` takes that on trust, and the epoch begins again, with the same releases.

    Raises `EpochRefused` where Redis still holds state and `replace` is false, and where the log does not give what
    was released, and `LedgerRefused` where the epoch was not charged and its charge does not fit the budget.
    """
    store = CheckpointStore(redis, settings.stream)
    if not replace and store.holds_state():
        raise EpochRefused(
            f"Redis holds state of stream {settings.stream!r}: nothing was rebuilt; give --replace to replace it"
        )
    epochs = take_over(settings, store, redis)
    epochs.finish_closing()
    recorded = recorded_epoch(settings, redis)
    if recorded.closed is not None:
        raise EpochRefused(f"epoch {recorded.epoch.number} is closed: there is nothing to rebuild")
    if not trust_log and not sink_of(settings).holds(recorded.opened):
        raise EpochRefused(
            f"no release of epoch {recorded.epoch.number} is there to compare a rebuilt state with: restore their "
            "topic; or, if you know that the events topic is the log that was counted, give --trust-log, and the "
            "worker releases the same again; or open a new epoch, which is charged, with --new-epoch"
        )
    begin = start_of(settings, (recorded.epoch.number, 0), recorded.opened.releases_offset)
    if settings.shards:
        _forget_shards(settings, redis, recorded.key)
        _forget_partitions(settings, redis, recorded.key)
        return _put_back(_start_of_sequencer(settings, recorded, begin), recorded.key, epochs, store)
    start = None
    if recorded.epoch.log_rounds and not whole:
        start = start_of_epoch(settings, recorded, _checkpoint_left(settings, redis, recorded))
    try:
        checkpoint = _computed(settings, recorded, begin, progress, start)
    except EpochRefused:
        if start is None:
            raise
        checkpoint = _computed(settings, recorded, begin, progress)
    return _put_back(checkpoint, recorded.key, epochs, store)


def _checkpoint_left(settings: Settings, redis: Redis, recorded: RecordedEpoch) -> Checkpoint | None:
    """What Redis still holds of an epoch's state, if it is sound."""
    try:
        return checkpoint_of(settings, redis, recorded)
    except (EpochRefused, StateDamaged):
        return None


def _computed(
    settings: Settings,
    recorded: RecordedEpoch,
    begin: int,
    progress: Progress,
    start: BlockStart | None = None,
) -> Checkpoint:
    """The state after the last whole release, from the log of the epoch or from `start` on.

    `begin` is where its releases begin.  Raises `EpochRefused` where the log does not give what is left of them; from
    `start` on, nothing may be missing.
    """
    first = 1 if start is None else start.first_compared
    begin = begin if start is None else start.releases_offset
    released = _Released(published_parts(settings, recorded, start), begin, first)
    pipeline = recorded.pipeline(start)
    entries = epoch_entries(settings, recorded, progress, start)
    while pipeline.round < released.rounds:
        batch = list(islice(entries, min(_RECORDS_AT_ONCE, released.rounds - pipeline.round)))
        parts = [*comparable(pipeline.process(batch).releases, first)]
        lacks = start is not None and any(map(released.lacks, parts))
        if not batch or lacks or any(map(released.differs, parts)):
            raise EpochRefused(
                "nothing was rebuilt: the events topic and the key do not give what was released; "
                "`stream-dp verify` says more"
            )
    if left := released.not_given:
        raise EpochRefused(
            f"nothing was rebuilt: the topic {settings.releases!r} holds a release of round {left}, which the events "
            "topic and the key do not give; `stream-dp verify` says more"
        )
    state, pairs = pipeline.histogram.state(), pipeline.intake.pairs
    check = key_check(recorded.key)
    return Checkpoint(recorded.epoch, state, pipeline.position, released.next_offset, check, pairs)


def _put_back(checkpoint: Checkpoint, key: bytes, epochs: Epochs, store: CheckpointStore) -> Checkpoint:
    """Make it the state of the stream.  A worker goes on from it at once, so the epoch is charged before, again."""
    epochs.charge_again()
    store.start_over(key)
    store.commit(store.prepare(checkpoint))
    return checkpoint


def _forget_shards(settings: Settings, redis: Redis, key: bytes) -> None:
    """Let every shard begin with the first frame again, which gives the same releases; one that runs is fenced off."""
    for number in range(settings.shards):
        store = CheckpointStore(redis, f"{settings.stream}/{number}")
        store.take_over()
        store.start_over(key)


def _forget_partitions(settings: Settings, redis: Redis, key: bytes) -> None:
    """Let the members of the intake count every partition again, which gives the same frames."""
    partitions = log.partitions_of(settings.kafka_address, settings.events)
    for number in range(partitions if settings.is_divided else 0):
        store = CheckpointStore(redis, state_of_partition(settings, number))
        store.take_over()
        store.start_over(key)


def _start_of_sequencer(settings: Settings, recorded: RecordedEpoch, releases_offset: int) -> Checkpoint:
    """The sequencer of a stream in shards at the beginning of its epoch.

    When it starts, it computes all rounds again and compares them with the frames that are there, as after any start.
    Each shard does the same with its releases.
    """
    epoch = recorded.epoch
    return Checkpoint(
        epoch,
        HistogramState.before_any_round(),
        Position.at_start_of(epoch),
        releases_offset,
        key_check(recorded.key),
        sharding=Sharding(settings.shards, [0] * settings.shards, 0 if settings.is_divided else None),
    )


class _Released:
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

    @property
    def not_given(self) -> int:
        """A round up to the last whole one of which a release was never given to `differs`; 0 if there is none."""
        return max((number for number, _ in self._values if number <= self.rounds), default=0)


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
