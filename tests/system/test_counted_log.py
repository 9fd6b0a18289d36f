"""What was counted last is looked at in all partitions at once, and a record that differs is told in any of them."""

from collections.abc import AsyncIterator

import pytest
from kafka import KafkaProducer

from stream_dp.config.settings import Settings
from stream_dp.events.log_digest import NOTHING, LogDigester
from stream_dp.events.record import Record
from stream_dp.events.records import Records
from stream_dp.kafka import log
from stream_dp.kafka.log import LogRefused
from stream_dp.pipeline.pipeline import Position
from stream_dp.workers import counted_log
from stream_dp.workers.counted_log import CountedLog
from tests.system.waiting import GIVE_UP_SECONDS

PARTITIONS = 5
EMPTY = 3  # a partition without records
DIGESTER = LogDigester(bytes(32))


def position(places: dict[int, Record]) -> Position:
    """All up to these records, by partition, was counted."""
    parts = [(number, Records.of([record])) for number, record in sorted(places.items())]
    return Position(0, log=DIGESTER.extend(NOTHING, [parts]))


@pytest.fixture
def written(kafka: str, topic_prefix: str) -> dict[int, list[Record]]:
    """Records of each partition, in batches of which many are larger than what is asked of a partition."""
    events = Settings(stream=topic_prefix, kafka=kafka).events
    log.create_topics(kafka, events, partitions=PARTITIONS)
    with KafkaProducer(bootstrap_servers=kafka, batch_size=1 << 18, linger_ms=50) as producer:
        for number in range(PARTITIONS):
            for event in range(12 if number != EMPTY else 0):
                size = 10_000 * number * (event % 3)
                producer.send(events, b"%d %d" % (number, event) + bytes(size), partition=number)
        producer.flush()
    return {
        number: list(log.read(kafka, events, 0, 12, number))
        for number in range(PARTITIONS)
        if number != EMPTY
    }


@pytest.fixture
async def counted(
    kafka: str, topic_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[CountedLog]:
    monkeypatch.setattr(counted_log, "_ANSWER_SECONDS", GIVE_UP_SECONDS)
    made = CountedLog(Settings(stream=topic_prefix, kafka=kafka), DIGESTER)
    await made.reader.start()
    made.begin()
    yield made
    await made.reader.stop()


async def test_what_was_counted_is_found_in_every_partition_again_and_again(
    written: dict[int, list[Record]], counted: CountedLog
) -> None:
    for event in (0, 5, 5, 11):
        now = position({number: records[event] for number, records in written.items()})
        await counted.check(now)
        assert counted._lasts == now.log.lasts
    await counted.check(now)


@pytest.mark.parametrize("other", [number for number in range(PARTITIONS) if number != EMPTY])
async def test_a_record_that_differs_is_told_in_any_partition(
    written: dict[int, list[Record]], counted: CountedLog, other: int
) -> None:
    lasts = {number: records[7] for number, records in written.items()}
    changed = lasts[other]._replace(value=b"another")
    counted.counted(position(lasts | {other: changed}))
    with pytest.raises(LogRefused, match="is not the log that was counted") as refused:
        await counted.check(position(lasts))
    assert ("of partition" in str(refused.value)) == (other > 0)
    assert other == 0 or f"of partition {other}," in str(refused.value)
