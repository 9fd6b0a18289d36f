"""Counts a stream on Spark, turn by turn: the rounds that barriers close in, counted rounds for the worker out.

One turn takes these steps, and whoever dies in between goes on from the last one that was finished:

1. Take the barriers that have come, up to the next test, or as many as one turn may have.
2. Let tasks count the partitions: what each brings to the chain, the counts of labels that are shown, and a file of
   those that are not.  If users are protected, other tasks bound them in between: see user_tasks.py.
3. Join the heads of the partitions to those of the chain.  After a test, let tasks find labels, bucket by bucket.
4. Send the rounds to the worker, and wait until the broker has them.
5. Hand on copies of broken records, which are never made again after the next step.
6. Replace the state, which names the files to go on from.

All of it is a function of the noise key, the epoch, the log and the barriers.  So turns may be cut anywhere, and what
is sent twice is the same twice.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from secrets import token_hex
from typing import Any, TypeVar

import msgspec
import numpy as np

from stream_dp.barriers.key import barrier_key
from stream_dp.config.settings import Settings
from stream_dp.counters.discovery import DiscoveryMechanism
from stream_dp.engine.round_chain import RoundChain
from stream_dp.epochs.journal import EpochJournal, EpochOpened
from stream_dp.events.barrier_chain import Barrier, BarrierChain
from stream_dp.events.counted_round import CountedRound, CountsWire
from stream_dp.events.dead_letter import DeadLetter
from stream_dp.kafka import log
from stream_dp.kafka.clients import borrowed, producer_client
from stream_dp.kafka.rights import naming
from stream_dp.pipeline.counted_days import CountedDays
from stream_dp.spark.closed import require_private
from stream_dp.spark.counted_partition import start_of
from stream_dp.spark.engine_state import KNOWN, EngineState, StateFile
from stream_dp.spark.label_counts import BUCKETS, LabelFiles
from stream_dp.spark.tasks import Counted, CountTasks, FindTasks, Found, JoinTasks, Work, packed_sum
from stream_dp.spark.user_tasks import BoundTasks, CountUserTasks, ReadUserTasks, with_heads

MOST_ROUNDS, RECORDS_A_CORE = 1_000, 200_000
"""Most rounds of a turn, and about the most records: one more round is taken while there are fewer."""

MOST_FILES = 64
"""So many files of turns are joined."""

_ANSWER_SECONDS = 30

RunsTasks = Callable[[Any, int], Iterator[bytes]]
"""Runs so many tasks of a function over Arrow batches, and gives their answers in the order of the tasks."""

HandsOn = Callable[[Sequence[DeadLetter]], None]
"""Returns when dead letters are written, or cannot be written now."""

_Answer = TypeVar("_Answer", Counted, Found)


class UnsettledSchemas(Exception):
    """Records name schemas that are not settled yet: settle these numbers, and count again."""

    def __init__(self, numbers: Sequence[int]) -> None:
        super().__init__(f"schemas {', '.join(map(str, numbers))} are not settled")
        self.heads = [b"\0" + number.to_bytes(4, "big") for number in numbers]
        """The first bytes of records that name them."""


class EngineEpoch:
    """One epoch of a stream, counted in a folder that all processes of Spark can read and write."""

    def __init__(
        self,
        settings: Settings,
        opened: EpochOpened,
        journal: EpochJournal,
        key: bytes,
        folder: Path,
        run: RunsTasks,
        cores: Callable[[], int],
        hand_on: HandsOn,
    ) -> None:
        """Reads the state.  Raises `LabelsDamaged`, `FolderOpen`, and `LogRefused` if the log begins too late."""
        self.epoch, mechanism = opened.epoch, opened.epoch.mechanism
        assert isinstance(mechanism, DiscoveryMechanism), "an engine finds labels at tests"
        self._horizon, self._tests = mechanism.horizon, frozenset(mechanism.tests)
        self._settings, self._run, self._cores, self._hand_on = settings, run, cores, hand_on
        self.folder = folder / settings.stream / self.epoch.nonce.hex()
        for each in (self.folder.parent, self.folder):
            each.mkdir(mode=0o700, exist_ok=True)
        require_private(folder)
        self._noise = self.epoch.noise(key)
        self._file, self._files = StateFile(self.folder, key), LabelFiles(self.folder, key)
        self._work = Work(settings, self.epoch, self.folder)
        self._wire = CountsWire(key, settings.counts)
        self.schemas: list[bytes] = []
        known = self._file.read()
        if known is None:
            known = EngineState.at_start_of(self.epoch)
            if known.shown:
                self._files.write_texts(KNOWN, journal.known_labels(self.epoch).labels)
        self.state = known
        self._shown = self._files.texts(known.shown) if known.shown else []
        self._barriers = BarrierChain(barrier_key(key), settings.stream, known.barrier)
        self._waiting: list[Barrier] = []
        self._file.remove_others(self.state)  # what tries have left that failed
        self._check_log()

    @property
    def round(self) -> int:
        """How many rounds are counted."""
        return self.state.round

    @property
    def waiting(self) -> int:
        """How many barriers wait."""
        return len(self._waiting)

    @property
    def next_barrier(self) -> int:
        """The offset behind the last barrier that was read."""
        return self._barriers.last.next_offset

    @property
    def lag(self) -> int:
        """How many records wait, as barriers tell."""
        return self._records_up_to(self._barriers.last)

    @property
    def finished(self) -> bool:
        """Whether the horizon is reached."""
        return self.state.round == self._horizon

    def read_barriers(self) -> None:
        """Take the barriers that have come.  Raises KafkaError."""
        kafka, topic = self._settings.kafka_address, self._settings.barriers
        for record in log.read(kafka, topic, self.next_barrier, log.offsets(kafka, topic).end):
            barrier = self._barriers.take(record.offset, record.value)
            if barrier is not None:
                self._waiting.append(barrier)

    def turn(self) -> int | None:
        """Count the next rounds, and return how many records they had; None if none has come.

        Raises `UnsettledSchemas`, with nothing changed.
        """
        barriers = self._next_barriers()
        if not barriers:
            return None
        days = self._days()
        numbers, found = days.numbers(self.state.round, barriers), None
        answers, pairs = self._counted(barriers, days.day)
        rounds, history = self._rounds(barriers, numbers, answers)
        last = max(self.state.round, *numbers)
        due = [barrier.due for barrier, number in zip(barriers, numbers, strict=True) if number]
        after = msgspec.structs.replace(
            self.state,
            barrier=barriers[-1],
            round=last,
            closed=due[-1] if due else self.state.closed,
            history=history,
            turns=self.state.turns + [each.labels for each in answers if each.labels],
            pairs=pairs,
        )
        if numbers[-1] in self._tests:
            after, found = self._tested(after)
            rounds[-1] = msgspec.structs.replace(rounds[-1], found=found)
        elif len(after.turns) > MOST_FILES:
            after = self._joined(after)
        self._send(rounds, barriers)
        self._hand_on([*chain.from_iterable(each.letters for each in answers)])
        self._file.write(after)
        if (after.joined, after.pairs) != (self.state.joined, self.state.pairs):
            self._file.remove_others(after)
        self.state = after
        self._shown += [label for label, _ in found or ()]
        del self._waiting[: len(barriers)]
        return sum(each.records for each in answers)

    def _days(self) -> CountedDays:
        return CountedDays(self.epoch, self.state.barrier, self.state.closed)

    def _next_barriers(self) -> list[Barrier]:
        """Those of the next turn: a test round and the last round are the last of theirs, and all are of one day."""
        taken, number, days = list[Barrier](), self.state.round, self._days()
        if self.finished:
            return taken
        most = RECORDS_A_CORE * self._cores()
        for barrier in self._waiting[:MOST_ROUNDS]:
            day, counts = days.day, days.counts(barrier)
            if days.day != day and number > self.state.round:
                break
            taken.append(barrier)
            number += counts
            is_last = counts and (number in self._tests or number == self._horizon)
            if is_last or self._records_up_to(barrier) > most:
                break
        return taken

    def _records_up_to(self, barrier: Barrier) -> int:
        """How many offsets the rounds have that follow, up to the one that `barrier` closes."""
        ends = enumerate(barrier.ends)
        return sum(max(0, end - start_of(self.epoch, self.state.barrier, place)) for place, end in ends)

    def _counted(self, barriers: Sequence[Barrier], day: int) -> tuple[list[Counted], list[str]]:
        """What tasks count of the rounds of a day, and what the files of users' pairs are called afterwards.

        Files have names that no try before had: its tasks may go on when its engine has died, dealt in another way.
        """
        tasks = dealt(len(barriers[-1].offsets), self._cores())
        last = f"{barriers[-1].number}-{token_hex(8)}"
        place = self.state.round, self.state.barrier, self.state.closed
        begun = self._work, tasks, *place, barriers, self.state.shown
        if self.epoch.guarantee.unit == "event":
            return self._read(CountTasks(*begun, f"turn-{last}", self.schemas)), []
        reading = ReadUserTasks(*begun, f"users-{last}", self.schemas)
        read = self._read(reading)
        known = self.state.pairs if day == self.epoch.day_of(self.state.closed) else []  # users begin anew
        files = [task for task, each in enumerate(read) if each.labels]
        admitted, joined = f"admitted-{last}", len(known) >= MOST_FILES
        bound = BoundTasks(reading, files, known, admitted, f"pairs-{last}", joined)
        self._answers(bound, BUCKETS, Found)
        counted = self._answers(CountUserTasks(reading, files, admitted, f"turn-{last}"), len(tasks), Counted)
        return with_heads(read, counted), [*([] if joined else known), f"pairs-{last}"]

    def _read(self, tasks: CountTasks) -> list[Counted]:
        answers = self._answers(tasks, len(tasks.tasks), Counted)
        if unsettled := sorted({each for answer in answers for each in answer.unsettled}):
            raise UnsettledSchemas(unsettled)
        return answers

    def _answers(self, tasks: Any, number: int, kind: type[_Answer]) -> list[_Answer]:
        return [msgspec.msgpack.decode(answer, type=kind) for answer in self._run(tasks, number)]

    def _rounds(
        self, barriers: Sequence[Barrier], numbers: Sequence[int], answers: Sequence[Counted]
    ) -> tuple[list[CountedRound], bytes]:
        """The record of what each barrier closes, and the head of the chain after the last one."""
        assert self.epoch.after_barrier is not None
        parts = {number: each for answer in answers for number, each in answer.partitions.items()}
        links = RoundChain(self._noise, self.epoch.mechanism.chain_rounds, self.state.history)
        counts_cells, rounds = self.epoch.mechanism.cap_share, list[CountedRound]()
        for step, (barrier, number) in enumerate(zip(barriers, numbers, strict=True)):
            mine = [parts[place][step] for place in range(len(barrier.offsets))]
            columns = [
                (np.frombuffer(places, "<i4").astype(np.int64), np.frombuffer(counts, "<i4").astype(np.int64))
                for places, counts in (answer.shown[step] for answer in answers)
            ]
            shown = packed_sum(columns)
            at_barrier = barrier.number - self.epoch.after_barrier.number
            counted = CountedRound(self.epoch.nonce, at_barrier, barrier.digest, mine, *shown)
            if number:
                heads = [(place, part.head) for place, part in enumerate(mine)]
                links.join(number, [heads], [counted.cells] * counts_cells)
            rounds.append(counted)
        return rounds, links.history

    def _tested(self, state: EngineState) -> tuple[EngineState, list[tuple[str, int]]]:
        """The state after the test of its round, and the labels that the test finds, in their order."""
        tests = [*state.tests, (state.round, state.history)]
        name, shown = f"test-{len(tests)}", state.shown
        find = FindTasks(self._work, tests, state.files_of_buckets(), name)
        found = sorted(chain.from_iterable(each.labels for each in self._answers(find, BUCKETS, Found)))
        if found:
            shown = f"shown-{len(tests)}"
            self._files.write_texts(shown, [*self._shown, *(label for label, _ in found)])
        return msgspec.structs.replace(state, tests=tests, shown=shown, turns=[], joined=[name]), found

    def _joined(self, state: EngineState) -> EngineState:
        """The state with fewer files of turns."""
        name = f"joined-{state.barrier.number}"
        self._answers(JoinTasks(self._work, [state.turns] * BUCKETS, name), BUCKETS, Found)
        return msgspec.structs.replace(state, turns=[], joined=[*state.joined, name])

    def _send(self, rounds: Sequence[CountedRound], barriers: Sequence[Barrier]) -> None:
        """Hand the rounds to the broker, and wait until it has them.  Their times are public: those of the barriers."""
        topic = self._settings.counts
        with naming("WRITE", topic), borrowed(producer_client, self._settings.kafka_address) as producer:
            sent = [
                producer.send(topic, value, timestamp_ms=barrier.due)
                for counted, barrier in zip(rounds, barriers, strict=True)
                for value in self._wire.encode(counted)
            ]
            for each in sent:
                each.get(timeout=_ANSWER_SECONDS)

    def _check_log(self) -> None:
        """Raise `LogRefused` unless the log holds all that is not counted yet."""
        held = log.offsets_of_all(self._settings.kafka_address, self.epoch.topic)
        for number in range(len(self.state.barrier.offsets)):
            start = start_of(self.epoch, self.state.barrier, number)
            if not held[number].first <= start <= held[number].end:
                raise log.LogRefused(
                    f"partition {number} of the topic {self.epoch.topic!r} does not hold offset {start}, where the "
                    "engine goes on: bring back the engine's folder, or restore the topic, or open a new epoch, which "
                    "is charged, with --new-epoch"
                )


def dealt(partitions: int, cores: int) -> list[list[int]]:
    """The partitions of each task.

    >>> dealt(5, 2)
    [[0, 2, 4], [1, 3]]
    """
    tasks = min(partitions, cores)
    return [[*range(first, partitions, tasks)] for first in range(tasks)]
