"""What an epoch passes on to the next: the labels of its last release, and the sums of their counts.

Nothing else may be handed on.  A label that was admitted and never shown is private, and the next epoch would show it
from its first round on (docs/guarantee.md).
"""

import logging
from contextlib import closing

from stream_dp.config.settings import Settings
from stream_dp.engine.epoch import EpochRefused
from stream_dp.engine.known_labels import NOTHING_KNOWN, KnownLabels
from stream_dp.epochs.journal import EpochJournal, known_labels_of
from stream_dp.kafka.log import LogRefused
from stream_dp.pipeline.pipeline import Position
from stream_dp.releases.lookup import find_release, newest_release
from stream_dp.releases.topic import ReleasesTopic
from stream_dp.releases.whole_release import WholeRelease
from stream_dp.store.checkpoints import Checkpoint

logger = logging.getLogger(__name__)


def carried_on(settings: Settings, ended: Checkpoint) -> KnownLabels:
    """What the epoch after that of `ended`, which is at its horizon, knows of labels when it begins.

    Raises `EpochRefused` where the last release is not there any more.
    """
    if not ended.position.released:
        return NOTHING_KNOWN
    release = _last_release(settings, ended)
    before = known_labels_of(settings, ended.epoch)
    return before.carried_on(ended.epoch.number, release.labels, release.counts, release.label_sds)


def carried_into(settings: Settings, journal: EpochJournal, counted: Position | None) -> KnownLabels:
    """What an epoch that is opened with other settings takes over from the one that was opened last.

    `counted`: how far that one has counted.  Nothing if nobody knows this, or if what is shown is not a running count.
    """
    last = journal.last
    if last is None or "window" in (settings.mechanism, last.epoch.mechanism.name):
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


def _last_release(settings: Settings, ended: Checkpoint) -> WholeRelease:
    epoch, last = ended.epoch, ended.position.released
    with closing(ReleasesTopic(settings.kafka_address, settings.releases, stream=settings.stream)) as topic:
        release = find_release(topic, last, epoch.number)
    if release is None or (release.nonce, release.round) != (epoch.nonce.hex(), last):
        raise EpochRefused(
            f"the topic {settings.releases!r} no longer holds round {last:,} of epoch {epoch.number}, whose labels the "
            "next epoch takes over: write it again with `stream-dp republish`, or open the next epoch "
            "without them with --new-epoch --without-labels"
        )
    return release
