"""One request, answered once: whoever delivers it again gets the stored result, and it is charged once.

In this order, each step of which may be repeated after a crash:

1. validate, and find what the source means now: a refusal depends on public things only, and charges nothing;
2. admit: write down the digest of the request, the offsets and a fresh noise key, if nobody has;
3. charge the ledger of the source, durably; the charge is bound to the noise key;
4. read and compute: the same key on the same log gives the same bytes;
5. store the result if none is stored;
6. give back what the STORED one did not need of a pay-what-you-get budget, and return it, for the worker to publish.
"""

import logging
import math
import time
from collections.abc import Callable

import msgspec

from stream_dp.config.times import iso_timestamp
from stream_dp.errors import StreamDpError
from stream_dp.jobs.books import Books
from stream_dp.jobs.forecast import forecast
from stream_dp.jobs.mechanisms import MECHANISMS
from stream_dp.jobs.request import BadRequest, JobRequest
from stream_dp.jobs.result import JobResult, cost_of, of_request, whole
from stream_dp.jobs.rows import Progress
from stream_dp.jobs.steps import (
    Prepared,
    Site,
    compute,
    is_paid,
    located,
    pay,
    prepare,
    settle,
)
from stream_dp.jobs.store import Plan
from stream_dp.jobs.topic_rows import TopicRange
from stream_dp.store.ledger import LedgerRefused, NoBudget

_SECONDS_BETWEEN_CHECKS = 0.5
_SECONDS_BETWEEN_LINES = 10.0

logger = logging.getLogger(__name__)


class JobCancelled(StreamDpError):
    """Somebody asked that the job release nothing."""


class JobRunner:
    """Runs the jobs of one stream, or those of commands, one at a time.

    `interrupt` is called often and may raise to leave a job undone; `report` is told how far reading is (PRIVATE).
    `charging` is called right before a job is charged, if there is room for it.
    """

    def __init__(
        self,
        site: Site,
        books: Books,
        stream: str,
        interrupt: Callable[[], None] = lambda: None,
        report: Progress = lambda done, total: None,
        charging: Callable[[], None] = lambda: None,
    ) -> None:
        self.store = books.jobs(stream)
        self._site = site
        self._books = books
        self._stream = stream
        self._interrupt = interrupt
        self._report = report
        self._charging = charging

    def as_admitted(self, request: JobRequest) -> JobRequest:
        """The request with the mechanism that its job was admitted with, for somebody who named none.

        Another version may choose another mechanism. All else must be as it was then: the digest tells.
        """
        plan = self.store.plan(request.id)
        tries = (msgspec.structs.replace(request, mechanism=name) for name in MECHANISMS[request.job])
        return next((each for each in tries if plan is not None and each.digest == plan.digest), request)

    def answer(self, request: JobRequest, asked: int) -> list[bytes]:
        """The parts of the result to publish; `asked` is the time of the request, in milliseconds.

        That is also the time of all that is written of the job: how long it takes depends on data, and is private.
        Raises KafkaError, RedisError and `NotDurable`: then try again.
        """
        try:
            plan = self.store.plan(request.id)
            if plan is not None and plan.digest != request.digest:
                raise BadRequest(f"the id {request.id!r} was used before with other parameters: use a new id")
            stored = self.store.result(request.id)
            if stored is None:
                stored = self.store.keep(request.id, self._run(request, plan, asked).encode())
            self._settle(request, stored, asked)
            return stored
        except BadRequest as refused:
            return of_request(request, "refused", str(refused)).encode()

    def _run(self, request: JobRequest, plan: Plan | None, asked: int) -> JobResult:
        """The result of a job that has none yet."""
        ts = iso_timestamp(asked)
        if self.store.is_cancelled(request.id) and plan is None:
            return msgspec.structs.replace(of_request(request, "cancelled"), ts=ts)
        prepared = prepare(request, self._site, self._books, _admitted(plan), plan.chosen if plan else None)
        if plan is None:
            plan = self.store.admit(
                request.id, request.digest, request.job, *_place(prepared), prepared.chosen
            )
            if plan.digest != request.digest:
                raise BadRequest(f"the id {request.id!r} was used before with other parameters: use a new id")
            if (_place(prepared), prepared.chosen) != (
                _planned(plan),
                plan.chosen,
            ):  # another worker was faster
                prepared = prepare(request, self._site, self._books, _admitted(plan), plan.chosen)
        if _place(prepared) != _planned(plan):
            what = "the section [events]" if prepared.request.source.file is None else "the file"
            raise BadRequest(f"{what} was written again since the job was admitted: use a new id")
        result = self._charged(prepared, plan, asked)
        return msgspec.structs.replace(located(result, prepared), ts=ts)

    def _charged(self, prepared: Prepared, plan: Plan, asked: int) -> JobResult:
        request = prepared.request
        charge_id = self._charge_id(request)
        try:
            ledger = self._books.ledger(prepared.name)
            cost = cost_of(prepared.calibrated, ledger.current().budget())
            self._check(request.id)
            self._site.engine.start()  # that it does not is known before anything is charged
            if forecast(prepared, self._books).fits:
                self._charging()
            pay(prepared, charge_id, plan.key, ledger, asked)
            result = compute(prepared, self._site, plan.key, cost, self._progress(request.id))
            self._check(request.id)
        except JobCancelled:
            result = of_request(request, "cancelled")
            paid = is_paid(prepared, charge_id, plan.key, ledger)
            return msgspec.structs.replace(result, cost=cost if paid else None)
        except NoBudget as refused:  # an operator may set one, and then the same id is answered
            raise BadRequest(str(refused)) from None
        except LedgerRefused as refused:
            return of_request(request, "refused", str(refused))
        return result

    def _settle(self, request: JobRequest, stored: list[bytes], asked: int) -> None:
        """Give back what the stored result did not need of a pay-what-you-get budget.  Raises `NotDurable`."""
        plan = self.store.plan(request.id)
        result = whole(stored)
        if request.budget is None or plan is None or result.source is None:
            return
        try:
            ledger = self._books.ledger(result.source)
            settle(request, self._charge_id(request), plan.key, result, ledger, asked)
        except LedgerRefused as refused:
            logger.warning("job %s keeps all the marks that it reserved: %s", request.id, refused)

    def _charge_id(self, request: JobRequest) -> str:
        return f"job/{self._stream}/{request.id}"

    def _check(self, job_id: str) -> None:
        self._interrupt()
        if self.store.is_cancelled(job_id):
            raise JobCancelled

    def _progress(self, job_id: str) -> Callable[[int, int], None]:
        """Ends reading when that is asked, and says in the log now and then how far it is."""
        checked = told = -math.inf

        def progress(done: int, total: int) -> None:
            nonlocal checked, told
            self._report(done, total)
            now, is_all = time.monotonic(), done >= total
            if is_all or now - checked >= _SECONDS_BETWEEN_CHECKS:
                checked = now
                self._check(job_id)
            if is_all or now - told >= _SECONDS_BETWEEN_LINES:
                told = now
                logger.info("job %s: read %d of %d", job_id, done, total)

        return progress


_Place = tuple[int | None, int | None, str | None, tuple[tuple[int, int], ...]]


def _place(prepared: Prepared) -> _Place:
    """The offsets that are read of the first partition, the mark of file or mapping, and the further offsets."""
    place = prepared.place
    if not isinstance(place, TopicRange):
        return None, None, place.mark, ()
    (first, end), *further = zip(place.firsts, place.ends, strict=True)
    return first, end, place.mark, tuple(further)


def _planned(plan: Plan) -> _Place:
    return plan.first, plan.end, plan.mark, plan.further


def _admitted(plan: Plan | None) -> TopicRange | None:
    """The range of a plan that has one."""
    if plan is None or plan.first is None or plan.end is None:
        return None
    firsts, ends = zip((plan.first, plan.end), *plan.further, strict=True)
    return TopicRange("", firsts, ends)
