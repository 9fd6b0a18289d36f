"""A stream in shards without any topic: lists stand for partitions."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from stream_dp.config.settings import Settings
from stream_dp.engine.epoch import Epoch
from stream_dp.events.record import Record
from stream_dp.pipeline.frames import Frame, decode_frame, encode_frame
from stream_dp.pipeline.partition_frames import PartitionFrame
from stream_dp.pipeline.pipeline import Pipeline, ReleasedPart
from stream_dp.pipeline.sequencer import Sequencer
from stream_dp.pipeline.shard import Shard
from stream_dp.releases.merge import RoundMerger, WholeRounds, decode_shard_release
from stream_dp.releases.part_encoder import PartEncoder

KEY = bytes(range(32))
TOPIC = "s.events"


def epoch(number: int = 1, **changed: Any) -> Epoch:
    """An epoch in which much is released after few events; `changed` are settings."""
    settings = Settings(
        stream="s",
        epsilon=30.0,
        delta=1e-2,
        horizon=1023,
        items_per_event=3,
        **{"mechanism": "binary", **changed},
    )
    return replace(Epoch.open(settings, number, 0), nonce=bytes([number]) * 16)


EPOCH = epoch()


def log_of(values: Sequence[bytes | None]) -> list[Record]:
    """Values as records, one a millisecond."""
    return [Record(offset, 1_700_000_000_000 + offset, None, value) for offset, value in enumerate(values)]


def cut(records: Sequence[Record], cuts: Iterable[int]) -> list[Sequence[Record]]:
    """The records in batches that end at `cuts`."""
    bounds = sorted({0, len(records), *(end for end in cuts if 0 <= end <= len(records))})
    return [records[start:end] for start, end in pairwise(bounds)]


def one_worker(records: Sequence[Record], of: Epoch = EPOCH) -> list[ReleasedPart]:
    """What a worker that has the stream alone releases."""
    return Pipeline(of, KEY, TOPIC).process(records).releases


class Topics:
    """The frames topic and the topic of the shards, each with a list of values for a partition."""

    def __init__(self, shards: int) -> None:
        self.frames: list[list[bytes]] = [[] for _ in range(shards)]
        self.released: list[list[bytes]] = [[] for _ in range(shards)]

    def write(self, frames: Iterable[Frame]) -> None:
        """Append frames to the partitions that they are for."""
        for frame in frames:
            self.frames[frame.shard].append(encode_frame(frame))

    def read(self, shard: int, start: int = 0, end: int | None = None) -> list[tuple[int, Frame]]:
        """The frames of a shard with their offsets."""
        values = self.frames[shard][start:end]
        return [(offset, decode_frame(value)) for offset, value in enumerate(values, start)]

    def merged(self) -> list[ReleasedPart]:
        """Whole rounds, as they would be written to the releases topic; the shards are read in turns."""
        rounds, merger, encoder = WholeRounds(len(self.released)), RoundMerger(), PartEncoder()
        parts: list[ReleasedPart] = []
        for turn in range(max(map(len, self.released))):
            for shard, values in enumerate(self.released):
                if turn < len(values):
                    rounds.add(decode_shard_release(values[turn]), shard, len(values[turn]))
            for whole in rounds.take():
                block, *beside = merger.joined(whole)
                [values_of_round] = encoder.encode(block, [whole[0].opening], *beside)
                parts += [
                    ReleasedPart(whole[0].round, part, value) for part, value in enumerate(values_of_round, 1)
                ]
        return parts


def sequencer(shards: int, before: Sequencer | None = None, of: Epoch = EPOCH) -> Sequencer:
    """A sequencer at the start of the epoch, or one that goes on from the checkpoint of another."""
    if before is None:
        return Sequencer(of, KEY, TOPIC, shards)
    return Sequencer(of, KEY, TOPIC, shards, before.position, before.state())


def release(shard: Shard, frames: Iterable[tuple[int, Frame | PartitionFrame]]) -> list[ReleasedPart]:
    """All that the shard makes of the frames."""
    return [part for block in shard.process(frames) for part in block]


def in_shards(records: Sequence[Record], shards: int, cuts: Iterable[int] = (), of: Epoch = EPOCH) -> Topics:
    """A stream that nothing ever happens to."""
    topics, sequencing = Topics(shards), sequencer(shards, of=of)
    for batch in cut(records, cuts):
        topics.write(sequencing.process(batch).frames)
    for number in range(shards):
        released = release(Shard(of, KEY, number, shards), topics.read(number))
        topics.released[number] += [part.value for part in released]
    return topics
