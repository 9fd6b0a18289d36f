"""The running histogram end to end: events in a topic, the Faust app, releases in another topic, state in Redis.

The expected values come from tests/naive.py, which shares no code with the package: the keyed bits, the cumulative
tables and the thresholds are its own.  A naive run over all labels in all rounds would take many minutes, so here some
labels are followed through all rounds, and all labels are checked in some rounds and at the end.
"""

import json
import random
import urllib.error
import urllib.request
from bisect import bisect_right
from collections import Counter
from functools import cache
from multiprocessing.process import BaseProcess
from typing import Any

import msgspec
import pytest

from stream_dp.counters.discrete import DiscreteCounter
from stream_dp.kafka import log
from stream_dp.releases.release import Release, decode_release
from stream_dp.verification.rebuild import verify_epoch
from tests import naive
from tests.apache_kafka.server import free_ports
from tests.docs.schemas import schema
from tests.nodes import live_nodes
from tests.real_events import real_records
from tests.system import forked_program
from tests.system.example_events import event, some_events
from tests.system.streams import Stream, as_values, ended
from tests.system.ticking import MakeStream
from tests.system.waiting import GIVE_UP_SECONDS

HORIZON = 32_767
ITEMS_PER_EVENT = 4
EVENTS = 6_000


class SlowReader:
    """What a stream must have released, one label and one node at a time, from the key and the events alone."""

    def __init__(
        self, key: bytes, stream: str, nonce: bytes, sigma_squared: float, events: list[bytes]
    ) -> None:
        self.cells = naive.Cells(key, stream, nonce)
        self.least, self.table = naive.cumulative(sigma_squared)
        self.admitted = [
            naive.first_distinct(json.loads(value)["items"], ITEMS_PER_EVENT) for value in events
        ]
        history, self.tweaks = bytes(32), [0]
        for round_number, items in enumerate(self.admitted, 1):
            history = self.cells.next_history(history, round_number, items)
            self.tweaks.append(self.cells.tweak(round_number, 0, history))
        self.rounds: dict[str, list[int]] = {}
        for round_number, items in enumerate(self.admitted, 1):
            for item in items:
                self.rounds.setdefault(item, []).append(round_number)
        self.identities = {label: self.cells.label_id(label) for label in self.rounds}

    def count(self, label: str, round_number: int) -> int:
        return bisect_right(self.rounds[label], round_number)

    def node(self, label: str, node: int) -> int:
        """The noise of one node, by the formats of tests/naive.py but a faster search of its table."""
        identity = self.identities[label]
        block = self.cells._aes.update((identity ^ self.tweaks[node]).to_bytes(16, "big"))
        bits = int.from_bytes(block[:8], "little") << 64 | int.from_bytes(block[8:], "little")
        return self.least + bisect_right(self.table, bits)

    def noisy(self, label: str, round_number: int) -> int:
        total, node = self.count(label, round_number), round_number
        while node:
            total += self.node(label, node)
            node &= node - 1
        return total

    def noisy_in_all_rounds(self, label: str) -> list[int]:
        noise = [0]
        for round_number in range(1, len(self.tweaks)):
            noise.append(noise[round_number & (round_number - 1)] + self.node(label, round_number))
        return [self.count(label, number) + noise[number] for number in range(len(noise))]


def start_app(stream: Stream, **changed: Any) -> BaseProcess:
    """`stream-dp worker`, forked where everything is imported."""
    worker = forked_program.start(as_values(stream.settings) | changed, stream.log_file, "worker")
    stream.workers.append(worker)
    return worker


@pytest.mark.apache("roles")
def test_real_events_through_the_app(make_stream: MakeStream) -> None:
    """Stopped once on the way; releases and Redis are what an independent slow computation of the survey's rule gives.

    What is fed last keeps the first worker from being done before it is stopped, however late that is.
    """
    promised = {
        "horizon": HORIZON,
        "items_per_event": ITEMS_PER_EVENT,
        "epsilon": 30.0,
        "shown": "each-round",
    }
    working = {"batch_rounds": 200, "checkpoint_every": "1s"}
    events = list(real_records(EVENTS))
    with make_stream(**promised, **working) as stream:
        stream.feed(events[:-1_000])
        first = start_app(stream)
        stream.wait_until_round(1_000, first)
        stream.stop(first)
        stopped_at = stream.checkpoint().state.round
        releases = [decode_release(record.value or b"") for record in stream.releases()]
        assert 1_000 <= releases[-1].round == stopped_at == len(releases) < len(events)
        stream.feed(events[-1_000:])
        second = start_app(stream)
        stream.wait_until_round(len(events), second)
        stream.stop(second)
        stream.check_everything()
        releases = [decode_release(record.value or b"") for record in stream.releases()]
        assert [release.round for release in releases] == list(range(1, len(events) + 1))
        check_independently(stream, events, releases)


def check_independently(stream: Stream, events: list[bytes], releases: list[Release]) -> None:
    """Some labels in all rounds, all labels in some rounds, and every cell of Redis at the end."""
    checkpoint = stream.checkpoint()
    mechanism = checkpoint.epoch.mechanism
    assert isinstance(mechanism, DiscreteCounter)
    slow = SlowReader(
        stream.key(), stream.settings.stream, checkpoint.epoch.nonce, mechanism.sigma_squared, events
    )

    parameters = mechanism.sigma_squared, mechanism.threshold_delta

    @cache
    def tau_of(nodes: int) -> int:
        return naive.tau((1 << nodes) - 1, HORIZON, ITEMS_PER_EVENT, *parameters)

    def tau(round_number: int) -> int:
        return tau_of(round_number.bit_count())

    rng, last, found = random.Random(2), len(events), dict[str, int]()
    for release in releases:
        for label in release.labels:
            found.setdefault(label, release.round)
    frequent = [
        label for label, _ in Counter(item for items in slow.admitted for item in items).most_common(6)
    ]
    for label in [*frequent, *rng.sample(sorted(slow.rounds), 4)]:
        noisy, seen = slow.noisy_in_all_rounds(label), slow.rounds[label][0]
        for release in releases:
            number = release.round
            released = release.counts[release.labels.index(label)] if label in release.labels else None
            visible = number >= seen and noisy[number] >= tau(number)
            assert released == (noisy[number] if visible else None), f"{label!r} in round {number}"
    for number in [1, 2, 3, 1_023, 1_024, *rng.sample(range(last), 4), last]:
        noisy_table = {label: slow.noisy(label, number) for label in slow.rounds if slow.count(label, number)}
        visible_now = [(label, count) for label, count in noisy_table.items() if count >= tau(number)]
        visible_now.sort(key=lambda pair: (found.get(pair[0], 0), pair[0].encode()))
        release = releases[number - 1]
        assert visible_now == list(zip(release.labels, release.counts, strict=True))
        assert (tau(number), HORIZON, stream.settings.stream) == (
            release.tau,
            release.horizon,
            release.stream,
        )
    assert len(releases[-1].labels) > 20
    check_cells(checkpoint.state, slow, last)


def check_cells(state, slow: SlowReader, last: int) -> None:  # type: ignore[no-untyped-def]
    """Every label, count, partial sum and noise cell in Redis, rebuilt from key and log one at a time."""
    assert state.round == last
    assert list(slow.rounds) == state.labels
    assert [slow.count(label, last) for label in state.labels] == state.counts.tolist()
    live, left = [], last
    while left:
        live.append(left)
        left &= left - 1
    assert live == [node.round for node in live_nodes(state)]
    for node in live_nodes(state):
        start = node.round & (node.round - 1)
        for label, partial_sum, noise in zip(state.labels, node.sums, node.noise, strict=True):
            assert partial_sum == slow.count(label, node.round) - slow.count(label, start)
            assert noise == slow.node(label, node.round)


def test_a_user_mistake_ends_the_command_with_one_sentence(stream: Stream) -> None:
    stream.feed(some_events(10, seed=1))
    assert stream.run(until_round=10) == 0
    stream.log_file.unlink()
    assert ended(start_app(stream, epsilon=31.0)) == 2
    told = [line for line in stream.logged().splitlines() if "error:" in line]
    assert len(told) == 1
    assert "epsilon is 30.0 in the epoch and 31.0 in the settings" in told[0]
    assert "Traceback" not in stream.logged()
    stream.log_file.unlink()
    worker = start_app(stream, redis="redis://:pass/word@localhost:6379/0")
    assert ended(worker) == 2
    assert "the setting redis is not an address" in stream.logged()
    assert "Traceback" not in stream.logged()
    assert "pass" not in stream.logged().replace("password", "")


def answers(port: int) -> bool:
    """Whether the open port is up, without which the others prove nothing."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/livez", timeout=GIVE_UP_SECONDS) as page:
            return int(page.status) == 200
    except urllib.error.HTTPError:
        raise
    except OSError:
        return False


def test_the_faust_command_runs_the_app_and_its_port_shows_no_tables(stream: Stream) -> None:
    port, _ = free_ports()
    command = ("-m", "faust", "-A", "topologies.roles:running_histogram", "worker", "--without-web")
    stream.feed(some_events(30, seed=2))
    worker = stream.start_faust(*command, metrics_address=f"127.0.0.1:{port}")
    stream.wait_until_round(30, worker)
    stream.wait_until(lambda: answers(port), worker)
    for path in ("/table/", "/table/any/", "/table/any/key/"):
        with pytest.raises(urllib.error.HTTPError) as answer:
            urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=GIVE_UP_SECONDS)
        assert answer.value.code == 404
    stream.stop(worker)
    stream.check_everything()


def test_under_the_faust_command_too_a_refusal_is_one_sentence_and_a_status_of_its_own(
    stream: Stream,
) -> None:
    """A supervisor that starts again what failed must see that it did."""
    command = ("-m", "faust", "-A", "topologies.roles:running_histogram", "worker", "--without-web")
    stream.feed(some_events(10, seed=2))
    assert stream.run(until_round=10) == 0
    assert ended(stream.start_faust(*command, epsilon=31.0)) == 2
    assert stream.logged().count("epsilon is 30.0 in the epoch and 31.0 in the settings") == 1
    assert "Traceback" not in stream.logged()


def test_a_release_says_of_itself_what_was_promised(stream: Stream) -> None:
    stream.feed([event("tea")] * 40)
    assert stream.run(until_round=40) == 0
    epoch = stream.checkpoint().epoch
    assert isinstance(epoch.mechanism, DiscreteCounter)
    events = stream.events()
    for record, closing in zip(stream.releases(), events, strict=True):
        told = json.loads(record.value or b"")
        assert (told["v"], told["epoch"], told["nonce"]) == (1, 1, epoch.nonce.hex())
        assert (told["epsilon"], told["delta"], told["horizon"]) == (30.0, 1e-6, 1023)
        assert (told["unit"], told["mechanism"], told["items_per_event"]) == ("event", "binary", 3)
        assert told["rho"] == pytest.approx(3 * 10 / (2 * epoch.mechanism.sigma_squared))
        assert told["ts"].startswith("20")
        assert int(told["ts"][-4:-1]) == closing.timestamp % 1000
        assert (told["part"], told["parts"]) == (1, 1)
    assert told["labels"] == ["tea"]


def test_what_stands_in_the_public_topics_is_what_their_schemas_say(stream: Stream) -> None:
    stream.feed(some_events(30, seed=5))
    worker = stream.start(horizon=20, at_horizon="roll")
    stream.wait_until(lambda: len(stream.releases()) == 30, worker)
    stream.stop(worker)
    settings = stream.settings
    for name, topic in (
        ("release", settings.releases),
        ("epoch", settings.epochs),
        ("charge", f"{settings.data_source}.ledger"),
    ):
        offsets = log.offsets(settings.kafka, topic)
        records = list(log.read(settings.kafka, topic, offsets.first, offsets.end))
        assert len(records) > 2, "two epochs were opened and charged, and one of them was closed"
        for record in records:
            schema(name).validate(json.loads(record.value or b""))
    with stream.redis() as redis:
        certificate = verify_epoch(settings, redis).certificate
    schema("certificate").validate(json.loads(msgspec.json.encode(certificate)))


def test_the_horizon_ends_the_stream(stream: Stream) -> None:
    """Records beyond it wait for another epoch; the worker ends by itself, and again when it is started again."""
    stream.feed(some_events(20, seed=4))
    for _ in range(2):
        assert stream.run(horizon=15) == 0
        assert len(stream.releases()) == 15
    assert "the horizon of 15 rounds is reached" in stream.logged()
