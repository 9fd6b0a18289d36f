"""Opening and closing the epochs of a stream, so that every guarantee is on record before its first release.

Opening: write the labels that the epoch knows, and the epoch, into `<stream>.epochs`, charge the data source's ledger,
make the first checkpoint, then write down that the epoch has started.  Each step may be repeated after a crash: the
nonce is drawn before the first, and nothing is released before the last.

All that is put on record about one step carries one time, and not that of the writing, which would tell how long the
events before it took to count: when the last round before it ended, by the log, or when this worker took over where
nobody knows one.
"""

import logging
from dataclasses import replace
from functools import cached_property

from redis import Redis

from stream_dp.barriers.topic import needs_barriers
from stream_dp.config.days import days_of
from stream_dp.config.settings import Settings
from stream_dp.config.times import clock
from stream_dp.counters.protocol import LARGEST_HORIZON
from stream_dp.engine.epoch import Epoch, EpochRefused
from stream_dp.engine.histogram import HistogramState
from stream_dp.engine.known_labels import NOTHING_KNOWN, KnownLabels, read_list
from stream_dp.engine.release_schedule import NEVER
from stream_dp.epochs.carrying import carried_on
from stream_dp.epochs.charges import (
    charge_of,
    end_day,
    has_counted_nothing,
)
from stream_dp.epochs.journal import (
    BlockBegun,
    EpochClosed,
    EpochJournal,
    EpochOpened,
    EpochStarted,
    check_key,
)
from stream_dp.epochs.journaled_ledger import JournaledLedger, look
from stream_dp.epochs.registry import Registry
from stream_dp.epochs.room import require_room
from stream_dp.events.barrier_chain import Barrier, beginning
from stream_dp.events.log_digest import LogDigest
from stream_dp.kafka import log
from stream_dp.pipeline.pipeline import Position
from stream_dp.privacy.vector import Vector, at, larger
from stream_dp.store.checkpoints import Checkpoint, CheckpointStore, Closing
from stream_dp.store.ledger import Ledger, LedgerRefused, NoBudget
from stream_dp.store.ledger_sentences import no_budget
from stream_dp.store.noise_key import noise_key

logger = logging.getLogger(__name__)


class Epochs:
    """The epochs of one stream, as the worker that holds the stream opens and closes them."""

    def __init__(self, settings: Settings, store: CheckpointStore, redis: Redis, registry: Registry) -> None:
        """`registry`: as it was read at this start."""
        self._settings = settings
        self._store = store
        self._redis = redis
        self._registry = registry
        self._began = clock()
        self._seen = look(settings.kafka_address, redis, settings.data_source, registry)
        self.journal = EpochJournal(settings, self._key)

    @cached_property
    def _ledger(self) -> JournaledLedger:
        """Opening it puts back what Redis has lost, so the stream is to be taken over before."""
        self._store.check_hold()
        return self._open_ledger(self._settings.data_source)

    @property
    def _charged(self) -> Ledger:
        """What may be read of the ledger whether or not the stream was taken over."""
        return self._ledger.current() if self._store.is_taken else self._seen

    def complete_ledger(self) -> None:
        """Put back what Redis has lost of the ledger, once the stream is taken over."""
        _ = self._ledger

    def finish_closing(self) -> None:
        """Write down the end that a worker before this one has set for the last epoch, if that worker crashed first.

        Raises `StateDamaged` where nobody can tell any more what that was, and `NoKey`.
        """
        last = self.journal.last
        if last is None or not self.journal.last_is_open or not self._store.is_closing():
            return
        closing = self._store.closing(self._key())
        if closing is not None and closing.nonce == last.epoch.nonce:
            self._append_end(last.epoch, closing)

    def _key(self) -> bytes:
        settings = self._settings
        return noise_key(settings.noise_key, self._redis, settings.stream, may_create=False)

    def _close(self, epoch: Epoch, closing: Closing) -> None:
        """Close the last epoch, at once for every worker that takes over from now on.

        A worker that took over before would count on, so it is asked and told in one transaction: raises `Fenced`.
        """
        self._store.mark_closing(closing, self._key())
        self._append_end(epoch, closing)

    def _append_end(self, epoch: Epoch, closing: Closing) -> None:
        self._store.check_hold()
        if self.journal.last_is_open:
            end = closing.end_offset, closing.end_unknown, closing.end_barrier, closing.further_ends
            self.journal.append(EpochClosed(epoch.number, *end), closing.at)

    def append_block(self, begun: BlockBegun, at: int) -> None:
        """Write down where a block begins; `at`: when the round before it was closed.  Raises `Fenced`."""
        self._store.check_hold()
        self.journal.append(begun, at)

    def _time_of(self, counted: Position | None) -> int:
        """When the last round ended that was counted, by the log; where there is none, when this worker took over."""
        if counted is None:
            return self._began
        # Of days, also rounds that are not counted have passed.
        ended = counted.closed if self._settings.unit != "user-day" else max(counted.closed, counted.reached)
        if ended == NEVER and not counted.log.records:
            return self._began
        return max(ended, 0)  # a record may have no time

    def check_room(self, offsets: Vector, ends: Vector | None) -> None:
        """Raise `EpochRefused` unless the budget has room for an epoch from `offsets` on.

        The charge of the one that is open is taken to end at `ends`, or to stay as it is if that is None: this is
        asked before it is closed.
        """
        known = read_list(self._settings.known_labels)
        require_room(self._charged, self.journal, self._following(offsets, known, self._began), ends)

    def admit(self, offsets: Vector, ends: Vector | None) -> bytes:
        """Make sure of all that the next epoch needs, before the last one is closed; returns the noise key.

        Raises as `check_room` does, and `NoKey`, with nothing closed.
        """
        self.check_room(offsets, ends)
        self._store.check_hold()
        self._register(self._began)
        settings = self._settings
        return noise_key(settings.noise_key, self._redis, settings.stream, may_create=True)

    def open_next(
        self,
        offsets: Vector,
        key_check: str,
        counted: Position | None = None,
        recount: bool = False,
        carried: KnownLabels = NOTHING_KNOWN,
    ) -> Checkpoint:
        """Open the next epoch, which counts from `offsets` on; `counted`: how far the one before has counted.

        `carried`: what it takes over from that one.  With `recount` it ends its rounds by the same barriers again, as
        far as they are known.
        Raises `EpochRefused` where the budget of the data source has no room for it.
        """
        barrier = counted.barrier if counted is not None else None
        if recount and barrier is not None:
            barrier = self._beginning_of(barrier.chain)
        number = self.journal.last.epoch.number + 1 if self.journal.last else 1
        at, known = self._time_of(counted), carried.with_list(read_list(self._settings.known_labels), number)
        following = self._following(offsets, known, at, after_barrier=barrier, recount=recount)
        return self._open(following, known, key_check, at, None if recount else counted)

    def is_to_roll(self, ended: Checkpoint) -> bool:
        """Whether the epoch of `ended` is at its horizon, and no epoch after it has ever counted anything."""
        journal = self.journal
        return ended.state.round == ended.epoch.mechanism.horizon and all(
            later.epoch.number in journal.closed
            and has_counted_nothing(later.epoch, journal.closed[later.epoch.number])
            for later in journal.opened
            if later.epoch.number > ended.epoch.number
        )

    def roll(self, ended: Checkpoint) -> Checkpoint:
        """Close the epoch of `ended`, which is at its horizon, and open the next one where it stopped to count.

        The next one has as many rounds or, where the settings say so, twice as many, and shows the labels of the last
        release from its first round on.  May be repeated after a crash at any step.  Raises, with nothing closed,
        `EpochRefused` where the budget has no room for it, and as `carried_on` does.
        """
        known = carried_on(self._settings, ended)
        rounds, ends = ended.epoch.mechanism.horizon, ended.position.offsets
        doubled = self._settings.at_horizon == "double"
        horizon = min(2 * rounds, LARGEST_HORIZON) if doubled else rounds
        at = self._time_of(ended.position)
        following = self._following(ends, known, at, horizon, ended.position.barrier)
        require_room(self._charged, self.journal, following, ends)
        self._store.check_hold()
        self.close_last(ends, ended.position)
        return self._open(following, known, ended.key_check, at, ended.position)

    def _following(
        self,
        offsets: Vector,
        known: KnownLabels,
        at: int,
        horizon: int | None = None,
        after_barrier: Barrier | None = None,
        recount: bool = False,
    ) -> Epoch:
        """The epoch that would be opened next; nothing is on record yet but whose budget it spends.

        Where it needs barriers and `after_barrier` is None, it begins a chain of its own.
        Raises `EpochRefused` where the data source's ledger counts per another unit, has no budget, or is another's.
        """
        ledger, unit = self._charged, self._settings.unit
        if ledger.state().unit not in (None, unit):
            raise EpochRefused(
                f"the ledger of {ledger.source!r} counts per {ledger.state().unit}, and the two units cannot be added: "
                f'set unit = "{ledger.state().unit}" instead of "{unit}"; no epoch was opened or closed'
            )
        self._check_account()
        number = self.journal.last.epoch.number + 1 if self.journal.last else 1
        first, *further = offsets
        first_day = 0 if recount else self._first_day(at)
        epoch = Epoch.open(self._settings, number, first, horizon, tuple(further), known, first_day)
        if not needs_barriers(self._settings, len(offsets)):
            return epoch
        return replace(epoch, after_barrier=after_barrier or self._new_chain(epoch))

    def _first_day(self, at: int) -> int:
        """The first day that an epoch counts which is opened now: the one after the last day of the epoch before it.

        What is left of that day is neither counted nor released, because a day in two epochs is charged for both.
        `at`: when the last round ended that was counted, or now.  0 where the unit is another.
        """
        if self._settings.unit != "user-day":
            return 0
        last, today = self.journal.last, days_of(self._settings.time_zone).at(at)
        if last is None or last.epoch.days is None:
            return today
        closed = self.journal.closed.get(last.epoch.number)
        if closed is None:
            return last.epoch.day_of(at) + 1
        if closed.end_unknown:
            return today
        return end_day(last.epoch, closed, self.journal.closed_at[closed.number]) or today

    def _check_account(self) -> None:
        """Raise `EpochRefused` if the events spend another budget, or if there is none and one is wanted."""
        settings, ledger = self._settings, self._charged
        try:
            self._registry.has_topic(settings.events, settings.data_source, settings.unit)
            if ledger.budget() is None and not settings.unmetered:
                raise NoBudget(no_budget(ledger.source))
        except LedgerRefused as refused:
            raise EpochRefused(f"{refused}; no epoch was opened or closed") from None

    def _register(self, at: int) -> None:
        """Have the registry say whose budget the events spend.  Raises `EpochRefused`."""
        settings = self._settings
        owner = settings.data_source, settings.unit
        try:
            self._registry.read_on()
            self._registry.register(
                "topic", settings.events, *owner, create_topics=settings.create_topics, at=at
            )
        except LedgerRefused as refused:
            raise EpochRefused(f"{refused}; no epoch was opened or closed") from None

    def _new_chain(self, epoch: Epoch) -> Barrier:
        held = log.offsets(self._settings.kafka_address, self._settings.barriers)
        return beginning(epoch.nonce.hex(), held.end, *epoch.offsets)

    def _beginning_of(self, chain: str) -> Barrier | None:
        """Where a chain of barriers begins: with the epoch whose nonce it is named after."""
        began = [opened.epoch for opened in self.journal.opened if opened.epoch.nonce.hex() == chain]
        return began[0].after_barrier if began else None

    def _open(
        self, epoch: Epoch, known: KnownLabels, key_check: str, at: int, counted: Position | None = None
    ) -> Checkpoint:
        releases = log.offsets(self._settings.kafka_address, self._settings.releases)
        self._store.check_hold()
        unmetered = self._charged.budget() is None
        self.journal.append_known(epoch, known, at)
        self.journal.append(EpochOpened(epoch, key_check, releases.end, unmetered), at)
        return self.finish_opening(counted)

    def finish_opening(self, counted: Position | None = None) -> Checkpoint:
        """Charge the last epoch, which is on record and has released nothing yet, and make its first checkpoint.

        `counted`: how far the epoch before it has counted.  Where the new one goes on there, it remembers that record
        too, so that an events topic which is made anew between the two is noticed.
        """
        opened = self.journal.opened[-1]
        epoch, key = opened.epoch, self._key()
        check_key(opened, key)
        self._store.check_hold()
        try:
            self.charge_again()
        except LedgerRefused as refusal:
            self._close(
                epoch,
                Closing(
                    epoch.nonce,
                    epoch.first_offset,
                    at=self.journal.opened_at[epoch.number],
                    further_ends=epoch.further_offsets,
                ),
            )
            raise EpochRefused(
                f"epoch {epoch.number} of stream {self._settings.stream!r}: {refusal}"
            ) from None
        known = self.journal.known_labels(epoch)
        state = HistogramState.before_any_round(known.labels, shown=True)
        position = Position.at_start_of(epoch)
        if counted is not None:
            position = replace(position, log=_where_it_goes_on(counted, epoch))
        checkpoint = Checkpoint(epoch, state, position, opened.releases_offset, opened.key_check)
        self._store.start_over(key)
        self._store.commit(self._store.prepare(checkpoint))
        self.note_started(epoch.number)
        return checkpoint

    def charge_again(self) -> None:
        """Charge the last epoch, or repeat its charge as it was made, so that none runs without one.

        A version before this one may have charged it by another formula.  Raises `LedgerRefused`.
        """
        epoch = self.journal.opened[-1].epoch
        charge, ledger = charge_of(epoch), self._ledger_of(epoch)
        known = ledger.current().state().stored.get(charge.id)
        at = self.journal.opened_at[epoch.number]
        ledger.charge(charge if known is None else known.made, at=at)

    def note_started(self, number: int) -> None:
        """Put on record, before the epoch releases anything, that it has a checkpoint."""
        if number not in self.journal.started:
            self._store.check_hold()
            self.journal.append(EpochStarted(number), self.journal.opened_at.get(number, self._began))

    def close_last(self, ends: Vector, counted: Position | None) -> Vector:
        """Close the epoch that was opened last; returns the offsets from which on the next one may count.

        `counted`: how far it has counted, which is up to `ends`.  Where that is None, nobody knows, and its
        charge stays as it is, on all offsets from its first one on.
        """
        self._store.check_hold()
        last = self.journal.last
        if last is None:
            return ends
        if self.journal.last_is_open:
            end, *further = larger(ends, last.epoch.offsets)
            barrier = counted.barrier.number if counted is not None and counted.barrier is not None else None
            at = self._time_of(counted)
            self._close(
                last.epoch, Closing(last.epoch.nonce, end, counted is None, barrier, at, tuple(further))
            )
        charge, ledger = charge_of(last.epoch), self._ledger_of(last.epoch)
        charged = charge.id in {made.id for made in ledger.current().charges()}  # a refused epoch never was
        closed = self.journal.closed[last.epoch.number]
        if charged and closed.end_unknown:
            logger.warning(
                "it is not known how far epoch %d has counted, so its charge stays on all offsets from %d on",
                last.epoch.number,
                charge.first_offset,
            )
        elif charged and not last.epoch.is_derived:
            at = self.journal.closed_at[closed.number]
            if last.epoch.days is None:
                ledger.close(charge.id, closed.end_offset, at, closed.further_ends)
            else:
                ledger.close(charge.id, end_day(last.epoch, closed, at), at)
        return self.journal.ends

    def _ledger_of(self, epoch: Epoch) -> JournaledLedger:
        """The ledger that the epoch is charged to, which is another one if the setting `source` was changed since."""
        source = epoch.privacy["data_source"]
        if source == self._settings.data_source:
            return self._ledger
        return self._open_ledger(source)

    def _open_ledger(self, source: str) -> JournaledLedger:
        settings = self._settings
        return JournaledLedger(
            settings.kafka_address,
            self._redis,
            source,
            settings.create_topics,
            settings.unmetered,
            self._registry,
        )


def _where_it_goes_on(counted: Position, epoch: Epoch) -> LogDigest:
    """The last records of the partitions that `epoch` goes on with where they were counted up to."""
    first, *further = [
        last if at(counted.offsets, number) == at(epoch.offsets, number) else b""
        for number, last in enumerate(counted.log.lasts)
    ]
    return LogDigest(last=first, further=tuple(further))
