"""What Redis remembers of jobs, so that a request that is delivered again gives what it gave.  Keys of a stream:

stream_dp:{<stream>}:job:<id>        hash: `plan`, then `result` (each written once), `cancelled`, `progress`
stream_dp:{<stream>}:schedules       hash: id -> the request and the last period it was asked for
stream_dp:{<stream>}:jobs:<worker>   the offset of the next request
"""

from collections.abc import Iterator
from typing import Any

import msgspec
from redis import Redis

from stream_dp.privacy.keyed_noise import new_key


class Plan(msgspec.Struct, frozen=True):
    """How a job was admitted, before it was charged: its noise key (SECRET), and the offsets that its source meant.

    `mark` tells a file that was written again (PRIVATE).
    """

    digest: str
    job: str
    key: bytes
    first: int | None
    end: int | None
    mark: str | None


class Schedule(msgspec.Struct, frozen=True):
    """A request with `every`; `last` is the end (seconds since 1970) of the last period that was asked for."""

    request: bytes
    digest: str
    last: int


class JobStore:
    """The jobs of one stream.  Any number of workers may use it at once."""

    def __init__(self, redis: Redis, stream: str) -> None:
        self._redis: Any = redis
        self._prefix = f"stream_dp:{{{stream}}}:"

    def plan(self, job_id: str) -> Plan | None:
        """How the job was admitted, if it was."""
        packed = self._redis.hget(self._job(job_id), "plan")
        return None if packed is None else msgspec.msgpack.decode(packed, type=Plan)

    def admit(
        self, job_id: str, digest: str, job: str, first: int | None, end: int | None, mark: str | None
    ) -> Plan:
        """Admit a job with a fresh key; returns the plan that stands, which is another one's if it came first."""
        plan = Plan(digest, job, new_key(), first, end, mark)
        self._redis.hsetnx(self._job(job_id), "plan", msgspec.msgpack.encode(plan))
        return self.plan(job_id) or plan

    def result(self, job_id: str) -> list[bytes] | None:
        """The stored result, in parts."""
        packed = self._redis.hget(self._job(job_id), "result")
        return None if packed is None else msgspec.msgpack.decode(packed, type=list[bytes])

    def keep(self, job_id: str, parts: list[bytes]) -> list[bytes]:
        """Store a result if the job has none; returns the one that is stored: only that may be published."""
        self._redis.hsetnx(self._job(job_id), "result", msgspec.msgpack.encode(parts))
        return self.result(job_id) or parts

    def cancel(self, job_id: str) -> None:
        """Ask that the job, which may not even be admitted yet, release nothing."""
        self._redis.hset(self._job(job_id), "cancelled", 1)

    def is_cancelled(self, job_id: str) -> bool:
        """Whether it was asked."""
        return bool(self._redis.hexists(self._job(job_id), "cancelled"))

    def report(self, job_id: str, step: str, done: int = 0, total: int = 0) -> None:
        """How far the job is: for a topic in offsets; for a file it is PRIVATE, as it tells the file's size."""
        self._redis.hset(self._job(job_id), "progress", f"{step} {done}/{total}" if total else step)

    def listed(self) -> Iterator[tuple[str, str | None, bytes | None]]:
        """Id, progress and first part of the result of every job, by id."""
        for name in sorted(self._redis.scan_iter(self._job("*"))):
            progress, packed = self._redis.hmget(name, "progress", "result")
            parts = [None] if packed is None else msgspec.msgpack.decode(packed, type=list[bytes])
            job_id = name.decode().removeprefix(self._job(""))
            yield job_id, None if progress is None else progress.decode(), parts[0]

    def schedules(self) -> dict[str, Schedule]:
        """All schedules by id."""
        found = self._redis.hgetall(self._prefix + "schedules")
        return {
            name.decode(): msgspec.msgpack.decode(packed, type=Schedule) for name, packed in found.items()
        }

    def schedule(self, job_id: str, schedule: Schedule) -> Schedule:
        """Add a schedule if there is none of this id; returns the one that stands."""
        self._redis.hsetnx(self._prefix + "schedules", job_id, msgspec.msgpack.encode(schedule))
        return self.schedules().get(job_id, schedule)

    def advance(self, job_id: str, schedule: Schedule) -> None:
        """Remember the last period that was asked for, unless the schedule has ended meanwhile."""
        name = self._prefix + "schedules"
        with self._redis.pipeline(transaction=True) as transaction:
            transaction.watch(name)
            if transaction.hexists(name, job_id):
                transaction.multi()
                transaction.hset(name, job_id, msgspec.msgpack.encode(schedule))
                transaction.execute()

    def end_schedule(self, job_id: str) -> bool:
        """End a schedule; returns whether there was one."""
        return bool(self._redis.hdel(self._prefix + "schedules", job_id))

    def next_offset(self, worker: str) -> int | None:
        """The first request that `worker` has not answered; None if Redis knows nothing of it."""
        found = self._redis.get(f"{self._prefix}jobs:{worker}")
        return None if found is None else int(found)

    def answered(self, worker: str, next_offset: int) -> None:
        """All requests before `next_offset` are answered."""
        self._redis.set(f"{self._prefix}jobs:{worker}", next_offset)

    def _job(self, job_id: str) -> str:
        return f"{self._prefix}job:{job_id}"
