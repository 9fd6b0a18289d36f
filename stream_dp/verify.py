"""Compute all releases of an epoch again, from the noise key and the events topic, and compare them byte for byte.

Pure: records and releases come in as iterators.  The outcome is a certificate that tells nothing about the data:
its commitment to the log is keyed, and everything else in it is public already.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b
from itertools import islice
from typing import NamedTuple

import msgspec

from stream_dp.barriers.chain import Barrier
from stream_dp.barriers.merged_log import LogEntry
from stream_dp.epoch import Epoch
from stream_dp.log_digest import NOTHING, LogDigest, LogDigester
from stream_dp.pipeline import Pipeline, ReleasedPart

_RECORDS_AT_ONCE = 500


class Verdict(StrEnum):
    """What the comparison says of the events topic and the releases."""

    IDENTICAL = "identical"
    EXTENDED = "extended"
    TRUNCATED = "truncated"
    REORDERED = "reordered"
    EDITED = "edited"
    RELEASES_CHANGED = "releases-changed"

    @property
    def sound(self) -> bool:
        """Whether everything released follows from the log."""
        return self in (Verdict.IDENTICAL, Verdict.EXTENDED)

    @property
    def sentence(self) -> str:
        """The verdict in words."""
        return {
            Verdict.IDENTICAL: "Every release follows from the log and the key, byte for byte.",
            Verdict.EXTENDED: "Every release follows from the log and the key; the log goes on beyond them.",
            Verdict.TRUNCATED: "The log ends, or begins, short of what was released.",
            Verdict.REORDERED: "The log holds the same records as were counted, in other places or at other times.",
            Verdict.EDITED: "The log does not hold the records that were counted.",
            Verdict.RELEASES_CHANGED: "The log is the one that was counted, but the releases are not what it gives.",
        }[self]


class Difference(NamedTuple):
    """The first place where recomputed and published releases differ.  PRIVATE: for operators only."""

    round: int
    part: int
    recomputed: bytes | None
    published: bytes | None


class Certificate(msgspec.Struct, frozen=True):
    """What was compared, and the verdict; safe to publish.

    `log` commits to the records read, under the noise key; `releases` hashes the published releases in order;
    `settings` is the fingerprint of all that the epoch promised.
    """

    v: int
    stream: str
    epoch: int
    nonce: str
    settings: str
    rounds: int
    log_records: int
    log: str
    releases: str
    verdict: Verdict
    sound: bool


@dataclass(frozen=True)
class Outcome:
    """The public certificate and the private difference, where there is one."""

    certificate: Certificate
    difference: Difference | None


def verify(
    epoch: Epoch,
    key: bytes,
    topic: str,
    entries: Iterable[LogEntry],
    published: Iterable[ReleasedPart],
    counted: LogDigest = NOTHING,
) -> Outcome:
    """Compare `published`, in the order of the releases topic, with what the log gives again.

    `entries` are that log, from the epoch's first offset on; `counted` is the commitment in the last
    checkpoint, by which an edited log is told from a reordered one and from changed releases.
    """
    log = _Log(entries, LogDigester(key), counted)
    pipeline = Pipeline(epoch, key, topic)
    recomputed = _recomputed(pipeline, log)
    releases, seen, rounds = blake2b(digest_size=32), dict[tuple[int, int], bytes](), 0
    difference: Difference | None = None
    for part in published:
        place = (part.round, part.part)
        digest = blake2b(part.value, digest_size=32).digest()
        if place in seen:  # after a crash the worker may send a round twice, with the same bytes
            if seen[place] != digest:
                difference = difference or Difference(*place, None, part.value)
            continue
        seen[place] = digest
        releases.update(digest)
        ours = next(recomputed, None)
        if ours == part:
            rounds = part.round if difference is None else rounds
        else:
            difference = difference or Difference(*place, ours.value if ours else None, part.value)
    released = max((round_number for round_number, _ in seen), default=0)
    for _ in recomputed:
        continue
    verdict = _verdict(log, epoch, pipeline.round, difference, released)
    certificate = Certificate(
        v=1,
        stream=epoch.privacy["stream"],
        epoch=epoch.number,
        nonce=epoch.nonce.hex(),
        settings=epoch.fingerprint,
        rounds=rounds,
        log_records=log.digest.records,
        log=log.digest.sequence.hex(),
        releases=releases.hexdigest(),
        verdict=verdict,
        sound=verdict.sound,
    )
    return Outcome(certificate, difference)


class _Log:
    """Passes records on and commits to them.

    `at_checkpoint` is the commitment where the worker made its last one, after `rounds_at_checkpoint` rounds.
    """

    def __init__(self, entries: Iterable[LogEntry], digester: LogDigester, counted: LogDigest) -> None:
        self._entries = iter(entries)
        self._digester = digester
        self.counted = counted
        self.digest = NOTHING
        self.at_checkpoint: LogDigest | None = None
        self.rounds_at_checkpoint = 0
        self.first_offset: int | None = None

    def batches(self) -> Iterator[list[LogEntry]]:
        while batch := list(islice(self._entries, self._until_checkpoint() or _RECORDS_AT_ONCE)):
            for record in batch:
                if isinstance(record, Barrier):
                    continue
                self.digest = self._digester.extend(self.digest, [record])
                if self.digest.records == self.counted.records:
                    self.at_checkpoint = self.digest
                if self.first_offset is None:
                    self.first_offset = record.offset
            yield batch

    def _until_checkpoint(self) -> int:
        """How many records of the next batch stand before the checkpoint: a batch ends there."""
        return min(_RECORDS_AT_ONCE, max(0, self.counted.records - self.digest.records))


def _recomputed(pipeline: Pipeline, log: _Log) -> Iterator[ReleasedPart]:
    """All releases that the log gives; records beyond the horizon are read, and release nothing."""
    for batch in log.batches():
        yield from pipeline.process(batch).releases
        if log.digest.records == log.counted.records:
            log.rounds_at_checkpoint = pipeline.round


def _verdict(log: _Log, epoch: Epoch, given: int, difference: Difference | None, released: int) -> Verdict:
    """`given`: the rounds that the log gives; records of a round that is still open give none."""
    records, counted = log.digest.records, log.counted
    if log.first_offset is not None and log.first_offset > epoch.first_offset and difference is not None:
        return Verdict.TRUNCATED
    if records < counted.records or given < released:
        ran_out = difference is None or difference.recomputed is None
        return Verdict.TRUNCATED if ran_out else Verdict.EDITED
    same_log = log.at_checkpoint is None or log.at_checkpoint.sequence == counted.sequence
    if same_log and difference is None:
        return Verdict.EXTENDED if given > released else Verdict.IDENTICAL
    if same_log and difference is not None and difference.round <= log.rounds_at_checkpoint:
        return Verdict.RELEASES_CHANGED
    if log.at_checkpoint is not None and log.at_checkpoint.contents == counted.contents and not same_log:
        return Verdict.REORDERED
    return Verdict.EDITED
