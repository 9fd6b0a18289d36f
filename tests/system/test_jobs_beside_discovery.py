"""Jobs on the events of a stream whose labels are found at tests: one budget, and the stream goes on as it would."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stream_dp.releases.release import decode_release
from stream_dp.store.ledger import Ledger
from stream_dp.verification.rebuild import verify_epoch
from stream_dp.verification.verify import Verdict
from tests.system.job_place import COUNTS, EVENTS, TOP, UNIT, Place, job_place
from tests.system.streams import Stream

SIZE: dict[str, Any] = {"unit": "user", "items_per_user": 5} if UNIT == "user" else {"items_per_event": 3}
FIRST_PART = 1_000


@pytest.fixture
def place(kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path) -> Iterator[Place]:
    with job_place(kafka, redis_url, topic_prefix, tmp_path) as place:
        asked = {**SIZE, "epsilon": 20.0, "horizon": 2_047, "unmetered": False}
        place.settings = msgspec.structs.replace(place.settings, **asked)
        assert place.settings.finds_at_tests, "that is the default"
        Ledger(place.redis, place.settings.events).set_budget(30.0, 1e-5, UNIT)
        yield place


def test_jobs_and_tests_spend_one_budget_and_leave_each_other_alone(place: Place, tmp_path: Path) -> None:
    """Jobs between two runs of the stream see all events, also of labels that no test has found."""
    stream = Stream(place.settings, tmp_path)
    try:
        assert stream.run(until_round=FIRST_PART) == 0
        top, counts = place.answers({"id": "top", **TOP}, {"id": "counts", **COUNTS})
        assert (top.status, counts.status) == ("done", "done"), (top.reason, counts.reason)
        assert stream.run(until_round=EVENTS) == 0
        stream.check_everything()
        epoch, *jobs = place.charges()
        assert [each.id.rpartition("/")[2] for each in jobs] == ["top", "counts"]
        assert {(each.first_offset, each.end_offset) for each in jobs} == {(0, EVENTS)}
        spent = Ledger(place.redis, place.settings.events).state().spent()
        assert spent.rho == pytest.approx(epoch.rho + sum(each.rho for each in jobs))
        with stream.redis() as redis:
            assert verify_epoch(stream.settings, redis).certificate.verdict is Verdict.IDENTICAL

        last = decode_release(stream.releases()[-1].value or b"")
        assert last.found
        assert set(top.labels) <= set(last.labels), "what is frequent is found by both"
        assert len(last.labels) < len(stream.checkpoint().state.labels), "and most of what is rare by neither"
        [more] = place.answers({"id": "more", **TOP, "epsilon": 25})
        assert more.status == "refused"
        assert "budget" in (more.reason or "")
    finally:
        stream.stop_all()
