"""Computes a stream again from its noise key and its topics, to restore its state or check its releases."""

from collections.abc import Iterator
from itertools import islice

from redis import Redis

from stream_dp.config.settings import Settings
from stream_dp.engine.epoch import EpochRefused
from stream_dp.epochs.lifecycle import Epochs
from stream_dp.epochs.published import start_of
from stream_dp.events.log_digest import NOTHING
from stream_dp.kafka.clients import kept_clients
from stream_dp.pipeline.pipeline import ReleasedPart
from stream_dp.privacy.keyed_noise import key_check
from stream_dp.sinks.releases import ReleasesSink
from stream_dp.store.checkpoints import Checkpoint, CheckpointStore
from stream_dp.verification.block_start import BlockStart
from stream_dp.verification.recorded import (
    Progress,
    RecordedEpoch,
    Released,
    checkpoint_of,
    epoch_entries,
    last_released,
    published_parts,
    recorded_epoch,
    start_of_epoch,
)
from stream_dp.verification.verify import Outcome, comparable, verify
from stream_dp.workers.resume import take_over

_RECORDS_AT_ONCE = 500


@kept_clients()
def verify_epoch(
    settings: Settings,
    redis: Redis,
    number: int | None = None,
    progress: Progress = lambda done, of: None,
    whole: bool = False,
) -> Outcome:
    """Compare the releases of an epoch with what its key and log give again.

    Of windows, that is those of the last two blocks, where they can be computed from the log of three; with `whole`,
    those from the epoch's beginning on, as of any other mechanism.
    """
    recorded = recorded_epoch(settings, redis, number)
    checkpoint = checkpoint_of(settings, redis, recorded)
    start = None if whole else start_of_epoch(settings, recorded)
    released = last_released(recorded, checkpoint)
    parts = (part for _, part in published_parts(settings, recorded, start))
    return compared(settings, recorded, parts, checkpoint, released, start, progress)


def compared(
    settings: Settings,
    recorded: RecordedEpoch,
    parts: Iterator[ReleasedPart],
    checkpoint: Checkpoint | None,
    released: int,
    start: BlockStart | None,
    progress: Progress,
) -> Outcome:
    """What `verify` says of releases of an epoch, `parts`, or of those from `start` on."""
    epoch, counted, rounds = recorded.epoch, NOTHING, 0
    if checkpoint is not None and epoch.log_rounds:
        after_start = start is None or checkpoint.state.round >= start.first_round
        counted, rounds = (checkpoint.position.log, checkpoint.state.round) if after_start else (NOTHING, 0)
    elif checkpoint is not None and start is None:
        counted = checkpoint.position.log
    return verify(
        epoch,
        recorded.key,
        epoch.topic,
        epoch_entries(settings, recorded, progress, start),
        parts,
        counted,
        released,
        recorded.known,
        recorded.schemas,
        start,
        rounds,
    )


@kept_clients()
def rebuild(
    settings: Settings,
    redis: Redis,
    progress: Progress = lambda done, of: None,
    replace: bool = False,
    trust_log: bool = False,
    whole: bool = False,
) -> Checkpoint:
    """Put the state of the open epoch back into Redis, as it was after its last whole release; nothing is released.

    Of windows, that is computed from the log of their last three blocks where all releases of these are there and
    agree, or else, or with `whole`, from the epoch's beginning on.

    What is left of its releases is compared with what the log gives.  Where nothing is left, nothing shows that the log
    is the one that was counted: `trust_log` takes that on trust, and the epoch begins again, with the same releases.

    Raises `EpochRefused` where Redis still holds state and `replace` is false, and where the log does not give what
    was released, and `LedgerRefused` where the epoch was not charged and its charge does not fit the budget.
    """
    store = CheckpointStore(redis, settings.stream)
    if not replace and store.holds_state():
        raise EpochRefused(
            f"Redis holds state of stream {settings.stream!r}: nothing was rebuilt; give --replace to replace it"
        )
    epochs = take_over(settings, store, redis)
    epochs.finish_closing()
    recorded = recorded_epoch(settings, redis)
    if recorded.closed is not None:
        raise EpochRefused(f"epoch {recorded.epoch.number} is closed: there is nothing to rebuild")
    begin = start_of(settings, (recorded.epoch.number, 0), recorded.opened.releases_offset)
    start = None
    if recorded.epoch.log_rounds and not whole:
        start = start_of_epoch(settings, recorded)
    if start is None:
        _require_proof(settings, recorded, trust_log)
    try:
        checkpoint = _computed(settings, recorded, begin, progress, start)
    except EpochRefused:
        if start is None:
            raise
        checkpoint = _computed(settings, recorded, begin, progress)
    return _put_back(checkpoint, recorded.key, epochs, store)


def _require_proof(settings: Settings, recorded: RecordedEpoch, trust_log: bool) -> None:
    """Raise `EpochRefused` where nothing shows that the log is the one that was counted, and nobody vouches for it."""
    if not trust_log and not ReleasesSink(settings).holds(recorded.opened):
        raise EpochRefused(
            f"no release of epoch {recorded.epoch.number} is there to compare a rebuilt state with: restore their "
            "topic; or, if you know that the events topic is the log that was counted, give --trust-log, and the "
            "worker releases the same again; or open a new epoch, which is charged, with --new-epoch"
        )


def _computed(
    settings: Settings,
    recorded: RecordedEpoch,
    begin: int,
    progress: Progress,
    start: BlockStart | None = None,
) -> Checkpoint:
    """The state after the last whole release, from the log of the epoch or from `start` on.

    `begin` is where its releases begin.  Raises `EpochRefused` where the log does not give what is left of them; from
    `start` on, nothing may be missing.
    """
    first = 1 if start is None else start.first_compared
    begin = begin if start is None else start.releases_offset
    released = Released(published_parts(settings, recorded, start), begin, first)
    pipeline = recorded.pipeline(start)
    entries = epoch_entries(settings, recorded, progress, start)
    while pipeline.round < released.rounds:
        batch = list(islice(entries, min(_RECORDS_AT_ONCE, released.rounds - pipeline.round)))
        parts = [*comparable(pipeline.process(batch).releases, first)]
        lacks = start is not None and any(map(released.lacks, parts))
        if not batch or lacks or any(map(released.differs, parts)):
            raise EpochRefused(
                "nothing was rebuilt: the events topic and the key do not reproduce what was released; "
                "`stream-dp verify` says more"
            )
    if left := released.not_given_up_to(released.rounds):
        raise EpochRefused(
            f"nothing was rebuilt: the topic {settings.releases!r} holds a release of round {left}, which the events "
            "topic and the key do not reproduce; `stream-dp verify` says more"
        )
    state, pairs = pipeline.state(), pipeline.intake.pairs
    check = key_check(recorded.key)
    return Checkpoint(recorded.epoch, state, pipeline.position, released.next_offset, check, pairs)


def _put_back(checkpoint: Checkpoint, key: bytes, epochs: Epochs, store: CheckpointStore) -> Checkpoint:
    """Make it the state of the stream.  A worker goes on from it at once, so the epoch is charged before, again."""
    epochs.charge_again()
    store.start_over(key)
    store.commit(store.prepare(checkpoint))
    return checkpoint
