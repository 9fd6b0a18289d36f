"""From records to what each round admits: cut into rounds, decode, bound.  All that happens before anything is counted.

Like the histogram it reads no clock and no socket: what it gives is a function of the noise key, the epoch and the
records alone, however they are cut into batches.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice

from stream_dp.engine.epoch import Epoch
from stream_dp.engine.release_schedule import NEVER
from stream_dp.engine.round_chain import PartDigests, Parts
from stream_dp.events.barrier_chain import Barrier
from stream_dp.events.dead_letter import DeadLetter
from stream_dp.events.log_digest import NOTHING, LogDigest, LogDigester
from stream_dp.events.merged_log import LogPart
from stream_dp.events.records import Records
from stream_dp.events.rounds import Round, RoundCutter, events_of
from stream_dp.events.schema_book import SchemaBook
from stream_dp.pipeline.admission import Admission, PartsOfRound, bound_of
from stream_dp.pipeline.counted_days import CountedDays
from stream_dp.privacy.keyed_noise import Admitted
from stream_dp.privacy.vector import Vector


@dataclass(frozen=True)
class Position:
    """How far the events topic has been applied: the next offset, and a commitment to all before it.

    It only ever stands at the end of a round: see `Round`.  `closed` is when the last round was closed that counts (see
    `CountedDays`), and `released` the last one that was released, 0 before any.  `barrier` is the one that closed the
    last round, or the one before the epoch's first; None where there are none.  Of several partitions, `next_offset` is
    that of the first, and `further` has those of the others.
    """

    next_offset: int
    log: LogDigest = NOTHING
    closed: int = NEVER
    released: int = 0
    barrier: Barrier | None = None
    further: Vector = ()

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
    the admitted labels of each round by partition, and `cells` what it adds to the cells beside them, if there are any;
    if an engine counted them, `digests` has what they bring to the
    chain instead, and `found` the labels that tests found, by round.  `records` is how many records they held, events
    or not, and `blocks` where blocks of windows begin among them, by number.
    """

    admitted: list[Admitted] = field(default_factory=list)
    cells: list[tuple[int, int]] = field(default_factory=list)
    timestamps: list[int] = field(default_factory=list)
    parts: list[Parts] = field(default_factory=list)
    digests: list[PartDigests] = field(default_factory=list)
    found: dict[int, Sequence[tuple[str, int]]] = field(default_factory=dict)
    dead_letters: list[DeadLetter] = field(default_factory=list)
    records: int = 0
    blocks: dict[int, Position] = field(default_factory=dict)


class Intake:
    """What stands before the histogram of an events topic.

    `position` is where an earlier one stood, and `pairs` what its bound remembered then.  If records are read by
    schemas that they name, `schemas` must know those before `process` is given the records.
    """

    def __init__(
        self,
        epoch: Epoch,
        key: bytes,
        topic: str,
        position: Position | None = None,
        pairs: bytes | bytearray = b"",
    ) -> None:
        self.position = position or Position.at_start_of(epoch)
        days = CountedDays(epoch, self.position.barrier, self.position.closed)
        self._admission = Admission(epoch, key, topic, days, bound_of(epoch, key, pairs))
        self._cutter = RoundCutter(
            events_of(epoch.privacy["rounds"]),
            self.position.next_offset,
            self.position.barrier,
            self.position.further,
        )
        self._digester = LogDigester(key, epoch.reads_headers)
        self._by_barriers = events_of(epoch.privacy["rounds"]) is None
        self._log_rounds = epoch.log_rounds
        self._counts_cells = epoch.mechanism.cap_share

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
                block, place = divmod(before + first, self._log_rounds)
                if place == 0:
                    closed.blocks[block] = self.position
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
        by_partition = [self._by_partition(each) for each in rounds]
        log = self._digester.extend(self.position.log, by_partition)
        if self._admission.counts_all:
            self._admit(rounds, by_partition, closed)
        else:
            for each, records in zip(rounds, by_partition, strict=True):
                if self._admission.counts(each.barrier):
                    self._admit([each], [records], closed)
        closed.records += sum(len(run) for each in rounds for run in each.runs)
        last = rounds[-1]
        counted = closed.timestamps[-1] if closed.timestamps else self.position.closed
        self.position = Position(last.next_offset, log, counted, barrier=last.barrier, further=last.further)

    def _by_partition(self, closed: Round) -> PartsOfRound:
        """The records of a round by partition; a barrier closes it for all partitions, empty ones too."""
        if len(closed.runs) == 1 and not self._by_barriers:
            [run] = closed.runs
            return [(run[0].partition, run)]
        runs: dict[int, list[Records]] = (
            {number: [] for number in range(1 + len(closed.further))} if self._by_barriers else {}
        )
        for run in map(Records.of, closed.runs):
            runs.setdefault(run.partition, []).append(run)
        return [(number, Records.joined(mine) if mine else ()) for number, mine in sorted(runs.items())]

    def _admit(
        self, rounds: Sequence[Round], by_partition: Sequence[PartsOfRound], closed: ClosedRounds
    ) -> None:
        """Add to `closed` what rounds that count admit."""
        every = [part for parts in by_partition for part in parts]
        of_parts: list[tuple[int, int]] | None = [] if self._counts_cells else None
        admitted = iter(self._admission.admitted(every, closed.dead_letters, of_parts))
        if of_parts is not None:
            cells = iter(of_parts)
            for parts in by_partition:
                units, over = zip(*islice(cells, len(parts)), strict=True)
                closed.cells.append((sum(units), sum(over)))
        for each, parts in zip(rounds, by_partition, strict=True):
            mine = [(number, next(admitted)) for number, _ in parts]
            closed.parts.append(mine)
            closed.admitted.append(
                mine[0][1] if len(mine) == 1 else [*chain.from_iterable(labels for _, labels in mine)]
            )
            closed.timestamps.append(each.closed)


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
