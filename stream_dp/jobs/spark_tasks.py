"""What Spark's Python processes do: read pieces of a source, keep each user's sample, and weigh what is kept.

It is the code that reads and samples in one process.  A user's sample is the items of least mark, so the sample of all
of a user's rows is that of the samples of parts of them, however they are divided: a part is sampled before its rows
go to the process that has all of the user's.

Spark need not be installed to import this.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from stream_dp.batch.baskets import Marks, Ranks, Share, sample, without
from stream_dp.config.connections import Kafka
from stream_dp.events.stored_files import NoSuchObject, State
from stream_dp.jobs.counted import as_labels, places_in
from stream_dp.jobs.engine import Seen
from stream_dp.jobs.file_rows import Piece, read_pieces
from stream_dp.jobs.request import Unit
from stream_dp.jobs.rows import RowCollector, Rows
from stream_dp.jobs.source_file import RowFile
from stream_dp.jobs.task_errors import untold
from stream_dp.jobs.topic_rows import Stretch, TopicRange, read_stretch
from stream_dp.privacy.one_shot_noise import Sampler

PAIRS = "user binary, item binary"
"""What the first step hands on, as Spark names types."""
WEIGHTS = "item binary, weight bigint"
"""What the last step hands on; of one item there may be several."""
_ROWS_AT_ONCE = 1 << 21


class SourceChanged(Exception):
    """A process found another file than the one whose rows are paid for."""


class Source(Protocol):
    """What is read, in pieces that are dealt to `tasks`."""

    @property
    def tasks(self) -> Sequence[Sequence[Any]]:
        """The pieces of each task."""
        ...

    def read(self, piece: Any, collector: RowCollector) -> None:
        """Add the rows of a piece to `collector`."""
        ...


@dataclass(frozen=True)
class FileSource:
    """A file that is the same in all processes: `state` is what tells it there from any other."""

    file: RowFile
    unit: Unit
    state: State
    tasks: Sequence[Sequence[Piece]]

    def read(self, piece: Piece, collector: RowCollector) -> None:
        """See `Source.read`.  Raises `SourceChanged`."""
        self._check()
        read_pieces(self.file, [piece], self.unit, collector)
        self._check()

    def _check(self) -> None:
        try:
            state = self.file.stored.shared_state
        except (OSError, NoSuchObject) as error:
            raise SourceChanged(f"{self.file.stored.name}: {error}") from None
        if state != self.state:
            raise SourceChanged(f"{self.file.stored.name}: it was written again")


@dataclass(frozen=True)
class TopicSource:
    """A range of a topic, which all processes can read."""

    kafka: Kafka
    chosen: TopicRange
    unit: Unit
    tasks: Sequence[Sequence[Stretch]]

    def read(self, piece: Stretch, collector: RowCollector) -> None:
        """See `Source.read`."""
        for _ in read_stretch(self.kafka, self.chosen, piece, self.unit, collector):
            pass


@dataclass(frozen=True)
class Weigh:
    """What is asked of the rows: their items' weights, or where `limit` is None how many distinct users hold each.

    `released`: labels that count no more; `only`: the labels that count.  `ranked`: all labels, if users keep those
    that come first in it instead of a sample by `marks`.  `edges`: instead of the items' weights, how
    many users hold so many items (`Counted.sizes`), under the number of the bin as its label.
    """

    limit: int | None = None
    share: Share | None = None
    marks: Sampler | None = None
    stage: int = 0
    released: Sequence[str] = ()
    only: Sequence[str] | None = None
    ranked: Sequence[str] | None = None
    edges: Sequence[int] | None = None

    @property
    def together(self) -> list[str]:
        """The columns by which rows must come together before they are weighed."""
        return ["user"] if self.limit is not None or self.edges is not None else ["user", "item"]

    def kept(self, rows: Rows) -> Iterator[pa.RecordBatch]:
        """The rows that may count, as names, part by part; the users of `rows` have names."""
        counting = self._counting(rows)
        for part in rows.parts():
            found = part.baskets()
            if counting is not None:
                found = without(found, ~counting)
            if self.limit is not None and (marks := self._marks(rows)) is not None:
                found = sample(found, self.limit, marks, self.stage)
            if self.edges is not None:
                found = sample(found, self.edges[-1], _AnyMarks())  # more would tell nothing more of the size
            assert rows.known_by is not None
            users = rows.known_by.names(found.users[found.owners])
            items = rows.labels.take(pa.array(found.items))
            yield pa.record_batch({"user": _binary(users), "item": _binary(items)})

    def weighed(self, rows: Rows) -> pa.RecordBatch:
        """The weights of the items of `rows`, which are all the rows of their users."""
        if self.edges is not None:
            users = rows.sizes(self.edges)
            held = np.flatnonzero(users)
            return _weights(as_labels([str(place) for place in held]), users[held])
        if self.limit is None or self.share is None or (marks := self._marks(rows)) is None:
            weights = rows.counts()
            if (counting := self._counting(rows)) is not None:
                weights = np.where(counting, weights, 0)
        else:
            counting = self._counting(rows)
            gone = None if counting is None else ~counting
            weights = rows.weights(self.limit, self.share, marks, self.stage, gone)
        held = np.flatnonzero(weights > 0)
        return _weights(rows.labels.take(pa.array(held)), weights[held])

    def _marks(self, rows: Rows) -> Marks | None:
        """What users choose by."""
        if self.ranked is None:
            return self.marks
        return Ranks.of(places_in(rows.labels, as_labels(list(self.ranked))))

    def _counting(self, rows: Rows) -> np.ndarray | None:
        """Which items count; None: all of them."""
        if self.only is not None:
            return places_in(rows.labels, as_labels(list(self.only))) >= 0
        if self.released:
            return places_in(rows.labels, as_labels(list(self.released))) < 0
        return None


class _AnyMarks:
    """The same for everybody: for samples of which only the size counts."""

    def sample_marks(self, stage: int, users: np.ndarray, items: np.ndarray) -> np.ndarray:
        """See `Marks.sample_marks`."""
        return items.astype(np.uint64)


@dataclass(frozen=True)
class ReadTasks:
    """The first step: read, and keep of each part of the rows what may count.

    Gives `PAIRS`; where every row is a unit of its own, `WEIGHTS`, for then nothing of a unit is elsewhere.
    """

    source: Source
    unit: Unit
    weigh: Weigh
    tell: Callable[[Seen], None]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with untold(SourceChanged):
            for batch in batches:
                for task in batch.column(0).to_pylist():
                    yield from self._task(task)

    def _task(self, task: int) -> Iterator[pa.RecordBatch]:
        collector = RowCollector()
        for piece in self.source.tasks[task]:
            self.source.read(piece, collector)
            if collector.added >= _ROWS_AT_ONCE:
                yield from self._given(collector)
                collector = RowCollector()
        yield from self._given(collector)

    def _given(self, collector: RowCollector) -> Iterator[pa.RecordBatch]:
        rows = collector.rows()
        if self.unit == "event":
            yield self.weigh.weighed(rows)
        else:
            yield from self.weigh.kept(rows)
        self.tell(Seen(len(rows), collector.without_user, collector.malformed))


@dataclass(frozen=True)
class WeighTasks:
    """The second step, with all rows of its users, or of (user, item) pairs where all items count."""

    weigh: Weigh

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with untold():
            collector = RowCollector()
            for batch in batches:
                collector.add(batch.column(0), batch.column(1))
            yield self.weigh.weighed(collector.rows())


def _binary(names: pa.Array | None) -> pa.Array:
    assert names is not None
    return names.cast(pa.binary())


def _weights(labels: pa.Array, weights: np.ndarray) -> pa.RecordBatch:
    return pa.record_batch({"item": labels.cast(pa.binary()), "weight": pa.array(weights, pa.int64())})
