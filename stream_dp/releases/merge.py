"""The releases of all shards of a round, joined into what one worker would have released, byte for byte.

It works on released, public values alone: joining them spends nothing, and needs neither key nor Redis.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import chain

import msgspec
import numpy as np
from numpy.typing import NDArray

from stream_dp.engine.released_block import ReleasedBlock
from stream_dp.errors import Refused
from stream_dp.releases.release import SHARD_FIELD, Release
from stream_dp.releases.whole import WholeReleases, joined_column

_BYTES_OF_A_RELEASE, _BYTES_OF_A_LABEL = 1_000, 130
"""What the objects of a release, and of a label with its count, take in memory beyond what they take in the topic."""

Place = tuple[int, int]
"""An epoch and a round of it."""


class ShardsRefused(Refused):
    """What the shards have released does not make up rounds; the message says what is wrong."""


class ShardRelease(Release, frozen=True, kw_only=True):
    """What one of `shards` shards released in a round: the labels that fall to shard `shard`, and their counts.

    `first_shown` has the rounds that found the labels, by which those of all shards are put in order.  `opening` is the
    JSON of everything that all shards of the round have in common.
    """

    shard: int
    shards: int
    first_shown: list[int]
    opening: bytes = b""

    @property
    def place(self) -> Place:
        """The epoch and the round."""
        return self.epoch, self.round


_DECODER = msgspec.json.Decoder(ShardRelease)


def decode_shard_release(value: bytes | None) -> ShardRelease:
    """The release in a record's value; raises msgspec.DecodeError for anything else."""
    release = _DECODER.decode(value or b"")
    opening, found, _ = (value or b"").partition(SHARD_FIELD)  # no text that users write comes before it
    if not found:
        raise msgspec.DecodeError("the shard does not stand where shards write it")
    return msgspec.structs.replace(release, opening=opening)


class WholeRounds:
    """Puts rounds together from the parts that the shards release, each shard in order, and drops what comes again.

    What it holds is what fast shards have released and slow ones have not: ask `is_ahead` before reading more.
    """

    def __init__(self, partitions: int, after: Place = (0, 0), most_bytes: int = 256 << 20) -> None:
        """Rounds up to `after` are dropped; `most_bytes` is about how much memory is taken by what is held.

        An epoch may have fewer shards than the topic has partitions.
        """
        self._parts = [WholeReleases(after) for _ in range(partitions)]
        self._held: list[deque[tuple[ShardRelease, int]]] = [deque() for _ in range(partitions)]
        self._bytes = [0] * partitions
        self._most = most_bytes // partitions
        self._begun = False

    def add(self, release: ShardRelease, partition: int, size: int) -> None:
        """Take one part of a shard's release, which came in `size` bytes.

        Raises `ShardsRefused` for one that is not in its shard's partition.
        """
        if not release.shard == partition < release.shards <= len(self._held):
            raise ShardsRefused(
                f"partition {partition} of {len(self._held)} holds a release of shard {release.shard} of "
                f"{release.shards}: only the shards may write to their topic, each to its partition"
            )
        self._bytes[partition] += size + _BYTES_OF_A_RELEASE + _BYTES_OF_A_LABEL * len(release.labels)
        whole = self._parts[partition].add(release)
        if whole is not None:
            self._held[partition].append((whole, self._bytes[partition]))

    def is_ahead(self, partition: int) -> bool:
        """Whether so much of this shard is held that more of it should wait for the others."""
        held = self._held[partition]
        return len(held) > 1 and self._bytes[partition] - held[0][1] > self._most

    def awaited(self) -> int | None:
        """The first shard that has not released what others have; None where all are even."""
        held = [bool(each) for each in self._held]
        return held.index(False) if any(held) and not all(held) else None

    def take(self) -> Iterator[list[ShardRelease]]:
        """The rounds that are complete: the release of each shard, in the order of the shards.

        Raises `ShardsRefused` where a shard has passed over a round that others released.
        """
        while oldest := min((held[0][0] for held in self._held if held), key=_place_of, default=None):
            shards = self._held[: oldest.shards]
            if any(held and held[0][0].place != oldest.place for held in shards):
                self._give_up(oldest)
            elif not all(shards):
                return
            else:
                self._begun = True
                yield [held.popleft()[0] for held in shards]

    def _give_up(self, release: ShardRelease) -> None:
        """Drop a round that some shard will never release: right before the first one, or at the end of an epoch."""
        newest = max(held[0][0].place for held in self._held if held)
        if self._begun and release.epoch == newest[0]:
            raise ShardsRefused(
                f"round {release.round} is missing from some shards and shard {release.shard} has released it: "
                "releases were lost from the topic of the shards, or another producer wrote to this topic"
            )
        for held in self._held:
            if held and held[0][0].place == release.place:
                held.popleft()


def _place_of(release: ShardRelease) -> Place:
    return release.place


class RoundMerger:
    """Joins the releases of a round, one a shard.  It remembers the labels' order from one round to the next."""

    def __init__(self) -> None:
        self._joined: tuple[list[str], list[int]] = [], []
        self._labels: NDArray[np.object_] = np.empty(0, object)
        self._order = self._found = np.empty(0, np.int64)

    def joined(
        self, releases: Sequence[ShardRelease]
    ) -> tuple[ReleasedBlock, dict[str, NDArray[np.int64]], dict[str, NDArray[np.int64]]]:
        """The labels and counts of all shards, in the order of a release, and the columns beside them.

        Raises `ShardsRefused` where the releases do not belong together.
        """
        first = releases[0]
        if any(release.opening != first.opening for release in releases):
            raise ShardsRefused(
                f"the shards do not agree on round {first.round} of epoch {first.epoch}: their epochs, times or noise "
                "differ, so they counted different logs"
            )
        labels = list(chain.from_iterable(release.labels for release in releases))
        found = list(chain.from_iterable(release.first_shown for release in releases))
        counts = np.array(list(chain.from_iterable(release.counts for release in releases)), np.int64)
        self._put_in_order(labels, found)
        number, size = np.array([first.round]), np.array([len(labels)])
        block = ReleasedBlock(number, size, counts[np.newaxis, self._order], self._labels, self._found)
        since = joined_column([each.since for each in releases])
        totals = joined_column([each.totals for each in releases])
        return (
            block,
            {} if since is None else {"since": np.array(since, np.int64)[self._order]},
            {} if totals is None else {"totals": np.array(totals, np.int64)[np.newaxis, self._order]},
        )

    def _put_in_order(self, labels: list[str], found: list[int]) -> None:
        if (labels, found) == self._joined:
            return
        order = sorted(range(len(labels)), key=lambda place: (found[place], labels[place]))
        self._joined, self._order = (labels, found), np.array(order, np.int64)
        self._labels = np.array([labels[place] for place in order], object)
        self._found = np.array(found, np.int64)[self._order]
