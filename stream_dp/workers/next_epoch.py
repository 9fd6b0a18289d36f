"""How `--new-epoch` closes an epoch and opens the next, and the pipeline that results."""

import logging
from dataclasses import dataclass

from stream_dp.barriers.key import barrier_key
from stream_dp.config.settings import Settings
from stream_dp.engine.epoch import EpochRefused
from stream_dp.engine.known_labels import NOTHING_KNOWN
from stream_dp.epochs.carrying import carried_into
from stream_dp.epochs.gap import gap_of
from stream_dp.epochs.journal import EpochJournal
from stream_dp.epochs.lifecycle import Epochs
from stream_dp.events.counted_round import CountedRounds, CountsWire
from stream_dp.events.log_digest import LogDigester
from stream_dp.kafka import log
from stream_dp.pipeline.pipeline import Pipeline, Position
from stream_dp.privacy.keyed_noise import key_check
from stream_dp.privacy.vector import Vector
from stream_dp.sinks.releases import ReleasesSink
from stream_dp.store.checkpoints import Checkpoint
from stream_dp.workers.events_reader import LogEnds, ends_of

logger = logging.getLogger(__name__)


@dataclass
class Resumed:
    """A pipeline at the last checkpoint, and where its output goes.

    `sink` knows what has been published since then; `ends` is where the log ended at the start.
    `closing`: count up to there, then the epoch is to be closed.  `barrier_key` is what it takes to write barriers, and
    `counted` puts together what an engine counts, if there is one.
    """

    pipeline: Pipeline
    key_check: str
    digester: LogDigester
    sink: ReleasesSink
    ends: LogEnds
    epochs: Epochs
    barrier_key: bytes
    counted: CountedRounds
    closing: bool = False

    @classmethod
    def of(
        cls,
        settings: Settings,
        checkpoint: Checkpoint,
        pipeline: Pipeline,
        key: bytes,
        sink: ReleasesSink,
        epochs: Epochs,
        closing: bool = False,
    ) -> "Resumed":
        """`pipeline` as it was at `checkpoint`, and where the log ends now."""
        return cls(
            pipeline,
            checkpoint.key_check,
            LogDigester(key, checkpoint.epoch.reads_headers),
            sink,
            ends_of(settings, checkpoint.epoch),
            epochs,
            barrier_key(key),
            _counted(settings, checkpoint, key),
            closing,
        )


def _counted(settings: Settings, checkpoint: Checkpoint, key: bytes) -> CountedRounds:
    """What puts counted rounds together that follow the checkpoint."""
    epoch, barrier = checkpoint.epoch, checkpoint.position.barrier
    begun, known = (0 if each is None else each.number for each in (epoch.after_barrier, barrier))
    return CountedRounds(CountsWire(key, settings.counts), epoch.nonce, known - begun)


@dataclass
class NewEpoch:
    """An operator's wish: close the epoch and open another one, which is charged.

    `recount`: count the events topic again from its beginning, instead of going on where the old epoch ended.
    `from_last_release`: where the old epoch is lost, begin where its last release ends, instead of at the log's end.
    `without_labels`: take over none of the labels that the old epoch showed, nor their totals.
    `instead_of`: the number of the epoch that is to be closed, 0 if there is none; the first start finds it out.
    """

    recount: bool = False
    from_last_release: bool = False
    without_labels: bool = False
    instead_of: int | None = None

    def granted(self, journal: EpochJournal) -> bool:
        """Whether the next epoch is on record, because an outage ended the last attempt after that was written."""
        last = journal.last.epoch.number if journal.last is not None else 0
        if self.instead_of is None:
            self.instead_of = last
        return last > self.instead_of


def open_next(settings: Settings, epochs: Epochs, wish: NewEpoch, counted: Position | None = None) -> Resumed:
    """Close the last epoch and open the next one.

    `counted` is how far the old one has counted.  None where that is not known, because its state is lost or the log is
    another one by now: then its charge does not end, and must leave room for the next one.
    """
    events = log.offsets_of_all(settings.kafka_address, settings.events)
    firsts = tuple(partition.first for partition in events)
    if counted is not None:
        ended = counted.offsets
    else:
        ends = tuple(partition.end for partition in events)
        ended = ends if wish.recount else _end_of_lost_epoch(settings, epochs.journal, ends, wish)
    is_fresh = wish.recount or wish.without_labels
    carried = NOTHING_KNOWN if is_fresh else carried_into(settings, epochs.journal, counted)
    key = epochs.admit(firsts if wish.recount else ended, ended if counted is not None else None)
    if counted is None:
        epochs.close_last(ended, None)
    else:
        ended = epochs.close_last(ended, counted)
    # A log that was made anew may end before what was counted of the old one.
    offsets = firsts if wish.recount else log.within(ended, events)
    checkpoint = epochs.open_next(offsets, key_check(key), counted, wish.recount, carried)
    sink = ReleasesSink(settings)
    return Resumed.of(settings, checkpoint, sink.pipeline(checkpoint, key), key, sink, epochs)


def _end_of_lost_epoch(settings: Settings, journal: EpochJournal, ends: Vector, wish: NewEpoch) -> Vector:
    """Where the next epoch begins if nobody can tell how far the last one has counted; says what it leaves out.

    `ends`: where the log ends.
    """
    last = journal.last
    if last is None:
        return ends
    closed = journal.closed.get(last.epoch.number)
    if closed is not None and not closed.end_unknown:
        return journal.ends
    gap = gap_of(settings, last.epoch)
    if wish.from_last_release:
        if gap.begin is None:
            raise EpochRefused(f"{gap}: leave --from-last-release out")
        logger.warning("%s; the new epoch begins with them", gap)
        return gap.begin
    logger.warning(
        "%s; the new epoch begins after them%s",
        gap,
        "; with --from-last-release it would have begun with them" if gap.records else "",
    )
    return ends
