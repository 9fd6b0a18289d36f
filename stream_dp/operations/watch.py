"""What the worker calls, a few times per batch, so that others can see how it is.  Nothing is called per event."""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from redis import Redis

from stream_dp.engine.epoch import Epoch
from stream_dp.kafka.outages import Outages
from stream_dp.operations.bad_minutes import BadMinutes
from stream_dp.operations.open_metrics import BudgetFacts, PublicFacts, open_registry
from stream_dp.operations.operator_metrics import OperatorMetrics
from stream_dp.operations.progress import Progress
from stream_dp.pipeline.pipeline import Output
from stream_dp.privacy.composition import Charge
from stream_dp.privacy.vector import Vector
from stream_dp.store.ledger import Ledger, LedgerRefused

logger = logging.getLogger(__name__)

LARGE_ROUND = 1_000_000
"""From so many records on, an open round is worth a warning; another one comes whenever they have doubled."""

LIVE_SECONDS = 300.0
"""A worker that has taken no step for so long hangs.  Redis may be silent for 30 s in each of four attempts."""

READY_SECONDS = 20.0
"""How long an answer of both servers counts; they are asked every few seconds."""

LAST_WORD_SECONDS = 30.0
"""How long a worker that ends for a reason that operators are told by a metric waits until it is read."""

_BUDGET_SECONDS = 60.0


class Watch:
    """The facts, the metrics and the heartbeat of one worker.

    The worker's loop writes them and the ports' thread reads them: each is one assignment, so no lock is needed.
    """

    def __init__(self, stream: str, source: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.facts = PublicFacts(stream)
        self.open_registry = open_registry(self.facts, lambda: self.ready)
        self.operator = OperatorMetrics(stream)
        self.outages = Outages(clock)
        self.progress = Progress(f"stream {stream}", self._stalled, clock)
        self._source = source
        self._bad_minutes = BadMinutes(stream, clock)
        self._clock = clock
        self._beat = clock()
        self._answered_at: float | None = None
        self._budget_read: float | None = None
        self.has_operators = False
        self.registry_away = False
        self.operators_read = threading.Event()
        self._saved_round = 0
        self._lost_letters = 0
        self._warn_from = LARGE_ROUND

    @property
    def alive(self) -> bool:
        """Whether the worker has taken a step within the last `LIVE_SECONDS`."""
        return self._clock() - self._beat < LIVE_SECONDS

    @property
    def ready(self) -> bool:
        """Whether this process holds its stream, has caught up with what is published, and hears from all servers."""
        at = self._answered_at
        return at is not None and not self.registry_away and self._clock() - at < READY_SECONDS

    def beat(self) -> None:
        """The worker has taken a step."""
        self._beat = self._clock()

    def began(self, epoch: Epoch, round_number: int) -> None:
        """A session has caught up with what is published."""
        facts, guarantee = self.facts, epoch.guarantee
        facts.round, facts.horizon = round_number, epoch.last_round or 0
        facts.epsilon, facts.delta = guarantee.epsilon, guarantee.delta
        facts.epoch = epoch.number
        self._saved_round = round_number
        self.answered(True)

    def answered(self, both: bool) -> None:
        """Whether both Redis and Kafka have answered just now."""
        self._answered_at = self._clock() if both else None
        if both:
            self.outages.over()

    def ended(self) -> None:
        """The session is over; the next one may come."""
        self._answered_at = None

    def outage(self, server: str) -> None:
        """The worker begins to wait for "kafka" or "redis", which is a step: it does not hang."""
        self.beat()
        self.operator.outages[server].inc()
        self.progress.cause = server

    def _stalled(self, reason: str | None, seconds: float) -> None:
        self.operator.waiting.clear()
        if reason is not None:
            self.operator.waiting.labels(self.facts.stream, reason).set(seconds)

    def topic_changed(self, topic: str) -> None:
        """A topic is not what it was, which ends the worker."""
        self.operator.topic_changes.labels(self.facts.stream, topic).inc()
        self.operators_read.clear()

    def last_word(self) -> None:
        """Return when operators have read what was counted last, or do not ask for a while."""
        if self.has_operators:
            self.operators_read.wait(LAST_WORD_SECONDS)

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Measure one batch."""
        with self.operator.batches.time():
            yield
        self.progress.made()

    def sent(self, output: Output) -> None:
        """The output is on its way to the broker."""
        self.facts.releases += len({part.round for part in output.releases})
        self.operator.records.inc(output.records)
        self.operator.dead_letters.inc(len(output.dead_letters))
        self._bad_minutes.count(output.records, output.dead_letters)

    def dead_letters_wait(self, waiting: int, lost: int) -> None:
        """Note how many dead letters wait to be written, and how many were lost for lack of room since the start."""
        self.operator.dead_letters_waiting.set(waiting)
        self.operator.dead_letters_lost.inc(lost - self._lost_letters)
        self._lost_letters = lost

    def counted(self, closed_rounds: int, lag: int) -> None:
        """Note how many rounds are closed, and how many records wait."""
        self.beat()
        if closed_rounds != self.facts.round:
            self.progress.made()
        self.facts.round = closed_rounds
        self.operator.lag.set(lag)
        self.operator.unsaved.set(closed_rounds - self._saved_round)

    def open_round(self, records: int) -> None:
        """The open round holds so many records, which stay in memory until it ends."""
        if records < LARGE_ROUND:
            self._warn_from = LARGE_ROUND
        elif records >= self._warn_from:
            self._warn_from = 2 * records
            logger.warning(
                "stream %s: the open round holds %d records, all of them in memory until it ends: docs/operations says "
                "under Capacity how many fit",
                self.facts.stream,
                records,
            )

    def checkpointed(self, closed_rounds: int, labels: int, seconds: float) -> None:
        """A checkpoint of `labels` labels after so many rounds has taken so long; more may be closed by now."""
        self.beat()
        self._saved_round = closed_rounds
        self.operator.unsaved.set(max(0, self.facts.round - closed_rounds))
        self.operator.labels.set(labels)
        self.operator.checkpoints.observe(seconds)
        self.operator.checkpointed.set_to_current_time()

    @property
    def budget_due(self) -> bool:
        """Whether the ledger should be asked again: others charge it too."""
        return self._budget_read is None or self._clock() - self._budget_read >= _BUDGET_SECONDS

    def read_budget(self, redis: Redis, offsets: Vector) -> None:
        """Ask the ledger what is left for events from `offsets` on.  Raises `redis.exceptions.RedisError`."""
        self._budget_read = self._clock()
        try:
            state = Ledger(redis, self._source).state()
        except LedgerRefused:  # whoever charges it next is told why
            self.facts.budget = None
            return
        in_days = state.unit == "user-day"  # where offsets say nothing
        room = state.room() if in_days else state.room(offsets[0], None, offsets[1:])
        self.facts.budget = BudgetFacts(
            state.budget.epsilon if state.budget else None,
            state.spent().epsilon,
            room.rho if room else None,
            charged_rho(state.charges()),
        )


def charged_rho(charges: Iterable[Charge]) -> dict[str, float]:
    """What each stream was charged, whatever epochs it had, and what all jobs were together."""
    charged: dict[str, float] = {}
    for charge in charges:
        stream, is_epoch, _ = charge.id.partition("/epoch/")
        by = f"stream {stream}" if is_epoch else "jobs"
        charged[by] = charged.get(by, 0.0) + charge.rho
    return charged
