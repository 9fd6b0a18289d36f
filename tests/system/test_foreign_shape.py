"""Records of a foreign shape in twelve partitions, a third of them broken, through a worker; soak.py says how many."""

import json
import random
from collections import Counter

from stream_dp.config.events_section import EventsSection
from stream_dp.epochs.registry import default_ledger
from stream_dp.events.record import Record
from stream_dp.kafka import log
from stream_dp.releases.release import decode_release
from stream_dp.verification.rebuild import verify_epoch
from stream_dp.verification.verify import Verdict
from tests.system.leaks import leaks
from tests.system.soak import foreign_records
from tests.system.streams import Stream
from tests.system.ticking import MakeStream, open_epoch
from tests.system.worker_process import Kill

PARTITIONS, SEGMENTS, ITEMS = 12, 20, 4
SECRET = "secret of a broken record"
BROKEN: dict[bytes | None, str] = {
    None: "the record has no value",
    b"": "the record has no value",
    b'{"lines": [{"sku": "%b"}' % SECRET.encode(): "not valid UTF-8 JSON (DecodeError)",
    b'{"lines": [{"sku": "\xff"}], "who": "%b"}'
    % SECRET.encode(): "not valid UTF-8 JSON (UnicodeDecodeError)",
    b'{"lines": [{"sku": {"id": "%b"}}]}'
    % SECRET.encode(): "an item is an object: the path leads too high up",
    b'{"basket": ["%b"]}' % SECRET.encode(): "the mapping finds no item in it",
    b"[" * 200 + b"]" * 200: "arrays and objects are nested more than 100 deep",
}


def orders(count: int, rng: random.Random) -> list[Record]:
    """Orders keyed by customer, every third broken in one of seven ways."""
    broken = list(BROKEN)
    found = []
    for number in range(count):
        customer = rng.randrange(count // 10)
        lines = [{"sku": f"sku {int(rng.paretovariate(0.7)) % 500}"} for _ in range(rng.randint(1, 6))]
        order = json.dumps({"customer": {"id": customer}, "lines": lines}).encode()
        value = broken[number // 3 % len(broken)] if number % 3 == 0 else order
        found.append(Record(0, 1_769_860_800_000, b"customer %d" % customer, value, customer % PARTITIONS))
    return found


def counted_by_hand(records: list[Record]) -> Counter[str]:
    """How many orders have each item among their first few different ones."""
    found: Counter[str] = Counter()
    for record in records:
        if record.value not in BROKEN:
            skus = [line["sku"] for line in json.loads(record.value or b"")["lines"]]
            found.update(list(dict.fromkeys(skus))[:ITEMS])
    return found


def test_rounds_are_exact_and_every_broken_record_is_accounted_for(
    make_stream: MakeStream, topic_prefix: str
) -> None:
    records = orders(foreign_records(), random.Random(3))
    section = EventsSection(topic=f"{topic_prefix}-orders", items="lines[*].sku")
    settings = {
        "rounds": "ticks",
        "write_barriers": False,
        "partitions": PARTITIONS,
        "items_per_event": ITEMS,
    }
    changed = {"mapping": section, "checkpoint_every": "3", **settings}
    with make_stream(**changed) as stream:
        open_epoch(stream)
        size = len(records) // SEGMENTS
        for number in range(1, SEGMENTS + 1):
            last = None if number == SEGMENTS else number * size
            stream.write(stream.settings.events, records[(number - 1) * size : last])
            stream.close_rounds(1_000 * number)
        assert stream.run(Kill("prepare a checkpoint")) < 0
        assert stream.run(until_round=SEGMENTS) == 0
        state = stream.checkpoint().state
        assert counted_by_hand(records) == Counter(
            dict(zip(state.labels, state.counts.tolist(), strict=True))
        )
        assert [decode_release(each.value or b"").round for each in stream.releases()][-1] == SEGMENTS
        stream.check_everything()
        with stream.redis() as redis:
            assert verify_epoch(stream.settings, redis).certificate.verdict == Verdict.IDENTICAL
        assert reasons_in_letters(stream) == reasons_by_hand(records)
        check_public_topics(stream)


def reasons_by_hand(records: list[Record]) -> dict[tuple[int, int], str]:
    """Why each broken record is none, by its partition and its offset there."""
    ends, found = Counter[int](), {}
    for record in records:
        if record.value in BROKEN:
            found[record.partition, ends[record.partition]] = BROKEN[record.value]
        ends[record.partition] += 1
    return found


def reasons_in_letters(stream: Stream) -> dict[tuple[int, int], str]:
    """The same, as the dead letters say it; one that was killed may have written some of them twice."""
    found: dict[tuple[int, int], str] = {}
    for letter in stream.dead_letters(at_least=1):
        place = int(letter.headers["partition"]), int(letter.headers["offset"])
        assert found.setdefault(place, letter.headers["reason"]) == letter.headers["reason"]
        assert letter.headers["topic"] == stream.settings.events
    return found


def check_public_topics(stream: Stream) -> None:
    """Nothing that a broken record held is in a topic that others may read, nor is the number of broken ones."""
    own = stream.settings
    public = own.releases, own.epochs, own.barriers, default_ledger(own.data_source)
    texts = {
        topic: b"".join(
            (record.key or b"") + (record.value or b"")
            for record in log.read(own.kafka, topic, 0, log.offsets(own.kafka, topic).end)
        )
        for topic in public
    }
    texts["the worker's log"] = stream.log_file.read_bytes()
    assert all(texts.values())
    assert leaks({"content": SECRET.encode()}, texts) == []
    for reason in set(BROKEN.values()):
        assert not any(reason.encode() in texts[topic] for topic in public)
