"""A stream as the last program that wrote checkpoints of format 3 has left it, on a real broker and in Redis."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stream_dp.epochs.journal import EpochJournal, EpochOpened, EpochStarted
from stream_dp.events.record import Record
from stream_dp.kafka import log
from stream_dp.pipeline.pipeline import Pipeline
from stream_dp.privacy.keyed_noise import key_check
from tests.format_3 import KEY, Left, put_back
from tests.system.broker_clients import delete_topics_of
from tests.system.streams import Stream


@contextmanager
def old_stream(kafka: str, redis_url: str, folder: Path, left: Left) -> Iterator[Stream]:
    """Its epoch, events, state, and releases up to what is counted; workers that run at the end are stopped."""
    settings = left.settings_for(kafka=kafka, redis=redis_url, checkpoint_rounds=20)
    stream = Stream(settings, folder)
    stream.create_topics()
    log.create_topics(kafka, settings.epochs)
    counted = Pipeline(left.opened, KEY, settings.events).process(left.records[: left.counted]).releases
    stream.write(settings.events, left.records)
    stream.write(settings.releases, [Record(0, 1, settings.stream.encode(), part.value) for part in counted])
    journal = EpochJournal(settings)
    journal.append(EpochOpened(left.opened, key_check(KEY), 0), at=1)
    journal.append(EpochStarted(1), at=1)
    with stream.redis() as redis:
        put_back(redis, left)
    try:
        yield stream
    finally:
        stream.stop_all()
        delete_topics_of(kafka, settings.stream)  # its name is that of every test of it, and of every try
