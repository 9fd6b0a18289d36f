"""The worker of `<stream>.jobs`: requests in, results out, one job at a time, until it is stopped.

It reads the topic itself from the offset that Redis or Kafka remembers of this very topic, else from its beginning, so
that no request is passed over, and goes on reading while a job runs, so that a job can be cancelled.  What the results
topic has answered is answered the same again.  The order after each other request: publish the stored result and wait
for the broker, remember the offset in Redis, commit it to Kafka.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

from kafka import TopicPartition
from kafka.errors import MessageSizeTooLargeError

from stream_dp.config.connections import kafka_options, redis_client
from stream_dp.config.settings import Settings
from stream_dp.epochs.registry import ledger_as_far_as_known
from stream_dp.errors import WorkerEnds
from stream_dp.jobs.answers import Answers
from stream_dp.jobs.books import ServedBooks
from stream_dp.jobs.engine import Engine, ThisProcess
from stream_dp.jobs.publishing import send, too_large
from stream_dp.jobs.request import JOBS, BadRequest, Cancel, decode_request, id_in
from stream_dp.jobs.result import JobResult, of_request
from stream_dp.jobs.runner import JobRunner
from stream_dp.jobs.steps import Site
from stream_dp.jobs.store import Place
from stream_dp.kafka import log, roles
from stream_dp.kafka.clients import consumer_client, producer_client
from stream_dp.kafka.outages import Outages
from stream_dp.kafka.rights import Right
from stream_dp.operations.backoff import retry_in_thread
from stream_dp.operations.progress import Progress
from stream_dp.operations.retry import OUTAGES, Attempts, server_of
from stream_dp.privacy.keyed_noise import check_golden_draw
from stream_dp.store.checkpoint_records import StateDamaged

_STRAYS = "top-k"  # whoever does these jobs also answers requests that name no job
_POLL_MILLISECONDS = 100
_MOST_WAITING = 10_000
_ANSWER_SECONDS = 30
_REDIS_SECONDS = 30.0
_SAME_TOPIC_SECONDS = 5.0
_DAMAGED = "what the worker remembers of this job is damaged, and its log says more; nothing is released"

logger = logging.getLogger(__name__)


class _Stopped(Exception):
    """The worker was stopped in the middle of a job, which stays unanswered."""


class JobWorker:
    """Answers the requests for some kinds of `jobs` on one stream.  Files are read from below `folder` only.

    `engine`: where rows are read and counted; without one, here.
    """

    def __init__(
        self,
        settings: Settings,
        jobs: Iterable[str] = JOBS,
        folder: Path | str | None = None,
        engine: Engine | None = None,
    ) -> None:
        """Raises `SettingsError` for an address that cannot be one; nothing is connected yet."""
        self.settings = settings
        self.jobs = tuple(sorted(jobs))
        self._stopping = threading.Event()
        self.progress = Progress(f"jobs of stream {settings.stream}")
        kafka_options(settings.kafka_address)
        self._redis = redis_client(settings.redis_address, socket_timeout=_REDIS_SECONDS)
        site = Site(
            settings.kafka_address,
            settings.events,
            settings.data_source,
            folder,
            files=folder is not None,
            mapping=settings.mapping,
            engine=engine or ThisProcess(),
        )
        books = ServedBooks(settings.kafka_address, self._redis, settings.create_topics, settings.unmetered)
        self._runner = JobRunner(site, books, settings.stream, self._interrupt)
        self.store = books.jobs(settings.stream)
        self._outages = Outages()
        self.requests, self.results = settings.jobs, settings.results
        self._answers = Answers(settings.kafka_address, settings.results)

    def stop(self) -> None:
        """Ask `run` to return soon; a job that is running stays unanswered and is taken up again at the next start."""
        self._stopping.set()

    def run(self) -> None:
        """Answer requests until `stop`.  An outage of Kafka or Redis is waited out.

        Raises `Refused`, and in the middle of a job, which stays unanswered, `WorkerEnds`.
        """
        check_golden_draw()
        with self.progress.watched():
            retry_in_thread(self._attempt, _Attempts(self), self._stopping)

    def _needed_rights(self) -> list[Right]:
        ledger = ledger_as_far_as_known(self.settings.kafka_address, self.settings.data_source)
        return roles.jobs_worker(self.settings, ledger)

    def _attempt(self) -> None:
        if self.settings.create_topics:
            log.create_topics(self.settings.kafka_address, self.requests, self.results, self.settings.events)
        with _Session(self) as session, suppress(_Stopped):
            self._outages.over()
            session.work(self._stopping)

    def answer(self, value: bytes | None, timestamp: int) -> tuple[str | None, list[bytes]] | None:
        """The id and the parts of the result of one request, or None where another worker answers.

        Where what Redis holds of it is damaged it is refused, and nothing is stored.
        """
        try:
            return self._answer(value, timestamp)
        except StateDamaged as damaged:
            job_id = id_in(value)
            logger.error("job %s: %s", job_id, damaged)
            return job_id, JobResult(id=job_id, status="refused", reason=_DAMAGED).encode()

    def _answer(self, value: bytes | None, timestamp: int) -> tuple[str | None, list[bytes]] | None:
        try:
            request = decode_request(value)
        except BadRequest as refused:
            job_id = id_in(value)
            if _STRAYS not in self.jobs:
                return None
            return job_id, JobResult(id=job_id, status="refused", reason=str(refused)).encode()
        if isinstance(request, Cancel):
            return self._cancelled(request)
        if request.job not in self.jobs:
            return None
        answered = self._answers.of(request.id, request.digest)
        if answered is not None:
            return request.id, answered
        logger.info("job %s: %s by %s", request.id, request.job, request.mechanism)
        try:
            return request.id, self._runner.answer(request, timestamp)
        except (*OUTAGES, WorkerEnds, StateDamaged, _Stopped):
            raise
        except Exception:  # a defect, at which one job may fail but not all that follow it
            logger.exception("job %s failed", request.id)
            reason = "the worker failed at this job, and its log says why; what was charged stays charged"
            return request.id, of_request(request, "refused", reason).encode()

    def mark_cancelled(self, value: bytes | None) -> None:
        """Where a record asks for it, mark the job, which may be running, as cancelled."""
        try:
            request = decode_request(value)
        except BadRequest:
            return
        if isinstance(request, Cancel):
            try:
                self.store.cancel(request.id)
            except StateDamaged as damaged:
                logger.error("job %s cannot be cancelled: %s", request.id, damaged)

    def _cancelled(self, request: Cancel) -> tuple[str, list[bytes]] | None:
        """The answer to a cancelling whose turn has come: what became of the job, which was answered before it."""
        answered = self._answers.of_job(request.id, self.jobs)
        if answered is not None:
            return request.id, answered
        plan = self.store.plan(request.id)
        stored = self.store.result(request.id)
        return (request.id, stored) if plan is not None and stored and plan.job in self.jobs else None

    def _interrupt(self) -> None:
        if self._stopping.is_set():
            raise _Stopped


class _Attempts(Attempts):
    """Attempts whose outages the worker's progress names."""

    def __init__(self, worker: JobWorker) -> None:
        super().__init__(worker.settings, worker._needed_rights, worker._outages)
        self._progress = worker.progress

    def failed(self, failure: Exception) -> float:
        """See `Attempts`."""
        wait = super().failed(failure)
        self._progress.cause = server_of(failure) or "kafka"
        return wait


class _Session:
    """One connection to Kafka; an outage ends it, and the next one goes on at the first unanswered request."""

    def __init__(self, worker: JobWorker) -> None:
        self._worker = worker
        self._name = "+".join(worker.jobs)
        self._partition = TopicPartition(worker.requests, 0)
        self._waiting: deque[Any] = deque()

    def __enter__(self) -> "_Session":
        worker, kafka = self._worker, self._worker.settings.kafka_address
        with ExitStack() as opened:
            self._consumer = opened.enter_context(
                closing(
                    consumer_client(
                        kafka,
                        auto_offset_reset="earliest",
                        isolation_level="read_committed",
                    )
                )
            )
            self._producer = producer_client(kafka)
            opened.callback(lambda: self._producer.close(timeout=_ANSWER_SECONDS))
            self._pool = opened.enter_context(ThreadPoolExecutor(1))
            self._consumer.assign([self._partition])
            self._topic = log.identity(kafka, worker.requests)
            self._seen, self._is_gone = time.monotonic(), False
            self._consumer.seek(self._partition, self._start())
            self._opened = opened.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def _start(self) -> int:
        """The first request to answer: positions that are remembered of another topic say nothing of this one."""
        worker, remembered = self._worker, self._worker.store.next_request(self._name)
        held = log.offsets(worker.settings.kafka_address, worker.requests)
        if remembered is None:
            return held.first
        if remembered.topic == self._topic and remembered.offset <= held.end:
            return max(remembered.offset, held.first)
        logger.warning(
            "the topic %r was deleted and re-created, or has lost requests that were answered: all that it holds "
            "is read, and what was answered is answered the same again",
            worker.requests,
        )
        return held.first

    def work(self, stopping: threading.Event) -> None:
        """Answer one request after the other, until the topic is deleted; reads on meanwhile."""
        while not (stopping.is_set() or self._is_gone):
            self._take()
            while self._waiting and not stopping.is_set():
                record = self._waiting[0]
                asked = max(record.timestamp, 0)
                progress = self._worker.progress
                progress.input(True)
                with progress.waiting("the job to be done"):
                    answer = self._finished(self._pool.submit(self._worker.answer, record.value, asked))
                if answer is not None:
                    with progress.waiting("kafka-acknowledgement"):
                        self._publish(*answer, asked)
                with progress.waiting("redis or kafka, to remember the answer"):
                    self._commit(record.offset + 1)
                self._waiting.popleft()
                progress.made()
                progress.input(bool(self._waiting))

    def _take(self) -> None:
        if time.monotonic() - self._seen > _SAME_TOPIC_SECONDS:
            self._is_gone = (
                log.identity(self._worker.settings.kafka_address, self._worker.requests) != self._topic
            )
            self._seen = time.monotonic()
        if self._is_gone:
            return
        for record in self._consumer.poll(_POLL_MILLISECONDS).get(self._partition, []):
            self._worker.mark_cancelled(record.value)
            self._waiting.append(record)

    def _finished(
        self, job: "Future[tuple[str | None, list[bytes]] | None]"
    ) -> tuple[str | None, list[bytes]] | None:
        while not job.done():
            if len(self._waiting) < _MOST_WAITING:
                self._take()
            else:
                time.sleep(_POLL_MILLISECONDS / 1000)
        return job.result()

    def _publish(self, job_id: str | None, parts: list[bytes], asked: int) -> None:
        """Publish a result; where the topic does not take it, a refusal in its place, and trying again helps nobody."""
        remedy = too_large(self._worker.results)
        for values in (parts, JobResult(id=job_id, status="refused", reason=remedy).encode()):
            try:
                return send(self._producer, self._worker.results, job_id, values, asked)
            except MessageSizeTooLargeError:
                logger.error("job %s: %s", job_id, remedy)
                self._producer.close(timeout=_ANSWER_SECONDS)  # once refused, it sends nothing more
                self._producer = producer_client(self._worker.settings.kafka_address)

    def _commit(self, next_offset: int) -> None:
        self._worker.store.answered(self._name, Place(self._topic, next_offset))
