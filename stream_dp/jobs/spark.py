"""Jobs whose rows are read and counted by Apache Spark; the mechanism, with its noise, runs here.

What Spark runs is in spark_tasks.py.  It never has the noise key: samples are drawn with a key derived from it that
tells nothing of the noise.
"""

import logging
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from contextlib import contextmanager
from dataclasses import astuple, dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from stream_dp.batch.baskets import Baskets, Marks, Ranks, Share, Weighing
from stream_dp.config.connections import Kafka
from stream_dp.errors import SparkFailed, StreamDpError, WorkerEnds, needs_extra
from stream_dp.jobs.calibrated import Calibrated
from stream_dp.jobs.counted import Counted, Integers, as_labels, places_in
from stream_dp.jobs.engine import Engine, Seen, ThisProcess
from stream_dp.jobs.file_rows import pieces_of
from stream_dp.jobs.request import BadRequest, Unit
from stream_dp.jobs.rows import Progress
from stream_dp.jobs.source_file import RowFile
from stream_dp.jobs.spark_tasks import (
    PAIRS,
    WEIGHTS,
    FileSource,
    ReadTasks,
    SourceChanged,
    TopicSource,
    Weigh,
    WeighTasks,
)
from stream_dp.jobs.topic_rows import TopicRange
from stream_dp.privacy.one_shot_noise import OneShotNoise

logger = logging.getLogger(__name__)

_SETTINGS = {
    "spark.ui.enabled": "false",  # its page shows how many rows there are, which is private
    "spark.ui.showConsoleProgress": "false",
    "spark.io.encryption.enabled": "true",  # rows and counts may come to lie in its scratch folders
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1000000",
}
_PIECES_A_TASK = 4
_ROWS_A_PARTITION = 1 << 22
_BYTES_A_ROW = 32
_ASK_SECONDS = 0.5
_ENDED = (
    "the Java process of Spark has ended, and its log may say why: start this program again; a job with the same id "
    "continues, and is not charged again"
)


class Spark:
    """An `Engine`: the Spark session of this process, or one that is started before the first charge.

    It is on all cores of this machine, unless `spark-submit` or `spark-defaults.conf` say otherwise.
    `java` are options of its Java processes, here and on executors, before those of `spark.driver.extraJavaOptions` and
    `spark.executor.extraJavaOptions`.
    """

    def __init__(self, java: str = "") -> None:
        self._java = java

    def start(self) -> None:
        """See `Engine.start`."""
        if not _answers(self.session):
            raise WorkerEnds(_ENDED)

    @cached_property
    def session(self) -> Any:
        """A `pyspark.sql.SparkSession`.  Raises `SparkFailed`, `ExtraMissing`."""
        with needs_extra("--engine spark", "spark"):
            from pyspark.errors import PySparkException
            from pyspark.sql import SparkSession
        from py4j.protocol import Py4JError  # it comes with pyspark, which people know

        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
        builder = SparkSession.builder.appName("stream_dp")
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        java = {f"spark.{each}.defaultJavaOptions": self._java for each in ("driver", "executor")}
        for name, value in {**_SETTINGS, **java}.items():
            builder = builder.config(name, value)
        try:
            session = builder.getOrCreate()
            session.sparkContext.setLogLevel("ERROR")
        except (Py4JError, PySparkException, OSError, RuntimeError) as error:
            raise SparkFailed(
                f"Spark does not start ({error}): it needs Java 17 or newer, found by JAVA_HOME or on the path"
            ) from None
        return session

    def check(self, mechanism: str, calibrated: Calibrated) -> None:
        """See `Engine.check`."""
        if not calibrated.divides:
            raise BadRequest(
                f"the mechanism {mechanism} takes one user after the other, so it cannot be divided among machines: "
                "ask for sips, weighted-gaussian or another one that needs no order, or leave --engine spark out"
            )

    def rows(
        self, place: TopicRange | RowFile, unit: Unit, kafka: Kafka, progress: Progress
    ) -> tuple[Counted, Seen]:
        """See `Engine.rows`; reads when it is asked for counts."""
        seen = Seen()
        return SparkRows(self.session, place, unit, kafka, progress, seen), seen


@dataclass
class SparkRows(Counted):
    """Rows that Spark reads again for each question.

    `labels` are those that the last question found, and before the first one all that there are.
    """

    session: Any
    place: TopicRange | RowFile
    unit: Unit
    kafka: Kafka
    progress: Progress
    seen: Seen
    _labels: pa.LargeBinaryArray | None = None
    _only: list[str] | None = None
    _source: FileSource | TopicSource = field(init=False)
    _partitions: int = field(init=False)

    def __post_init__(self) -> None:
        cores = cores_of(self.session)
        if isinstance(self.place, RowFile):
            state, pieces = self.place.stored.shared_state, pieces_of(self.place)
            self._source = FileSource(self.place, self.unit, state, _dealt(pieces, cores))
            size = sum(piece.size for piece in pieces)
            rows = size if self.place.kind == "parquet" else size // _BYTES_A_ROW
        else:
            stretches = [piece for stretch in self.place.stretches for piece in stretch.pieces]
            self._source = TopicSource(self.kafka, self.place, self.unit, _dealt(stretches, cores))
            rows = self.place.records
        self._partitions = max(cores, -(-rows // _ROWS_A_PARTITION))

    @property
    def labels(self) -> pa.LargeBinaryArray:
        """See `Counted.labels`."""
        if self._labels is None:
            self.counts()
        return self._labels

    def counts(self) -> Integers:
        """See `Counted.counts`."""
        return self._weights(Weigh(only=self._only))

    def weighing(self) -> Weighing:
        """See `Counted.weighing`: all items are numbered before the first weights are asked for."""
        assert self.labels is not None
        return self

    def weights(
        self,
        items_per_user: int,
        share: Share,
        marks: Marks,
        stage: int = 0,
        released: NDArray[np.bool_] | None = None,
    ) -> Integers:
        """See `Weighing.weights`."""
        gone = [] if released is None else self.names(np.flatnonzero(released))
        asked = Weigh(items_per_user, share, None, stage, gone, self._only)
        if isinstance(marks, Ranks):
            return self._weights(replace(asked, ranked=self.names(np.argsort(marks.of_item))))
        assert isinstance(marks, OneShotNoise)
        return self._weights(replace(asked, marks=marks.sampler(stage)))

    def sizes(self, edges: Sequence[int]) -> Integers:
        """See `Counted.sizes`."""
        places, users = self._asked(Weigh(only=self._only, edges=edges))
        found = np.zeros(len(edges), np.int64)
        np.add.at(found, [int(place) for place in places.to_pylist()], users.to_numpy())
        return found

    def restricted(self, bins: list[str]) -> "SparkRows":
        """See `Counted.restricted`."""
        return replace(self, _only=bins, _labels=as_labels(bins))

    def baskets(self) -> Baskets:
        """See `Counted.baskets`: mechanisms that ask for them are refused before."""
        raise NotImplementedError("what users hold is not gathered from Spark")

    def _weights(self, weigh: Weigh) -> Integers:
        found, weights = self._asked(weigh)
        if self._labels is None:
            order = pc.sort_indices(found)
            self._labels = found.take(order)
            return weights.take(order).to_numpy().astype(np.int64)
        sums = np.zeros(len(self._labels), np.int64)
        sums[places_in(found, self._labels)] = weights.to_numpy()
        return sums

    def _asked(self, weigh: Weigh) -> tuple[pa.LargeBinaryArray, pa.Int64Array]:
        """Labels and their weights, in any order."""
        if not self._source.tasks:
            return as_labels([]), pa.array([], pa.int64())
        with told(self.session):
            return self._summed(weigh)

    def _summed(self, weigh: Weigh) -> tuple[pa.LargeBinaryArray, pa.Int64Array]:
        context, tasks = self.session.sparkContext, len(self._source.tasks)
        done, *totals = (context.accumulator(0) for _ in range(4))

        def tell(seen: Seen) -> None:
            done.add(1)
            for total, number in zip(totals, astuple(seen), strict=True):
                total.add(number)

        self.session.conf.set("spark.sql.shuffle.partitions", str(self._partitions))
        read = ReadTasks(self._source, self.unit, weigh, tell)
        frame = self.session.range(0, tasks, 1, tasks)
        if self.unit == "event":
            frame = frame.mapInArrow(read, WEIGHTS)
        else:
            frame = frame.mapInArrow(read, PAIRS).repartition(self._partitions, *weigh.together)
            frame = frame.mapInArrow(WeighTasks(weigh), WEIGHTS)
        table = self._collected(frame.groupBy("item").agg({"weight": "sum"}), done, tasks)
        self.seen.rows, self.seen.without_user, self.seen.malformed = (total.value for total in totals)
        return table.column(0).cast(pa.large_binary()).combine_chunks(), table.column(1).combine_chunks()

    def _collected(self, frame: Any, done: Any, tasks: int) -> pa.Table:
        """The rows of a frame.  Progress is told meanwhile, and may end it."""
        context, group = self.session.sparkContext, f"stream_dp {time.monotonic_ns()}"

        def collect() -> pa.Table:
            context.setJobGroup(group, "stream_dp", interruptOnCancel=True)
            return frame.toArrow()

        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(collect)
            try:
                while True:
                    try:
                        return asked.result(_ASK_SECONDS)
                    except NotYet:
                        self.progress(min(done.value, tasks), tasks)
            finally:
                if not asked.done():
                    context.cancelJobGroup(group)


ENGINES: dict[str, Callable[[], Engine]] = {"local": ThisProcess, "spark": Spark}
"""What makes an engine, by the name that people give it."""


def _answers(session: Any) -> bool:
    """Whether the Java process of Spark is there."""
    try:
        return bool(session.sparkContext.version)
    except Exception:  # of several kinds, and all of them mean that it is gone
        return False


@contextmanager
def told(session: Any) -> Iterator[None]:
    """Say what a failure of Spark means to whoever asked for the job."""
    from pyspark.errors import PySparkException

    try:
        yield
    except StreamDpError:
        raise
    except Exception as failed:
        if not _answers(session):
            raise WorkerEnds(_ENDED) from None
        if not isinstance(failed, PySparkException):
            raise
        if SourceChanged.__name__ in str(failed):
            raise BadRequest(
                "the file was written while it was read, or is another one on one of the machines, so nothing is "
                "released; what was charged stays charged"
            ) from None
        logger.error("Spark: %s", failed)
        raise SparkFailed(
            "Spark did not finish the job, and its own log says why; run it again with the same --id, and it is not "
            "charged again"
        ) from None


def cores_of(session: Any) -> int:
    """How many tasks run at a time.  Raises as `told`: Spark is asked."""
    with told(session):
        return int(session.sparkContext.defaultParallelism)


def _dealt(pieces: Sequence[Any], cores: int) -> list[list[Any]]:
    """Pieces that follow each other in tasks: enough tasks for all cores, and few pieces each."""
    size = max(1, min(_PIECES_A_TASK, len(pieces) // (2 * cores)))
    return [list(pieces[start : start + size]) for start in range(0, len(pieces), size)]
