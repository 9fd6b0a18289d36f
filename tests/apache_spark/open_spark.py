"""`python -m tests.apache_spark.open_spark FOLDER`: counts a stream on a Spark that shows all that it can.

Its page and its event log are on, which `stream-dp spark` refuses.  FOLDER/stream.json has the settings.  Tasks fail in
all their steps, with errors that quote what they were working on.  What the page answers is written to FOLDER/answers.
"""

import os
import shutil
import sys
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import SparkSession

from stream_dp.config.connections import redis_client
from stream_dp.config.settings import Settings
from stream_dp.epochs.journal import EpochJournal
from stream_dp.errors import SparkFailed
from stream_dp.spark import engine as engine_module
from stream_dp.spark.engine import EngineEpoch
from stream_dp.spark.label_counts import BUCKETS, LabelsDamaged
from stream_dp.spark.tasks import Counted, CountTasks, FindTasks, Found, Process
from stream_dp.spark.worker import run_on
from stream_dp.store.noise_key import noise_key

CONTROL = "control 5d1c77a9"
"""What an error quotes that nothing keeps back: it has to be found."""

_QUESTIONS = (
    "jobs",
    "stages?details=true&withSummaries=true",
    "executors",
    "allexecutors",
    "environment",
    "storage/rdd",
)


class FailingCount(CountTasks):
    """Fails after it has counted, and says what."""

    def count(self, task: int, process: Process) -> Counted:
        counted = super().count(task, process)
        labels = [process.files.read(counted.labels, bucket).labels() for bucket in range(BUCKETS)]
        raise ValueError(f"cannot count {labels} of {counted}")


class FailingFind(FindTasks):
    """Fails with the label that it looks at."""

    def find(self, bucket: int, process: Process) -> Found:
        labels = process.files.joined(self.files[bucket], bucket)
        raise KeyError(*labels.labels(), labels.counts.tolist())


class Unguarded:
    """Fails with a label, and nothing keeps it back."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        raise ValueError(f"cannot count {CONTROL}")


def failing(work: Callable[[], Any]) -> None:
    """Spark has to fail at this."""
    try:
        work()
    except SparkFailed:
        return
    raise AssertionError("Spark did not fail")


def main(folder: Path) -> None:
    settings = msgspec.json.decode((folder / "stream.json").read_bytes(), type=Settings)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.port", "0")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.debug.maxToStringFields", "1000")
        .config("spark.io.encryption.enabled", "true")
        .config("spark.eventLog.enabled", "true")
        .config("spark.eventLog.compress", "false")
        .config("spark.eventLog.dir", (folder / "events").as_uri())
        .config("spark.local.dir", str(folder / "local"))
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    with redis_client(settings.redis_address) as redis:
        key = noise_key(settings.noise_key, redis, settings.stream, may_create=False)
    journal = EpochJournal(settings, lambda: key)
    assert journal.last is not None
    place = folder / "state", partial(run_on, session), lambda: 2, lambda letters: None
    failing(lambda: list(run_on(session, Unguarded(), 1)))

    def engine() -> EngineEpoch:
        assert journal.last is not None
        found = EngineEpoch(settings, journal.last, journal, key, *place)
        found.read_barriers()
        return found

    for name, kind in (("CountTasks", FailingCount), ("FindTasks", FailingFind)):
        before = getattr(engine_module, name)
        setattr(engine_module, name, kind)
        failing(lambda: [*iter(engine().turn, None)])
        setattr(engine_module, name, before)
    counting = engine()
    while counting.turn() is not None:
        pass
    _damage_a_file(folder / "state")
    try:
        engine()._tested(counting.state)
    except LabelsDamaged:
        pass
    else:
        raise AssertionError("no task noticed the damage")
    context = session.sparkContext
    answers = folder / "answers"
    for question in (*_QUESTIONS, "sql?details=true&planDescription=true&length=1000"):
        address = f"{context.uiWebUrl}/api/v1/applications/{context.applicationId}/{question}"
        _keep(answers, question, address)
    for page in ("SQL/", "jobs/", "stages/", "environment/", "executors/", "metrics/json"):
        _keep(answers, page, f"{context.uiWebUrl}/{page}")
    shutil.copytree(folder / "local", folder / "kept")  # it is removed at the end
    session.stop()


def _keep(folder: Path, name: str, address: str) -> None:
    with urllib.request.urlopen(address, timeout=60) as answer:
        (folder / name.replace("/", " ").replace("?", " ")).write_bytes(answer.read())


def _damage_a_file(state: Path) -> None:
    for path in state.rglob("test-*"):
        path.write_bytes(path.read_bytes()[:-1])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
    print("done")
