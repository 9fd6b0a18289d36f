"""The long run of windows, kept short: what soak looks at for ten million rounds (long_run.py)."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from stream_dp.verification.verify import Certificate, Verdict
from tests.system.long_run import ITEMS, SETTINGS, TENTHS, WINDOW, LongRun, Tenth, long_run
from tests.system.streams import Stream
from tests.system.ticking import MakeStream

ROUNDS = 2 * TENTHS * WINDOW


@pytest.fixture
def stream(make_stream: MakeStream) -> Iterator[Stream]:
    with make_stream(checkpoint_every="1", **SETTINGS) as stream:
        yield stream


def test_nothing_that_is_kept_grows_over_restarts_and_the_last_blocks_are_verified(stream: Stream) -> None:
    run = long_run(stream, ROUNDS)
    assert [tenth.rounds for tenth in run.tenths] == [*range(ROUNDS // TENTHS, ROUNDS + 1, ROUNDS // TENTHS)]
    assert max(tenth.labels_remembered for tenth in run.tenths) < 2 * WINDOW * ITEMS
    assert run.growth(lambda tenth: tenth.redis_keys) < 1.5
    assert (run.certificate.verdict, run.certificate.rounds) == (Verdict.IDENTICAL, ROUNDS)
    assert run.certificate.first_round == ROUNDS - 2 * WINDOW + 1
    assert run.certificate.log_records == 3 * WINDOW
    stream.check_everything()


def certificate(verdict: Verdict) -> Certificate:
    return Certificate(1, "shop", 1, "", "", 0, 0, "", "", 0, verdict, verdict.sound, None, 4, False)


@pytest.mark.parametrize(
    ("measure", "name"),
    [
        ("labels_remembered", "labels remembered"),
        ("redis_keys", "bytes in Redis"),
        ("redis_memory", "memory of Redis"),
        ("worker_memory", "memory of the worker"),
        ("seconds_per_round", "time of a round"),
    ],
)
def test_what_grows_from_tenth_to_tenth_is_told(measure: str, name: str) -> None:
    flat = [Tenth(number, number, 300, 10_000, 10_000, 10_000, 1e-4, False) for number in range(TENTHS)]
    assert LongRun(flat, certificate(Verdict.IDENTICAL)).failures == []
    growing = [
        replace(tenth, **{measure: getattr(tenth, measure) * (1 + number)})
        for number, tenth in enumerate(flat)
    ]
    assert LongRun(growing, certificate(Verdict.IDENTICAL)).failures == [f"more and more: {name}"]


def test_a_verdict_that_is_not_sound_is_told() -> None:
    flat = [Tenth(number, number, 300, 10_000, 10_000, 10_000, 1e-4, False) for number in range(TENTHS)]
    assert LongRun(flat, certificate(Verdict.EDITED)).failures == ["verify: edited"]
