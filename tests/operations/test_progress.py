"""A process that stands still says for what it waits, once a minute, until it goes on; time is the test's own."""

import threading

import pytest
from prometheus_client import CollectorRegistry

from stream_dp.operations.progress import STALL_SECONDS, Progress
from stream_dp.operations.watch import Watch


class Clock:
    """Stands still until it is set."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def waiting(registry: CollectorRegistry) -> dict[str, float]:
    """What the operators' port says is waited for, and since how many seconds."""
    found = {"stream": "shop"}
    return {
        sample.labels["waiting_for"]: sample.value
        for family in registry.collect()
        for sample in family.samples
        if sample.name == "stream_dp_operator_waiting_seconds" and found.items() <= sample.labels.items()
    }


def looked_at(progress: Progress, clock: Clock, *moments: float) -> None:
    for moment in moments:
        clock.now = moment
        progress.look()


def test_it_is_told_once_a_minute_and_when_it_goes_on(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    watch = Watch("shop", "shop.events", clock)
    watch.progress.input(True)
    looked_at(watch.progress, clock, 1, 30, STALL_SECONDS - 1)
    assert (caplog.messages, waiting(watch.operator.registry)) == ([], {})
    looked_at(watch.progress, clock, 60, 61, 119, 120, 150)
    assert caplog.messages == [
        "stream shop: no progress for 60 s: it waits for kafka-fetch",
        "stream shop: no progress for 120 s: it waits for kafka-fetch",
    ]
    assert waiting(watch.operator.registry) == {"kafka-fetch": 150.0}
    watch.progress.made()
    watch.progress.look()
    assert caplog.messages[2:] == ["stream shop: it makes progress again"]
    assert waiting(watch.operator.registry) == {}


def test_without_input_there_is_nothing_to_tell(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    progress = Progress("shop", clock=clock)
    looked_at(progress, clock, 100, 10_000)
    progress.input(True)  # the minute begins when there is something to do
    looked_at(progress, clock, 10_059)
    assert caplog.messages == []
    looked_at(progress, clock, 10_060)
    assert len(caplog.messages) == 1


def test_what_is_waited_for_is_named(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    """Something that takes a minute is told even without input; of short waits the last one, if nothing is made."""
    progress = Progress("shop", clock=clock)
    with progress.waiting("group-assignment"):
        looked_at(progress, clock, 59, 60)
        with progress.waiting("redis"):
            looked_at(progress, clock, 90)
    looked_at(progress, clock, 91)
    assert [message.rpartition(" ")[2] for message in caplog.messages] == ["group-assignment"]
    caplog.clear()
    progress.input(True)
    for moment in range(92, 172, 10):
        with progress.waiting("redis"):
            looked_at(progress, clock, moment)
    assert [message.rpartition(" ")[2] for message in caplog.messages] == ["redis"]


def test_an_outage_is_the_cause_until_there_is_progress(clock: Clock) -> None:
    watch = Watch("shop", "shop.events", clock)
    watch.progress.input(True)
    watch.outage("kafka")
    looked_at(watch.progress, clock, 60)
    assert waiting(watch.operator.registry) == {"kafka": 60.0}
    watch.counted(1, 5)
    looked_at(watch.progress, clock, 120)
    assert waiting(watch.operator.registry) == {"kafka-fetch": 60.0}


def test_a_loop_that_stands_still_is_told_by_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stream_dp.operations.progress._LOOK_SECONDS", 0.001)
    told = threading.Event()
    progress = Progress(
        "shop", lambda reason, _: told.set() if reason == "redis" else None, stall_seconds=0.01
    )
    with progress.watched(), progress.waiting("redis"):
        assert told.wait(120)
