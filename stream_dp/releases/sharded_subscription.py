"""Following a stream in shards without a merge: the subscriber puts whole rounds together from what shards release."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime

from kafka import TopicPartition

from stream_dp.config.connections import Kafka
from stream_dp.kafka import log
from stream_dp.kafka.log import read_only_consumer
from stream_dp.releases.estimates.showings import Showings
from stream_dp.releases.foreign import Place as RecordPlace
from stream_dp.releases.foreign import release_or_none
from stream_dp.releases.lookup import beginning
from stream_dp.releases.merge import Place, RoundMerger, ShardRelease, WholeRounds, decode_shard_release
from stream_dp.releases.release import Release
from stream_dp.releases.subscription import Subscription
from stream_dp.releases.topic import ReleasesTopic
from stream_dp.releases.whole_release import WholeRelease


class ShardsSubscription(Subscription):
    """A place in the topic of the shards of a stream.  It is used like any `Subscription`."""

    def _begin(self, kafka: Kafka, topic: str, start: str | int | datetime, position: str | None) -> None:
        after, begins = _beginnings(kafka, topic, start, self._epoch, position)
        self._stream = topic.rpartition(".")[0]
        self._rounds, self._merger = WholeRounds(len(begins), after), RoundMerger()
        self._showings = Showings()
        self._places = [TopicPartition(topic, shard) for shard in range(len(begins))]
        self._consumer = read_only_consumer(kafka)
        self._consumer.assign(self._places)
        for place, begin in zip(self._places, begins, strict=True):
            self._consumer.seek(place, begin)

    def _wholes(self, seconds: float) -> list[WholeRelease]:
        for place, records in self._consumer.poll(int(seconds * 1000)).items():
            for record in records:
                release = release_or_none(
                    decode_shard_release,
                    self._stream,
                    RecordPlace(place.topic, place.partition, record.offset),
                    record.value,
                )
                if release is not None:
                    self._rounds.add(release, place.partition, len(record.value))
        for place in self._places:
            ahead = self._rounds.is_ahead(place.partition)
            (self._consumer.pause if ahead else self._consumer.resume)(place)
        return [self._whole(releases) for releases in self._rounds.take()]

    def _leave(self) -> None:
        self._consumer.close()

    def _whole(self, releases: Sequence[ShardRelease]) -> WholeRelease:
        block, since, totals = self._merger.joined(releases)
        [snapshot] = block.snapshots()
        common = {name: getattr(releases[0], name) for name in Release.__struct_fields__}
        together = {"labels": snapshot.labels.tolist(), "counts": snapshot.counts.tolist()}
        together |= {name: column.tolist() for name, column in since.items()}
        together |= {name: column[0].tolist() for name, column in totals.items()}
        whole = WholeRelease(**{**common, **together, "part": 1, "parts": 1})
        whole.follow(self._showings)
        return whole


def _beginnings(
    kafka: Kafka, topic: str, start: str | int | datetime, epoch: int | None, position: str | None
) -> tuple[Place, list[int]]:
    """The (epoch, round) after which to begin, and the offset from which to read each partition.

    Of what each shard would begin with, it is the earliest, because a round is whole only when the last shard has it.
    """
    with _topics(kafka, topic) as shards:
        after = min(beginning(shard, start, epoch, position)[0] for shard in shards)
        following = after[0], after[1] + 1
        return after, [shard.offset_of(following) if after[0] else shard.first for shard in shards]


@contextmanager
def _topics(kafka: Kafka, topic: str) -> Iterator[list[ReleasesTopic]]:
    with ExitStack() as stack:
        shards = [ReleasesTopic(kafka, topic)]
        stack.callback(shards[0].close)
        for shard in range(1, log.partitions_of(kafka, topic)):
            shards.append(ReleasesTopic(kafka, topic, shard))
            stack.callback(shards[-1].close)
        yield shards
