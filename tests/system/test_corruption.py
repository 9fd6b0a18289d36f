"""One bit of what Redis holds is flipped while a stream stands still: the next worker refuses, or nothing is different.

The disk, the memory or a hand may change what was written.  No release may ever come from it.
"""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.damage import flip, holds_bits
from tests.system.example_events import some_events
from tests.system.soak import flips
from tests.system.streams import Stream, ended, small_stream, status_of
from tests.system.waiting import wait_until

BEGUN_WITH = 40


@pytest.fixture
def stream(kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path) -> Iterator[Stream]:
    """One whose state has all kinds of keys."""
    kinds = {"unit": "user", "items_per_user": 3, "items_per_event": 1}
    with small_stream(kafka, redis_url, topic_prefix, tmp_path, horizon=16_383, **kinds) as stream:
        yield stream


def of_each_kind(names: list[bytes], number: int, rng: random.Random) -> bytes:
    """One of the keys, so that each kind has its turn: all columns are one."""
    kinds: dict[bytes, list[bytes]] = {}
    for name in sorted(names):
        kinds.setdefault(name.rpartition(b"}:")[2].partition(b":")[0], []).append(name)
    return rng.choice(list(kinds.values())[number % len(kinds)])


def outcome(stream: Stream, rounds: int) -> int:
    """The exit status of a worker that refuses, or that is stopped when it has released so many rounds."""
    worker = stream.start()
    wait_until(lambda: status_of(worker) is not None or stream.last_round() >= rounds, stream.logged)
    worker.terminate()
    return ended(worker)


def test_a_flipped_bit_of_the_state_is_refused_or_changes_nothing(stream: Stream) -> None:
    rng, rounds, refused = random.Random(7), BEGUN_WITH, set[bytes]()
    stream.feed(some_events(rounds, seed=7, users=9))
    assert stream.run(until_round=rounds) == 0
    for number in range(flips()):
        whole, published = stream.redis_keys(), stream.releases()
        with stream.redis() as redis:
            name = of_each_kind([each for each in whole if holds_bits(redis, each)], number, rng)
            flip(redis, name, rng)
        stream.feed(some_events(rng.randint(1, 3), seed=2000 + number, users=9))
        rounds = len(stream.events())
        status = outcome(stream, rounds)
        assert status in (0, 2), f"{name!r}:\n{stream.logged()}"
        if status == 2:
            refused.add(name)
            assert stream.releases() == published, f"{name!r} was published"
            stream.restore_keys(whole)
    assert stream.run(until_round=rounds) == 0
    stream.check_everything()
    kinds = {name.rpartition(b"}:")[2].partition(b":")[0] for name in refused}
    assert {b"meta", b"labels", b"pairs", b"counts", b"column", b"key"} <= kinds
