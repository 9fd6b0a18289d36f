"""An outage is told in few lines, however often it is tried again."""

import logging

import pytest

from stream_dp.errors import spoken
from stream_dp.kafka.outages import Outages


def test_an_outage_is_a_line_at_the_start_one_a_minute_and_one_at_the_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = 0.0
    outages = Outages(lambda: now)
    with caplog.at_level(logging.INFO):
        outages.over()
        for second in range(150):
            now = float(second)
            outages.waits("Kafka at broker:9092", "no answer")
        outages.over()
        outages.over()
        outages.waits("Redis at state", "refused")
        outages.waits("Kafka at broker:9092", "no answer")
    assert [record.getMessage() for record in caplog.records] == [
        "waiting for Kafka at broker:9092: no answer",
        "still waiting for Kafka at broker:9092, for 60 s now: no answer",
        "still waiting for Kafka at broker:9092, for 120 s now: no answer",
        "Kafka at broker:9092: waited for 149 s, and it goes on",
        "waiting for Redis at state: refused",
        "waiting for Kafka at broker:9092: no answer",
    ]


class DumpedError(Exception):
    description = "The request timed out."


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError("connection refused"), "connection refused"),
        (TimeoutError(), "TimeoutError"),
        (DumpedError("Request 'ProduceRequest(records=b'private')' failed"), "The request timed out."),
        (OSError("x" * 1000), "OSError"),
    ],
)
def test_a_request_that_a_client_dumps_is_not_repeated(error: Exception, said: str) -> None:
    assert spoken(error) == said
