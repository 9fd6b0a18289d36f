"""One person is taken out of the topics and out of Redis, with the commands of docs/operations/erasure.md."""

import json

import msgspec
import pytest
from typer.testing import CliRunner, Result

from stream_dp.cli import app
from stream_dp.config.events_section import EventsSection
from stream_dp.epochs.registry import Registry
from stream_dp.kafka import log
from stream_dp.store.ledger import Ledger
from stream_dp.verification.rebuild import verify_epoch
from stream_dp.workers.resume import NewEpoch
from tests.system.epoch_steps import charges, run_epoch
from tests.system.streams import Stream
from tests.system.ticking import MakeStream

PERSON, ONLY_THEIRS = b"c7-is-their-name", b"only-they-bought-this"


def order(customer: bytes, sku: bytes) -> bytes:
    return b'{"customer": "%s", "sku": "%s"}' % (customer, sku)


def run(stream: Stream, *words: str) -> Result:
    own = stream.settings
    assert own.mapping is not None
    places = ["--stream", own.stream, "--kafka", own.kafka, "--redis", own.redis]
    user = f', user = "{own.mapping.user}"' if own.mapping.user else ""
    events = f'{{ topic = "{own.events}", items = "{own.mapping.items}"{user} }}'
    return CliRunner().invoke(app, [*words, *places], env={"STREAM_DP_EVENTS": events})


def everything(stream: Stream, *topics: str) -> bytes:
    """All bytes that these topics and Redis hold."""
    kafka, found = stream.settings.kafka, list[bytes]()
    for topic in topics:
        for partition, held in enumerate(log.offsets_of_all(kafka, topic)):
            for record in log.read(kafka, topic, held.first, held.end, partition):
                found += [record.key or b"", record.value or b"", repr(record.headers).encode()]
    with stream.redis() as redis:
        for name, value in stream.redis_keys().items():
            found += [name, repr(value).encode()]
            if redis.type(name) == b"list":
                found.append(repr(redis.lrange(name, 0, -1)).encode())
    return b"\n".join(found)


def test_a_person_is_erased_from_topics_and_redis_and_the_stream_goes_on(
    make_stream: MakeStream, kafka: str, topic_prefix: str
) -> None:
    section = EventsSection(topic=f"{topic_prefix}-orders", items="sku", user="customer")
    with make_stream(mapping=section) as stream:
        old, into = stream.settings.events, f"{topic_prefix}-orders-2"
        others = [order(b"c%d" % number, b"tea") for number in range(100, 160)]
        stream.feed(
            [*others, order(PERSON, ONLY_THEIRS), PERSON + b" is no JSON", order(PERSON, b"tea")], key=b"k"
        )
        worker = stream.start()
        stream.wait_until_round(63, worker)
        held = run(stream, "erase", "--user", PERSON.decode(), "--to", into)
        assert (held.exit_code, "stop it and its standbys first" in held.output) == (2, True)
        stream.stop(worker)
        stream.dead_letters(at_least=1)
        assert PERSON in everything(stream, old, stream.settings.dead_letters)
        assert ONLY_THEIRS in everything(stream)

        done = run(stream, "erase", "--user", PERSON.decode(), "--to", into, "--json")
        assert done.exit_code == 0, done.output
        told = json.loads(done.stdout)
        assert (told["records"], told["emptied"], told["dead_letters_deleted"]) == (63, 3, True)
        assert not log.existing(kafka, stream.settings.dead_letters)
        again = run(stream, "erase", "--user", PERSON.decode(), "--to", into)
        assert (again.exit_code, "name another one that is to be made" in again.output) == (2, True)
        owner = Registry(kafka).owner("topic", into)
        assert owner is not None
        assert owner.source == old
        times = [[record.timestamp for record in log.read(kafka, topic, 0, 63)] for topic in (old, into)]
        assert times[0] == times[1]

        moved = msgspec.structs.replace(section, topic=into)
        stream.settings = msgspec.structs.replace(stream.settings, mapping=moved, source=old)
        run_epoch(stream, 63, 2, NewEpoch(recount=True))
        left = everything(stream, into, stream.settings.dead_letters)
        assert PERSON not in left
        assert ONLY_THEIRS not in left
        made = charges(stream)
        assert len(made) == 2
        with stream.redis() as redis:
            assert Ledger(redis, old).spent().rho == pytest.approx(sum(each.rho for each in made), rel=1e-12)
            assert verify_epoch(stream.settings, redis).certificate.verdict == "identical"


def test_a_condition_erases_what_it_holds_for(make_stream: MakeStream, kafka: str, topic_prefix: str) -> None:
    section = EventsSection(topic=f"{topic_prefix}-orders", items="sku")
    with make_stream(mapping=section) as stream:
        stream.feed([order(b"c1", b"tea"), order(b"c2", b"tea"), b'{"sku": "milk"}'], key=b"k")
        into = f"{topic_prefix}-orders-2"
        done = run(stream, "erase", "--where", "customer == 'c2'", "--to", into, "--json")
        assert json.loads(done.stdout)["emptied"] == 1
        assert [record.value for record in log.read(kafka, into, 0, 3)] == [
            order(b"c1", b"tea"), b"", b'{"sku": "milk"}'
        ]  # fmt: skip
        refused = run(stream, "erase", "--to", into)
        assert "one of the two: --user NAME or --where PATH" in " ".join(refused.output.split())


def test_two_mappings_are_compared_on_records(make_stream: MakeStream, topic_prefix: str) -> None:
    section = EventsSection(topic=f"{topic_prefix}-orders", items="sku", user="customer")
    with make_stream(mapping=section) as stream:
        new = [b'{"customer": "c2", "article": "secret"}'] * 3
        stream.feed([*[order(b"c1", b"tea")] * 5, *new, b"{"], key=b"k")
        assert "has no epoch yet" in run(stream, "mapping", "compare").output
        assert stream.run(until_round=9) == 0
        for items, user, equal, gained, lost, changed in (
            ("sku || article", "customer", 6, 3, 0, 0),
            ("article", "customer", 1, 3, 5, 0),
            ("sku", "sku", 4, 0, 0, 5),
        ):
            mapping = msgspec.structs.replace(section, items=items, user=user)
            stream.settings = msgspec.structs.replace(stream.settings, mapping=mapping)
            told = json.loads(run(stream, "mapping", "compare", "--json").stdout)
            counts = [told[name] for name in ("records", "equal", "gained", "lost", "changed")]
            assert counts == [9, equal, gained, lost, changed]
            [setting] = told["settings"]
            assert setting.endswith(f"in the epoch and {user if items == 'sku' else items} in the settings")
        shown = run(stream, "mapping", "compare").output
        assert "secret" not in shown
