"""Nothing that Redis holds is believed: what is not as it was written is refused, and the sentence says what next."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import combinations
from random import Random
from typing import Any

import msgspec
import pytest
from redis import Redis

from stream_dp.config.settings import Settings
from stream_dp.counters import MECHANISMS
from stream_dp.engine.epoch import Epoch, EpochRefused
from stream_dp.engine.label_texts import LabelTexts
from stream_dp.events.record import Record
from stream_dp.pipeline.pipeline import Pipeline
from stream_dp.privacy.keyed_noise import key_check
from stream_dp.store.checkpoint_records import pack
from stream_dp.store.checkpoints import Checkpoint, CheckpointStore, Closing, StateDamaged
from stream_dp.store.noise_key import NoKey, noise_key
from stream_dp.store.seals import Seals
from tests import redis_contents
from tests.store.test_checkpoints import KEY
from tests.system.example_events import some_events

PREFIX = "stream_dp:{s}:"
KINDS: dict[str, dict[str, Any]] = {
    **{name: {"mechanism": name, "discover": "every-round"} for name in MECHANISMS},
    "found at tests": {"mechanism": "blt", "discover": "every-9"},
    "users": {"unit": "user", "items_per_user": 6},
}
WAYS_OUT = r"`stream-dp rebuild --replace`|--new-epoch"


@cache
def epoch_of(kind: str) -> Epoch:
    return replace(
        Epoch.open(
            Settings(
                stream="s", epsilon=30.0, delta=1e-2, horizon=1023, **{"mechanism": "binary", **KINDS[kind]}
            ),
            1,
            0,
        ),
        nonce=KEY[:16],
    )


def pipeline_of(kind: str) -> Pipeline:
    return Pipeline(epoch_of(kind), KEY, "s.events")


def some_records(kind: str) -> list[Record]:
    users = 10 if kind == "users" else 0
    return [Record(n, n, None, value) for n, value in enumerate(some_events(60, seed=3, users=users))]


def save(redis: Redis, pipeline: Pipeline) -> None:
    store = CheckpointStore(redis, "s")
    store.take_over()
    store.load(KEY)
    place = pipeline.epoch, pipeline.state(), pipeline.position, 7
    store.commit(store.prepare(Checkpoint(*place, key_check(KEY), pipeline.intake.pairs)))


def stopped(redis: Redis, kind: str) -> Pipeline:
    """A stream that has stopped, with everything in Redis that there can be."""
    pipeline = pipeline_of(kind)
    redis.set(PREFIX + "key", KEY)
    for end in (20, 45):
        pipeline.process(some_records(kind)[:end])
        save(redis, pipeline)
    store = CheckpointStore(redis, "s")
    store.take_over()
    store.mark_closing(Closing(pipeline.epoch.nonce, 45), KEY)
    return pipeline


def start(redis: Redis) -> Checkpoint:
    """Read all that a start reads."""
    store = CheckpointStore(redis, "s")
    key = noise_key("redis", redis, "s", may_create=False)
    assert store.closing(key) is not None, "there is no such key any more"
    checkpoint = store.load(key)
    assert checkpoint is not None, "there is no such key any more"
    return checkpoint


def check_refused(redis: Redis) -> None:
    with pytest.raises((StateDamaged, EpochRefused, NoKey), match=WAYS_OUT):
        start(redis)


def contents(redis: Redis) -> dict[str, bytes]:
    return {name.decode(): dumped for name, dumped in redis_contents.dumps(redis).items()}


def put(redis: Redis, dumped: dict[str, bytes], name: str, value: str | None = None) -> None:
    """What was dumped of `value` (default: of itself) at `name`."""
    redis.restore(name, 0, dumped[value or name], replace=True)


def believed(redis: Redis) -> list[str]:
    return sorted(contents(redis).keys() - {PREFIX + "fence"})


def with_a_bit_flipped(redis: Redis, name: str, random: Random) -> Iterator[None]:
    """Give way while a bit of the key's value is another one: of the first byte, the last one and one between."""
    if redis.type(name) == b"string":
        bits = 8 * redis.strlen(name)
        for bit in {random.randrange(8), random.randrange(bits), bits - 1 - random.randrange(8)}:
            redis.setbit(name, bit, 1 - redis.getbit(name, bit))
            yield
            redis.setbit(name, bit, 1 - redis.getbit(name, bit))
        return
    for place in {0, random.randrange(redis.llen(name)), redis.llen(name) - 1}:
        element = redis_contents.element(redis, name, place)
        bit = random.randrange(8 * len(element))
        flipped = (int.from_bytes(element, "little") ^ 1 << bit).to_bytes(len(element), "little")
        redis.execute_command("LSET", name, place, flipped)
        yield
        redis.execute_command("LSET", name, place, element)


@pytest.mark.parametrize("kind", KINDS)
def test_a_flipped_bit_in_any_key_is_refused(redis: Redis, kind: str) -> None:
    """The fence is the one key that no start reads."""
    stopped(redis, kind)
    before, random = contents(redis), Random(kind)
    names = believed(redis)
    assert {PREFIX + name for name in ("key", "closing", "meta", "labels", "counts")} < set(names)
    assert (PREFIX + "pairs" in names) == (kind == "users")
    assert any(":shown:" in name for name in names) == (kind == "found at tests")
    for name in names:
        for _ in with_a_bit_flipped(redis, name, random):
            check_refused(redis)
    assert contents(redis) == before
    start(redis)


@pytest.mark.parametrize("kind", ["binary", "found at tests", "users"])
def test_a_value_that_is_gone_or_cut_off_or_of_another_type_is_refused(redis: Redis, kind: str) -> None:
    stopped(redis, kind)
    before = contents(redis)
    for name in believed(redis):
        is_list = redis.type(name) == b"list"
        redis.delete(name)
        if name.endswith(("meta", "closing")):
            with pytest.raises(AssertionError, match="no such key"):  # resume.py decides what that means
                start(redis)
        else:
            check_refused(redis)
        redis.set(name, "text") if is_list else redis.rpush(name, "text")
        check_refused(redis)
        put(redis, before, name)
        if is_list:
            redis.rpop(name)
        else:
            redis.set(name, redis.getrange(name, 0, -2))
        check_refused(redis)
        put(redis, before, name)
        redis.rpush(name, b"x" * 24) if is_list else redis.append(name, b"\0")
        check_refused(redis)
        put(redis, before, name)
    assert start(redis).state.round == 45


@pytest.mark.parametrize("kind", KINDS)
def test_no_column_can_take_the_place_of_another(redis: Redis, kind: str) -> None:
    stopped(redis, kind)
    before = contents(redis)
    columns = [name for name in believed(redis) if ":column:" in name or ":shown:" in name]
    swapped = [(one, two) for one, two in combinations(columns, 2) if redis.get(one) != redis.get(two)]
    assert swapped
    for one, two in swapped:
        put(redis, before, one, two)
        put(redis, before, two, one)
        check_refused(redis)
        put(redis, before, one)
        put(redis, before, two)
    start(redis)


@pytest.mark.parametrize("kind", KINDS)
def test_no_key_can_be_put_back_to_an_older_value(redis: Redis, kind: str) -> None:
    pipeline = stopped(redis, kind)
    older = contents(redis)
    pipeline.process(some_records(kind)[:60])
    save(redis, pipeline)
    before = contents(redis)
    changed = [name for name in believed(redis) if name in older and older[name] != before[name]]
    assert {PREFIX + name for name in ("meta", "counts")} <= set(changed)
    for name in changed:
        put(redis, older, name)
        check_refused(redis)
        put(redis, before, name)
    assert start(redis).state.round == 60


def test_nothing_of_another_stream_or_epoch_or_key_is_taken(redis: Redis) -> None:
    """Not even a whole checkpoint, where it was written for another place."""
    pipeline = stopped(redis, "binary")
    before = contents(redis)
    for name in believed(redis):
        if not name.endswith("key"):
            redis.rename(name, name.replace("{s}", "{t}"))
    with pytest.raises(StateDamaged, match="meta"):
        CheckpointStore(redis, "t").load(KEY)
    redis.flushall()
    for name in before:
        put(redis, before, name)
    with pytest.raises(EpochRefused, match="not the one that epoch 1 was opened with"):
        CheckpointStore(redis, "s").load(bytes(32))
    other = Pipeline(replace(pipeline.epoch, nonce=bytes(16)), KEY, "s.events")
    other.process(some_records("binary")[:45])
    redis.delete(PREFIX + "meta", PREFIX + "labels")
    save(redis, other)
    assert redis_contents.elements(redis, PREFIX + "labels") == [packed(pipeline.state().labels)]
    put(redis, before, PREFIX + "counts")  # the same counts of the same labels, in the same round
    start(redis)
    noise = next(name for name in believed(redis) if ":noise:" in name)
    put(redis, before, noise)
    check_refused(redis)


def packed(labels: Sequence[str]) -> bytes:
    return LabelTexts(labels).code().tobytes()


def test_labels_can_neither_be_renamed_nor_change_places_nor_run_into_each_other(redis: Redis) -> None:
    labels = [*stopped(redis, "binary").state().labels]
    name = PREFIX + "labels"
    one, two, *rest = labels
    for changed in (
        [two, one, *rest],
        [*labels[::-1]],
        [one + two[:1], two[1:], *rest],
        [one[:-1] + "X", two, *rest],
        [*labels, "one more"],
        [one + two, "", *rest],
    ):
        redis.delete(name)
        redis.rpush(name, packed(changed))
        check_refused(redis)
    redis.delete(name)
    redis.rpush(name, packed(labels))
    start(redis)


@pytest.mark.parametrize("other", [3, 5, 99])
def test_a_meta_record_of_another_format_is_not_taken_for_one_of_this(redis: Redis, other: int) -> None:
    """Nor one that says that it has no digests."""
    stopped(redis, "binary")
    record = msgspec.msgpack.decode(redis_contents.value(redis, PREFIX + "meta"))
    redis.set(PREFIX + "meta", msgspec.msgpack.encode({**record, "format": other}))
    check_refused(redis)


def _with(**changed: Any) -> Callable[[dict[str, Any]], None]:
    return lambda meta: meta.update(changed)


def _in_column(**changed: Any) -> Callable[[dict[str, Any]], None]:
    return lambda meta: meta["columns"][0].update(changed)


ODD: dict[str, Callable[[dict[str, Any]], None]] = {
    "a negative round": _with(round=-1),
    "a negative number of labels": _with(labels=-1),
    "too many labels": _with(labels=2**40),
    "too many bytes of labels": _with(label_bytes=2**40),
    "too few bytes of labels": _with(label_bytes=1),
    "a number where a text belongs": _with(key_check=7),
    "a history of another length": _with(history=bytes(31)),
    "a tweak that is too long": _with(tweaks={32: bytes(33)}),
    "a tweak that is no bytes": _with(tweaks={32: 1}),
    "tweaks that are a list": _with(tweaks=[]),
    "no epoch": _with(epoch=None),
    "an epoch of another mechanism": lambda meta: meta["epoch"]["mechanism"].update(type="none"),
    "cells that are objects": _in_column(dtype="|O"),
    "cells of another width": _in_column(dtype="<f4"),
    "cells of a great width": _in_column(dtype="V1000000000"),
    "more cells than labels": _in_column(rows=2**40),
    "a negative number of cells": _in_column(rows=-1),
    "a version that is none": _in_column(version=-1),
    "a column that is another key": _in_column(name="../../fence"),
    "a column twice": lambda meta: meta["columns"].append(meta["columns"][0]),
    "too few pairs": _with(pairs=1),
}


def test_nothing_odd_is_taken_over_though_it_is_sealed(redis: Redis) -> None:
    """As a program with a defect would write it, which has the key."""
    stopped(redis, "binary")
    name, seals = PREFIX + "meta", Seals(KEY, "s")
    sealed = msgspec.msgpack.decode(redis_contents.value(redis, name))
    for change in (lambda _: None, *ODD.values()):
        meta = msgspec.msgpack.decode(sealed["body"], strict=False)
        change(meta)
        redis.set(name, pack("meta", msgspec.msgpack.encode(meta), seals, sealed["digests"]))
        if meta == msgspec.msgpack.decode(sealed["body"], strict=False):
            start(redis)
        else:
            check_refused(redis)
