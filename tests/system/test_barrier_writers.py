"""Who writes barriers: one that is killed or slept, one whose clock is off, two at once, one apart from the worker."""

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread

import pytest
from kafka.errors import KafkaError

from stream_dp.barriers.key import barrier_key
from stream_dp.barriers.writer import BarrierWriter, _Connection
from stream_dp.events.barrier_chain import decode_barrier
from stream_dp.events.record import Record
from stream_dp.kafka.log import LogRefused
from tests.system import forked_program
from tests.system.example_events import event, some_events
from tests.system.streams import AnyWorker, Stream, ended
from tests.system.ticking import MakeStream, open_epoch, times, vars_of
from tests.system.waiting import wait_until

KILLED, REFUSED = -signal.SIGKILL, 2


def test_a_writer_that_is_killed_is_started_again(ticking: MakeStream) -> None:
    with ticking() as stream:
        worker = stream.start()
        stream.feed(some_events(20, seed=1))
        stream.wait_until_round(2, worker)
        [writer] = stream.writers()
        os.kill(writer, signal.SIGKILL)
        stream.wait_until(lambda: stream.writers() not in ([], [writer]), worker)
        reached = max(times(stream))
        stream.wait_until_round(reached + 3, worker)
        assert "the process that writes barriers has ended (-9): starting it again" in stream.logged()
        stream.stop(worker)
        assert stream.writers() == []
        assert stream.run(until_round=stream.uninterrupted()[0].round, write_barriers=False) == 0
        stream.check_everything()


def test_a_writer_dies_with_its_worker(ticking: MakeStream) -> None:
    with ticking() as stream:
        worker = stream.start()
        stream.wait_until_round(2, worker)
        assert len(stream.writers()) == 1
        worker.kill()
        assert ended(worker) == KILLED
        stream.wait_until_no_writer()


def test_a_writer_that_slept_writes_barriers_that_are_passed_over_until_it_has_looked(
    ticking: MakeStream,
) -> None:
    with ticking() as stream:
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
        stream.stop(worker)
        assert stream.run(until_round=stream.uninterrupted()[0].round, write_barriers=False) == 0
        stream.check_everything()
        dues = [each["due"] for each in map(vars_of, stream.barrier_records()) if each]
        assert len(dues) > stream.barrier().number  # some were passed over


@pytest.mark.apache("roles")
def test_two_workers_writers_make_one_chain(ticking: MakeStream) -> None:
    """The older worker is superseded while both of their writers write."""
    with ticking() as stream:
        older = stream.start()
        stream.feed(some_events(20, seed=1))
        stream.wait_until_round(2, older)
        newer = stream.start()
        reached = max(times(stream))
        stream.wait_until(lambda: max(times(stream)) >= reached + 5, newer)
        assert ended(older) == REFUSED
        stream.stop(newer)
        assert stream.run(until_round=stream.uninterrupted()[0].round, write_barriers=False) == 0
        stream.check_everything()


def test_barriers_written_apart_end_rounds_while_no_worker_runs(by_hand: MakeStream, tmp_path: Path) -> None:
    """Two processes write them, one with the noise key and one with a key that can do nothing else."""
    with by_hand(tick_seconds=0.1) as stream:
        status, told = run_command(stream, "barriers")
        assert (status, "Redis has lost the noise key" in told) == (2, True), told
        open_epoch(stream)
        file = tmp_path / "barriers.key"
        status, told = run_command(stream, "key", "barriers", "--file", str(file))
        assert status == 0, told
        assert bytes.fromhex(file.read_text()) == barrier_key(stream.key())
        apart = [stream.start_command("barriers"), stream.start_command("barriers", "--key", f"file:{file}")]
        stream.feed(some_events(20, seed=1))
        wait_until(lambda: stream.chain().last.number >= 5, stream.logged)
        stream.feed(some_events(20, seed=2))
        worker = stream.start()
        stream.wait_until_round(8, worker)
        running: list[AnyWorker] = [*apart, worker]
        for process in running:
            stream.stop(process)
        assert stream.writers() == []
        assert stream.run(until_round=stream.uninterrupted()[0].round) == 0
        stream.check_everything()


@pytest.mark.parametrize("kind", ["per-event", "every-3"])
def test_barriers_of_several_partitions_are_written_apart_too(spread: MakeStream, kind: str) -> None:
    with spread(rounds=kind, tick_seconds=0.1) as stream:
        open_epoch(stream)
        _, told = run_command(stream, "check", "--rights", "--json")
        checked = json.loads(told)
        assert checked["rights"]["barriers"], "who may write them is listed"
        assert stream.settings.barriers in json.dumps(checked["checks"]), "and whether their topic can serve"
        apart = stream.start_command("barriers")
        stream.spread(some_events(24, seed=1), 3)
        worker = stream.start()
        stream.wait_until_round({"per-event": 24, "every-3": 8}[kind], worker)
        for process in (apart, worker):
            stream.stop(process)
        stream.check_everything()


def test_a_stream_whose_rounds_do_not_end_by_ticks_needs_no_barriers(by_hand: MakeStream) -> None:
    with by_hand(rounds="per-event") as stream:
        status, told = run_command(stream, "barriers")
        assert (status, "only rounds that end by ticks need barriers" in told) == (2, True), told


def run_command(stream: Stream, *words: str) -> tuple[int, str]:
    """The status of a command that knows the stream's place, and what it prints."""
    own = stream.settings
    settings = {"stream": own.stream, "kafka": own.kafka, "redis": own.redis, "rounds": own.rounds}
    told = stream.folder / "told"
    told.unlink(missing_ok=True)
    process = forked_program.start(settings, told, *words)
    stream.workers.append(process)
    return ended(process), told.read_text()


@pytest.mark.apache("offsets")
def test_a_writer_refuses_topics_that_end_before_what_it_knows(by_hand: MakeStream) -> None:
    with by_hand() as stream:
        open_epoch(stream)
        stream.feed([event("tea")] * 3)
        writer = _Connection(stream.settings, barrier_key(stream.key()), lambda: 0)
        with writer:
            writer.write(1_000)
            writer.write(2_000)
            assert (stream.chain().last.number, stream.chain().last.end, writer.last_due) == (2, 3, 2_000)
            barriers = [Record(0, 1, None, value) for _, value in stream.barrier_records()]
            stream.rewrite(stream.settings.barriers, [])
            with pytest.raises(LogRefused, match="is not the one that was counted: barrier 2"):
                refused_at_last(lambda: writer.write(3_000))
        stream.rewrite(stream.settings.barriers, barriers)
        with _Connection(stream.settings, barrier_key(stream.key()), lambda: 0) as writer:
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


@pytest.mark.apache("times")
def test_a_writer_whose_clock_is_ahead_of_kafkas_writes_nothing_and_says_so(by_hand: MakeStream) -> None:
    with by_hand() as stream:
        open_epoch(stream)
        writer = BarrierWriter(stream.settings, barrier_key(stream.key()), lambda: time.time() + 300)
        with pytest.raises(LogRefused, match="too far ahead of its own, and none was written"):
            writer.run(Event())
        assert stream.barrier_records() == []


@pytest.mark.apache("times")
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
        assert caplog.text.count("correct the clocks of all hosts that write barriers") == 1
