"""A shard in the hands of one process: its state, its fence in Redis, and what it has released.

It is taken over like a stream: fence off whoever had it, load its checkpoint, compute again what was released since
and compare, and only then send anything.  A shard without a checkpoint begins with the first frame that is kept, which
comes to the same releases.

What is left of a closed epoch is passed over where it cannot be counted any more: its key or some of its frames are
lost, or another version drew its noise.  An operator has opened the next epoch for just that reason.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby

from redis import Redis

from stream_dp.config.settings import Settings
from stream_dp.engine.epoch import Epoch, EpochRefused
from stream_dp.engine.histogram import HistogramState
from stream_dp.epochs.journal import EpochJournal, known_labels_of
from stream_dp.epochs.last_release import check_last_release
from stream_dp.epochs.published import begin_after, published, value_digest
from stream_dp.kafka import log
from stream_dp.pipeline.frames import Frame, FrameRefused, FramesLost
from stream_dp.pipeline.partition_frames import PartitionFrame, decode_of_shard
from stream_dp.pipeline.pipeline import Position, ReleasedPart
from stream_dp.pipeline.shard import Shard
from stream_dp.privacy.keyed_noise import key_check
from stream_dp.sinks.framing import Framing, rounds_per_batch
from stream_dp.sinks.sending import Addressed, InFlight, packed
from stream_dp.store.checkpoint_records import damaged
from stream_dp.store.checkpoints import Checkpoint, CheckpointStore, PreparedCheckpoint, Sharding
from stream_dp.store.noise_key import noise_key

logger = logging.getLogger(__name__)


class OwnedShard:
    """Shard `number`, taken over when this is made, which reads Redis and Kafka.  Raises a `Refused`.

    `next_offset` is where to read on in its partition of the frames topic, `released` in how many rounds it has
    released anything since it was taken over.
    """

    def __init__(
        self,
        settings: Settings,
        redis: Redis,
        number: int,
        sent: InFlight,
        topics: Callable[[], dict[str, str]] = dict,
    ) -> None:
        """`sent` takes what it releases, and nothing else; `topics` tells the identities of the stream's topics."""
        self.number = number
        self._settings, self._redis, self._sent = settings, redis, sent
        self._store = CheckpointStore(redis, f"{settings.stream}/{number}")
        self._store.topics = topics
        self._store.take_over()
        self._shard: Shard | None = None
        self._epoch = 0  # the newest one of which a frame has come, counted or passed over
        self._key, self._key_check = b"", ""
        self._is_new = False  # its epoch has no checkpoint yet
        self._framing = self._new_framing(settings.rounds)
        checkpoint = self._load()
        topic = settings.shard_releases
        self._releases_end = begin_after(settings, checkpoint, topic, number) if checkpoint else 0
        self._published = self._published_since(checkpoint)
        frames = log.offsets(settings.kafka_address, settings.frames, number)
        self.next_offset = checkpoint.position.next_offset if checkpoint else frames.first
        self._frames_end = frames.end
        if checkpoint is not None:
            self._restore(checkpoint)
            if self._is_closed(self._epoch):  # since then, the frames topic may have been made anew
                self.next_offset = frames.first
        self._log_end: int | None = None  # of its frames, as the broker gave it when the open batch began
        self._unsent: list[list[ReleasedPart]] = []  # batches
        self.released = 0
        self._unsaved = 0
        self._saved = (self.next_offset, time.monotonic())
        self._writing: asyncio.Task[float] | None = None

    @property
    def shard(self) -> Shard | None:
        """What it has counted; None before the first frame, and after an epoch that was passed over."""
        return self._shard

    @property
    def round(self) -> int:
        """Rounds closed so far in its epoch."""
        return self._shard.round if self._shard else 0

    @property
    def labels(self) -> int:
        """How many labels it has seen.  PRIVATE."""
        return len(self._shard.histogram.state().labels) if self._shard else 0

    def check_hold(self) -> None:
        """Raise `Fenced` if another process has taken the shard over."""
        self._store.check_hold()

    async def take(self, records: Sequence[tuple[int, bytes | None]], log_end: int) -> None:
        """Count frames, given with their offsets, and send the batches of releases that end with them.

        `log_end` is where the partition ended when the broker gave them.
        Raises `Fenced`, `FrameRefused` or another `Refused`; the shard is then of no more use.
        """
        key = f"{self._settings.stream}/{self.number}".encode()
        batches = self._batches(records, log_end)
        while parts := await asyncio.to_thread(next, batches, None):
            batch = packed(self._sent.producer, key, parts)
            await self._sent.send(Addressed(self._settings.shard_releases, self.number, batch))

    def _batches(
        self, records: Iterable[tuple[int, bytes | None]], log_end: int
    ) -> Iterator[list[ReleasedPart]]:
        """What is to be sent, each batch right before it is.  Raises `Fenced`.

        Nothing is sent before all that was published has been compared.
        """
        frames = ((offset, decode_of_shard(value)) for offset, value in records)
        for epoch, of_epoch in groupby(frames, key=lambda each: each[1].epoch):
            batch = list(of_epoch)
            if epoch > self._epoch:
                yield from self._sendable([self._framing.rest()])
                self._begin_epoch(batch[0][1])
            if self._shard is not None:
                ends = self._batch_ends(batch, log_end)
                for block in self._counted(self._shard, batch):
                    yield from self._sendable(self._framing.cut(self._missing(block), self.round, ends))
            self.next_offset = self._shard.position.next_offset if self._shard else batch[-1][0] + 1
        self._check_given_again()

    def _batch_ends(self, frames: Iterable[tuple[int, Frame | PartitionFrame]], log_end: int) -> list[int]:
        """The rounds after which a batch ends because the log did when the batch began, or as soon as one may."""
        ends = []
        for offset, frame in frames:
            if self._log_end is None:
                self._log_end = max(log_end, offset + 1)
            if isinstance(frame, Frame) and frame.ends and offset + 1 >= self._log_end:
                ends.append(frame.last)
                self._log_end = None
        return ends

    def _sendable(self, batches: Iterable[list[ReleasedPart]]) -> Iterator[list[ReleasedPart]]:
        self._unsent += filter(None, batches)
        while self._unsent and not self._published:
            self.check_hold()
            yield self._unsent.pop(0)

    def _counted(
        self, shard: Shard, batch: Sequence[tuple[int, Frame | PartitionFrame]]
    ) -> Iterator[list[ReleasedPart]]:
        before = shard.round
        try:
            yield from shard.process(batch)
        except FramesLost as lost:  # raised before the first block
            self._pass_over(shard.epoch.number, lost)
            self._shard = None
        self._unsaved += shard.round - before

    def _begin_epoch(self, frame: Frame | PartitionFrame) -> None:
        """Start from nothing with the first frame of an epoch, which must be on record."""
        journal = EpochJournal(self._settings, self._noise_key)
        opened = [entry for entry in journal.opened if entry.epoch.nonce == frame.nonce]
        if not opened or opened[0].epoch.number != frame.epoch:
            raise FrameRefused(
                f"the frames topic holds frames of an epoch {frame.epoch} that the topic {self._settings.epochs!r} "
                "does not know: another producer wrote to this topic, or that topic was lost; restore it"
            )
        older = max((epoch for epoch, _, _ in self._published if epoch < frame.epoch), default=None)
        if older is not None:
            self._pass_over(older, FramesLost("the frames do not reproduce all that it has released"))
        self._begin(opened[0].epoch, opened[0].key_check, frame.shards)
        self._is_new = True

    def _load(self) -> Checkpoint | None:
        """The checkpoint; what another key has left of a closed epoch is none.

        Raises `StateDamaged`, `EpochRefused` or `NoKey`.
        """
        if not self._store.holds_state():
            return None
        key = self._noise_key()
        try:
            return self._store.load(key)
        except EpochRefused:
            journal = EpochJournal(self._settings)
            others = {each.epoch.number for each in journal.opened if each.key_check != key_check(key)}
            if not others or not others <= journal.closed.keys():
                raise
            return None

    def _noise_key(self) -> bytes:
        return noise_key(self._settings.noise_key, self._redis, self._settings.stream, may_create=False)

    def _restore(self, checkpoint: Checkpoint) -> None:
        assert checkpoint.sharding is not None
        place = checkpoint.position, checkpoint.state
        try:
            self._begin(checkpoint.epoch, checkpoint.key_check, checkpoint.sharding.shards, *place)
        except (IndexError, KeyError, ValueError):  # a state without digests, of an earlier format
            raise damaged("columns") from None
        if self._shard is not None:
            topic = self._settings.shard_releases
            check_last_release(self._settings, checkpoint, self._shard, topic, self.number)

    def _begin(
        self,
        epoch: Epoch,
        check: str,
        shards: int,
        position: Position | None = None,
        state: HistogramState | None = None,
    ) -> None:
        """Count an epoch from its beginning or from a checkpoint on, or pass it over.

        Raises `EpochRefused`, `LogRefused` or `NoKey`.
        """
        self._epoch, self._key_check, self._shard = epoch.number, check, None
        self._key = key = self._noise_key()
        try:
            epoch.check_noise()
            if key_check(key) != check:
                raise EpochRefused(
                    f"the noise key is not the one that epoch {epoch.number} was opened with: supply that one"
                )
        except EpochRefused as refused:
            self._pass_over(epoch.number, refused)
        else:
            known = known_labels_of(self._settings, epoch)
            self._shard = Shard(epoch, key, self.number, shards, position, state, known)
            self._framing = self._new_framing(epoch.privacy["rounds"])

    def _new_framing(self, rounds: str) -> Framing:
        name = f"{self._settings.stream}/{self.number}"
        return Framing(rounds_per_batch(rounds, self._settings.batch_rounds), len(name))

    def _pass_over(self, epoch: int, why: EpochRefused | FrameRefused) -> None:
        """Expect no more of an epoch and of those before it; raises `why` unless it is closed."""
        if not self._is_closed(epoch):
            raise why
        logger.warning(
            "stream %s: shard %d leaves out what is left of epoch %d, which is closed: %s",
            self._settings.stream,
            self.number,
            epoch,
            why,
        )
        self._published = {place: each for place, each in self._published.items() if place[0] > epoch}

    def _is_closed(self, epoch: int) -> bool:
        return epoch in EpochJournal(self._settings).closed

    def _published_since(self, checkpoint: Checkpoint | None) -> dict[tuple[int, int, int], bytes]:
        """The digests, by epoch, round and part, of what the shard has released after the checkpoint."""
        epoch, round_number = (checkpoint.epoch.number, checkpoint.state.round) if checkpoint else (0, 0)
        topic = self._settings.shard_releases
        digests: dict[tuple[int, int, int], bytes] = {}
        for _, release, value in published(self._settings, self._releases_end, topic, self.number):
            if (release.epoch, release.round) <= (epoch, round_number):
                continue
            place, digest = (release.epoch, release.round, release.part), value_digest(value)
            if digests.setdefault(place, digest) != digest:
                raise EpochRefused(
                    f"the topic {topic!r} holds two different releases of round {release.round} of shard "
                    f"{self.number}: another producer wrote to this topic; nothing is sent"
                )
        return digests

    def _missing(self, block: Sequence[ReleasedPart]) -> list[ReleasedPart]:
        """What of these releases is not published yet.  Raises `EpochRefused` at a difference from what is."""
        assert self._shard is not None
        missing = []
        for part in block:
            digest = self._published.pop((self._shard.epoch.number, part.round, part.part), None)
            if digest is None:
                missing.append(part)
            elif digest != value_digest(part.value):
                raise EpochRefused(
                    f"shard {self.number} released round {part.round} with other content than the frames and the key "
                    "give now: the frames, the key or the releases were changed; nothing is sent"
                )
        self.released += len({part.round for part in missing})
        return missing

    def _check_given_again(self) -> None:
        """Raise `EpochRefused` if the frames that were there at the start do not give all that is released."""
        if self._published and self.next_offset >= self._frames_end:
            epoch, round_number, _ = max(self._published)
            raise EpochRefused(
                f"shard {self.number} has released up to round {round_number} of epoch {epoch}, which its frames and "
                "the key do not reproduce: the frames or the releases were changed; nothing is sent"
            )

    @property
    def checkpoint_due(self) -> bool:
        """Whether enough rounds or enough time has passed since the last checkpoint, and no batch is open."""
        offset, at = self._saved
        fresh = max(self._unsaved, self.next_offset > offset)
        due = self._settings.checkpoint_pace.of_members.is_due(fresh, time.monotonic() - at)
        return due and not self._framing.is_open

    async def begin_checkpoint(self) -> None:
        """Wait until everything sent is in the broker, copy the state, and write it to Redis while work goes on.

        While something published is still to be compared, or a batch is open, what is in Redis stays.
        """
        await self.finish_checkpoint()
        await self._sent.settle()
        if self._shard is None or self._published or self.next_offset == self._saved[0]:
            return
        if self._framing.is_open:
            return
        if self._is_new:
            await asyncio.to_thread(self._store.start_over, self._key)
            self._is_new = False
        shard = self._shard
        checkpoint = Checkpoint(
            shard.epoch,
            shard.histogram.state(),
            shard.position,
            self._sent.end(self._settings.shard_releases, self.number, self._releases_end),
            self._key_check,
            sharding=Sharding(shard.shards),
        )
        self._unsaved, self._saved = 0, (self.next_offset, time.monotonic())
        self._writing = asyncio.create_task(self._write(self._store.prepare(checkpoint)))

    async def _write(self, prepared: PreparedCheckpoint) -> float:
        began = time.monotonic()
        await asyncio.to_thread(self._store.commit, prepared)
        return time.monotonic() - began

    @property
    def is_written(self) -> bool:
        """Whether a checkpoint was begun that may be finished without waiting."""
        return self._writing is not None and self._writing.done()

    async def finish_checkpoint(self) -> float | None:
        """Wait until the checkpoint that was begun last is in Redis.  Raises `Fenced` or a `RedisError`.

        Returns how many seconds it took to write, or None if there was none.
        """
        writing, self._writing = self._writing, None
        return None if writing is None else await writing

    @property
    def saved_offset(self) -> int:
        """Where the frames after the checkpoint that was begun last are."""
        return self._saved[0]

    def drop(self) -> None:
        """Wait for nothing more.  A checkpoint that is being written is the last, and in Redis or not."""
        if self._writing is not None:
            self._writing.cancel()
        self._sent.drop()
