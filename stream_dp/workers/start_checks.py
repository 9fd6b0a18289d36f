"""Whether a worker may continue from a checkpoint with this key and these settings, by what is on record."""

from stream_dp.config.settings import Settings
from stream_dp.engine.epoch import EpochRefused
from stream_dp.epochs.journal import EpochJournal
from stream_dp.kafka import log
from stream_dp.privacy.keyed_noise import key_check
from stream_dp.store.checkpoint_records import damaged
from stream_dp.store.checkpoints import Checkpoint


def check_key(checkpoint: Checkpoint, key: bytes) -> None:
    """Raise `EpochRefused` unless `key` is the one of the checkpoint's epoch."""
    if checkpoint.key_check != key_check(key):
        raise EpochRefused(
            f"the noise key is not the one that epoch {checkpoint.epoch.number} was opened with: supply that one"
        )


def check_epoch(checkpoint: Checkpoint, journal: EpochJournal) -> None:
    """Raise `EpochRefused` unless the checkpoint's epoch is the open one, `StateDamaged` if it says something else."""
    number = checkpoint.epoch.number
    if any(each.epoch.number == number and each.epoch != checkpoint.epoch for each in journal.opened):
        raise damaged("meta")
    last = journal.last
    later = {each.epoch.number for each in journal.opened if each.epoch.number > number}
    refused_ones = later <= journal.closed.keys() and not later & journal.started  # before they began
    if number in journal.closed and refused_ones:
        refused = f", and epoch {max(later)} after it was refused" if later else ""
        raise EpochRefused(
            f"epoch {number} is closed{refused}: open the next one, which is charged, with --new-epoch"
        )
    if last is None or later:
        raise EpochRefused(
            f"Redis holds epoch {number}, which is not the last one that was opened: Redis was rolled back, or the "
            "epochs topic was lost; restore them, or open a new epoch, which is charged, with --new-epoch"
        )


def check_engine(settings: Settings, checkpoint: Checkpoint) -> None:
    """Raise `EpochRefused` if the checkpoint lacks what only an engine has counted, and the worker is to count."""
    if settings.engine == "worker" and checkpoint.counts_offset is not None and checkpoint.state.round:
        raise EpochRefused(
            f"epoch {checkpoint.epoch.number} of stream {settings.stream!r} is counted by an engine, and Redis has "
            'nothing of labels that are not shown: set engine = "spark" again, or stop the worker and run `stream-dp '
            "rebuild --replace`, which counts the log and goes on without one"
        )


def check_partitions(settings: Settings, checkpoint: Checkpoint) -> None:
    """Raise `EpochRefused` where the events topic has partitions that the checkpoint's epoch cannot count.

    Without barriers nothing says in which order their events come.
    """
    if checkpoint.position.barrier is not None:
        return
    partitions = log.partitions_of(settings.kafka_address, settings.events)
    if partitions > 1:
        raise EpochRefused(
            f"the topic {settings.events!r} has {partitions} partitions by now, and epoch {checkpoint.epoch.number} "
            "counts one: open a new epoch, which counts all and is charged, with --new-epoch"
        )
