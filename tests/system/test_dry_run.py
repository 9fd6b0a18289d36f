"""`stream-dp worker --dry-run` says what `check` says of the budget, and makes and charges nothing."""

import json
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

from stream_dp.cli import app
from stream_dp.epochs.journaled_ledger import JournaledLedger
from stream_dp.kafka import log
from stream_dp.store.ledger import Ledger
from tests.system.example_events import event
from tests.system.streams import Stream
from tests.system.ticking import MakeStream


@pytest.fixture
def stream(make_stream: MakeStream) -> Iterator[Stream]:
    with make_stream(unmetered=False, epsilon=2.0) as stream:
        yield stream


def told(stream: Stream, *words: str, command: str = "worker") -> list[tuple[str, str, str]]:
    own = stream.settings
    place = ["--stream", own.stream, "--kafka", own.kafka, "--redis", own.redis, "--json"]
    result = CliRunner().invoke(
        app,
        [command, *place, *words],
        env={"STREAM_DP_EPSILON": str(own.epsilon), "STREAM_DP_HORIZON": str(own.horizon)},
    )
    found = [(each["name"], each["state"], each["detail"]) for each in json.loads(result.stdout)["checks"]]
    assert result.exit_code == ("failed" in [state for _, state, _ in found]), result.output
    return found


def set_budget(stream: Stream, epsilon: float) -> None:
    own = stream.settings
    with stream.redis() as redis:
        JournaledLedger(own.kafka, redis, own.data_source).set_budget(epsilon, 1e-5, "event")


def test_it_says_what_check_says_and_leaves_everything_as_it_is(stream: Stream) -> None:
    before = log.topics(stream.settings.kafka)
    [(name, state, detail)] = told(stream, "--dry-run")
    assert (name, state) == ("budget", "failed")
    assert "the next epoch would be refused: the data source" in detail
    assert "UNMETERED" in told(stream, "--dry-run", "--unmetered")[0][2]
    assert log.topics(stream.settings.kafka) == before
    set_budget(stream, 3.0)
    [found] = told(stream, "--dry-run")
    assert "has room for an epoch of these settings; after it, there is room for 1 more like it" in found[2]
    assert found in told(stream, command="check")
    with stream.redis() as redis:
        assert Ledger(redis, stream.settings.data_source).charges() == []


def test_it_knows_the_open_epoch_and_what_a_new_one_would_add(stream: Stream) -> None:
    set_budget(stream, 2.5)
    stream.feed([event("tea")])
    assert stream.run(until_round=1) == 0
    assert told(stream, "--dry-run") == [
        ("epoch", "ok", "epoch 1 is open: a worker continues it and charges nothing")
    ]
    assert "has room" in told(stream, "--dry-run", "--new-epoch")[0][2]
    assert "would be refused" in told(stream, "--dry-run", "--new-epoch", "--recount")[0][2]


def test_it_believes_the_journal_where_redis_has_lost_the_budget(stream: Stream) -> None:
    set_budget(stream, 1.0)
    assert "would be refused" in told(stream, "--dry-run")[0][2]
    with stream.redis() as redis:
        redis.delete(*redis.keys(f"stream_dp:{{{stream.settings.data_source}}}:*"))
    assert "epsilon 1, delta 1e-05" in told(stream, "--dry-run")[0][2]
