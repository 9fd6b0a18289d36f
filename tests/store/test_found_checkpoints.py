"""Does a worker killed around a test go on with the same bytes, and does `verify` see what was changed there?"""

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import msgspec
import pytest
from redis import Redis

from stream_dp.config.settings import Settings
from stream_dp.engine.epoch import Epoch
from stream_dp.engine.known_labels import NOTHING_KNOWN, KnownLabels
from stream_dp.events.record import Record
from stream_dp.pipeline.pipeline import Pipeline
from stream_dp.releases.release import decode_release
from stream_dp.store.checkpoints import Checkpoint, CheckpointStore
from stream_dp.verification.verify import Verdict, verify
from tests.store.test_checkpoints import CHECK, KEY

TOPIC = "found.events"

SETTINGS = Settings(
    stream="found",
    mechanism="blt",
    discover="every-10",
    at_least=2,
    epsilon=20.0,
    delta=0.05,
    horizon=120,
    items_per_event=3,
)
KNOWN = KnownLabels.of_list(["1", "nobody"])
KINDS: dict[str, dict[str, Any]] = {
    "events": {},
    "users": {"unit": "user", "items_per_user": 40},
    "rounds left out": {"release": "every-7"},
}
_DRAW = Random(3)


def _record(offset: int) -> Record:
    items = b", ".join(sorted({b'"%d"' % (_DRAW.paretovariate(0.5) % 50) for _ in range(3)}))
    user = b"user %d" % _DRAW.randrange(90)
    return Record(offset, 1000 + offset, None, b'{"items": [%s], "user": "%s"}' % (items, user))


RECORDS = [_record(offset) for offset in range(120)]


def epoch(kind: str = "events", known: KnownLabels = NOTHING_KNOWN) -> Epoch:
    changed = msgspec.structs.replace(SETTINGS, **KINDS[kind])
    return replace(Epoch.open(changed, 1, 0, known=known), nonce=bytes(16))


def begun(of: Epoch, known: KnownLabels = NOTHING_KNOWN) -> Pipeline:
    return Pipeline(of, KEY, TOPIC, known=known)


def released(pipeline: Pipeline, records: Sequence[Record]) -> list[bytes]:
    return [part.value for part in pipeline.process(records).releases]


def expected() -> list[bytes]:
    return released(begun(epoch()), RECORDS)


def test_labels_are_found_at_several_tests() -> None:
    """Or the tests below would say nothing."""
    last = decode_release(expected()[-1])
    assert len({*(last.found or [])}) > 3
    assert len(last.labels) < 50


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("step", "known"), [(1, NOTHING_KNOWN), (3, KNOWN), (10, NOTHING_KNOWN), (11, KNOWN)]
)
def test_a_worker_that_is_killed_goes_on_with_the_same_bytes(
    step: int, kind: str, known: KnownLabels, redis: Redis
) -> None:
    """Killed after every `step` rounds, so before, at and behind tests; what it did after its checkpoint is lost."""
    of = epoch(kind, known)
    store, pipeline = CheckpointStore(redis, "found"), begun(of, known)
    store.take_over()
    store.load(KEY)
    found: list[bytes] = []
    for end in range(step, len(RECORDS) + step, step):
        found += released(pipeline, RECORDS[pipeline.round : end])
        saved = Checkpoint(of, pipeline.state(), pipeline.position, 0, CHECK, pipeline.intake.pairs)
        prepared = store.prepare(saved)
        pipeline.process(RECORDS[pipeline.round : pipeline.round + 12])  # while it is written, over a test
        store.commit(prepared)
        state = CheckpointStore(redis, "found").load(KEY)
        assert state is not None
        pipeline = Pipeline(of, KEY, TOPIC, state.position, state.state, state.pairs, known=known)
    straight = released(begun(of, known), RECORDS)
    assert found == straight
    assert len({*(decode_release(straight[-1]).found or [])}) > 2


def test_one_that_is_killed_in_a_test_and_counts_it_again_from_an_earlier_state(redis: Redis) -> None:
    """What was released before the kill comes again, byte for byte, from any state before it."""
    everything = expected()
    for before, end in ((0, 10), (9, 10), (9, 11), (10, 21), (4, 30), (29, 30), (100, 120)):
        pipeline = begun(epoch())
        pipeline.process(RECORDS[:before])
        again = Pipeline(epoch(), KEY, TOPIC, pipeline.position, pipeline.state(), b"")
        assert released(again, RECORDS[before:end]) == everything[before:end]
        last = decode_release(everything[end - 1])
        assert again.last_release(last.previous) == [everything[end - 1]]


@pytest.mark.parametrize("place", [8, 9, 10, 29, 30])
def test_verify_finds_what_was_changed_around_a_test(place: int) -> None:
    """An event of a label that is not shown, before a test, in it and behind it; and a label that no test has found."""
    of, log = epoch(), RECORDS
    there = begun(of).process(log).releases
    sound = verify(of, KEY, TOPIC, log, there).certificate
    assert (sound.verdict, sound.at_least) == (Verdict.IDENTICAL, 2)
    other = log[place]._replace(value=b'{"items": ["nobody has seen this"]}')
    edited = verify(of, KEY, TOPIC, [*log[:place], other, *log[place + 1 :]], there)
    assert edited.certificate.verdict is Verdict.EDITED
    assert edited.difference is not None
    assert edited.difference.round == place + 1
    last = decode_release(there[-1].value)
    forged = msgspec.structs.replace(last, labels=[*last.labels[:-1], "nobody"])
    changed = [*there[:-1], there[-1]._replace(value=msgspec.json.encode(forged))]
    assert verify(of, KEY, TOPIC, log, changed).certificate.verdict is Verdict.RELEASES_CHANGED
