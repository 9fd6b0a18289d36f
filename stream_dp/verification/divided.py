"""What Redis holds of a stream in shards: to begin with the epoch again, or computed from one of its last blocks on.

With the epoch's beginning nothing is computed here: when its processes start, each computes what it had written and
compares it.  Of windows, the last blocks say what a shard has counted (docs/guarantee.md, "Windows without end"), so
the state is computed here, compared with what the shards have released since, and the log before is not needed.

Members of an intake count their partitions from the epoch's beginning, so all of such a stream begins there.
"""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import chain, islice

from redis import Redis

from stream_dp.config.settings import Settings
from stream_dp.engine.epoch import EpochRefused
from stream_dp.engine.histogram import HistogramState
from stream_dp.epochs.published import published
from stream_dp.kafka import log
from stream_dp.pipeline.frames import Frame
from stream_dp.pipeline.pipeline import Position, ReleasedPart
from stream_dp.pipeline.shard import Shard
from stream_dp.privacy.keyed_noise import key_check
from stream_dp.releases.topic import ReleasesTopic
from stream_dp.store.checkpoints import Checkpoint, CheckpointStore, Sharding
from stream_dp.verification.block_start import BlockStart
from stream_dp.verification.recorded import Progress, RecordedEpoch, Released, epoch_entries
from stream_dp.verification.verify import comparable
from stream_dp.workers.owned_partition import state_of_partition

_RECORDS_AT_ONCE = 500


class ReleasesLost(EpochRefused):
    """A shard's releases of the last blocks are not all there; computed from the epoch's beginning they come again."""


@dataclass(frozen=True)
class Divided:
    """The checkpoints of a worker that sequences and of its shards; a shard without one begins with the first frame."""

    worker: Checkpoint
    shards: Sequence[Checkpoint] = ()

    def put_shards(self, settings: Settings, redis: Redis, key: bytes) -> None:
        """Make it the state of all but the worker; a process that runs is fenced off."""
        for number in range(settings.shards):
            store = _taken_over(redis, f"{settings.stream}/{number}", key)
            if self.shards:
                store.commit(store.prepare(self.shards[number]))
        partitions = log.partitions_of(settings.kafka_address, settings.events)
        for number in range(partitions if settings.is_divided else 0):
            _taken_over(redis, state_of_partition(settings, number), key)


def _taken_over(redis: Redis, name: str, key: bytes) -> CheckpointStore:
    store = CheckpointStore(redis, name)
    store.take_over()
    store.start_over(key)
    return store


def at_the_beginning(settings: Settings, recorded: RecordedEpoch, releases_offset: int) -> Divided:
    """The sequencer at the beginning of its epoch, and no shard: all rounds come again, from the first frame on."""
    state, position = HistogramState.before_any_round(), Position.at_start_of(recorded.epoch)
    return Divided(_worker(settings, recorded, state, position, releases_offset))


def computed_from(
    settings: Settings, recorded: RecordedEpoch, start: BlockStart, releases_offset: int, progress: Progress
) -> Divided:
    """All of them after the last round that all shards have released, computed from `start` on.

    Raises `ReleasesLost` where a shard's topic lacks any of these rounds, and `EpochRefused` where the log and the key
    do not give what it holds.
    """
    epoch, key, shards = recorded.epoch, recorded.key, range(settings.shards)
    topics = [_Topic(settings, recorded, start, number) for number in shards]
    last = min(topic.released.rounds for topic in topics)
    if last < start.first_compared:
        raise ReleasesLost("the shards have not released the last blocks")
    sequencer = start.sequencer(epoch, key, settings.shards)
    sequencer.intake.schemas.take(*recorded.schemas)
    counted = [start.shard(epoch, key, number, settings.shards) for number in shards]
    entries = epoch_entries(settings, recorded, progress, start)
    while sequencer.round < last:
        batch = list(islice(entries, min(_RECORDS_AT_ONCE, last - sequencer.round)))
        frames = sequencer.process(batch).frames
        if not batch:
            raise EpochRefused(_REFUSED)
        for shard, topic in zip(counted, topics, strict=True):
            topic.compare(_given(shard, frames), last)
    for topic in topics:
        topic.require_all_given(last)
    worker = _worker(settings, recorded, sequencer.state(), sequencer.position, releases_offset)
    return Divided(worker, [_of_shard(settings, recorded, shard, last) for shard in counted])


_REFUSED = (
    "nothing was rebuilt: the events topic and the key do not reproduce what the shards have released; `stream-dp "
    "verify` says more, and with --whole the shards begin with the epoch again and compare all that they have released"
)


def _given(shard: Shard, frames: Sequence[Frame]) -> list[ReleasedPart]:
    mine = [(0, frame) for frame in frames if frame.shard == shard.number]
    return [*chain.from_iterable(shard.process(mine))]


class _Topic:
    """What a shard has released from a block's beginning on."""

    def __init__(self, settings: Settings, recorded: RecordedEpoch, start: BlockStart, number: int) -> None:
        epoch, self._first = recorded.epoch, start.first_compared
        begin = _offset_of(settings, (epoch.number, start.first_round), number)
        found = (
            (each.offset, ReleasedPart(each.release.round, each.release.part, each.value))
            for each in published(settings, begin, settings.shard_releases, number)
            if each.release.nonce == epoch.nonce.hex() and each.release.round >= start.first_round
        )
        self.released = Released(found, begin, self._first)

    def compare(self, given: Sequence[ReleasedPart], last: int) -> None:
        """Raise `EpochRefused` or `ReleasesLost` where these are not what is there, up to round `last`."""
        parts = [part for part in comparable(given, self._first) if part.round <= last]
        if any(map(self.released.lacks, parts)):
            raise ReleasesLost("the shards' topic lacks releases of the last blocks")
        if any(map(self.released.differs, parts)):
            raise EpochRefused(_REFUSED)

    def require_all_given(self, last: int) -> None:
        """Raise `EpochRefused` where more is there up to round `last` than was given."""
        if self.released.not_given_up_to(last):
            raise EpochRefused(_REFUSED)


def _worker(
    settings: Settings,
    recorded: RecordedEpoch,
    state: HistogramState,
    position: Position,
    releases_offset: int,
) -> Checkpoint:
    """What is in the frames topic beyond its round is compared when it starts, so all that is kept there is read."""
    sharding = Sharding(settings.shards, [0] * settings.shards, 0 if settings.is_divided else None)
    check = key_check(recorded.key)
    return Checkpoint(recorded.epoch, state, position, releases_offset, check, sharding=sharding)


def _of_shard(settings: Settings, recorded: RecordedEpoch, shard: Shard, last: int) -> Checkpoint:
    """After round `last`; of the frames, those up to that round will be passed over."""
    first = log.offsets(settings.kafka_address, settings.frames, shard.number).first
    return Checkpoint(
        recorded.epoch,
        shard.histogram.state(),
        replace(shard.position, next_offset=first),
        _offset_of(settings, (recorded.epoch.number, last + 1), shard.number),
        key_check(recorded.key),
        sharding=Sharding(settings.shards),
    )


def _offset_of(settings: Settings, place: tuple[int, int], shard: int) -> int:
    """From where on a shard's releases at or past an (epoch, round) stand."""
    name = settings.kafka_address, settings.shard_releases, shard
    with closing(ReleasesTopic(*name, stream=settings.stream)) as topic:
        return topic.offset_of(place)
