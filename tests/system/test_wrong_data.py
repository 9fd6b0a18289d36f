"""Records of another shape are told to whoever may know: by counts and reasons, and never by what they hold."""

import json
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner, Result

from stream_dp.cli import app
from stream_dp.config.events_section import EventsSection
from stream_dp.config.settings import Settings
from stream_dp.events.record import Record
from stream_dp.kafka import log
from tests.example_releases import release
from tests.schema_registry.front import front, scripted
from tests.system.streams import Stream

TIME = 1_769_860_800_000
PARTITIONS = 3


@pytest.fixture
def orders(kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path) -> Stream:
    """A stream whose events are the orders of a topic with several partitions."""
    section = EventsSection(topic=f"{topic_prefix}.orders", items="lines[*].sku", where="paid")
    settings = Settings(stream=topic_prefix, kafka=kafka, redis=redis_url, mapping=section)
    log.create_topics(kafka, settings.events, partitions=PARTITIONS)
    return Stream(settings, tmp_path)


def check(stream: Stream, *words: str, section: str = "") -> Result:
    own = stream.settings
    assert own.mapping is not None
    section = (
        section
        or f'{{ topic = "{own.events}", items = "{own.mapping.items}", where = "{own.mapping.where}" }}'
    )
    places = ["--stream", own.stream, "--kafka", own.kafka, "--redis", own.redis]
    return CliRunner().invoke(app, ["check", *places, *words], env={"STREAM_DP_EVENTS": section})


def order(*skus: object, paid: bool = True) -> bytes:
    return json.dumps({"paid": paid, "lines": [{"sku": sku} for sku in skus]}).encode()


def test_a_sample_counts_reasons_and_shows_no_content(orders: Stream) -> None:
    values = [
        *[order("secret-1", "secret-2")] * 40,
        *[order("secret-3", paid=False)] * 5,
        *[order("secret-4", {"secret-5": 1}), order({"secret-6": 1})] * 3,
        b"secret-7",
    ]
    keyed = [Record(0, TIME, b"key %d" % number, value) for number, value in enumerate(values)]
    orders.write(orders.settings.events, keyed)
    result = check(orders, "--sample", "1000", "--json")
    told = json.loads(result.stdout)["sample"]
    assert (told["records"], told["events"], told["filtered"]) == (52, 40, 5)
    assert sorted(told["reasons"].values()) == [1, 6]
    shown = check(orders, "--sample", "1000").output
    assert "52 newest records" in " ".join(shown.split())
    assert "secret" not in result.output + shown


def test_a_sample_of_records_that_name_schemas_asks_the_registry(
    kafka: str, redis_url: str, topic_prefix: str
) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "string"}]}
    answers = scripted({"/schemas/ids/7": {"schema": json.dumps(schema)}, "/schemas/types": []})
    topic = f"{topic_prefix}.orders"
    log.create_topics(kafka, topic)
    stream = Stream(Settings(stream=topic_prefix, kafka=kafka, redis=redis_url), Path())
    named = [b"\0" + number.to_bytes(4) + b"\x06tea" for number in (7, 7, 9)]
    stream.write(topic, [Record(0, TIME, None, value) for value in named])
    words = ["check", "--stream", topic_prefix, "--kafka", kafka, "--redis", redis_url, "--sample", "9"]

    def checked(*more: str) -> Result:
        how = f'topic = "{topic}", format = "avro", items = "a", schema_registry = "{registry.address}"'
        return CliRunner().invoke(app, [*words, *more], env={"STREAM_DP_EVENTS": f"{{ {how} }}"})

    with front(answers) as registry:
        told = json.loads(checked("--json").stdout)["sample"]
        assert told == {
            "records": 3,
            "events": 2,
            "filtered": 0,
            "reasons": {"the registry does not know its schema, 9": 1},
        }
    told = " ".join(checked().output.split())
    assert (
        f"the schema registry at {registry.address} cannot be asked (ConnectError): check schema_registry"
        in told
    )


def test_a_sample_is_of_the_newest_records_of_all_partitions(orders: Stream) -> None:
    for value in (b"no event", order("tea")):
        keyed = [
            Record(0, TIME, b"key %d" % number, value, partition=number % PARTITIONS) for number in range(60)
        ]
        orders.write(orders.settings.events, keyed)
    told = json.loads(check(orders, "--sample", "12", "--json").stdout)["sample"]
    assert told == {"records": 12, "events": 12, "filtered": 0, "reasons": {}}


def test_a_foreign_topic_that_is_missing_and_a_sample_without_events_fail(orders: Stream) -> None:
    orders.write(orders.settings.events, [Record(0, TIME, None, b'{"other": 1}')] * 3)
    for topic, words in (
        (
            orders.settings.events,
            "the mapping finds no item in it; correct format, items and where in [events]",
        ),
        (f"{orders.settings.events}-2", "does not exist, and a worker makes no topic of others"),
    ):
        section = f'{{ topic = "{topic}", items = "lines[*].sku" }}'
        result = check(orders, "--sample", "9", "--json", section=section)
        assert result.exit_code == 1
        failed = [each["detail"] for each in json.loads(result.stdout)["checks"] if each["state"] == "failed"]
        assert any(words in each for each in failed), failed


def test_a_sample_of_no_topic_is_a_sentence(orders: Stream, kafka: str) -> None:
    words = ["--stream", "nobody", "--kafka", kafka, "--redis", orders.settings.redis, "--sample", "9"]
    result = CliRunner().invoke(app, ["check", *words])
    assert result.exit_code == 1
    assert "has no topic 'nobody.events'" in " ".join(result.output.split())


def test_check_tells_of_many_rounds_without_a_label(orders: Stream) -> None:
    own = orders.settings
    log.create_topics(own.kafka, own.releases)
    empty = msgspec.structs.replace(release(5_000, {}, own.stream), shown="kept")
    orders.write(own.releases, [Record(0, TIME, b"s", msgspec.json.encode(empty))])
    told = json.loads(check(orders, "--json").stdout)["checks"]
    [labels] = [each for each in told if each["name"] == "labels"]
    assert labels["state"] == "warning"
    assert "5,000 rounds without a label: records may not match the mapping" in labels["detail"]
