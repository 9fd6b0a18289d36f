"""One bit of anything in Redis is flipped, thousands of times: it gives no room in a budget, and nothing is published.

What a start reads is read in this process after each flip, by the worker's own code; test_damaged_state.py starts some.
`make soak` flips 10,000.
"""

import json
import random
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest
from redis import Redis

from stream_dp.engine.epoch import EpochRefused
from stream_dp.epochs.file_names import FILE_KEY, file_key
from stream_dp.epochs.journaled_ledger import JournaledLedger
from stream_dp.epochs.registry import Registry, default_ledger
from stream_dp.jobs import store as job_store
from stream_dp.jobs.result import decode_result
from stream_dp.jobs.worker import JobWorker
from stream_dp.kafka.clients import kept_clients
from stream_dp.privacy.composition import Charge
from stream_dp.privacy.keyed_noise import key_check
from stream_dp.privacy.loss import gaussian
from stream_dp.privacy.vector import Vector
from stream_dp.store import ledger as ledger_module
from stream_dp.store.checkpoint_columns import columns_of
from stream_dp.store.checkpoint_records import StateDamaged
from stream_dp.store.checkpoints import CheckpointStore, Closing
from stream_dp.store.journal_fold import JournalFold
from stream_dp.store.ledger import Ledger, LedgerRefused
from stream_dp.store.ledger_records import State, seal, unpack
from stream_dp.store.noise_key import NoKey, noise_key
from stream_dp.store.seals import SEAL_BYTES, Seals
from tests import redis_contents
from tests.system.broker_clients import delete_topics_of
from tests.system.damage import flip_at, places
from tests.system.example_events import some_events
from tests.system.job_place import Place as JobPlace
from tests.system.soak import bits
from tests.system.streams import Stream, small_stream

JOB: dict[str, Any] = {
    "job": "histogram",
    "mechanism": "gaussian",
    "epsilon": 4,
    "delta": 1e-6,
    "items_per_user": 2,
}
MARKS: dict[str, Any] = {
    "job": "top-k",
    "mechanism": "pay-what-you-get",
    "epsilon": 4,
    "delta": 1e-6,
    "k": 3,
    "budget": "anna",
    "marks": 30,
    "queries": 4,
}
REQUESTS: list[dict[str, Any]] = [
    {"id": "done", **JOB},
    {"id": "paid-by-marks", **MARKS},
    {"id": "stopped", **JOB},
    {"id": "stopped", "cancel": True},
]
REFUSALS = EpochRefused, LedgerRefused, NoKey, StateDamaged


KINDS: list[dict[str, Any]] = [
    {"unit": "user", "items_per_user": 3, "items_per_event": 1},
    {"mechanism": "window", "window": 20, "delta": 0.1},
    {"mechanism": "blt", "discover": "every-9", "delta": 0.1},
]
"""Streams whose states have, between them, every kind of key; the first has a ledger and jobs."""
BEGUN_WITH = 45
KEYS = {"meta", "closing", "labels", "pairs", "counts", "column", "shown", "recent", "key", "fence"}
KEYS |= {"budget", "charges", "ledger-key", "job", "jobs", FILE_KEY}

Place = tuple[str, str]
"""A kind of key, and where in it a bit is flipped: a part of `damage.places`."""
TAKEN_AS_LOST = {(kind, "name") for kind in ("meta", "closing", "job")}
"""What is missing as if it had never been; what it is then compared with keeps it from being published."""
WITHOUT_EFFECT = {
    ("empty", "name"),
    ("fence", "name"),
    ("fence", "value"),
    ("jobs", "name"),
    ("jobs", "value"),
}
"""What no answer follows from: without an offset, requests are answered again, with what they were answered."""


@dataclass
class Held:
    """Streams, one of which has a ledger and jobs, and all that Redis holds of them."""

    stream: Stream
    others: list[Stream]
    redis: Redis
    worker: JobWorker
    journals: dict[str, list[bytes]]

    @property
    def places(self) -> dict[Place, list[bytes]]:
        """All keys that have these places.  A column of no label is a key without bits, of a kind of its own."""
        found = defaultdict[Place, list[bytes]](list)
        own = redis_contents.dumps(self.redis, f"stream_dp:{{{self.stream.settings.stream}*")
        names = [FILE_KEY.encode(), *own]
        for name in sorted(names):
            parts = places(self.redis, name)
            kind = kind_of(name.decode()) if "value" in parts else "empty"
            for part in parts:
                found[kind, part].append(name)
        return dict(found)

    def states(self) -> object:
        """What the workers of all streams go on from.  Raises a refusal."""
        return [self.state(stream) for stream in (self.stream, *self.others)]

    def state(self, stream: Stream) -> object:
        """What a worker goes on from; None if Redis has no checkpoint.  Raises a refusal."""
        own = stream.settings
        key = noise_key("redis", self.redis, own.stream, may_create=False)
        store = CheckpointStore(self.redis, own.stream)
        closing, found = store.closing(key), store.load(key)
        if found is None:
            return None
        columns = {name: column.cells.tobytes() for name, column in columns_of(found.state)}
        counted = (
            found.state.round,
            found.state.history,
            list(found.state.labels),
            found.state.counts.tobytes(),
        )
        return closing, found.epoch, counted, columns, found.position, bytes(found.pairs)

    def file_key(self) -> object:
        """What names files, of which one is registered.  Raises a refusal."""
        return file_key(Registry(self.stream.settings.kafka), self.redis)

    def ledgers(self) -> object:
        """Charges and budgets, as Redis alone has them.  Raises a refusal."""
        return [Ledger(self.redis, source).held() for source in self.journals]

    def journaled(self) -> object:
        """The same, completed by the journals."""
        found = []
        for source, journal in self.journals.items():
            ledger = Ledger(self.redis, source)
            ledger.journal = JournalFold(source, journal)
            found.append((ledger.state(), ledger.room()))
        return found

    def jobs(self) -> object:
        """What is remembered of jobs.  Raises a refusal."""
        store, ids = self.worker.store, sorted({request["id"] for request in REQUESTS})
        jobs = [(store.plan(each), store.result(each), store.is_cancelled(each)) for each in ids]
        return jobs, store.next_request("histogram+set-union+top-k")

    def answers(self) -> list[list[bytes]]:
        """What a worker of jobs would publish; the topic of results is empty."""
        asked = [json.dumps({"v": 1, **request}).encode() for request in REQUESTS[:3]]
        return [(self.worker.answer(value, 1_000) or (None, []))[1] for value in asked]


@pytest.fixture(scope="module")
def held(kafka: str, redis_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Held]:
    name, folder = f"flipped-{uuid.uuid4().hex[:8]}", tmp_path_factory.mktemp("flipped")
    with ExitStack() as opened:
        opened.callback(delete_topics_of, kafka, name)
        opened.enter_context(kept_clients())
        streams = [
            opened.enter_context(small_stream(kafka, redis_url, name + suffix, folder, **settings))
            for suffix, settings in zip(("", "-window", "-tests"), KINDS, strict=True)
        ]
        stream, *others = streams
        redis, own = opened.enter_context(stream.redis()), stream.settings
        Registry(kafka).register("topic", own.events, own.data_source, "user")
        key = file_key(Registry(kafka), redis, may_create=True)
        assert key is not None
        Registry(kafka).register("file", "f" * 64, own.data_source, "user", key=key_check(key))
        books = JournaledLedger(kafka, redis, own.data_source)
        books.set_budget(1000.0, 1e-3, "user")
        books.charge(charge("ended", first_offset=0))
        books.close("ended", 40)
        for each in streams:
            each.feed(some_events(BEGUN_WITH, seed=7, users=9))
            assert each.run(until_round=BEGUN_WITH) == 0
        place = JobPlace(kafka, redis_url, own.stream, folder, "user")
        for request in REQUESTS:
            place.ask(**request)
        with place.worker():
            place.results(4)
        place.remake("results")
        place.close()
        store = CheckpointStore(redis, own.stream)
        store.take_over()
        store.mark_closing(Closing(bytes(16), 3), stream.key())
        journals = {
            each.settings.data_source: [
                record.value or b"" for record in each.records(default_ledger(each.settings.data_source))
            ]
            for each in streams
        }
        yield Held(stream, others, redis, JobWorker(own), journals)


def kind_of(name: str) -> str:
    """A stream or a source has several keys of some kinds, and everybody who uses a Redis has one that names files."""
    return name if name == FILE_KEY else name.rpartition("}:")[2].partition(":")[0]


def charge(id_: str, first_offset: int, ends: Vector = ()) -> Charge:
    return Charge(
        id=id_,
        what="a job",
        unit="user",
        rho=0.001,
        delta=0.0,
        first_offset=first_offset,
        end_offset=None,
        further_ends=ends,
        digest="d",
        loss=gaussian(0.002),
    )


def outcome(ask: Callable[[], object]) -> object:
    """What is found, or that it is refused."""
    try:
        return ask()
    except REFUSALS:
        return "refused"


def flips(held: Held, number: int) -> dict[Place, set[str]]:
    """Flip so many bits, one after the other, at least one in every place; returns what refused any of each place."""
    rng, there = random.Random(11), held.places
    whole = redis_contents.dumps(held.redis)
    asks = {"state": held.states, "ledger": held.ledgers, "journaled": held.journaled, "jobs": held.jobs}
    asks["files"] = held.file_key
    sound = {name: ask() for name, ask in asks.items()}
    answers = held.answers()
    assert {kind for kind, _ in there} == {*KEYS, "empty"}
    weights = [{"name": 1, "field": 2, "value": 8}[part] for _, part in there]
    refused: dict[Place, set[str]] = {place: set() for place in there}
    for count, place in enumerate([*there, *rng.choices([*there], weights, k=number - len(there))]):
        (kind, part), name = place, rng.choice(there[place])
        told = f"flip {count}, in the {part} of {name!r}"
        try:
            flip_at(held.redis, name, part, rng)
            for asked, ask in asks.items():
                if (asked == "files") != (kind == FILE_KEY):
                    continue  # it reads a topic, so it is asked when it may have changed
                found = outcome(ask)
                if found == "refused":
                    refused[place].add(asked)
                elif part == "name":
                    check_lost(asked, found, sound[asked], told)
                elif (asked, kind) == ("jobs", "jobs"):
                    assert found[0] == sound[asked][0], told  # type: ignore[index]
                else:
                    assert found == sound[asked], told
            if kind in ("job", "jobs", "charges", "budget", "ledger-key"):
                for again, before in zip(held.answers(), answers, strict=True):
                    # A job that Redis has lost, and that has no charge of its own, is another one, and paid for.
                    is_new = part == "name" and name.endswith((b":paid-by-marks", b":stopped"))
                    assert again == before or is_new or decode_result(again[0]).status == "refused", told
        finally:
            put_back(held.redis, whole)
    return refused


def check_lost(part: str, found: Any, sound: Any, told: str) -> None:
    """A key that is missing is a loss, and is met as one: what is left says nothing else than it did."""
    if part == "state":
        for one, other in zip(found, sound, strict=True):
            assert one is None or one[1:] == other[1:], told
    elif part in ("ledger", "journaled"):
        assert found == sound, told
    else:
        for one, other in zip(found[0], sound[0], strict=True):
            assert one in (other, (None, None, False)), told


def put_back(redis: Redis, whole: dict[bytes, bytes]) -> None:
    """Have Redis hold what it held, and nothing else."""
    now = redis_contents.dumps(redis)
    with redis.pipeline() as pipeline:
        for name in now.keys() - whole.keys():
            pipeline.delete(name)
        for name, dumped in whole.items():
            if now.get(name) != dumped:
                pipeline.restore(name, 0, dumped, replace=True)
        pipeline.execute()


def test_no_flipped_bit_gives_room_or_is_published(held: Held, capsys: pytest.CaptureFixture[str]) -> None:
    refused = flips(held, bits())
    with capsys.disabled():
        print(f"\n{bits()} bits flipped; refused: {dict(sorted(refused.items()))}")
    assert {place for place, by in refused.items() if not by} - TAKEN_AS_LOST == WITHOUT_EFFECT


def unsealed(source: str, seals: Seals | None, packed: bytes | None, charges: dict[bytes, bytes]) -> State:
    """Wrong: whatever Redis holds of a ledger has the right digest."""
    if seals is not None and packed is not None:
        packed = seal(seals, packed[SEAL_BYTES:], charges) + packed[SEAL_BYTES:]
    return unpack(source, seals, packed, charges)


@pytest.mark.parametrize(
    ("owner", "name", "wrong"),
    [(ledger_module, "unpack", unsealed), (job_store, "_checked", lambda *given: given[-1][16:])],
    ids=["ledger", "jobs"],
)
def test_values_without_digests_are_caught(
    held: Held, owner: Any, name: str, wrong: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, wrong)
    with pytest.raises(AssertionError, match=r"flip \d+, in the \w+ of"):
        flips(held, 150)
