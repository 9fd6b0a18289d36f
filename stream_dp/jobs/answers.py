"""What `<stream>.results` has answered: it decides, whatever Redis remembers.

Readers have seen what is there, and it cannot be taken back.  So a request whose job is done, or was cancelled, always
gets the same answer, even if Redis was lost, rolled back or damaged since.
"""

import threading

import msgspec

from stream_dp.config.connections import Kafka
from stream_dp.kafka import log

_FINAL = ("done", "cancelled")
"""What no other answer follows.  A job that was refused may be asked for again, for instance once there is a budget."""


class _Part(msgspec.Struct, frozen=True):
    """What this reads of a result; `result.py` has all of it."""

    id: str | None
    status: str
    digest: str | None = None
    job: str | None = None
    part: int = 1
    parts: int = 1


_DECODER = msgspec.json.Decoder(_Part)


class Answers:
    """The final answers in a results topic, by the id and the digest of their requests.  The first whole one counts.

    It remembers where they are, and reads them again when they are asked for.
    """

    def __init__(self, kafka: Kafka, topic: str) -> None:
        self._kafka, self._topic = kafka, topic
        self._lock = threading.Lock()
        self._forget("")

    def _forget(self, identity: str) -> None:
        self._identity, self._read = identity, 0
        self._whole: dict[
            str, dict[str, tuple[str | None, list[int]]]
        ] = {}  # id, digest: the job, and its offsets
        self._begun: dict[tuple[str, str], list[int]] = {}

    def of(self, job_id: str, digest: str) -> list[bytes] | None:
        """The parts of the final answer to the request of this id and digest, if there is one.  Raises KafkaError."""
        with self._lock:
            self._read_on()
            _, offsets = self._whole.get(job_id, {}).get(digest, (None, []))
            return self._parts(offsets) if offsets else None

    def of_job(self, job_id: str, jobs: tuple[str, ...]) -> list[bytes] | None:
        """The parts of the final answer about this id, if one of these `jobs` has one.  Raises KafkaError."""
        with self._lock:
            self._read_on()
            found = [offsets for job, offsets in self._whole.get(job_id, {}).values() if job in jobs]
            return self._parts(found[0]) if found else None

    def _parts(self, offsets: list[int]) -> list[bytes]:
        records = log.read(self._kafka, self._topic, offsets[0], offsets[-1] + 1)
        return [record.value or b"" for record in records if record.offset in offsets]

    def _read_on(self) -> None:
        """Take note of what has come since, or of all of it where the topic is another one."""
        identity, held = log.identity(self._kafka, self._topic), log.offsets(self._kafka, self._topic)
        if identity != self._identity or held.end < self._read:
            self._forget(identity)
        for record in log.read(self._kafka, self._topic, max(self._read, held.first), held.end):
            self._take(record.value or b"", record.offset)
        self._read = held.end

    def _take(self, value: bytes, offset: int) -> None:
        try:
            found = _DECODER.decode(value)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return  # only workers of jobs should be able to write there
        if found.id is None or found.digest is None or found.status not in _FINAL:
            return
        key = found.id, found.digest
        before = self._begun.pop(key, []) if found.part > 1 else []
        if len(before) != found.part - 1:
            return
        if found.part < found.parts:
            self._begun[key] = [*before, offset]
        else:
            self._whole.setdefault(found.id, {}).setdefault(found.digest, (found.job, [*before, offset]))
