"""What an epoch passes on to the next: the labels of its last release, and the sums of their counts.

Nothing else may be handed on.  A label that was admitted and never shown is private, and the next epoch would show it
from its first round on (docs/guarantee.md).
"""

from contextlib import ExitStack

from stream_dp.config.settings import Settings
from stream_dp.engine.epoch import EpochRefused
from stream_dp.engine.known_labels import NOTHING_KNOWN, KnownLabels
from stream_dp.epochs.journal import known_labels_of
from stream_dp.errors import NotReady
from stream_dp.releases.lookup import find_release
from stream_dp.releases.topic import ReleasesTopic
from stream_dp.releases.whole_release import WholeRelease
from stream_dp.store.checkpoints import Checkpoint


def carried_on(settings: Settings, ended: Checkpoint) -> KnownLabels:
    """What the epoch after that of `ended`, which is at its horizon, knows of labels when it begins.

    Raises `NotReady` where shards are behind, and `EpochRefused` where the last release is not there any more.
    """
    if not ended.position.released:
        return NOTHING_KNOWN
    releases = _last_release(settings, ended)
    labels = [label for release in releases for label in release.labels]
    counts = [count for release in releases for count in release.counts]
    before = known_labels_of(settings, ended.epoch)
    return before.carried_on(ended.epoch.number, labels, counts, releases[0].sd)


def _last_release(settings: Settings, ended: Checkpoint) -> list[WholeRelease]:
    """The last release of the epoch: one, or one of each shard."""
    shards = ended.sharding.shards if ended.sharding is not None else 0
    topic = settings.shard_releases if shards else settings.releases
    epoch, last = ended.epoch, ended.position.released
    found = []
    with ExitStack() as stack:
        for partition in range(max(1, shards)):
            releases = ReleasesTopic(settings.kafka_address, topic, partition, stream=settings.stream)
            stack.callback(releases.close)
            release = find_release(releases, last, epoch.number)
            if release is not None and (release.nonce, release.round) == (epoch.nonce.hex(), last):
                found.append(release)
            elif shards:
                raise NotReady(
                    f"shard {partition} has yet to release round {last:,} of epoch {epoch.number}, whose labels the "
                    "next epoch takes over: see that all shards run"
                )
            else:
                raise EpochRefused(
                    f"the topic {topic!r} no longer holds round {last:,} of epoch {epoch.number}, whose labels the "
                    "next epoch takes over: write it again with `stream-dp republish`, or open the next epoch "
                    "without them with --new-epoch"
                )
    return found
