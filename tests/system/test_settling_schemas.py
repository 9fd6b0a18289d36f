"""What schema numbers stand for is settled once: with a registry that is away, knows nothing, or changes its mind."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from stream_dp.config.events_section import EventsSection
from stream_dp.config.settings import Settings
from stream_dp.epochs.schemas_topic import SchemasTopic, schema_records
from stream_dp.events.mapping.schema import Schema
from stream_dp.events.schema_book import SchemaBook
from stream_dp.kafka import log, schema_registry
from stream_dp.operations.watch import Watch
from stream_dp.workers import schemas
from stream_dp.workers.schemas import ERROR_SECONDS, UNKNOWN_SECONDS, SchemaSettler
from tests.schema_registry.front import Answers, Front, front, scripted
from tests.schema_registry.orders import FIRST, avro
from tests.system.streams import ended
from tests.system.ticking import MakeStream
from tests.system.worker_process import PROCESSES, run_worker

KEY, NONCE = bytes(32), bytes(16)
HOUR = 3600.0


class NeverSet(asyncio.Event):
    """In whichever loop it is waited for."""

    async def wait(self) -> Literal[True]:
        await asyncio.get_running_loop().create_future()
        return True


class Clock:
    """Stands still, unless the test moves it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    @staticmethod
    def time_ns() -> int:
        return 0


def framed(number: int) -> bytes:
    return b"\0" + number.to_bytes(4) + b"value"


@dataclass
class Place:
    """A topic of schemas, and those who settle what goes there."""

    settings: Settings
    clock: Clock
    stack: ExitStack = field(default_factory=ExitStack)

    def settler(self, answers: Answers) -> tuple[SchemaSettler, SchemaBook, Front]:
        """Another one, which asks a registry of its own; it has read what is settled by now."""
        running = self.stack.enter_context(front(answers))
        section = EventsSection(format="avro", items="a", schema_registry=running.address)
        book, watch = SchemaBook(KEY, NONCE), Watch("shop", "shop.events")
        settler = SchemaSettler(SchemasTopic(self.settings, book), section, book, watch, NeverSet())
        self.stack.callback(settler.close)
        settler.begin()
        return settler, book, running

    def recorded(self) -> dict[int, tuple[Any, float]]:
        """What stands in the topic: the schema's text or None, and how long it was asked for."""
        found = [json.loads(value or b"") for value in schema_records(self.settings)]
        return {each["number"]: (each["schema"] and each["schema"]["text"], each["waited"]) for each in found}


@pytest.fixture
def place(kafka: str, topic_prefix: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    clock = Clock()
    monkeypatch.setattr(schemas, "time", clock)
    monkeypatch.setattr(schemas, "_ASK_AGAIN_SECONDS", 0.0)
    settings = Settings(stream=topic_prefix, kafka=kafka, mapping=EventsSection(items="a"))
    log.create_topics(kafka, settings.schemas)
    found = Place(settings, clock)
    with found.stack:
        yield found


def settled(settler: SchemaSettler, *numbers: int) -> bool:
    return asyncio.run(settler.settle([framed(number) for number in numbers]))


def knows(texts: dict[int, str | int], types: int = 200) -> Answers:
    answers = {
        f"/schemas/ids/{number}": {"schema": text} if isinstance(text, str) else text
        for number, text in texts.items()
    }
    return scripted({**answers, "/schemas/types": types})


def gone(path: str) -> tuple[int, bytes]:
    return 503, b""


def test_a_registry_that_is_away_is_waited_for_however_long_it_takes(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """Also where it failed for this number before: the time that it was away says nothing about a number."""
    caplog.set_level("INFO", schemas.__name__)
    settler, book, registry = place.settler(knows({7: 500}))
    for answers, seconds in (
        (knows({7: 500}), ERROR_SECONDS - 1),
        (gone, HOUR),
        (knows({7: 500}), ERROR_SECONDS - 1),
    ):
        registry.answers = answers
        assert not settled(settler, 7)
        place.clock.now += seconds
        assert not settled(settler, 7)
    assert place.recorded() == {}
    registry.answers = knows({7: "text"})
    assert settled(settler, 7)
    assert book.schema(7) == Schema("text")
    assert place.recorded() == {7: ("text", 0.0)}
    logged = [record.getMessage() for record in caplog.records if record.name == schemas.__name__]
    told = [line.partition(" at ")[2].partition(" ")[2] for line in logged]
    assert [line.partition(":")[0] for line in told] == [
        "cannot be asked (it answers with status 503)",
        "answers",
    ]


@pytest.mark.parametrize(
    ("answer", "limit"), [(404, UNKNOWN_SECONDS), (500, ERROR_SECONDS), (["?"], ERROR_SECONDS)]
)
def test_a_number_without_a_schema_is_unknown_after_a_limit_which_is_recorded(
    place: Place, answer: Any, limit: float
) -> None:
    settler, book, _ = place.settler(knows({7: answer, 8: "text"}))
    assert not settled(settler, 7, 8)
    place.clock.now += limit * 0.9
    assert not settled(settler, 7)
    place.clock.now += limit * 0.2
    assert settled(settler, 7)
    assert book.schema(7) is None
    assert place.recorded() == {8: ("text", 0.0), 7: (None, limit)}


@pytest.mark.parametrize("first", ["text", 404])
def test_a_registry_that_says_something_else_later_is_not_asked(place: Place, first: str | int) -> None:
    settler, book, registry = place.settler(knows({7: first}))
    settled(settler, 7)
    place.clock.now += HOUR
    assert settled(settler, 7)
    expected = book.schema(7)
    registry.answers, asked = knows({7: "another"}), len(registry.asked)
    again, read, other = place.settler(knows({7: "another"}))
    assert settled(settler, 7)
    assert settled(again, 7)
    assert (book.schema(7), read.schema(7)) == (expected, expected)
    assert (len(registry.asked), other.asked) == (asked, [])


def test_of_two_workers_with_two_answers_the_first_on_record_counts_for_both(place: Place) -> None:
    """As where a worker that was taken for dead is not: who is later reads what was settled before."""
    early, its_book, _ = place.settler(knows({7: "first", 8: "first"}))
    late, book, _ = place.settler(knows({7: "second", 8: 404, 9: "second"}))
    assert settled(early, 7, 8)
    settled(late, 7, 8, 9)
    place.clock.now += HOUR
    assert settled(late, 7, 8, 9)
    settled(early, 9)
    place.clock.now += HOUR
    assert settled(early, 9)
    for each in (its_book, book):
        assert [each.schema(number) for number in (7, 8, 9)] == [
            Schema("first"),
            Schema("first"),
            Schema("second"),
        ]


def test_whoever_names_many_numbers_does_not_fill_the_log(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    numbers = range(1, 501)
    settler, book, registry = place.settler(knows({}))
    assert not settled(settler, *numbers)
    place.clock.now += UNKNOWN_SECONDS
    assert settled(settler, *numbers)
    assert {book.schema(number) for number in numbers} == {None}
    assert sum(place != "/schemas/types" for place in registry.asked) == 2 * len(numbers)
    told = [record.getMessage() for record in caplog.records if "gives no schema" in record.getMessage()]
    assert 1 < len(told) < 30


def test_a_worker_that_asks_a_registry_which_drips_ends_when_it_is_told_to(make_stream: MakeStream) -> None:
    """Also at a start that compares what is published, behind which stand records that name another schema."""
    known, unknown = (avro(number, FIRST, sku=["tea"]) for number in (7, 8))
    with front(scripted({f"/schemas/ids/{each}": {"schema": json.dumps(FIRST)} for each in (7, 8)})) as slow:
        section = EventsSection(format="avro", items="sku[*]", schema_registry=slow.address)
        with make_stream(mapping=section) as stream:
            stream.feed([known] * 30)
            killed = stream.start()
            stream.wait_until_round(30, killed)
            killed.kill()
            ended(killed)
            assert stream.checkpoint().state.round < 30
            slow.drip_seconds, slow.drips_head = 0.1, True
            stream.feed([unknown])
            arguments = stream.settings, str(stream.log_file), None
            worker = PROCESSES.Process(target=run_patient_worker, args=arguments)
            worker.start()
            stream.workers.append(worker)
            stream.wait_until(lambda: slow.asked[-1] == "/schemas/ids/8", worker)
            stream.stop(worker)
            assert stream.last_round() == 30
            slow.drip_seconds = 0.0
            assert stream.run(until_round=31) == 0
            stream.check_everything()


def run_patient_worker(*arguments: Any) -> None:
    """A worker that waits for an answer of the registry for ever, unless it is told to end."""
    schema_registry._QUESTION_SECONDS = HOUR
    run_worker(*arguments)
