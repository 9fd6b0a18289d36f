"""While a job reads: how often its worker looks whether it was cancelled, and how often the log says how far it is."""

import logging
from types import SimpleNamespace
from typing import cast

import pytest

from stream_dp.jobs import runner
from stream_dp.jobs.books import Books
from stream_dp.jobs.runner import JobCancelled, JobRunner
from stream_dp.jobs.steps import Site


class Kept:
    """Books that remember one thing: whether the job was cancelled."""

    cancelled = False
    asked = 0

    def jobs(self, stream: str) -> "Kept":
        return self

    def is_cancelled(self, job_id: str) -> bool:
        self.asked += 1
        return self.cancelled


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A clock that stands still unless it is set."""
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(runner, "time", SimpleNamespace(monotonic=lambda: clock.now))
    return clock


def test_the_log_tells_every_ten_seconds_and_a_job_ends_soon_after_it_is_cancelled(
    clock: SimpleNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "stream_dp.jobs.runner")
    books, heard = Kept(), []
    running = JobRunner(
        Site(kafka=""), cast(Books, books), "s", report=lambda done, total: heard.append((done, total))
    )
    progress = running._progress("q")
    for done in range(101):
        progress(done, 400)
        clock.now += 0.25
    assert caplog.messages == [f"job q: read {done} of 400" for done in (0, 40, 80)]
    assert books.asked == 51
    assert heard == [(done, 400) for done in range(101)]
    progress(400, 400)
    assert caplog.messages[3:] == ["job q: read 400 of 400"]
    books.cancelled = True
    clock.now += 0.5
    with pytest.raises(JobCancelled):
        progress(101, 400)
