"""What an epoch passes on to the next: the labels of its last release, and the sums of their counts.

Nothing else may be handed on.  A label that was admitted and never shown is private, and the next epoch would show it
from its first round on (docs/guarantee.md).
"""

import logging
from contextlib import ExitStack, closing

from stream_dp.config.settings import Settings
from stream_dp.engine.epoch import EpochRefused
from stream_dp.engine.known_labels import NOTHING_KNOWN, KnownLabels
from stream_dp.epochs.journal import EpochJournal, known_labels_of
from stream_dp.errors import NotReady
from stream_dp.kafka.log import LogRefused
from stream_dp.pipeline.pipeline import Position
from stream_dp.releases.lookup import find_release, newest_release
from stream_dp.releases.topic import ReleasesTopic
from stream_dp.releases.whole_release import WholeRelease
from stream_dp.store.checkpoints import Checkpoint

logger = logging.getLogger(__name__)


def carried_on(settings: Settings, ended: Checkpoint) -> KnownLabels:
    """What the epoch after that of `ended`, which is at its horizon, knows of labels when it begins.

    Raises `NotReady` where shards are behind, and `EpochRefused` where the last release is not there any more.
    """
    if not ended.position.released:
        return NOTHING_KNOWN
    releases = _last_release(settings, ended)
    labels = [label for release in releases for label in release.labels]
    counts = [count for release in releases for count in release.counts]
    sds = [sd for release in releases for sd in release.label_sds]
    before = known_labels_of(settings, ended.epoch)
    return before.carried_on(ended.epoch.number, labels, counts, sds)


def carried_into(settings: Settings, journal: EpochJournal, counted: Position | None) -> KnownLabels:
    """What an epoch that is opened with other settings takes over from the one that was opened last.

    `counted`: how far that one has counted.  Nothing if nobody knows this, or if what is shown is not a running count.
    """
    last = journal.last
    if last is None or settings.shards or "window" in (settings.mechanism, last.epoch.mechanism.name):
        return NOTHING_KNOWN
    closed = journal.closed.get(last.epoch.number)
    if counted is None and (closed is None or closed.end_unknown):
        return NOTHING_KNOWN
    try:
        before = journal.known_labels(last.epoch)
        with closing(
            ReleasesTopic(settings.kafka_address, settings.releases, stream=settings.stream)
        ) as topic:
            release = newest_release(topic)
    except LogRefused as refused:
        logger.warning("the new epoch begins without the labels of the old one: %s", refused)
        return NOTHING_KNOWN
    found = release if release is not None and release.nonce == last.epoch.nonce.hex() else None
    if counted is not None and counted.released != (0 if found is None else found.round):
        logger.warning(
            "the topic %r does not end with the last release of epoch %d, so the new epoch begins without its labels",
            settings.releases,
            last.epoch.number,
        )
        return NOTHING_KNOWN
    if found is None:
        return before
    return before.carried_on(last.epoch.number, found.labels, found.counts, found.label_sds)


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
                    "without them with --new-epoch --without-labels"
                )
    return found
