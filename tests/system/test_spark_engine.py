"""A stream that an engine counts, turn by turn, on real servers: its bytes are those of one worker.

Tasks run in this process; tests/apache_spark runs them on Spark.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from stream_dp.config.days import days_of
from stream_dp.events.barrier_chain import Barrier
from stream_dp.events.record import Record
from stream_dp.kafka import log
from stream_dp.pipeline.counted_days import CountedDays
from stream_dp.releases.release import decode_release
from stream_dp.spark import engine as engine_module
from stream_dp.spark import engine_state, label_counts, user_tasks
from stream_dp.spark.barrier_wait import BarrierWait
from stream_dp.spark.engine import EngineEpoch
from stream_dp.spark.engine_state import StateFile
from stream_dp.spark.label_counts import LabelFiles, LabelsDamaged
from stream_dp.spark.tasks import close_process
from stream_dp.verification.rebuild import rebuild
from tests.system.epoch_steps import lose_state
from tests.system.example_events import some_events
from tests.system.partitioned import PARTITIONS
from tests.system.spark_engines import Engines, in_this_process
from tests.system.streams import Stream, ended, small_stream
from tests.system.test_user_days import FIRST, HOUR, ZONE, open_for_all_days
from tests.system.test_verify_commands import run
from tests.system.ticking import NO_MORE, TICKS, close_round_of_a_day, open_epoch
from tests.system.waiting import GIVE_UP_SECONDS

APART = 4
SPARK: dict[str, Any] = {"engine": "spark", "mechanism": "blt", "discover": f"every-{APART}", "at_least": 2}
SPARK |= {"epsilon": 20.0, "delta": 0.2, "horizon": 63, **TICKS, **NO_MORE}


class Died(BaseException):
    """Stands for a process that ends in the middle of a step."""


CELLS: dict[str, Any] = {"cap_share": True}
USERS = {"unit": "user", "items_per_user": 6, "items_per_event": 4, **CELLS}  # items_per_event is left out
DAYS = {**USERS, "unit": "user-day", "items_per_user": 2, "time_zone": ZONE}
UNITS = pytest.mark.parametrize("unit", [CELLS, USERS, DAYS], ids=["event", "user", "user-day"])
MOST_USERS = 40
MORNING, UNLED = days_of(ZONE).begins(FIRST), 1


@pytest.fixture
def few_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four, for tests of what is done to each alike: every bucket is a file for each turn."""
    for module in (engine_module, engine_state, label_counts, user_tasks):
        monkeypatch.setattr(module, "BUCKETS", 4)
    for module in (label_counts, user_tasks):
        monkeypatch.setattr(module, "BUCKET_BITS", 2)


@pytest.fixture
def unit() -> dict[str, Any]:
    """Who is protected: events, unless a test says otherwise."""
    return {}


@pytest.fixture
def stream(
    kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path, unit: dict[str, Any]
) -> Iterator[Stream]:
    settings = SPARK | unit
    with small_stream(kafka, redis_url, topic_prefix, tmp_path, partitions=PARTITIONS, **settings) as stream:
        (open_for_all_days if stream.settings.unit == "user-day" else open_epoch)(stream)
        yield stream


@pytest.fixture
def engines(stream: Stream, tmp_path: Path) -> Iterator[Engines]:
    folder = tmp_path / "spark"
    folder.mkdir(mode=0o700)
    yield Engines(stream, folder)
    close_process()


def feed(stream: Stream, first: int, last: int) -> None:
    """Events in all partitions, and a barrier behind each two dozen; every third one closes nothing."""
    unit = stream.settings.unit
    for number in range(first, last + 1):
        if number % 3:
            users = 0 if unit == "event" else MOST_USERS
            stream.spread(some_events(24, seed=number, users=users), PARTITIONS)
        if unit == "user-day":
            close_round_of_a_day(stream, MORNING + 5 * HOUR * number, *[UNLED] * (number % 2))
        else:
            stream.close_rounds(1_000 * number)


def released(stream: Stream, **changed: Any) -> None:
    """Let a worker release all that there is, and end."""
    last = stream.uninterrupted()[0].round
    assert stream.run(until_round=last, **changed) == 0


@pytest.mark.apache("roles")
@UNITS
def test_a_worker_releases_what_an_engine_counts(stream: Stream, engines: Engines) -> None:
    worker = stream.start()
    for first in range(1, 5 * APART, 5):
        feed(stream, first, first + 4)
        engines.work()
        stream.wait_until_round(stream.uninterrupted()[0].round, worker)
        if first == 11:  # another worker goes on from the checkpoint of this one
            stream.stop(worker)
            worker = stream.start()
    worker.terminate()
    assert ended(worker) == 0
    pipeline = stream.check_releases()
    shown = decode_release(stream.releases()[-1].value or b"")
    assert len({*(shown.found or [])}) > 1, "labels are found at several tests"
    assert min(shown.units or 0, shown.over_cap or 0) > 10
    hidden = set(pipeline.histogram.state().labels) - set(shown.labels)
    assert hidden
    assert not hidden & set(stream.checkpoint().state.labels), "the worker knows what is shown alone"
    certificate = json.loads(run(stream, "verify", "--json").stdout)
    assert certificate["verdict"] == "identical"


def steps() -> list[tuple[Any, str]]:
    """What an engine does in a turn, by owner and name."""
    names = "_counted", "_rounds", "_tested", "_joined", "_send"
    tasks: list[tuple[Any, str]] = [(EngineEpoch, name) for name in names]
    files = [(LabelFiles, "write"), (LabelFiles, "write_texts")]
    return [*tasks, (Engines, "hand_on"), *files, (StateFile, "write"), (StateFile, "remove_others")]


@pytest.mark.usefixtures("few_buckets")
@UNITS
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_whatever_an_engine_dies_of_the_next_one_counts_the_same(
    stream: Stream, engines: Engines, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    monkeypatch.setattr(engine_module, "MOST_FILES", 3)
    number, reached = 0, set[str]()
    for owner, name in steps():
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, _dying(getattr(owner, name), after))
            for _ in range(2 * APART):
                number += 1
                stream.spread([b"broken"], PARTITIONS)  # so that every turn has a letter
                feed(stream, number, number)
                try:
                    engines.work()
                except Died:
                    reached.add(name)
                    break
        engines.begin_again()
    assert reached == {name for _, name in steps()}
    engines.work()
    released(stream)
    stream.check_releases()
    letters = {(each.partition, each.offset): each for each in engines.letters}
    expected = stream.uninterrupted()[1].dead_letters
    assert letters == {(each.partition, each.offset): each for each in expected}
    assert len(engines.letters) > len(letters), "what is written twice is the same, and says where it stands"
    assert all(each == letters[each.partition, each.offset] for each in engines.letters)


def _dying(step: Callable[..., Any], after: bool) -> Callable[..., Any]:
    def dies(*given: Any) -> Any:
        if after:
            step(*given)
        raise Died

    return dies


@pytest.mark.usefixtures("few_buckets")
@pytest.mark.parametrize("unit", [CELLS, USERS], ids=["event", "user"])
def test_tasks_that_outlive_their_engine_change_nothing(stream: Stream, engines: Engines) -> None:
    """Some die on three cores, and tasks go on until the next one, on two, has counted the same rounds."""
    left, files = list[Any](), set[int]()

    def dies(tasks: Any, number: int) -> Iterator[bytes]:
        left[:] = [tasks]
        yield from in_this_process(tasks, number)
        raise Died

    def goes_on(tasks: Any, number: int) -> Iterator[bytes]:
        yield from in_this_process(tasks, number)
        if left:
            list(in_this_process(left.pop(), 3))

    feed(stream, 1, APART)
    for engines.run, engines.cores in [(dies, 3)] * 3:
        with pytest.raises(Died):
            engines.work()
        engines.begin_again()
        files.add(len(engines.files))
    assert len(files) == 1, "what a try has left is removed by the next one"
    engines.run, engines.cores = goes_on, 2
    engines.work()
    assert not left
    released(stream)
    stream.check_releases()


def test_an_engine_waits_for_the_next_barrier_at_the_broker(stream: Stream, engines: Engines) -> None:
    feed(stream, 1, 1)
    end = log.offsets(stream.settings.kafka_address, stream.settings.barriers).end
    with closing(BarrierWait(stream.settings)) as waits, ThreadPoolExecutor(1) as pool:
        waits.wait(end - 1, 100_000)
        waits.wait(end, 10)
        answer = pool.submit(waits.wait, end, 100_000)
        assert not answer.done()
        feed(stream, 2, 2)
        answer.result(GIVE_UP_SECONDS)


@pytest.mark.usefixtures("few_buckets")
@UNITS
def test_turns_may_be_cut_anywhere(
    stream: Stream, engines: Engines, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    feed(stream, 1, 3 * APART + 1)
    engines.work()
    monkeypatch.setattr(engine_module, "MOST_ROUNDS", 1)
    (tmp_path / "other").mkdir(mode=0o700)
    Engines(stream, tmp_path / "other").work()
    kafka, topic = stream.settings.kafka_address, stream.settings.counts
    records = [each.value for each in log.read(kafka, topic, 0, log.offsets(kafka, topic).end)]
    assert records[: len(records) // 2] == records[len(records) // 2 :]
    released(stream)  # what comes twice is passed over
    stream.check_releases()


@pytest.mark.usefixtures("few_buckets")
@pytest.mark.parametrize("unit", [USERS], ids=["user"])
def test_the_order_in_which_users_are_bounded_shows(
    stream: Stream, engines: Engines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broken control: partition by partition, and not round by round."""

    def by_partition(turns: NDArray[np.uint64]) -> NDArray[np.int64]:
        return np.argsort(turns << np.uint64(32) | turns >> np.uint64(32), kind="stable")

    monkeypatch.setattr(user_tasks, "in_order", by_partition)
    feed(stream, 1, 3 * APART)
    engines.work()
    released(stream)
    with pytest.raises(AssertionError, match="differs"):
        stream.check_releases()


def _one_day(epoch: EngineEpoch, barriers: Sequence[Barrier], day: int) -> Any:
    return _COUNTED(epoch, barriers, epoch.epoch.day_of(epoch.state.closed))


_COUNTED = EngineEpoch._counted


@pytest.mark.usefixtures("few_buckets")
@pytest.mark.parametrize("unit", [DAYS], ids=["user-day"])
@pytest.mark.parametrize(
    ("owner", "name", "broken"),
    [(EngineEpoch, "_counted", _one_day), (CountedDays, "counts_part", lambda *_: True)],
    ids=["users go on over midnight", "a partition without a leader counts all the same"],
)
def test_what_days_leave_out_shows(
    stream: Stream, engines: Engines, monkeypatch: pytest.MonkeyPatch, owner: type, name: str, broken: Any
) -> None:
    """Broken controls."""
    feed(stream, 1, 5 * APART)
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, broken)
        engines.work()
    assert stream.uninterrupted()[0].round < 5 * APART, "some rounds count nowhere"
    released(stream)
    with pytest.raises(AssertionError, match="differs"):
        stream.check_releases()


def test_an_engine_without_its_folder_counts_the_epoch_again(stream: Stream, engines: Engines) -> None:
    feed(stream, 1, APART + 2)
    engines.work()
    released(stream)
    for file in engines.files:
        file.unlink()
    engines.begin_again()
    feed(stream, APART + 3, 2 * APART + 3)
    engines.work()
    released(stream)
    stream.check_releases()


@pytest.mark.usefixtures("few_buckets")
def test_a_changed_file_is_refused(stream: Stream, engines: Engines) -> None:
    feed(stream, 1, APART + 2)
    engines.work()
    of_a_test = {
        f"test-1.{bucket}" for bucket in range(1, label_counts.BUCKETS - 1)
    }  # all are written and read alike
    contents = {file: file.read_bytes() for file in engines.files if file.name not in of_a_test}
    assert {file.name.partition("-")[0] for file in contents} == {"shown", "state", "test", "turn"}
    feed(stream, APART + 3, 2 * APART)
    for file, content in contents.items():
        flipped = bytearray(content)
        flipped[-1] ^= 1
        for changed in (bytes(flipped), content[:-1], None):
            if changed is None:
                file.unlink()
            else:
                file.write_bytes(changed)
                file.chmod(0o600)  # it may have been removed before
            engines.begin_again()
            if changed is None and file.name == "state":
                continue  # without it the epoch is counted again
            with pytest.raises(LabelsDamaged, match="stop the engine, remove the folder"):
                engines.work()
        file.write_bytes(content)
        file.chmod(0o600)
    engines.begin_again()
    engines.work()
    released(stream)
    stream.check_releases()


def test_a_stream_moves_to_an_engine_and_back_without_a_new_epoch(stream: Stream, engines: Engines) -> None:
    feed(stream, 1, APART + 1)
    released(stream, engine="worker")
    engines.work()
    feed(stream, APART + 2, 3 * APART)
    engines.work()
    released(stream)
    assert 'set engine = "spark" again' in stream.refusal(engine="worker")
    with stream.redis() as redis:
        assert rebuild(stream.settings, redis, replace=True).state.round == 3 * APART
    feed(stream, 3 * APART + 1, 4 * APART + 1)
    released(stream, engine="worker")
    stream.check_everything()
    assert stream.checkpoint().epoch.number == 1


def test_a_worker_that_lost_its_state_goes_on_after_a_rebuild(stream: Stream, engines: Engines) -> None:
    feed(stream, 1, APART + 1)
    engines.work()
    released(stream)
    lose_state(stream)
    with stream.redis() as redis:
        rebuild(stream.settings, redis)
    feed(stream, APART + 2, 2 * APART + 1)
    engines.work()
    released(stream)
    stream.check_releases()


@pytest.mark.usefixtures("few_buckets")
@pytest.mark.parametrize("unit", [{"horizon": 15}], ids=["event"])
def test_rolling_epochs_carry_labels_on(stream: Stream, engines: Engines) -> None:
    worker = stream.start(at_horizon="roll")
    feed(stream, 1, 22)
    engines.work()
    stream.wait_until_logged("epoch 2, round 0")
    engines.work()
    stream.wait_until(lambda: decode_release(stream.releases()[-1].value or b"").round == 7, worker)
    worker.terminate()
    assert ended(worker) == 0
    _, expected = stream.uninterrupted()
    found = [each.value or b"" for each in stream.releases()]
    second = [value for value in found if decode_release(value).epoch == 2]
    assert second == [each.value for each in expected.releases]
    assert 0 in (decode_release(second[0]).found or []), "it knows what the first epoch has shown"


def test_records_that_no_engine_of_the_stream_wrote_are_refused(stream: Stream, engines: Engines) -> None:
    feed(stream, 1, 2)
    engines.work()
    kafka, topic = stream.settings.kafka_address, stream.settings.counts
    [first, _] = log.read(kafka, topic, 0, 2)
    flipped = bytearray(first.value or b"")
    flipped[len(flipped) // 2] ^= 1
    stream.rewrite(topic, [Record(0, 1_000, None, bytes(flipped))])
    assert "with this stream's noise key" in stream.refusal()
    stream.rewrite(topic, [Record(0, 1_000, None, b"no counted round")])
    assert "is not a counted round of this version" in stream.refusal()
