"""Barriers on real servers: who writes them, who else may write there, and what becomes of a topic that is lost."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread
from typing import Any

import msgspec
import pytest
from confluent_kafka import KafkaException, Producer
from kafka.errors import KafkaError

from stream_dp.barriers.key import barrier_key
from stream_dp.barriers.topic import check_barriers_topic, prepare_barriers, read_barriers
from stream_dp.barriers.writer import BarrierWriter, _Connection, last_of
from stream_dp.config.settings import Settings
from stream_dp.config.times import iso_timestamp
from stream_dp.engine.epoch import EpochRefused
from stream_dp.epochs.journal import EpochEntry, EpochJournal, EpochOpened, EpochStarted
from stream_dp.events.barrier_chain import PARTITION, BarrierChain, decode_barrier
from stream_dp.events.record import Record
from stream_dp.kafka import log
from stream_dp.kafka.consuming import consumer
from stream_dp.kafka.log import LogRefused
from stream_dp.releases.release import decode_release
from stream_dp.store.checkpoints import CheckpointStore
from stream_dp.store.ledger import Ledger
from stream_dp.verification.rebuild import rebuild, verify_epoch
from stream_dp.verification.verify import Verdict
from stream_dp.workers.events_reader import EventsReader, ends_of
from stream_dp.workers.resume import NewEpoch
from tests.system.sharded import sharded_stream
from tests.system.streams import AnyWorker, Stream, ended, event, small_stream, some_events, wait_until

TICKS = {"rounds": "ticks", "tick_seconds": 0.1}
KILLED, REFUSED = -signal.SIGKILL, 2

MakeStream = Callable[..., AbstractContextManager[Stream]]


@pytest.fixture
def make(kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path) -> MakeStream:
    def stream(**changed: Any) -> AbstractContextManager[Stream]:
        settings = {"checkpoint_rounds": 3, **TICKS, **changed}
        return small_stream(kafka, redis_url, topic_prefix, tmp_path, **settings)

    return stream


@pytest.fixture
def by_hand(make: MakeStream) -> Callable[..., AbstractContextManager[Stream]]:
    """Streams whose barriers the test writes."""
    return lambda **changed: make(write_barriers=False, **changed)


def times(stream: Stream, epoch: int = 1) -> dict[int, str]:
    """When each round of an epoch was closed, as its release says."""
    found = [decode_release(record.value or b"") for record in stream.releases()]
    return {release.round: release.ts for release in found if release.epoch == epoch}


def open_epoch(stream: Stream, **changed: Any) -> None:
    """Run a worker that counts nothing, so that there is an epoch, and a key, to write barriers for."""
    worker = stream.start(**changed)
    stream.wait_until_logged("epoch 1, round 0")
    worker.terminate()
    assert ended(worker) == 0


def test_rounds_hold_what_was_there_and_say_when_their_barrier_was_due(by_hand: MakeStream) -> None:
    with by_hand() as stream:
        open_epoch(stream)
        stream.feed([event("tea"), b"{", event("milk")])
        stream.close_rounds(10_000, 11_000)
        stream.feed([event("tea")])
        stream.close_rounds(60_000)
        stream.feed([event("tea")] * 3)  # the open round
        assert stream.run(until_round=3) == 0
        dues = (10_000, 11_000, 60_000)
        assert times(stream) == {number: iso_timestamp(due) for number, due in enumerate(dues, 1)}
        found = stream.checkpoint()
        assert dict(zip(found.state.labels, found.state.counts.tolist(), strict=True)) == {
            "tea": 2,
            "milk": 1,
        }
        assert (found.position.next_offset, stream.barrier().number) == (4, 3)
        stream.check_everything()


def test_what_others_write_among_the_barriers_changes_nothing(by_hand: MakeStream) -> None:
    with by_hand() as stream:
        open_epoch(stream)
        topic, first = stream.settings.barriers, stream.barrier()
        other = BarrierChain(barrier_key(bytes(32)), stream.settings.stream, first)
        twice = stream.chain()
        for number in range(1, 6):
            stream.feed(some_events(4, seed=number))
            foreign = [None, b"", b"{", b"\xff", event("tea"), other.encode(10**12, {PARTITION: 0})]
            stream.write(topic, [Record(0, 1, None, value) for value in foreign])
            slept = stream.chain().encode(1_000 * number + 1, {PARTITION: 4 * number - 2})
            stream.close_rounds(1_000 * number)
            stream.write(topic, [Record(0, 1, b"key", slept), Record(0, 1, None, slept)])
            stream.write(topic, [Record(0, 1, None, twice.encode(10**9, {PARTITION: 1}))])
        assert stream.run(until_round=5) == 0
        assert list(times(stream).values()) == [iso_timestamp(1_000 * number) for number in range(1, 6)]
        assert (stream.checkpoint().position.next_offset, stream.barrier().number) == (20, 5)
        stream.check_everything()


def test_a_writer_that_is_killed_is_started_again(make: MakeStream) -> None:
    with make() as stream:
        worker = stream.start()
        stream.feed(some_events(20, seed=1))
        stream.wait_until_round(2, worker)
        [writer] = stream.writers()
        os.kill(writer, signal.SIGKILL)
        stream.wait_until(lambda: stream.writers() not in ([], [writer]), worker)
        reached = max(times(stream))
        stream.wait_until_round(reached + 3, worker)
        assert "the process that writes barriers has ended (-9): starting it again" in stream.logged()
        worker.terminate()
        assert ended(worker) == 0
        assert stream.writers() == []
        assert stream.run(until_round=stream.uninterrupted()[0].round, write_barriers=False) == 0
        stream.check_everything()


def test_a_writer_dies_with_its_worker(make: MakeStream) -> None:
    with make() as stream:
        worker = stream.start()
        stream.wait_until_round(2, worker)
        assert len(stream.writers()) == 1
        worker.kill()
        assert ended(worker) == KILLED
        stream.wait_until_no_writer()


def test_a_writer_that_slept_writes_barriers_that_are_passed_over_until_it_has_looked(
    make: MakeStream,
) -> None:
    with make() as stream:
        worker = stream.start()
        stream.feed(some_events(20, seed=1))
        stream.wait_until_round(2, worker)
        [writer] = stream.writers()
        os.kill(writer, signal.SIGSTOP)
        try:
            state = Path(f"/proc/{writer}/stat")
            wait_until(lambda: state.read_text().rpartition(")")[2].split()[0] == "T", stream.logged)
            stream.feed(some_events(20, seed=2))
            following = stream.chain()
            due, records = following.last.due, len(stream.barrier_records())
            stream.close_rounds(due + 1, due + 2, due + 3)
            last = following.last.number + 3
            wait_until(lambda: stream.barrier().number >= last - 2, stream.logged)
        finally:
            os.kill(writer, signal.SIGCONT)

        def stale() -> bool:
            found = [decode_barrier(value) for _, value in stream.barrier_records()[records + 3 :]]
            return any(barrier is not None and barrier.n <= last for barrier in found)

        stream.wait_until(stale, worker)
        stream.wait_until(lambda: stream.barrier().number >= last + 3, worker)
        worker.terminate()
        assert ended(worker) == 0
        assert stream.run(until_round=stream.uninterrupted()[0].round, write_barriers=False) == 0
        stream.check_everything()
        dues = [each["due"] for each in map(vars_of, stream.barrier_records()) if each]
        assert len(dues) > stream.barrier().number  # some were passed over


def vars_of(record: tuple[int, bytes | None]) -> dict[str, int]:
    found = decode_barrier(record[1])
    return {"n": found.n, "due": found.due} if found is not None else {}


def test_two_workers_writers_make_one_chain(make: MakeStream) -> None:
    """The older worker is superseded while both of their writers write."""
    with make() as stream:
        older = stream.start()
        stream.feed(some_events(20, seed=1))
        stream.wait_until_round(2, older)
        newer = stream.start()
        reached = max(times(stream))
        stream.wait_until(lambda: max(times(stream)) >= reached + 5, newer)
        assert ended(older) == REFUSED
        newer.terminate()
        assert ended(newer) == 0
        assert stream.run(until_round=stream.uninterrupted()[0].round, write_barriers=False) == 0
        stream.check_everything()


def test_a_chain_is_found_from_the_end_of_its_topic(by_hand: MakeStream) -> None:
    with by_hand() as stream:
        open_epoch(stream)
        own, start = stream.settings, stream.barrier()
        values = []
        following = stream.chain()
        for number in range(1, 3_001):
            values.append(following.encode(number, {PARTITION: 0}))
            following.take(len(values) - 1, values[-1])
        stream.write(
            own.barriers, [Record(0, 1, None, value) for value in [*values, *values[2_900:2_950], b"x"]]
        )
        assert last_of(own, barrier_key(stream.key()), start) == following.last
        assert sum(1 for _ in read_barriers(own, 0, 3_051)) == 3_051


def test_epochs_go_on_with_the_next_barrier_and_idle_rounds_belong_to_one_of_them(
    by_hand: MakeStream,
) -> None:
    """Barriers without an event between them stand at the same offset, and close rounds of one epoch each."""
    with by_hand(horizon=3, at_horizon="roll") as stream:
        open_epoch(stream)
        for number in range(1, 11):
            if number % 3:
                stream.feed([event("tea")])
            stream.close_rounds(1_000 * number)
        worker = stream.start()
        stream.wait_until(lambda: times(stream, 4).keys() == {1}, worker)
        worker.terminate()
        assert ended(worker) == 0
        for epoch, dues in enumerate(((1, 2, 3), (4, 5, 6), (7, 8, 9), (10,)), 1):
            told = {number: iso_timestamp(1_000 * due) for number, due in enumerate(dues, 1)}
            assert times(stream, epoch) == told
        with stream.redis() as client:
            for epoch, rounds in enumerate((3, 3, 3, 1), 1):
                certificate = verify_epoch(stream.settings, client, epoch).certificate
                assert (certificate.verdict, certificate.rounds) == (Verdict.IDENTICAL, rounds)
            charges = Ledger(client, stream.settings.data_source).charges()
        assert [(each.first_offset, each.end_offset) for each in charges] == [
            (0, 2),
            (2, 4),
            (4, 6),
            (6, None),
        ]
        stream.check_state(stream.uninterrupted()[0])


@pytest.mark.parametrize("recount", [False, True])
def test_a_new_epoch_goes_on_with_the_next_barrier_or_with_the_first_again(
    by_hand: MakeStream, recount: bool
) -> None:
    with by_hand() as stream:
        open_epoch(stream)
        for number in (1, 2, 3):
            stream.feed([event("tea")])
            stream.close_rounds(1_000 * number)
        stream.close_rounds(4_000)
        stream.feed([event("milk")])  # the open round, which goes along
        assert stream.run(until_round=2, batch_rounds=2) == 0
        worker = stream.start(new_epoch=NewEpoch(recount))
        stream.wait_until_logged("epoch 2, round 0")
        stream.close_rounds(5_000)
        stream.close_rounds(6_000)
        dues = (1_000, 2_000, 3_000, 4_000, 5_000, 6_000) if recount else (5_000, 6_000)
        told = {number: iso_timestamp(due) for number, due in enumerate(dues, 1)}
        stream.wait_until(lambda: times(stream, 2) == told, worker)
        worker.terminate()
        assert ended(worker) == 0
        assert list(times(stream)) == [1, 2, 3, 4]
        with stream.redis() as client:
            for epoch, rounds in ((1, 4), (2, len(dues))):
                certificate = verify_epoch(stream.settings, client, epoch).certificate
                assert (certificate.verdict, certificate.rounds) == (Verdict.IDENTICAL, rounds)
            rebuilt = rebuild(stream.settings, client, replace=True)
        assert rebuilt.state.round == len(dues)
        assert rebuilt.position.barrier is not None
        assert rebuilt.position.barrier.number == 6
        stream.check_state(stream.uninterrupted()[0])


def test_a_lost_key_begins_another_chain_which_the_old_barriers_are_no_part_of(by_hand: MakeStream) -> None:
    with by_hand() as stream:
        open_epoch(stream)
        stream.feed([event("tea")])
        stream.close_rounds(1_000, 2_000)
        assert stream.run(until_round=2) == 0
        with stream.redis() as client:
            client.delete(f"stream_dp:{{{stream.settings.stream}}}:key")
        worker = stream.start(new_epoch=NewEpoch())
        stream.wait_until_logged("epoch 2, round 0")
        stream.feed([event("tea")])
        stream.close_rounds(500, 600)  # of a chain of its own: nothing holds it to the times of the old one
        stream.wait_until(lambda: list(times(stream, 2)) == [1, 2], worker)
        worker.terminate()
        assert ended(worker) == 0
        assert times(stream, 2) == {1: iso_timestamp(500), 2: iso_timestamp(600)}
        first, second = [opened.epoch.after_barrier for opened in EpochJournal(stream.settings).opened]
        assert first is not None
        assert second is not None
        assert first.chain != second.chain
        assert second.next_offset == 2
        with stream.redis() as client:
            assert verify_epoch(stream.settings, client).certificate.verdict is Verdict.IDENTICAL


@pytest.mark.parametrize("left", [0, 1])
def test_barriers_that_were_counted_and_are_gone_stop_the_stream_and_a_new_epoch_goes_on(
    by_hand: MakeStream, left: int
) -> None:
    with by_hand() as stream:
        open_epoch(stream)
        stream.feed([event("tea")])
        stream.close_rounds(1_000, 2_000)
        assert stream.run(until_round=2) == 0
        held = stream.barrier_records()
        kept = [Record(0, 1, None, value) for _, value in held[:left]]
        stream.rewrite(stream.settings.barriers, kept)
        told = stream.refusal()
        assert f"the topic '{stream.settings.barriers}' is not the one that was counted: barrier 2" in told
        worker = stream.start(new_epoch=NewEpoch())
        stream.wait_until_logged("epoch 2, round 0")
        stream.feed([event("tea")])
        stream.close_rounds(3_000)
        stream.wait_until(lambda: list(times(stream, 2)) == [1], worker)
        worker.terminate()
        assert ended(worker) == 0


def test_an_events_topic_that_was_made_anew_begins_another_chain_with_the_next_epoch(
    make: MakeStream,
) -> None:
    with make() as stream:
        stream.feed(some_events(20, seed=1))
        assert stream.run(until_round=3) == 0
        stream.rewrite(stream.settings.events, stream.events()[:3])
        assert "is not the log that was counted" in stream.refusal()
        worker = stream.start(new_epoch=NewEpoch())
        stream.feed(some_events(5, seed=2))
        stream.wait_until(lambda: len(times(stream, 2)) >= 3, worker)
        worker.terminate()
        assert ended(worker) == 0


def as_a_former_version_left_it(stream: Stream) -> None:
    """Its epoch ended rounds by records among the events, so it names no barrier."""
    own = stream.settings
    with stream.redis() as client:
        store = CheckpointStore(client, own.stream)
        store.take_over()
        found = store.load(stream.key())
        assert found is not None
        found.epoch = replace(found.epoch, after_barrier=None)
        found.position = replace(found.position, barrier=None)
        store.start_over(stream.key())
        store.commit(store.prepare(found))
    entries: list[EpochEntry] = [
        EpochOpened(found.epoch, found.key_check, found.releases_offset - found.state.round),
        EpochStarted(1),
    ]
    stream.rewrite(own.epochs, [Record(0, 1, None, msgspec.json.encode(entry)) for entry in entries])


@pytest.mark.same_on_any_broker("what is in Redis and in the epochs topic")
@pytest.mark.parametrize("has_stopped", [True, False])
def test_an_epoch_of_a_former_version_gives_way_to_a_new_one(by_hand: MakeStream, has_stopped: bool) -> None:
    """Its charge ends where it has counted to; where it may have released more than is known, it does not end."""
    with by_hand() as stream:
        open_epoch(stream)
        stream.feed([event("tea")] * 3)
        stream.close_rounds(1_000, 2_000)
        assert stream.run(until_round=2) == 0
        if not has_stopped:
            before = stream.redis_keys()
            stream.feed([event("tea")])
            stream.close_rounds(3_000)
            assert stream.run(until_round=3) == 0
            stream.restore_keys(before)
        as_a_former_version_left_it(stream)
        stream.feed([event("milk")])
        assert "was opened by a version that wrote ticks into the events topic" in stream.refusal()
        with stream.redis() as client, pytest.raises(EpochRefused, match="wrote ticks into the events topic"):
            verify_epoch(stream.settings, client)
        worker = stream.start(new_epoch=NewEpoch())
        stream.wait_until_logged("epoch 2, round 0")
        stream.close_rounds(9_000)
        stream.wait_until(lambda: list(times(stream, 2)) == [1], worker)
        worker.terminate()
        assert ended(worker) == 0
        with stream.redis() as client:
            first, second = Ledger(client, stream.settings.data_source).charges()
        assert (first.end_offset, second.first_offset) == ((3, 3) if has_stopped else (None, 5))
        assert stream.checkpoint().state.labels == (["milk"] if has_stopped else [])


def test_shards_take_the_rounds_that_barriers_end(
    kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path
) -> None:
    """Three shards release what one worker would have, after kills of the sequencer too."""
    ticks = {"rounds": "ticks", "write_barriers": False}
    with sharded_stream(kafka, redis_url, topic_prefix, tmp_path, 3, **ticks) as stream:
        sequencer, *others = [stream.run_in_role(role) for role in ("worker", "shard", "merge")]
        stream.wait_until_logged("epoch 1, round 0")
        for number in range(1, 11):
            stream.feed(some_events(12, seed=number))
            stream.close_rounds(1_000 * number, 1_000 * number + 500)
        stream.wait_until_round(20)
        sequencer.kill()
        assert ended(sequencer) == KILLED
        stream.feed(some_events(12, seed=11))
        stream.close_rounds(11_000, 12_000)
        others.append(stream.run_in_role("worker"))
        stream.wait_until_round(22)
        stream.wait_until_saved(22)
        for process in others:
            process.terminate()
            assert ended(process) == 0, stream.logged()
        assert list(times(stream).values())[-2:] == [iso_timestamp(11_000), iso_timestamp(12_000)]
        stream.check_everything()


def test_barriers_written_apart_end_rounds_while_no_worker_runs(by_hand: MakeStream, tmp_path: Path) -> None:
    """Two processes write them, one with the noise key and one with a key that can do nothing else."""
    with by_hand(tick_seconds=0.1) as stream:
        told = run_command(stream, "barriers")
        assert (told.returncode, "Redis has lost the noise key" in told.stderr) == (2, True), told
        open_epoch(stream)
        file = tmp_path / "barriers.key"
        assert run_command(stream, "key", "barriers", "--file", str(file)).returncode == 0
        assert bytes.fromhex(file.read_text()) == barrier_key(stream.key())
        command = ("-c", "from stream_dp.cli import main; main()", "barriers")
        apart = [stream.start_faust(*command), stream.start_faust(*command, "--key", f"file:{file}")]
        stream.feed(some_events(20, seed=1))
        wait_until(lambda: stream.chain().last.number >= 5, stream.logged)
        stream.feed(some_events(20, seed=2))
        worker = stream.start()
        stream.wait_until_round(8, worker)
        running: list[AnyWorker] = [*apart, worker]
        for process in running:
            process.terminate()
            assert ended(process) == 0, stream.logged()
        assert stream.writers() == []
        assert stream.run(until_round=stream.uninterrupted()[0].round) == 0
        stream.check_everything()


@pytest.mark.same_on_any_broker("the command refuses before it asks the broker")
def test_a_stream_whose_rounds_do_not_end_by_ticks_needs_no_barriers(by_hand: MakeStream) -> None:
    with by_hand(rounds="per-event") as stream:
        told = run_command(stream, "barriers")
        assert (told.returncode, "only rounds that end by ticks need barriers" in told.stderr) == (2, True)


def run_command(stream: Stream, *words: str) -> "subprocess.CompletedProcess[str]":
    own = stream.settings
    settings = {"stream": own.stream, "kafka": own.kafka, "redis": own.redis, "rounds": own.rounds}
    environment = {name: value for name, value in os.environ.items() if not name.startswith("STREAM_DP_")}
    environment |= {f"STREAM_DP_{name.upper()}": value for name, value in settings.items()}
    command = [sys.executable, "-c", "from stream_dp.cli import main; main()", *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)


def test_a_writer_refuses_topics_that_end_before_what_it_knows(by_hand: MakeStream) -> None:
    with by_hand() as stream:
        open_epoch(stream)
        stream.feed([event("tea")] * 3)
        writer = _Connection(stream.settings, barrier_key(stream.key()))
        with writer:
            writer.write(1_000)
            writer.write(2_000)
            assert (stream.chain().last.number, stream.chain().last.end, writer.last_due) == (2, 3, 2_000)
            barriers = [Record(0, 1, None, value) for _, value in stream.barrier_records()]
            stream.rewrite(stream.settings.barriers, [])
            with pytest.raises(LogRefused, match="is not the one that was counted: barrier 2"):
                refused_at_last(lambda: writer.write(3_000))
        stream.rewrite(stream.settings.barriers, barriers)
        with _Connection(stream.settings, barrier_key(stream.key())) as writer:
            writer.write(3_000)
            stream.rewrite(stream.settings.events, stream.events()[:2])
            with pytest.raises(
                LogRefused, match="ends at offset 2, before offset 3, up to which it was counted"
            ):
                refused_at_last(lambda: writer.write(4_000))


def refused_at_last(write: Callable[[], None]) -> None:
    """Write until it is refused: while a topic is made anew, the broker may only say that it is not there."""

    def written() -> bool:
        try:
            write()
        except KafkaError:
            return False
        return True

    wait_until(written, lambda: "the broker does not answer")


def test_aborted_records_and_the_marks_of_transactions_hold_no_round_up(by_hand: MakeStream) -> None:
    """Their offsets count and they do not; on a broker without transactions all of it is committed at once."""
    with by_hand() as stream:
        open_epoch(stream)
        stream.feed([event("tea")])
        in_transactions = fed_in_transactions(stream, [(event("milk"), True), (event("bad"), False)])
        stream.close_rounds(1_000)
        assert stream.run(until_round=1) == 0
        found = stream.checkpoint()
        assert found.state.labels == (["tea", "milk"] if in_transactions else ["tea", "milk", "bad"])
        assert found.position.next_offset == (5 if in_transactions else 3)
        stream.close_rounds(2_000)
        assert stream.run(until_round=2) == 0
        with stream.redis() as client:
            assert verify_epoch(stream.settings, client).certificate.verdict is Verdict.IDENTICAL


def fed_in_transactions(stream: Stream, values: list[tuple[bytes, bool]]) -> bool:
    """Append events, each in a transaction that is committed or not; false where the broker has none."""
    own = stream.settings
    producer = Producer({"bootstrap.servers": own.kafka, "transactional.id": own.stream, "log_level": 0})
    try:
        producer.init_transactions(60)
    except KafkaException:
        stream.feed([value for value, _ in values])
        return False
    for value, is_committed in values:
        producer.begin_transaction()
        producer.produce(own.events, value)
        producer.flush(60)
        (producer.commit_transaction if is_committed else producer.abort_transaction)(60)
    return True


def test_a_writer_whose_clock_is_ahead_of_kafkas_writes_nothing_and_says_so(by_hand: MakeStream) -> None:
    with by_hand() as stream:
        open_epoch(stream)
        writer = BarrierWriter(stream.settings, barrier_key(stream.key()), lambda: time.time() + 300)
        with pytest.raises(LogRefused, match="too far ahead of its own, and none was written"):
            writer.run(Event())
        assert stream.barrier_records() == []


def test_a_writer_whose_clock_is_behind_counts_on_from_the_last_barrier_and_says_so(
    by_hand: MakeStream, caplog: pytest.LogCaptureFixture
) -> None:
    with by_hand() as stream:
        open_epoch(stream)
        stream.close_rounds(time.time_ns() // 1_000_000)
        last, stopping = stream.chain().last, Event()
        writer = BarrierWriter(stream.settings, barrier_key(stream.key()), lambda: time.time() - 3600)
        thread = Thread(target=writer.run, args=(stopping,))
        thread.start()
        wait_until(lambda: stream.chain().last.number >= last.number + 3, stream.logged)
        stopping.set()
        thread.join()
        now = stream.chain().last
        step = round(1000 * stream.settings.tick_seconds)
        assert (last.due // step + now.number - last.number) * step == now.due
        assert caplog.text.count("set the clocks of all hosts that write barriers") == 1


def test_a_topic_that_takes_barriers_of_any_clock_is_told(kafka: str, topic_prefix: str) -> None:
    settings = Settings(stream=topic_prefix, kafka=kafka, rounds="ticks")
    limit = "message.timestamp.after.max.ms"
    log.create_topics(kafka, settings.barriers, configs=log.LOG | {limit: str(2**63 - 1)})
    [told] = check_barriers_topic(settings)
    assert told.endswith(f"--entity-name {settings.barriers} --add-config {limit}=60000")


def test_a_broker_that_knows_no_such_limit_gets_a_topic_without(
    kafka: str, topic_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(stream=topic_prefix, kafka=kafka, rounds="ticks")
    monkeypatch.setattr("stream_dp.barriers.topic.BOUNDED", {"no.such.setting": "1"})
    prepare_barriers(settings)
    assert settings.barriers in log.topics(kafka)


def test_barriers_that_wait_are_counted_for_operators(by_hand: MakeStream) -> None:
    with by_hand(batch_rounds=1) as stream:
        open_epoch(stream)
        stream.close_rounds(1_000, 2_000, 3_000, 4_000)
        assert asyncio.run(lags(stream)) == [3, 2, 1, 0]


async def lags(stream: Stream) -> list[int]:
    """How many barriers wait after each round that is read, one at a time."""
    settings, checkpoint = stream.settings, stream.checkpoint()
    reading = consumer(settings.kafka_address, auto_offset_reset="none")
    ends = ends_of(settings, checkpoint.epoch)
    reader = EventsReader(settings, reading, checkpoint.position, stream.chain(stream.barrier()), ends)
    await reading.start()
    try:
        reader.begin()
        found: list[int] = []
        while len(found) < 4:
            if await reader.read(1):
                found.append(reader.barrier_lag)
        return found
    finally:
        await reading.stop()
