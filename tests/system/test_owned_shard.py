"""A shard in the hands of a process: what a lost epoch left does not keep it from the next, and how much it holds."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import stream_dp.engine.epoch
from stream_dp.engine.epoch import Epoch, EpochRefused
from stream_dp.epochs.journal import EpochClosed, EpochJournal, EpochOpened
from stream_dp.events.record import Record
from stream_dp.kafka import log
from stream_dp.operations.watch import Watch
from stream_dp.pipeline.frames import FramesLost, encode_frame
from stream_dp.pipeline.pipeline import Pipeline
from stream_dp.pipeline.sequencer import Sequencer
from stream_dp.privacy.keyed_noise import NOISE_VERSION, key_check, new_key
from stream_dp.releases.release import decode_release
from stream_dp.releases.topic import LONGEST_REPETITION
from stream_dp.sinks.sending import Addressed, InFlight, producer
from stream_dp.workers.owned_shard import OwnedShard
from stream_dp.workers.resume import NewEpoch
from stream_dp.workers.stream_topics import prepare_topics_of_shards
from tests.system.example_events import some_events
from tests.system.sharded import ShardedStream, sharded_stream
from tests.system.streams import ended
from tests.system.waiting import wait_until

SAVED, RELEASED, HANDED_OUT = 10, 20, 30
"""Rounds of the first epoch: up to the shard's checkpoint, released by it, and in its frames."""


class OneShard:
    """A stream with a single shard that dies in its first epoch; its sequencer is this process."""

    def __init__(self, stream: ShardedStream, monkeypatch: pytest.MonkeyPatch) -> None:
        self.stream, self.monkeypatch, settings = stream, monkeypatch, stream.settings
        prepare_topics_of_shards(settings)
        log.create_topics(settings.kafka_address, settings.epochs)
        self.journal = EpochJournal(settings)
        self.use(new_key())
        self.open(1)
        stream.write(settings.frames, self.frames(some_events(HANDED_OUT, seed=1)))

    def use(self, key: bytes) -> None:
        """Put a noise key into Redis."""
        self.key = key
        with self.stream.redis() as client:
            client.set(f"stream_dp:{{{self.stream.settings.stream}}}:key", key)

    def open(self, number: int, noise_version: int = NOISE_VERSION) -> None:
        """Open an epoch."""
        self.epoch = replace(Epoch.open(self.stream.settings, number, 0), noise_version=noise_version)
        self.journal.append(EpochOpened(self.epoch, key_check(self.key), 0), at=1)

    def frames(self, values: list[bytes | None], at_once: int = 1) -> list[Record]:
        """The frames of the newest epoch for events, one a round; each frame, of so many rounds, as a record."""
        self.events = [Record(offset, 1_700_000_000_000, None, value) for offset, value in enumerate(values)]
        sequencer = Sequencer(self.epoch, self.key, self.stream.settings.events, 1)
        starts = range(0, len(self.events), at_once)
        batches = [self.events[start : start + at_once] for start in starts]
        cut = [frame for batch in batches for frame in sequencer.process(batch).frames]
        return [Record(0, 1_700_000_000_000, None, encode_frame(frame)) for frame in cut]

    def run(self, end: int, save_after: int = 0) -> None:
        """Own the shard for its frames before the offset `end`; after some of them, write a checkpoint."""
        asyncio.run(self._run(end, save_after))

    async def _run(self, end: int, save_after: int) -> None:
        settings = self.stream.settings
        with self.stream.redis() as client:
            async with producer(settings.kafka_address, "none") as sender:
                sent = InFlight(sender, settings.kafka, Watch(settings.stream, settings.data_source))
                shard = await asyncio.to_thread(OwnedShard, settings, client, 0, sent)
                start = shard.next_offset
                held = [(each.offset, each.value) for each in self.stream.records_of(settings.frames, 0)]
                try:
                    await shard.take(held[start : start + save_after], log_end=0)
                    if save_after:
                        await shard.begin_checkpoint()
                        await shard.finish_checkpoint()
                    await shard.take(held[start + save_after : end], log_end=0)
                    await sent.settle()
                finally:
                    shard.drop()

    def released(self, epoch: int) -> list[bytes | None]:
        """What the shard has released in an epoch."""
        values = [record.value for record in self.stream.records_of(self.stream.settings.shard_releases, 0)]
        return [value for value in values if decode_release(value or b"").epoch == epoch]


@pytest.fixture
def shard(
    kafka: str,
    redis_url: str,
    topic_prefix: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[OneShard]:
    with sharded_stream(kafka, redis_url, topic_prefix, tmp_path, 1) as stream:
        yield OneShard(stream, monkeypatch)


def lose_key(shard: OneShard) -> None:
    shard.use(new_key())


def upgrade(shard: OneShard) -> None:
    shard.monkeypatch.setattr(stream_dp.engine.epoch, "NOISE_VERSION", NOISE_VERSION + 1)


def lose_next_frames(shard: OneShard) -> None:
    """Those after the checkpoint, which were released, and some more."""
    topic, frames = shard.stream.settings.frames, shard.stream.records_of(shard.stream.settings.frames, 0)
    shard.stream.rewrite(topic, frames[: SAVED - 2] + frames[RELEASED + 2 :])


def lose_all_frames(shard: OneShard) -> None:
    shard.stream.rewrite(shard.stream.settings.frames, [])


@pytest.mark.parametrize("with_state", [True, False])
@pytest.mark.parametrize(
    ("lose", "refused", "told"),
    [
        (lose_key, EpochRefused, "the noise key is not the one"),
        (upgrade, EpochRefused, "draws noise of version"),
        (lose_next_frames, FramesLost, "frames were lost"),
        (lose_all_frames, None, "do not reproduce"),
    ],
)
def test_a_shard_goes_on_in_the_next_epoch(
    shard: OneShard,
    lose: Callable[[OneShard], None],
    refused: type[Exception] | None,
    told: str,
    with_state: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    shard.run(RELEASED, SAVED)
    before = shard.released(1)
    assert len(before) == RELEASED
    if not with_state:
        with shard.stream.redis() as client:
            client.delete(*client.keys(f"stream_dp:{{{shard.stream.settings.stream}/0}}:*"))
    lose(shard)
    if refused is not None:  # while the epoch is open
        with pytest.raises(refused, match=told):
            shard.run(HANDED_OUT)
    shard.journal.append(EpochClosed(1, HANDED_OUT), at=1)
    shard.open(2, noise_version=NOISE_VERSION + 1 if lose is upgrade else NOISE_VERSION)
    frames = shard.frames(some_events(60, seed=2))
    shard.stream.write(shard.stream.settings.frames, frames)
    with caplog.at_level("WARNING"):
        shard.run(end=1000, save_after=1000)
    assert told in caplog.text
    assert "shard 0 leaves out what is left of epoch 1, which is closed" in caplog.text
    assert before == shard.released(1), "nothing more is released under a closed epoch that cannot be counted"
    alone = Pipeline(shard.epoch, shard.key, shard.stream.settings.events).process(shard.events).releases
    again = [decode_release(value or b"") for value in shard.released(2)]
    expected = [decode_release(part.value) for part in alone]
    assert [(each.round, each.labels, each.counts) for each in expected] == [
        (each.round, each.labels, each.counts) for each in again
    ]
    assert any(each.labels for each in expected)
    checkpoint = shard.stream.shard_checkpoint(0)
    assert checkpoint is not None
    assert (checkpoint.epoch.number, checkpoint.state.round) == (2, 60)


def test_a_shard_far_behind_has_no_more_in_its_hands_than_readers_look_back(shard: OneShard) -> None:
    """It keeps a batch, and at most two others are on their way."""
    shard.stream.rewrite(
        shard.stream.settings.frames, shard.frames(some_events(3_000, seed=2), at_once=1_000)
    )
    handed_out: list[int] = []
    send = InFlight.send

    async def counted(sent: InFlight, batch: Addressed) -> None:
        await send(sent, batch)
        handed_out.append(batch.batch.record_count())
        assert max(map(len, sent._unanswered.values())) <= 2

    shard.monkeypatch.setattr(InFlight, "send", counted)
    shard.run(end=100_000)
    assert sum(handed_out) == 3_000
    assert 3 * max(handed_out) <= LONGEST_REPETITION


def test_after_the_key_was_lost_all_processes_go_on_in_a_new_epoch(
    kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path
) -> None:
    """One shard is behind its frames, another has lost its state."""
    with sharded_stream(kafka, redis_url, topic_prefix, tmp_path, 2) as stream:
        stream.feed(some_events(40, seed=1))
        processes = [stream.run_in_role(role) for role in ("worker", "shard", "merge")]
        stream.wait_until_round(40)
        stream.wait_until_saved(40)
        processes[1].kill()
        stream.feed(some_events(20, seed=2))
        wait_until(lambda: stream.checkpoint().state.round == 60, stream.logged)
        processes[0].terminate()
        assert ended(processes[0]) == 0
        with stream.redis() as client:
            client.delete(f"stream_dp:{{{stream.settings.stream}}}:key")
            client.delete(*client.keys(f"stream_dp:{{{stream.settings.stream}/1}}:*"))
        worker = stream.start(new_epoch=NewEpoch())
        stream.wait_until_logged("epoch 2, round")
        member = stream.run_in_role("shard")
        stream.feed(some_events(30, seed=3))
        wait_until(lambda: len(stream.releases()) >= 70, stream.logged)
        for process in (worker, member, processes[2]):
            process.terminate()
            assert ended(process) == 0, stream.logged()
        opened = EpochJournal(stream.settings).opened[1].epoch
        pipeline = Pipeline(opened, stream.key(), stream.settings.events)
        expected = [part.value for part in pipeline.process(stream.events()[opened.first_offset :]).releases]
        found = [record.value for record in stream.releases()]
        assert expected == [value for value in found if decode_release(value or b"").epoch == 2]
        assert {1, 2} == {decode_release(value or b"").epoch for value in found}
