"""One bit of anything in Redis is flipped, thousands of times: it gives no room in a budget, and nothing is published.

What a start reads is read in this process after each flip, by the worker's own code; test_corruption.py starts workers.
`python -m tests.system.soak --bits 10000` flips as many as you like.
"""

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from stream_dp.engine.epoch import EpochRefused
from stream_dp.epochs.journaled_ledger import JournaledLedger
from stream_dp.epochs.registry import Registry
from stream_dp.jobs import store as job_store
from stream_dp.jobs.result import decode_result
from stream_dp.jobs.worker import JobWorker
from stream_dp.kafka.clients import kept_clients
from stream_dp.privacy.composition import Charge
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
from tests.system.damage import flip_anything
from tests.system.example_events import some_events
from tests.system.job_place import Place
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
    {"id": "often", **JOB, "every": 3600},
]
REFUSALS = EpochRefused, LedgerRefused, NoKey, StateDamaged


@dataclass
class Held:
    """A stream with a ledger and jobs, and all that Redis holds of them."""

    stream: Stream
    redis: Redis
    worker: JobWorker
    journal: list[bytes]

    @property
    def names(self) -> list[bytes]:
        return sorted(redis_contents.dumps(self.redis, f"stream_dp:{{{self.stream.settings.stream}*"))

    def state(self) -> object:
        """What a worker goes on from; None if Redis has no checkpoint.  Raises a refusal."""
        own = self.stream.settings
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

    def ledger(self) -> object:
        """Charges and budget, as Redis alone has them.  Raises a refusal."""
        return Ledger(self.redis, self.stream.settings.data_source).held()

    def journaled(self) -> object:
        """The same, completed by the journal."""
        ledger = Ledger(self.redis, self.stream.settings.data_source)
        ledger.journal = JournalFold(ledger.source, self.journal)
        return ledger.state(), ledger.room()

    def jobs(self) -> object:
        """What is remembered of jobs.  Raises a refusal."""
        store, ids = self.worker.store, sorted({request["id"] for request in REQUESTS})
        jobs = [(store.plan(each), store.result(each), store.is_cancelled(each)) for each in ids]
        return jobs, list(store.listed()), store.schedules(), store.next_request("histogram+set-union+top-k")

    def answers(self) -> list[list[bytes]]:
        """What a worker of jobs would publish; the topic of results is empty."""
        asked = [json.dumps({"v": 1, **request}).encode() for request in REQUESTS[:3]]
        return [(self.worker.answer(value, 1_000) or (None, []))[1] for value in asked]


@pytest.fixture
def held(kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path) -> Iterator[Held]:
    kinds = {"unit": "user", "items_per_user": 3, "items_per_event": 1, "pruning_rounds": 16}
    with (
        small_stream(kafka, redis_url, topic_prefix, tmp_path, horizon=1023, **kinds) as stream,
        stream.redis() as redis,
        kept_clients(),
    ):
        own = stream.settings
        Registry(kafka).register("topic", own.events, own.data_source, "user")
        books = JournaledLedger(kafka, redis, own.data_source)
        books.set_budget(1000.0, 1e-3, "user")
        books.charge(charge("ended", first_offset=0))
        books.close("ended", 40)
        stream.feed(some_events(40, seed=7, users=9))
        assert stream.run(until_round=40) == 0
        place = Place(kafka, redis_url, own.stream, tmp_path, "user")
        for request in REQUESTS:
            place.ask(**request)
        with place.worker():
            place.results(5)
        place.remake("results")
        place.close()
        store = CheckpointStore(redis, own.stream)
        store.take_over()
        store.mark_closing(Closing(bytes(16), 3), stream.key())
        journal = [record.value or b"" for record in stream.records(own.ledger)]
        yield Held(stream, redis, JobWorker(own), journal)


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


def flips(held: Held, number: int) -> Counter[str]:
    """Flip so many bits, one after the other; returns how many of each kind of key were refused."""
    rng, whole = random.Random(11), redis_contents.dumps(held.redis)
    asks = {"state": held.state, "ledger": held.ledger, "journaled": held.journaled, "jobs": held.jobs}
    sound = {name: ask() for name, ask in asks.items()}
    answers = held.answers()
    kinds: dict[bytes, list[bytes]] = {}
    for name in held.names:
        kinds.setdefault(b":".join(name.rpartition(b"}:")[2].split(b":")[:2])[:7], []).append(name)
    assert {
        b"meta",
        b"closing",
        b"labels",
        b"pairs",
        b"counts",
        b"column:",
        b"active:",
        b"key",
        b"fence",
    } <= set(kinds)
    assert {b"budget", b"charges", b"ledger-", b"job:don", b"schedul", b"jobs:hi"} <= set(kinds)
    refused = Counter[str]()
    for count in range(number):
        name = rng.choice(kinds[rng.choice(sorted(kinds))])
        where = flip_anything(held.redis, name, rng)
        told = f"flip {count}, in the {where} of {name!r}"
        for part, ask in asks.items():
            found = outcome(ask)
            if found == "refused":
                refused[f"{part}, {where}"] += 1
            elif where == "name":
                check_lost(part, found, sound[part], told)
            elif part == "jobs" and name.rpartition(b":jobs:")[1]:
                assert found[:3] == sound[part][:3], told  # type: ignore[index]
            else:
                assert found == sound[part], told
        if b"job" in name or b"ledger" in name or b"charges" in name or b"budget" in name:
            for again, before in zip(held.answers(), answers, strict=True):
                # A job that Redis has lost, and that has no charge of its own, is another one, and paid for.
                is_new = where == "name" and name.endswith((b":paid-by-marks", b":stopped"))
                assert again == before or is_new or decode_result(again[0]).status == "refused", told
        put_back(held.redis, whole)
    return refused


def check_lost(part: str, found: Any, sound: Any, told: str) -> None:
    """A key that is missing is a loss, and is met as one: what is left says nothing else than it did."""
    if part == "state":
        assert found is None or found[1:] == sound[1:], told
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
    assert {"state, value", "ledger, value", "journaled, value", "jobs, value"} <= set(refused)
    if bits() >= 1_000:  # so many meet every kind of place
        assert {"ledger, field", "jobs, field", "state, name", "ledger, name"} <= set(refused)


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
    with pytest.raises(AssertionError, match=r"flip \d+, in the value of"):
        flips(held, 1_000)
