"""`stream-dp verify` and `stream-dp rebuild` as their users see them."""

import json
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner, Result

from stream_dp.cli import app
from stream_dp.events.record import Record
from tests.system.example_events import event, some_events
from tests.system.streams import Stream, small_stream
from tests.system.ticking import MakeStream

WORDS = ("item", "tea", "milk", "rare")


@pytest.fixture(scope="module")
def finished(
    kafka: str, redis_url: str, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Stream]:
    """A stream of 40 rounds whose worker has stopped."""
    folder = tmp_path_factory.mktemp("finished")
    with small_stream(kafka, redis_url, f"finished-{folder.name}", folder) as stream:
        stream.feed(some_events(40, seed=1))
        assert stream.run(until_round=40) == 0
        yield stream


def run(stream: Stream, *words: str) -> Result:
    settings = stream.settings
    place = ["--stream", settings.stream, "--kafka", settings.kafka, "--redis", settings.redis]
    return CliRunner().invoke(app, [*words, *place], env={"STREAM_DP_NOISE_KEY": settings.noise_key})


def test_verify_certifies_an_epoch_and_tells_nothing_of_its_data(finished: Stream) -> None:
    result = run(finished, "verify", "--json")
    assert result.exit_code == 0, result.output
    certificate = json.loads(result.stdout)
    assert (certificate["verdict"], certificate["sound"], certificate["rounds"]) == ("identical", True, 40)
    certificate.pop("items_per_event")
    assert not [word for word in WORDS if word in json.dumps(certificate)]


def test_verify_says_in_words_what_it_found(finished: Stream) -> None:
    result = run(finished, "verify")
    assert result.exit_code == 0
    assert "byte for byte" in result.stdout


def test_verify_of_an_epoch_that_never_was_is_one_sentence(finished: Stream) -> None:
    result = run(finished, "verify", "--epoch", "9")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "no epoch 9" in result.stderr


def test_rebuild_refuses_to_replace_state_and_does_so_when_told(finished: Stream) -> None:
    refused = run(finished, "rebuild")
    assert refused.exit_code == 2
    assert "--replace" in refused.stderr
    rebuilt = run(finished, "rebuild", "--replace", "--json")
    assert {"stream": finished.settings.stream, "epoch": 1, "round": 40} == json.loads(rebuilt.stdout)
    finished.check_everything()


def test_verify_tells_a_changed_log_and_shows_the_difference_only_when_asked(make_stream: MakeStream) -> None:
    with make_stream() as stream:
        stream.feed([event("tea")] * 40)  # many enough that every draw of the noise shows them
        assert stream.run(until_round=40) == 0
        first, *rest = stream.events()
        stream.rewrite(stream.settings.events, [Record(0, first.timestamp, None, b'{"items": ["x"]}'), *rest])
        result = run(stream, "verify", "--json")
        assert result.exit_code == 1
        assert json.loads(result.stdout)["verdict"] == "edited"
        assert result.stderr == ""
        assert "recomputed" in run(stream, "verify", "--json", "--show-difference").stderr
