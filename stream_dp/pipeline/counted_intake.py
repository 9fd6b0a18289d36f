"""The intake of a worker whose events an engine counts: counted rounds in, what each round admits of shown labels out.

The engine is inside the trust boundary.  Still, no record is taken at its word if barriers, which are public, say what
is possible.
"""

from collections.abc import Sequence

from stream_dp.counters.discovery import DiscoveryMechanism
from stream_dp.engine.epoch import Epoch
from stream_dp.events.barrier_chain import Barrier
from stream_dp.events.counted_round import CountedRound, CountsRefused
from stream_dp.events.log_digest import LogDigester
from stream_dp.events.merged_log import LogPart
from stream_dp.events.schema_book import SchemaBook
from stream_dp.pipeline.counted_days import CountedDays
from stream_dp.pipeline.intake import ClosedRounds, Position
from stream_dp.privacy.vector import Vector, at


class CountedIntake:
    """What stands before the histogram of a stream that an engine counts; see `Intake`.

    `position` is where an earlier one stood, when these labels were `shown`, in the order in which they were found.
    """

    def __init__(self, epoch: Epoch, key: bytes, position: Position | None, shown: Sequence[str]) -> None:
        assert epoch.after_barrier is not None, "an engine counts rounds of barriers"
        assert isinstance(epoch.mechanism, DiscoveryMechanism), "an engine finds labels at tests"
        self.position = position or Position.at_start_of(epoch)
        self.pairs = bytearray()
        self.schemas = SchemaBook(key, epoch.nonce)
        self.open_records = 0
        self._epoch, self._mechanism, self._first = epoch, epoch.mechanism, epoch.after_barrier.number
        self._digester = LogDigester(key, epoch.reads_headers)
        self._days = CountedDays(epoch, self.position.barrier, self.position.closed)
        self._shown = [*shown]

    @property
    def offsets(self) -> Vector:
        """See `Intake.offsets`."""
        return self.position.offsets

    @property
    def next_offset(self) -> int:
        """See `Intake.next_offset`."""
        return self.position.next_offset

    @property
    def barrier(self) -> Barrier:
        """The one that closed the last round, or the one before the epoch's first."""
        assert self.position.barrier is not None
        return self.position.barrier

    @property
    def taken(self) -> int:
        """How many barriers of the epoch have been taken."""
        return self.barrier.number - self._first

    def process(self, parts: Sequence[LogPart], most: int, before: int = 0) -> ClosedRounds:
        """See `Intake.process`; each barrier comes after its counted round.  Raises `CountsRefused`."""
        closed, counted = ClosedRounds(), None
        for part in parts:
            if isinstance(part, CountedRound):
                counted = part
            elif isinstance(part, Barrier) and counted is not None:
                if part.number > self.barrier.number and len(closed.admitted) < most:
                    self._close(part, counted, closed, before + len(closed.admitted) + 1)
                counted = None
        return closed

    def _close(self, barrier: Barrier, counted: CountedRound, closed: ClosedRounds, number: int) -> None:
        """Take what a barrier closes: round `number`, if it counts."""
        self._check(barrier, counted)
        position, due = self.position, self.position.closed
        first, *further = [max(end, at(position.offsets, place)) for place, end in enumerate(barrier.ends)]
        log = self._digester.extend_joint(position.log, counted.in_log)
        closed.records += sum(part.records for part in counted.partitions)
        if self._days.count_all or self._days.counts(barrier):
            due = barrier.due
            closed.admitted.append(self._labels(barrier, counted))
            if (number in self._mechanism.tests) != (counted.found is not None):
                raise self._refused(counted, "has a test too many or too few")
            if counted.found is not None:
                closed.found[number] = self._found(counted.found, number, counted)
            closed.timestamps.append(due)
            closed.digests.append([(place, part.head) for place, part in enumerate(counted.partitions)])
            if self._mechanism.cap_share:
                closed.cells.append(counted.cells)
        elif (
            counted.counts
            or counted.found is not None
            or any(part.head or part.units or part.over for part in counted.partitions)
        ):
            raise self._refused(counted, "counts what is of no day")
        self.position = Position(first, log, due, position.released, barrier, tuple(further))

    def _check(self, barrier: Barrier, counted: CountedRound) -> None:
        if barrier.number != self.barrier.number + 1 or counted.number != self.taken + 1:
            raise ValueError(f"barrier {counted.number} of the epoch does not follow barrier {self.taken}")
        if (counted.barrier, len(counted.partitions)) != (barrier.digest, len(barrier.offsets)):
            raise self._refused(counted, "was closed by another barrier than the one that counts")

    def _labels(self, barrier: Barrier, counted: CountedRound) -> dict[str, int]:
        """How often the round admits each label that is shown, once nothing of it is impossible."""
        try:
            places, counts = counted.columns
        except ValueError:
            raise self._refused(counted, "counts no labels that could be") from None
        ends = enumerate(barrier.ends)
        most = sum(max(0, end - at(self.position.offsets, place)) for place, end in ends)
        if not all(0 <= cell <= most * self._mechanism.cap_share for cell in counted.cells):
            raise self._refused(
                counted, "counts more units than there are events, or units that nobody asks for"
            )
        if len(places) and (places[0] < 0 or places[-1] >= len(self._shown) or counts.max() > most):
            raise self._refused(counted, "counts labels that are not shown, or more events than there are")
        return dict(zip(map(self._shown.__getitem__, places.tolist()), counts.tolist(), strict=True))

    def _found(
        self, found: list[tuple[str, int]], number: int, counted: CountedRound
    ) -> list[tuple[str, int]]:
        """The labels that the test of round `number` found."""
        labels, test = [label for label, _ in found], self._mechanism.tests.index(number)
        least, new = int(self._mechanism.test_taus[test]), set(labels)
        if labels != sorted(new) or new & set(self._shown) or any(count < least for _, count in found):
            raise self._refused(counted, "shows labels that its test cannot have found")
        self._shown += labels
        return found

    def _refused(self, counted: CountedRound, why: str) -> CountsRefused:
        return CountsRefused(
            f"round {counted.number} of epoch {self._epoch.number} {why}: the topic of the counts was written by an "
            "engine with other settings, or was changed; nothing is sent"
        )
