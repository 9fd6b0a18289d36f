"""`unit = "user-day"` on real servers: days that barriers end, kills, charges by day, what the next epoch leaves."""

import signal
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from stream_dp.cli.checklist.budget import room_in_budget
from stream_dp.config.days import days_of
from stream_dp.config.times import milliseconds
from stream_dp.jobs.books import ServedBooks
from stream_dp.jobs.request import BadRequest, JobRequest, decode_request
from stream_dp.jobs.steps import Site, prepare
from stream_dp.store.ledger import Ledger
from stream_dp.verification.rebuild import rebuild, verify_epoch
from stream_dp.verification.verify import Verdict
from stream_dp.workers.resume import NewEpoch
from tests.system.epoch_steps import charges, releases
from tests.system.job_place import COUNTS
from tests.system.streams import Stream
from tests.system.ticking import MakeStream, open_epoch
from tests.system.worker_process import Kill

HOUR = 3_600_000
ZONE = "Europe/Berlin"
FIRST = days_of(ZONE).at(milliseconds(datetime(2025, 10, 25, 12, tzinfo=UTC)))
"""The next day has 25 hours."""
OWN: dict[str, Any] = {
    "unit": "user-day",
    "items_per_user": 2,
    "time_zone": ZONE,
    "rounds": "ticks",
    "write_barriers": False,  # the tests do
    "checkpoint_every": "2",
}
WINDOW = {"mechanism": "window", "window": 5, "epsilon": 20.0, "delta": 0.1}


@pytest.fixture
def make(make_stream: MakeStream) -> MakeStream:
    return lambda **changed: make_stream(**{**OWN, **changed})


def brought(user: str, *items: str) -> bytes:
    return b'{"items": [%s], "user": "%s"}' % (
        ", ".join(f'"{item}"' for item in items).encode(),
        user.encode(),
    )


def open_for_all_days(stream: Stream) -> None:
    """Open epoch 2, which counts days that are long over, as those of a test are: one that recounts counts all."""
    open_epoch(stream)
    worker = stream.start(new_epoch=NewEpoch(recount=True))
    stream.wait_until_logged("epoch 2, round 0")
    stream.stop(worker)


def live_days(stream: Stream, first: int, days: int) -> None:
    """Four rounds a day; in three of them two users bring more than they may."""
    for day in range(first, first + days):
        stream.close_rounds(days_of(ZONE).begins(day))
        for hour in (1, 9, 17):
            stream.feed([brought(user, "tea", "milk", f"once {day} {hour}") for user in ("u", "v")])
            stream.close_rounds(days_of(ZONE).begins(day) + hour * HOUR)
        stream.close_rounds(days_of(ZONE).begins(day + 1) - 1_000)


@pytest.mark.parametrize("mechanism", [{}, WINDOW], ids=["running", "window"])
def test_days_survive_kills_and_are_rebuilt(make: MakeStream, mechanism: dict[str, Any]) -> None:
    with make(**mechanism) as stream:
        open_for_all_days(stream)
        live_days(stream, FIRST, 5)
        for kill in (Kill("write a checkpoint", 2, after=True), Kill("write a checkpoint", 1, after=True)):
            assert stream.run(kill) == -signal.SIGKILL, f"{kill} was never reached:\n{stream.logged()}"
        assert stream.run(until_round=20) == 0
        stream.check_everything()
        found = stream.checkpoint()
        if not mechanism:
            counts = dict(zip(found.state.labels, found.state.counts.tolist(), strict=True))
            assert counts == {"tea": 10, "milk": 10}, "each user's two items, once a day, and no third one"
        assert len(found.pairs) == 2 * 2 * 24, "of the last day alone"
        with stream.redis() as redis:
            assert verify_epoch(stream.settings, redis).certificate.verdict is Verdict.IDENTICAL
            rebuild(stream.settings, redis, replace=True)
        stream.check_everything()


def test_an_epoch_begins_with_the_day_after_the_last_one_counted(make: MakeStream) -> None:
    with make() as stream:
        open_for_all_days(stream)
        live_days(stream, FIRST, 2)
        rest = days_of(ZONE).begins(FIRST + 2)
        stream.close_rounds(rest, rest + HOUR)
        assert stream.run(until_round=9) == 0
        worker = stream.start(new_epoch=NewEpoch())
        stream.wait_until_logged("epoch 3, round 0")
        stream.feed([brought("w", "late")])
        stream.close_rounds(rest + 2 * HOUR)
        live_days(stream, FIRST + 3, 1)
        stream.wait_until(lambda: len(releases(stream, 3)) == 4, worker)
        stream.stop(worker)
        found = stream.checkpoint()
        assert found.epoch.first_day == FIRST + 3
        assert found.state.counts.tolist() == [2, 2], "what came in the rest of the day is in no epoch"
        told = [(each.unit, each.zone, each.first_offset, each.end_offset) for each in charges(stream)[1:]]
        assert told == [
            ("user-day", ZONE, 0, FIRST + 3),
            ("user-day", ZONE, FIRST + 3, None),
        ]
        with stream.redis() as redis:
            for epoch in (2, 3):
                assert verify_epoch(stream.settings, redis, epoch).certificate.verdict is Verdict.IDENTICAL, (
                    epoch
                )
            spent = Ledger(redis, stream.settings.data_source).state().spent()
        assert spent.rho == max(each.rho for each in charges(stream)[1:]), "days compose in parallel"


def test_an_epoch_at_its_horizon_leaves_the_rest_of_the_day(make: MakeStream) -> None:
    with make(horizon=6, at_horizon="roll") as stream:
        open_for_all_days(stream)
        live_days(stream, FIRST, 4)
        worker = stream.start()
        stream.wait_until(lambda: len(releases(stream, 3)) == 6, worker)
        stream.stop(worker)
        days = [(each.first_offset, each.end_offset) for each in charges(stream)][1:3]
        assert days[0] == (0, FIRST + 2)
        assert days[1][0] == FIRST + 2
        first, second = ([each.ts for each in releases(stream, epoch)] for epoch in (2, 3))
        assert len(first) == len(second) == 6
        assert second[0][:10] > first[-1][:10]


def test_days_are_never_mixed_with_another_unit_or_another_zone(make: MakeStream) -> None:
    with make() as stream:
        with stream.redis() as redis:
            ledger = Ledger(redis, stream.settings.data_source)
            ledger.set_budget(100.0, 1e-5, "user-day")
        open_epoch(stream)
        [charge] = charges(stream)
        assert charge.zone == ZONE
        with stream.redis() as redis:
            [same] = room_in_budget(stream.settings, redis)
            assert (same.state, "has room for an epoch" in same.detail) == ("ok", True), same
            [other] = room_in_budget(
                msgspec.structs.replace(stream.settings, unit="user", time_zone="UTC"), redis
            )
            assert (other.state, "counts per user-day" in other.detail) == ("failed", True), other
        stream.feed([brought("u", "tea")])
        asked = {name: value for name, value in COUNTS.items() if name != "unit"}
        request = decode_request(msgspec.json.encode({"v": 1, "id": "j", **asked}))
        assert isinstance(request, JobRequest)
        kafka = stream.settings.kafka_address
        with (
            stream.redis() as redis,
            pytest.raises(BadRequest, match="counts per user and day, and a job reads many days"),
        ):
            prepare(request, Site(kafka, stream.settings.events), ServedBooks(kafka, redis))
        told = stream.refusal(unit="user", time_zone="UTC")
        assert "unit is user-day in the epoch and user in the settings" in told
        assert "time_zone is Europe/Berlin in the epoch and UTC in the settings" in stream.refusal(
            time_zone="UTC"
        )
