"""From records to what each round admits: cut into rounds, decode, bound.  All that happens before anything is counted.

Like the histogram it reads no clock and no socket: what it gives is a function of the noise key, the epoch and the
records alone, however they are cut into batches.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from stream_dp.engine.epoch import Epoch
from stream_dp.engine.release_schedule import NEVER
from stream_dp.engine.round_chain import Parts
from stream_dp.events.barrier_chain import Barrier
from stream_dp.events.dead_letter import DeadLetter
from stream_dp.events.log_digest import NOTHING, LogDigest, LogDigester
from stream_dp.events.merged_log import LogPart
from stream_dp.events.records import Records
from stream_dp.events.rounds import Round, RoundCutter, events_of
from stream_dp.events.schema_book import SchemaBook
from stream_dp.pipeline.admission import Admission
from stream_dp.pipeline.counted_days import CountedDays
from stream_dp.privacy.vector import Vector


@dataclass(frozen=True)
class Position:
    """How far the events topic has been applied: the next offset, and a commitment to all before it.

    It only ever stands at the end of a round: see `Round`.  `closed` is when the last round was closed that counts (see
    `CountedDays`), and `released` the last one that was released, 0 before any.  `barrier` is the one that closed the
    last round, or the one before the epoch's first; None where there are none.  Of several partitions, `next_offset` is
    that of the first, `further` has those of the others, and `heads` the heads of their hash chains.
    """

    next_offset: int
    log: LogDigest = NOTHING
    closed: int = NEVER
    released: int = 0
    barrier: Barrier | None = None
    further: Vector = ()
    heads: tuple[bytes, ...] = ()

    @classmethod
    def at_start_of(cls, epoch: Epoch) -> "Position":
        """Where an epoch begins."""
        return cls(epoch.first_offset, barrier=epoch.after_barrier, further=epoch.further_offsets)

    @property
    def offsets(self) -> Vector:
        """The next offset of each partition."""
        return self.next_offset, *self.further

    @property
    def reached(self) -> int:
        """When the last round was closed, whether it counts or not, or the one before the epoch's first."""
        return self.barrier.due if self.barrier is not None else self.closed


@dataclass
class ClosedRounds:
    """What one batch closed: per round its admitted labels, a label as often as events held it, and its timestamp.

    A timestamp is that of the record that closed the round, or when its barrier was due, in milliseconds.  `parts` has
    the admitted labels of each round by partition, None for a round of a log that has only one.  `records` is how many
    records they held, events or not.
    """

    admitted: list[list[str]] = field(default_factory=list)
    timestamps: list[int] = field(default_factory=list)
    parts: list[Parts | None] = field(default_factory=list)
    dead_letters: list[DeadLetter] = field(default_factory=list)
    records: int = 0


class Intake:
    """What stands before the histogram of an events topic.

    `position` is where an earlier one stood, and `pairs` what its bound remembered then.  Where records are read by
    schemas that they name, `schemas` must know those before `process` is given the records.
    """

    def __init__(
        self,
        epoch: Epoch,
        key: bytes,
        topic: str,
        position: Position | None = None,
        pairs: bytes | bytearray = b"",
        schemas: SchemaBook | None = None,
    ) -> None:
        self.position = position or Position.at_start_of(epoch)
        days = CountedDays(epoch, self.position.barrier, self.position.closed)
        self._admission = Admission(epoch, key, topic, days, pairs, schemas)
        self._cutter = RoundCutter(
            events_of(epoch.privacy["rounds"]),
            self.position.next_offset,
            self.position.barrier,
            self.position.further,
        )
        self._digester = LogDigester(key, epoch.reads_headers)
        self._by_barriers = events_of(epoch.privacy["rounds"]) is None
        self._log_rounds = epoch.log_rounds

    @property
    def schemas(self) -> SchemaBook:
        """Those by which records are read that name one."""
        return self._admission.schemas

    @property
    def next_offset(self) -> int:
        """The first offset that has not been read; records from `position` on up to it belong to the open round."""
        return self._cutter.next_offset

    @property
    def offsets(self) -> Vector:
        """The next offset of each partition."""
        return self._cutter.offsets

    @property
    def open_records(self) -> int:
        """How many records the open round holds by now, all of them in memory."""
        return self._cutter.open_records

    @property
    def pairs(self) -> bytearray:
        """What the bound remembers at `position`: bytes that only grow on one day.  Live ones: copy what is kept."""
        return self._admission.pairs

    def process(self, parts: Sequence[LogPart], most: int, before: int = 0) -> ClosedRounds:
        """Take what comes next in the log, and close at most `most` rounds.

        What was taken before is skipped; what comes after the last of `most` rounds is left.
        `before`: how many rounds were closed before; where the commitment to the log begins anew, that says when.
        """
        closed = ClosedRounds()
        rounds = self._cutter.cut(parts, most)
        if self._log_rounds:
            for first, end in blocks_of(before, len(rounds), self._log_rounds):
                if (before + first) % self._log_rounds == 0:
                    self.position = replace(self.position, log=self.position.log.begun_anew)
                self._take(rounds[first:end], closed)
        else:
            self._take(rounds, closed)
        while not self._admission.counts_all and (left := most - len(closed.admitted)):
            if not (rounds := self._cutter.cut(parts, left)):
                break
            self._take(rounds, closed)
        return closed

    def _take(self, rounds: Sequence[Round], closed: ClosedRounds) -> None:
        """Add to `closed` what rounds admit that follow each other."""
        if not rounds:
            return
        single = next((place for place, each in enumerate(rounds) if each.further), len(rounds))
        log = self._take_single(
            rounds[:single], self.position.log, closed
        )  # partitions are added, and never go
        log = self._take_joint(rounds[single:], log, closed)
        closed.records += sum(len(run) for each in rounds for run in each.runs)
        last = rounds[-1]
        counted = closed.timestamps[-1] if closed.timestamps else self.position.closed
        self.position = Position(last.next_offset, log, counted, barrier=last.barrier, further=last.further)

    def _take_single(self, rounds: Sequence[Round], log: LogDigest, closed: ClosedRounds) -> LogDigest:
        """Rounds of a log with one partition; returns the commitment to them."""
        for each in rounds:
            if not self._admission.counts(each.barrier):
                continue
            runs = (self._admission.admitted(run, closed.dead_letters) for run in each.runs)
            closed.admitted.append([*chain.from_iterable(runs)])
            closed.timestamps.append(each.closed)
            closed.parts.append(None)
        return self._digester.extend(log, chain.from_iterable(each.records for each in rounds))

    def _take_joint(self, rounds: Sequence[Round], log: LogDigest, closed: ClosedRounds) -> LogDigest:
        """Rounds of a log with several partitions; a barrier closes them for all, empty ones too."""
        for each in rounds:
            everyone = range(1 + len(each.further)) if self._by_barriers else ()
            runs: dict[int, list[Records]] = {number: [] for number in everyone}
            for run in map(Records.of, each.runs):
                runs.setdefault(run.partition, []).append(run)
            records = [
                (number, Records.joined(mine) if mine else ()) for number, mine in sorted(runs.items())
            ]
            log = self._digester.extend_round(log, records)
            if not self._admission.counts(each.barrier):
                continue
            letters = closed.dead_letters
            parts = [(number, self._admission.admitted(mine, letters)) for number, mine in records]
            closed.admitted.append([*chain.from_iterable(labels for _, labels in parts)])
            closed.timestamps.append(each.closed)
            closed.parts.append(parts)
        return log


def blocks_of(before: int, rounds: int, size: int) -> Iterator[tuple[int, int]]:
    """Where rounds that follow `before` earlier ones are cut into blocks of `size`: first place and end of each.

    >>> list(blocks_of(7, 9, 5))
    [(0, 3), (3, 8), (8, 9)]
    """
    start = 0
    while start < rounds:
        end = min(rounds, start + size - (before + start) % size)
        yield start, end
        start = end
