"""What Redis remembers of jobs, so that a request that is delivered again gives what it gave.  Keys of a stream:

stream_dp:{<stream>}:job:<id>        hash: `plan`, then `result` (each written once), `cancelled`, `progress`
stream_dp:{<stream>}:schedules       hash: id -> the request and the last period it was asked for
stream_dp:{<stream>}:jobs:<worker>   the offset of the next request

What does not stand as it was written is damage, and no outage that anybody could wait for.
"""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

import msgspec
from redis import Redis
from redis.exceptions import ResponseError

from stream_dp.privacy.keyed_noise import new_key
from stream_dp.store.checkpoint_records import StateDamaged

logger = logging.getLogger(__name__)


class Plan(msgspec.Struct, frozen=True):
    """How a job was admitted, before it was charged: its noise key (SECRET), and the offsets that its source meant.

    `further`: first offset and end in every partition but the first.  `mark` tells a file that was written again
    (PRIVATE), or another mapping.  `chosen`: the parameters that the request left open, as they were chosen then:
    another version may choose others, and the job goes on with these.
    """

    digest: str
    job: str
    key: bytes
    first: int | None
    end: int | None
    mark: str | None
    further: tuple[tuple[int, int], ...] = ()
    chosen: dict[str, int | float | str] = {}


class Schedule(msgspec.Struct, frozen=True):
    """A request with `every`; `last` is the end (seconds since 1970) of the last period that was asked for."""

    request: bytes
    digest: str
    last: int


class JobStore:
    """The jobs of one stream.  Any number of workers may use it at once.

    Every method raises `StateDamaged` where Redis holds something else than was written, unless it says otherwise.
    """

    def __init__(self, redis: Redis, stream: str) -> None:
        self._redis: Any = redis
        self._prefix = f"stream_dp:{{{stream}}}:"

    def plan(self, job_id: str) -> Plan | None:
        """How the job was admitted, if it was."""
        with _sound(self._job(job_id)):
            packed = self._redis.hget(self._job(job_id), "plan")
            return None if packed is None else msgspec.msgpack.decode(packed, type=Plan)

    def admit(
        self,
        job_id: str,
        digest: str,
        job: str,
        first: int | None,
        end: int | None,
        mark: str | None,
        further: tuple[tuple[int, int], ...] = (),
        chosen: Mapping[str, int | float | str] = MappingProxyType({}),
    ) -> Plan:
        """Admit a job with a fresh key; returns the plan that stands, which is another one's if it came first."""
        plan = Plan(digest, job, new_key(), first, end, mark, further, dict(chosen))
        with _sound(self._job(job_id)):
            self._redis.hsetnx(self._job(job_id), "plan", msgspec.msgpack.encode(plan))
        return self.plan(job_id) or plan

    def result(self, job_id: str) -> list[bytes] | None:
        """The stored result, in parts."""
        with _sound(self._job(job_id)):
            packed = self._redis.hget(self._job(job_id), "result")
            return None if packed is None else msgspec.msgpack.decode(packed, type=list[bytes])

    def keep(self, job_id: str, parts: list[bytes]) -> list[bytes]:
        """Store a result if the job has none; returns the one that is stored: only that may be published."""
        with _sound(self._job(job_id)):
            self._redis.hsetnx(self._job(job_id), "result", msgspec.msgpack.encode(parts))
        return self.result(job_id) or parts

    def cancel(self, job_id: str) -> None:
        """Ask that the job, which may not even be admitted yet, release nothing."""
        with _sound(self._job(job_id)):
            self._redis.hset(self._job(job_id), "cancelled", 1)

    def is_cancelled(self, job_id: str) -> bool:
        """Whether somebody has asked to cancel this job."""
        with _sound(self._job(job_id)):
            return bool(self._redis.hexists(self._job(job_id), "cancelled"))

    def report(self, job_id: str, step: str, done: int = 0, total: int = 0) -> None:
        """How far the job is: for a topic in offsets; for a file it is PRIVATE, as it tells the file's size."""
        with _sound(self._job(job_id)):
            self._redis.hset(self._job(job_id), "progress", f"{step} {done}/{total}" if total else step)

    def listed(self) -> Iterator[tuple[str, str | None, bytes | None]]:
        """Id, progress and first part of the result of every job, by id."""
        for name in sorted(self._redis.scan_iter(self._job("*"))):
            with _sound(name.decode()):
                progress, packed = self._redis.hmget(name, "progress", "result")
                parts = [None] if packed is None else msgspec.msgpack.decode(packed, type=list[bytes])
                told = None if progress is None else progress.decode()
                found = name.decode().removeprefix(self._job("")), told, parts[0]
            yield found

    def schedules(self) -> dict[str, Schedule]:
        """All schedules by id."""
        with _sound(self._schedules):
            found = self._redis.hgetall(self._schedules)
            return {
                name.decode(): msgspec.msgpack.decode(packed, type=Schedule) for name, packed in found.items()
            }

    def schedule(self, job_id: str, schedule: Schedule) -> Schedule:
        """Add a schedule if there is none of this id; returns the one that stands."""
        with _sound(self._schedules):
            self._redis.hsetnx(self._schedules, job_id, msgspec.msgpack.encode(schedule))
        return self.schedules().get(job_id, schedule)

    def advance(self, job_id: str, schedule: Schedule) -> None:
        """Remember the last period that was asked for, unless the schedule has ended meanwhile."""

        def put(transaction: Any) -> None:
            there = transaction.hexists(self._schedules, job_id)
            transaction.multi()
            if there:
                transaction.hset(self._schedules, job_id, msgspec.msgpack.encode(schedule))

        with _sound(self._schedules):
            self._redis.transaction(put, self._schedules)

    def end_schedule(self, job_id: str) -> bool:
        """End a schedule; returns whether there was one."""
        with _sound(self._schedules):
            return bool(self._redis.hdel(self._schedules, job_id))

    def next_offset(self, worker: str) -> int | None:
        """The first request that `worker` has not answered; None if Redis knows nothing of it, or holds no number.

        To answer a request again gives what it gave, so that damage costs nothing here.
        """
        name = f"{self._prefix}jobs:{worker}"
        try:
            with _sound(name):
                found = self._redis.get(name)
                return None if found is None else int(found)
        except StateDamaged:
            logger.warning("Redis holds no offset under %s: requests may be answered again, as before", name)
            return None

    def answered(self, worker: str, next_offset: int) -> None:
        """All requests before `next_offset` are answered."""
        self._redis.set(f"{self._prefix}jobs:{worker}", next_offset)

    @property
    def _schedules(self) -> str:
        return self._prefix + "schedules"

    def _job(self, job_id: str) -> str:
        return f"{self._prefix}job:{job_id}"


@contextmanager
def _sound(name: str) -> Iterator[None]:
    """What is read or written under a Redis key must be what a worker has put there.  Raises `StateDamaged`."""
    try:
        yield
    except (msgspec.DecodeError, UnicodeError, ValueError):
        raise _damaged(name) from None
    except ResponseError as error:
        if "WRONGTYPE" not in str(error):
            raise
        raise _damaged(name) from None


def _damaged(name: str) -> StateDamaged:
    return StateDamaged(
        f"what Redis holds under {name} does not fit together: nothing is released; restore that key from its backup, "
        "or ask again under a new id, which is charged; deleting it could release the same job with other noise"
    )
