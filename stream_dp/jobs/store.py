"""What Redis remembers of jobs, so that a request that is delivered again gives what it gave.  Keys of a stream:

stream_dp:{<stream>}:job:<id>        hash: `plan`, then `result` (each written once), and `cancelled`
stream_dp:{<stream>}:jobs:<worker>   which topic requests are read from, and the offset of the next one

Each value has a digest, bound to its key and field.  What is not as it was written is damage, and no outage that
anybody could wait for.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import blake2b
from types import MappingProxyType
from typing import Any, ClassVar

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


class Place(msgspec.Struct, frozen=True):
    """The first request that is not answered: `topic` is the identity of the topic that `offset` belongs to."""

    topic: str
    offset: int


_FIELDS = {b"plan", b"result", b"cancelled", b"progress"}  # earlier programs wrote the last
_DIGEST_BYTES = 16


class JobRecords(ABC):
    """What is remembered of the jobs of one stream, wherever that is kept: `held_by` says where.

    Any number of processes may use it at once.  Every method raises `StateDamaged` where something else stands there
    than was written, unless it says otherwise.
    """

    held_by: ClassVar[str]

    def __init__(self, stream: str) -> None:
        self._prefix = f"stream_dp:{{{stream}}}:"

    @abstractmethod
    def _value(self, name: str, field: str) -> bytes | None:
        """A field of a job as it was written."""

    @abstractmethod
    def _write(self, name: str, field: str, value: bytes) -> None:
        """Write a field of a job unless it stands there."""

    def plan(self, job_id: str) -> Plan | None:
        """How the job was admitted, if it was."""
        with _sound(self._job(job_id), self.held_by):
            packed = self._field(job_id, "plan")
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
        self._write_once(job_id, "plan", msgspec.msgpack.encode(plan))
        return self.plan(job_id) or plan

    def result(self, job_id: str) -> list[bytes] | None:
        """The stored result, in parts."""
        with _sound(self._job(job_id), self.held_by):
            packed = self._field(job_id, "result")
            return None if packed is None else msgspec.msgpack.decode(packed, type=list[bytes])

    def keep(self, job_id: str, parts: list[bytes]) -> list[bytes]:
        """Store a result if the job has none; returns the one that is stored: only that may be published."""
        self._write_once(job_id, "result", msgspec.msgpack.encode(parts))
        return self.result(job_id) or parts

    def is_cancelled(self, job_id: str) -> bool:
        """Whether somebody has asked to cancel this job."""
        with _sound(self._job(job_id), self.held_by):
            return self._field(job_id, "cancelled") is not None

    def _field(self, job_id: str, field: str) -> bytes | None:
        """A field of a job as it was written, without its digest."""
        name = self._job(job_id)
        value = self._value(name, field)
        return None if value is None else _checked(name, field, value)

    def _write_once(self, job_id: str, field: str, packed: bytes) -> None:
        name = self._job(job_id)
        with _sound(name, self.held_by):
            self._write(name, field, _with_digest(name, field, packed))

    def _job(self, job_id: str) -> str:
        return f"{self._prefix}job:{job_id}"


class JobStore(JobRecords):
    """The jobs of one stream in Redis."""

    held_by = "Redis"

    def __init__(self, redis: Redis, stream: str) -> None:
        super().__init__(stream)
        self._redis: Any = redis

    def _value(self, name: str, field: str) -> bytes | None:
        with self._redis.pipeline(transaction=True) as transaction:
            transaction.hkeys(name)
            transaction.hget(name, field)
            fields, value = transaction.execute()
        if not _FIELDS.issuperset(fields):  # one whose name was changed, and which is missing elsewhere
            raise ValueError
        return None if value is None else bytes(value)

    def _write(self, name: str, field: str, value: bytes) -> None:
        self._redis.hsetnx(name, field, value)

    def cancel(self, job_id: str) -> None:
        """Ask that the job, which may not even be admitted yet, release nothing."""
        with _sound(self._job(job_id)):
            name = self._job(job_id)
            self._redis.hset(name, "cancelled", _with_digest(name, "cancelled", b""))

    def next_request(self, worker: str) -> Place | None:
        """The first request that `worker` has not answered; None if Redis knows nothing of it, or it is damaged.

        To answer a request again gives what it gave, so that damage costs nothing here.
        """
        name = self._place(worker)
        try:
            with _sound(name):
                found = self._redis.get(name)
                if found is None:
                    return None
                return msgspec.msgpack.decode(_checked(name, "", found), type=Place)
        except StateDamaged:
            logger.warning("Redis holds no offset under %s: requests may be answered again, as before", name)
            return None

    def answered(self, worker: str, place: Place) -> None:
        """All requests before `place` are answered."""
        name = self._place(worker)
        self._redis.set(name, _with_digest(name, "", msgspec.msgpack.encode(place)))

    def _place(self, worker: str) -> str:
        return f"{self._prefix}jobs:{worker}"


def _with_digest(name: str, field: str, packed: bytes) -> bytes:
    return _digest(name, field, packed) + packed


def _checked(name: str, field: str, value: bytes) -> bytes:
    """What `_with_digest` was given.  Raises ValueError unless it is whole, and of this key and field."""
    packed = value[_DIGEST_BYTES:]
    if value[:_DIGEST_BYTES] != _digest(name, field, packed):
        raise ValueError
    return packed


def _digest(name: str, field: str, packed: bytes) -> bytes:
    return blake2b(msgspec.msgpack.encode((name, field, packed)), digest_size=_DIGEST_BYTES).digest()


@contextmanager
def _sound(name: str, held_by: str = JobStore.held_by) -> Iterator[None]:
    """What is read or written under a name must be what a worker has put there.  Raises `StateDamaged`."""
    try:
        yield
    except (msgspec.DecodeError, UnicodeError, ValueError):
        raise _damaged(name, held_by) from None
    except ResponseError as error:
        if "WRONGTYPE" not in str(error):
            raise
        raise _damaged(name, held_by) from None


def _damaged(name: str, held_by: str) -> StateDamaged:
    return StateDamaged(
        f"what {held_by} holds under {name} does not fit together: nothing is released; restore it from its backup, or "
        "ask again under a new id, which is charged; deleting it could release the same job with other noise"
    )
