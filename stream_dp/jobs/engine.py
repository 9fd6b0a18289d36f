"""Where the rows of a source are read and counted."""

from dataclasses import dataclass
from typing import Protocol

from stream_dp.config.connections import Kafka
from stream_dp.jobs.calibrated import Calibrated
from stream_dp.jobs.counted import Counted
from stream_dp.jobs.file_rows import read_file
from stream_dp.jobs.request import Unit
from stream_dp.jobs.rows import Progress, RowCollector
from stream_dp.jobs.source_file import RowFile
from stream_dp.jobs.topic_rows import TopicRange, read_topic


@dataclass
class Seen:
    """How many rows counted, and how many were left out.  All of these numbers are PRIVATE."""

    rows: int = 0
    without_user: int = 0
    malformed: int = 0


class Engine(Protocol):
    """Reads rows, and counts them as mechanisms ask for it.  The result of a job is the same from every engine."""

    def start(self) -> None:
        """Be ready for jobs.  Raises `Refused`, which says what is missing."""
        ...

    def check(self, mechanism: str, calibrated: Calibrated) -> None:
        """Raise `BadRequest` for a job that it cannot run; nothing is charged yet."""
        ...

    def rows(
        self, place: TopicRange | RowFile, unit: Unit, kafka: Kafka, progress: Progress
    ) -> tuple[Counted, Seen]:
        """The rows of a source.  Raises KafkaError, and whatever `progress` raises."""
        ...


class ThisProcess:
    """Everything in this process, with files for what is beyond its memory."""

    def start(self) -> None:
        """See `Engine.start`: nothing is missing."""

    def check(self, mechanism: str, calibrated: Calibrated) -> None:
        """See `Engine.check`: all of them run."""

    def rows(
        self, place: TopicRange | RowFile, unit: Unit, kafka: Kafka, progress: Progress
    ) -> tuple[Counted, Seen]:
        """See `Engine.rows`."""
        collector = RowCollector()
        if isinstance(place, TopicRange):
            read_topic(kafka, place, unit, collector, progress)
        else:
            read_file(place, unit, collector, progress)
        rows = collector.rows()
        return rows, Seen(len(rows), collector.without_user, collector.malformed)
