"""Where to begin to compute the releases of windows again: not with the epoch, but with one of its last blocks.

What a block takes over from before is little (docs/guarantee.md, "Windows without end"): its chain and its counts begin
anew, and of earlier tests only the labels that are shown in its first round matter to the tests in it.  The release of
that round names them.  So from the block after it on, every release follows from these labels, the key and the log.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice

from stream_dp.barriers.key import barrier_key
from stream_dp.barriers.topic import read_barriers
from stream_dp.config.settings import Settings
from stream_dp.counters.window import WindowMechanism
from stream_dp.engine.epoch import Epoch
from stream_dp.epochs.journal import EpochOpened
from stream_dp.events.barrier_chain import Barrier, BarrierChain
from stream_dp.events.rounds import events_of
from stream_dp.kafka import log
from stream_dp.pipeline.pipeline import Pipeline, Position
from stream_dp.privacy.vector import Vector
from stream_dp.releases.lookup import newest_before, release_near
from stream_dp.releases.release import Release
from stream_dp.releases.topic import ReleasesTopic

_BLOCKS_BACK = 2  # the releases of the last whole block and of the one that follows are compared
_MOST_LOOKS = 64  # where not every round is released, the first of a block may not be


@dataclass(frozen=True)
class BlockStart:
    """The beginning of block `number`, of `window` rounds.

    Its first round begins at `offsets` and, where there are barriers, behind `barrier`.  That round's release, at
    `releases_offset` of their topic, shows `carried` and follows that of round `previous`.
    """

    number: int
    window: int
    carried: Sequence[str]
    previous: int
    releases_offset: int
    offsets: Vector
    barrier: Barrier | None = None

    @property
    def first_round(self) -> int:
        """The first round of the block."""
        return self.number * self.window + 1

    @property
    def first_compared(self) -> int:
        """The first round whose labels and counts can be computed."""
        return self.first_round + self.window

    def pipeline(self, epoch: Epoch, key: bytes) -> Pipeline:
        """One that goes on from here."""
        first, *further = self.offsets
        position = Position(first, released=self.previous, barrier=self.barrier, further=tuple(further))
        pipeline = Pipeline(epoch, key, epoch.topic, position)
        pipeline.begin_block(self.number, self.carried)
        return pipeline


def block_start(
    settings: Settings,
    opened: EpochOpened,
    key: bytes,
    begun: Mapping[int, int],
) -> BlockStart | None:
    """The beginning of the second block before the last one that has releases, or of an earlier one.

    `begun`: by block, where the journal says that it begins.  None where the epoch's own beginning is to be taken: it
    has no windows or no more than three blocks, a user's day began before, or nothing tells where a block begins.
    """
    epoch, window = opened.epoch, opened.epoch.mechanism
    if not isinstance(window, WindowMechanism) or epoch.guarantee.unit != "event":
        return None
    with closing(ReleasesTopic(settings.kafka_address, settings.releases, stream=settings.stream)) as topic:
        first = _first_release(topic, epoch, window.window, begun)
        if first is None:
            return None
        place = topic.offset_of((first.epoch, first.round))
    number, barrier = (first.round - 1) // window.window, None
    if epoch.after_barrier is not None:
        barrier = _barrier(settings, epoch, key, epoch.after_barrier, first.round - 1)
        if barrier is None:
            return None
    offsets = barrier.ends if barrier is not None else (begun[number],)
    return BlockStart(number, window.window, first.labels, first.previous, place, offsets, barrier)


def _first_release(
    topic: ReleasesTopic, epoch: Epoch, window: int, begun: Mapping[int, int]
) -> Release | None:
    """The release of the first round of the block to begin with, or of the latest earlier block that has one."""
    nonce = epoch.nonce.hex()
    last = newest_before(topic, topic.offset_of((epoch.number + 1, 0)))
    if last is None or last.nonce != nonce:
        return None
    latest = (last.round - 1) // window - _BLOCKS_BACK
    blocks: Iterable[int] = range(latest, 0, -1)
    if epoch.after_barrier is None:
        blocks = sorted((block for block in begun if 0 < block <= latest), reverse=True)
    for block in islice(blocks, _MOST_LOOKS):
        place = epoch.number, block * window + 1
        found = release_near(topic, place)
        if found is not None and (found.epoch, found.round, found.nonce) == (*place, nonce):
            return found
    return None


def _barrier(settings: Settings, epoch: Epoch, key: bytes, after: Barrier, rounds: int) -> Barrier | None:
    """The barrier that closed so many rounds; None where it is not there, and where events close rounds."""
    if events_of(epoch.privacy["rounds"]) is not None:
        return None
    chain = BarrierChain(barrier_key(key), settings.stream, after)
    end = log.offsets(settings.kafka_address, settings.barriers).end
    least = after.next_offset + rounds - 1  # every barrier takes a record, others may stand between them
    return chain.named_at(after.number + rounds, read_barriers(settings, least, end))
