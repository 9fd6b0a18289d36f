"""Compute all releases of an epoch again, from the noise key and the events topic, and compare them byte for byte.

Pure: records and releases come in as iterators.  The outcome is a certificate that tells nothing about the data:
its commitment to the log is keyed, and everything else in it is public already.

Releases may be missing.  What is there is compared, and says by its tags whether the log is the one that was counted.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b
from itertools import chain, islice
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from stream_dp.engine.epoch import Epoch
from stream_dp.engine.known_labels import NOTHING_KNOWN, KnownLabels
from stream_dp.events.barrier_chain import Barrier
from stream_dp.events.log_digest import NOTHING, LogDigest, LogDigester, PartDigest
from stream_dp.events.merged_log import LogEntry
from stream_dp.events.record import Record
from stream_dp.pipeline.pipeline import Pipeline, ReleasedPart
from stream_dp.privacy.vector import Vector, at
from stream_dp.releases.release import decode_release
from stream_dp.verification.block_start import BlockStart

_RECORDS_AT_ONCE = 500


class Verdict(StrEnum):
    """What the comparison says of the events topic and the releases."""

    IDENTICAL = "identical"
    EXTENDED = "extended"
    TRUNCATED = "truncated"
    EDITED = "edited"
    RELEASES_CHANGED = "releases-changed"
    RELEASES_INCOMPLETE = "releases-incomplete"

    @property
    def sound(self) -> bool:
        """Whether every release that is there follows from the log."""
        return self in (Verdict.IDENTICAL, Verdict.EXTENDED, Verdict.RELEASES_INCOMPLETE)

    @property
    def sentence(self) -> str:
        """The verdict in words."""
        return {
            Verdict.IDENTICAL: "Every release follows from the log and the key, byte for byte.",
            Verdict.EXTENDED: "Every release follows from the log and the key; the log continues beyond them.",
            Verdict.TRUNCATED: "The log ends, or begins, short of what was released.",
            Verdict.EDITED: "The log does not hold the records that were counted.",
            Verdict.RELEASES_CHANGED: "The log is the one that was counted, but the releases are not what it gives.",
            Verdict.RELEASES_INCOMPLETE: "Every release that is there follows from the log and the key; some are "
            "missing, and `stream-dp republish` can write them again.",
        }[self]


class Difference(NamedTuple):
    """The first place where recomputed and published releases differ.  PRIVATE: for operators only."""

    round: int
    part: int
    recomputed: bytes | None
    published: bytes | None

    @property
    def tags_agree(self) -> bool:
        """Whether both carry the same tag, so that the log is the one that was counted up to here."""
        if self.recomputed is None or self.published is None:
            return False
        ours, theirs = decode_release(self.recomputed), decode_release(self.published)
        return ours.tag == theirs.tag


class Certificate(msgspec.Struct, frozen=True):
    """What was compared, and the verdict; safe to publish.

    `log` commits to the log, under the noise key, as far as rounds have ended; `log_records` is how many were read.
     `releases` hashes the published releases in order; `settings` is the fingerprint of all
    that the epoch guaranteed; `missing` counts rounds that were released and are not there, or not wholly.

    `first_round` is the first one that was compared byte for byte: 1, unless only the last blocks of windows were.
    Then all this is about the rounds from the block before it on, of which all but labels and counts was compared.

    `at_least`: no label that fewer events hold, or users, was found; null where labels are not looked for at tests.
    The comparison shows that too, because the program that computed the releases again measures no other label.
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
    missing: int
    verdict: Verdict
    sound: bool
    at_least: int | None
    items_per_event: int
    cap_share: bool
    first_round: int = 1


@dataclass(frozen=True)
class Outcome:
    """The public certificate and the private difference, where there is one.

    `missing` are the rounds that the certificate counts, in order, and `last` is the last round that is there.
    """

    certificate: Certificate
    difference: Difference | None
    missing: list[int]
    last: int


def verify(
    epoch: Epoch,
    key: bytes,
    topic: str,
    entries: Iterable[LogEntry],
    published: Iterable[ReleasedPart],
    counted: LogDigest = NOTHING,
    released: int = 0,
    known: KnownLabels = NOTHING_KNOWN,
    schemas: Iterable[bytes | None] = (),
    start: BlockStart | None = None,
    counted_rounds: int = 0,
) -> Outcome:
    """Compare `published`, in the order of the releases topic, with what the log gives again.

    `entries` are that log, from the epoch's first offset on; `counted` is the commitment in the last
    checkpoint, by which an edited log is told from changed releases.  `released` is a round up
    to which all releases are known to have been made; what is missing before the last one that is there is known too.
    `known`: see `Pipeline`.  `schemas` are the records of the schemas topic, where events name schemas.
    `start`: where `entries` and `published` begin, if that is not with the epoch.  `counted_rounds`: where commitments
    begin anew with blocks, after how many rounds the checkpoint was made; 0 if it was made before `start`, or never.
    """
    if start is None:
        pipeline, first_round = Pipeline(epoch, key, topic, known=known), 1
        offsets: Vector = epoch.offsets
    else:
        pipeline, first_round, offsets = start.pipeline(epoch, key), start.first_compared, start.offsets
    pipeline.intake.schemas.take(*schemas)
    log = _Log(entries, LogDigester(key, epoch.reads_headers), counted, counted_rounds, pipeline)
    comparison = _Comparison(comparable(log.recomputed(), first_round))
    for part in comparable(published, first_round):
        comparison.take(part)
    missing = comparison.end(released)
    verdict = _verdict(log, offsets, pipeline.round, comparison, bool(missing))
    certificate = Certificate(
        v=1,
        stream=epoch.privacy["stream"],
        epoch=epoch.number,
        nonce=epoch.nonce.hex(),
        settings=epoch.fingerprint,
        rounds=comparison.rounds,
        log_records=log.digest.records,
        log=log.digest.sequence.hex(),
        releases=comparison.releases.hexdigest(),
        missing=len(missing),
        verdict=verdict,
        sound=verdict.sound,
        at_least=epoch.at_least,
        items_per_event=epoch.mechanism.items_per_event,
        cap_share=epoch.mechanism.cap_share,
        first_round=first_round,
    )
    return Outcome(certificate, comparison.difference, missing, comparison.last)


def comparable(parts: Iterable[ReleasedPart], first_round: int) -> Iterator[ReleasedPart]:
    """What is compared of releases: before `first_round` all but labels and counts, once a round."""
    for part in parts:
        if part.round >= first_round:
            yield part
        elif part.part == 1:
            bare = replace(decode_release(part.value), labels=[], counts=[], parts=1)
            yield part._replace(value=msgspec.json.encode(bare))


class _Comparison:
    """Compares what is published, in any order and with gaps, with what is computed again, in order.

    `rounds` is the last round up to which everything that is there was equal, `last` the last one that is there.
    """

    def __init__(self, recomputed: Iterator[ReleasedPart]) -> None:
        self._recomputed = recomputed
        self._next: ReleasedPart | None = None
        self._seen: dict[_Place, bytes] = {}  # digests of what is published
        self._passed: dict[_Place, bytes] = {}  # and of what was not there where it was due
        self.releases = blake2b(digest_size=32)
        self.difference: Difference | None = None
        self.rounds = 0

    @property
    def last(self) -> int:
        return max((round_number for round_number, _ in self._seen), default=0)

    def take(self, part: ReleasedPart) -> None:
        """Compare one release; one that comes again, as after a crash of the worker, must be the same again."""
        place, digest = _place(part), _digest(part)
        ours = None
        if place in self._seen:
            if self._seen[place] == digest:
                return
        elif self._passed.pop(place, None) == digest:
            self._note(place, digest)
            return
        else:
            ours = self._recomputed_at(place)
            self._note(place, digest)
        if ours != part:
            self.difference = self.difference or Difference(*place, ours.value if ours else None, part.value)
        elif self.difference is None:
            self.rounds = max(self.rounds, part.round)

    def _note(self, place: "_Place", digest: bytes) -> None:
        self._seen[place] = digest
        self.releases.update(digest)

    def _recomputed_at(self, place: "_Place") -> ReleasedPart | None:
        """What the log gives there; whatever comes before it and was not asked for is passed over."""
        while self._next is None or _place(self._next) < place:
            if self._next is not None:
                self._passed[_place(self._next)] = _digest(self._next)
            self._next = next(self._recomputed, None)
            if self._next is None:
                return None
        if _place(self._next) > place:
            return None
        found, self._next = self._next, None
        return found

    def end(self, released: int) -> list[int]:
        """Compute the rest; returns the rounds of which something is missing, in order."""
        last = max(released, self.last)
        rest = self._recomputed if self._next is None else chain([self._next], self._recomputed)
        missing = {round_number for round_number, _ in self._passed}
        missing.update(part.round for part in rest if part.round <= last)
        return sorted(missing)


_Place = tuple[int, int]


def _place(part: ReleasedPart) -> _Place:
    return part.round, part.part


def _digest(part: ReleasedPart) -> bytes:
    return blake2b(part.value, digest_size=32).digest()


class _Log:
    """Gives records to a pipeline, and has the commitment to them.

    `at_checkpoint` is the commitment where the worker made its last one, after `rounds_at_checkpoint` rounds.
    """

    def __init__(
        self,
        entries: Iterable[LogEntry],
        digester: LogDigester,
        counted: LogDigest,
        counted_rounds: int,
        pipeline: Pipeline,
    ) -> None:
        self._entries, self._pipeline = iter(entries), pipeline
        self._digester, self._own = digester, dict[int, LogDigest]()
        self._block = pipeline.epoch.log_rounds
        self.counted, self._counted_rounds = counted, counted_rounds
        self.records = 0
        self.at_checkpoint: LogDigest | None = None
        self.rounds_at_checkpoint = 0
        self.first_offsets: dict[int, int] = {}

    @property
    def digest(self) -> LogDigest:
        """The commitment to the rounds that have ended; where it begins anew with blocks, to all records read."""
        if not self._block:
            return self._pipeline.position.log
        parts = [PartDigest(number, own.records, own.sequence, own.last) for number, own in self._own.items()]
        return self._digester.extend_joint(NOTHING, sorted(parts))

    def recomputed(self) -> Iterator[ReleasedPart]:
        """All releases that the log gives; records beyond the horizon are read, and release nothing."""
        while batch := list(islice(self._entries, self._at_once())):
            self._read([record for record in batch if not isinstance(record, Barrier)])
            yield from self._pipeline.process(batch).releases
            if self._block:
                at_checkpoint = self._pipeline.round == self._counted_rounds
            else:
                at_checkpoint = self.records == self.counted.records and not self.is_same
            if at_checkpoint:
                self.rounds_at_checkpoint = self._pipeline.round
                self.at_checkpoint = self._pipeline.position.log

    def _read(self, records: Sequence[Record]) -> None:
        self.records += len(records)
        of_partitions = defaultdict[int, list[list[tuple[int, list[Record]]]]](list)
        for record in records:
            self.first_offsets.setdefault(record.partition, record.offset)
            if self._block:
                of_partitions[record.partition].append([(record.partition, [record])])
        for number, alone in of_partitions.items():
            self._own[number] = self._digester.extend(self._own.get(number, NOTHING), alone)

    def _at_once(self) -> int:
        """How many entries to take: none stands on both sides of the checkpoint, and rounds without any may follow."""
        if self._block:
            left = self._counted_rounds - self._pipeline.round  # an entry closes one round at most
        elif self.counted.records == self.records:
            return 1
        else:
            left = self.counted.records - self.records
        return min(_RECORDS_AT_ONCE, left) if left > 0 else _RECORDS_AT_ONCE

    @property
    def is_same(self) -> bool:
        """Whether it is the log that was counted, as far as that is known where it was counted up to."""
        if self.at_checkpoint is None:
            return not self.counted.records
        return self.at_checkpoint.sequence == self.counted.sequence

    @property
    def falls_short(self) -> bool:
        """Whether it ends before what was counted."""
        if self._block:
            return self._pipeline.round < self._counted_rounds
        return self.records < self.counted.records

    def covers(self, round_number: int) -> bool:
        """Whether the commitment at the checkpoint covers this round."""
        last = self.rounds_at_checkpoint
        first = (last - 1) // self._block * self._block + 1 if self._block else 1
        return first <= round_number <= last

    def begins_late(self, offsets: Vector) -> bool:
        """Whether records are gone from where it begins."""
        return any(first > at(offsets, number) for number, first in self.first_offsets.items())


def _verdict(log: _Log, offsets: Vector, given: int, comparison: _Comparison, incomplete: bool) -> Verdict:
    """`given`: the rounds that the log gives; records of a round that is still open give none."""
    difference, released = comparison.difference, comparison.last
    if log.begins_late(offsets) and difference is not None:
        return Verdict.TRUNCATED
    if log.falls_short or given < released:
        ran_out = difference is None or difference.recomputed is None
        return Verdict.TRUNCATED if ran_out else Verdict.EDITED
    if not log.is_same:
        return Verdict.EDITED
    if difference is not None:
        after_same_log = log.covers(difference.round) or difference.tags_agree
        return Verdict.RELEASES_CHANGED if after_same_log else Verdict.EDITED
    if incomplete:
        return Verdict.RELEASES_INCOMPLETE
    return Verdict.EXTENDED if given > released else Verdict.IDENTICAL
