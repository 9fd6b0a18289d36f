"""Topics that remember what Redis may lose: `<stream>.epochs` here, the ledger of a source in journaled_ledger.py.

Neither holds data.  Nonces, offsets, settings and known labels are public, and the noise key is only there as its check
value.  Offsets of a derived topic depend on what its records hold, and are encrypted (hidden_offsets.py).  Nor do
they tell how long counting takes: the time of a record is one of the log, or that of an operator's act, and not when
the record was written.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import msgspec
from kafka import KafkaProducer

from stream_dp.barriers.key import barrier_key
from stream_dp.barriers.topic import beginning_of
from stream_dp.config.connections import Kafka
from stream_dp.config.settings import Settings
from stream_dp.engine.epoch import Epoch, EpochRefused
from stream_dp.engine.epoch_numbers import may_follow
from stream_dp.engine.known_labels import NOTHING_KNOWN, KnownLabels, cut, joined
from stream_dp.events.hidden_offsets import Offsets, hide, reveal
from stream_dp.events.record import Record
from stream_dp.kafka import log
from stream_dp.kafka.clients import borrowed, producer_client
from stream_dp.kafka.rights import naming
from stream_dp.privacy.keyed_noise import key_check
from stream_dp.privacy.vector import Vector, at, larger
from stream_dp.store.foreign_records import passed_over
from stream_dp.store.noise_key import NoKey

_ANSWER_SECONDS = 30
_LOOK_AGAIN_MILLISECONDS = (
    10  # of a producer that has not heard of its topic yet; kafka-python has no setting for it
)


class EpochOpened(msgspec.Struct, frozen=True, tag="epoch-opened"):
    """An epoch that may release from now on; its releases begin at `releases_offset` of their topic.

    `hidden`: where a derived topic is counted from, in place of the offsets and the barrier of `epoch`.
    `unmetered`: its data source had no budget then, so nothing bounds what all that is released from it reveals.
    """

    epoch: Epoch
    key_check: str
    releases_offset: int
    unmetered: bool = False
    hidden: bytes | None = None


class EpochStarted(msgspec.Struct, frozen=True, tag="epoch-started"):
    """An epoch that has had a checkpoint, and may have released something: without its state it never begins again."""

    number: int


class EpochClosed(msgspec.Struct, frozen=True, tag="epoch-closed"):
    """An epoch that counts nothing at or after `end_offset` from now on, and has counted nothing there.

    The latter does not hold where `end_unknown`: its state was lost, or the log is not the one that it counted, so
    nobody knows how far it came, and its charge must not end.  `end_barrier` is the number of the barrier that closed
    its last round, where it is known and there is one: a later one may stand at the same offset.
    `further_ends` are the ends of all partitions but the first.  `hidden`: the ends in a derived topic, in their place.
    """

    number: int
    end_offset: int
    end_unknown: bool = False
    end_barrier: int | None = None
    further_ends: Vector = ()
    hidden: bytes | None = None

    @property
    def ends(self) -> Vector:
        """The offset in each partition at which the epoch ended."""
        return self.end_offset, *self.further_ends


class BlockBegun(msgspec.Struct, frozen=True, tag="block-begun"):
    """Block `block` of the windows of epoch `number` begins at `offset` of its one partition.

    That follows from the number of records before, so it is public (docs/guarantee.md, "Windows without end").
    """

    number: int
    block: int
    offset: int


class KnownLabelsPart(msgspec.Struct, frozen=True, tag="known-labels"):
    """One of `parts` records that tell which labels an epoch knows; all of them are written before it is opened."""

    nonce: bytes
    part: int
    parts: int
    known: KnownLabels


EpochEntry = EpochOpened | EpochStarted | EpochClosed | BlockBegun | KnownLabelsPart
"""What a record of `<stream>.epochs` says."""

_DECODER = msgspec.json.Decoder(EpochEntry)


class EpochJournal:
    """What `<stream>.epochs` says, as of the last time that this process read it or appended to it.

    The first entry about a number counts, and later ones count for nothing: two workers may write at the same moment,
    and both must take the same epoch for the one that was opened.  An entry that no worker of this stream can have
    written is passed over and reported.  `opened_at` and `closed_at` have the times that those
    records carry, in milliseconds; what is written later about the same step carries them too.  `blocks` has, by epoch
    and block, where that begins and when the round before it was closed.
    """

    def __init__(self, settings: Settings, key: Callable[[], bytes] | None = None) -> None:
        """`key` finds the noise key, and may raise `NoKey`; without it, offsets of a derived topic stay hidden."""
        self._key = key
        self._kafka, self._topic, self._stream = settings.kafka_address, settings.epochs, settings.stream
        self._read = 0
        self.foreign: dict[int, str] = {}  # what was passed over, by offset
        self.opened: list[EpochOpened] = []
        self.started: set[int] = set()
        self.closed: dict[int, EpochClosed] = {}
        self.opened_at: dict[int, int] = {}
        self.closed_at: dict[int, int] = {}
        self.blocks: dict[int, dict[int, tuple[int, int]]] = {}
        self._known: dict[bytes, dict[int, int]] = {}  # by nonce: the offset of each part
        self.read_on()

    @property
    def last(self) -> EpochOpened | None:
        """The epoch that was opened last, closed or not."""
        return self.opened[-1] if self.opened else None

    @property
    def last_is_open(self) -> bool:
        """Whether the epoch that was opened last may still release."""
        return self.last is not None and self.last.epoch.number not in self.closed

    @property
    def ends(self) -> Vector:
        """The offsets before which the epochs that are closed have counted, as far as they are known."""
        ends: Vector = (0,)
        for closed in self.closed.values():
            ends = larger(ends, closed.ends)
        return ends

    def known_labels(self, epoch: Epoch) -> KnownLabels:
        """What `epoch` knew of labels when it began.  Raises `LogRefused` where that is not there as it was written."""
        if epoch.known is None:
            return NOTHING_KNOWN
        places = self._known.get(epoch.nonce, {})
        found = joined([self._part_at(offset) for _, offset in sorted(places.items())])
        if found.digest != epoch.known:
            raise log.LogRefused(
                f"the topic {self._topic!r} does not hold the labels that epoch {epoch.number} knew when it began: it "
                "was changed or cut off; restore it, or open a new epoch, which is charged, with --new-epoch"
            )
        return found

    def _part_at(self, offset: int) -> KnownLabels:
        records = log.read(self._kafka, self._topic, offset, offset + 1)
        found = [_DECODER.decode(record.value or b"") for record in records]
        return found[0].known if found and isinstance(found[0], KnownLabelsPart) else NOTHING_KNOWN

    def append_known(self, epoch: Epoch, known: KnownLabels, at: int) -> None:
        """Write down what `epoch`, which is about to be opened, knows of labels; `at`: see `append`."""
        pieces = list(cut(known))
        for number, piece in enumerate(pieces, 1):
            self.append(KnownLabelsPart(epoch.nonce, number, len(pieces), piece), at)

    def append(self, entry: EpochEntry, at: int) -> None:
        """Write `entry` with this time, wait until the broker has it, and read what the topic holds up to it."""
        offset = append(self._kafka, self._topic, msgspec.json.encode(self._hidden(entry)), at)
        self._read_up_to(offset + 1)

    def _hidden(self, entry: EpochEntry) -> EpochEntry:
        """The entry without the offsets of a derived topic in the clear."""
        if isinstance(entry, EpochOpened) and entry.epoch.is_derived:
            epoch = entry.epoch
            hidden = hide(
                Offsets(epoch.offsets, epoch.after_barrier), self._secret(), beginning_of(epoch.nonce)
            )
            return msgspec.structs.replace(entry, epoch=epoch.in_public, hidden=hidden)
        if isinstance(entry, EpochClosed) and (epoch := self._epoch(entry.number)).is_derived:
            hidden = hide(Offsets(entry.ends), self._secret(), _end_of(epoch))
            return _ended_at(entry, (0,) * len(entry.ends), hidden=hidden)
        return entry

    def _revealed_beginning(self, entry: EpochOpened) -> EpochOpened:
        """With the offsets, if they can be read; without them the epoch cannot be counted, as its key is lost."""
        place = self._reveal(entry.hidden, beginning_of(entry.epoch.nonce))
        if place is None:
            return entry
        first, *further = place.offsets
        epoch = replace(
            entry.epoch, first_offset=first, further_offsets=tuple(further), after_barrier=place.barrier
        )
        return msgspec.structs.replace(entry, epoch=epoch, hidden=None)

    def _revealed_end(self, entry: EpochClosed) -> EpochClosed:
        """With the offsets, if they can be read; else nobody knows how far the epoch came."""
        if entry.hidden is None:
            return entry
        epoch = self._epoch(entry.number)
        place = self._reveal(entry.hidden, _end_of(epoch))
        if place is None:
            return _ended_at(entry, epoch.offsets, end_unknown=True)
        return _ended_at(entry, place.offsets, hidden=None)

    def _reveal(self, hidden: bytes | None, about: str) -> Offsets | None:
        try:
            return None if hidden is None or self._key is None else reveal(hidden, self._secret(), about)
        except NoKey:
            return None

    def _secret(self) -> bytes:
        assert self._key is not None, "whoever writes entries knows the noise key"
        return barrier_key(self._key())

    def _epoch(self, number: int) -> Epoch:
        return self.opened[number - self.opened[0].epoch.number].epoch

    @property
    def end(self) -> int:
        """Up to which offset of the topic it has been read."""
        return self._read

    def has_changed(self) -> bool:
        """Whether anything was appended since it was read."""
        return log.offsets(self._kafka, self._topic).end != self._read

    def read_on(self) -> None:
        """Read what has been appended since.  Raises `LogRefused`."""
        held = log.offsets(self._kafka, self._topic)
        self._read = max(self._read, held.first)
        self._read_up_to(held.end)

    def _read_up_to(self, end: int) -> None:
        for record in log.read(self._kafka, self._topic, self._read, end):
            why = self._take(record)
            if why is not None:
                self.foreign[record.offset] = why
                passed_over(self._topic, record.offset, why)
        self._read = end

    def _take(self, record: Record) -> str | None:
        """Take note of a record; returns why it cannot be one of this stream's epochs, or None."""
        try:
            entry = _DECODER.decode(record.value or b"")
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return "is not an epoch's"
        if isinstance(entry, KnownLabelsPart):
            self._known.setdefault(entry.nonce, {}).setdefault(entry.part, record.offset)
        elif isinstance(entry, EpochOpened):
            return self._take_opened(self._revealed_beginning(entry), record)
        elif entry.number not in self.opened_at:
            return f"is about epoch {entry.number}, which was not opened"
        elif isinstance(entry, EpochStarted):
            self.started.add(entry.number)
        elif isinstance(entry, BlockBegun):
            begun = self.blocks.setdefault(entry.number, {})
            begun.setdefault(entry.block, (entry.offset, record.timestamp))
        elif entry.number not in self.closed:
            entry, opened = self._revealed_end(entry), self._epoch(entry.number)
            if any(end < at(opened.offsets, number) for number, end in enumerate(entry.ends)):
                return f"closes epoch {entry.number} before it begins"
            self.closed[entry.number], self.closed_at[entry.number] = entry, record.timestamp
        return None

    def _take_opened(self, entry: EpochOpened, record: Record) -> str | None:
        number, stream = entry.epoch.number, entry.epoch.privacy.get("stream")
        if stream != self._stream:
            return f"opens an epoch of the stream {str(stream)[:249]!r}"
        last = self.last.epoch.number if self.last is not None else 0
        if may_follow(number, last, self.closed):
            self.opened.append(entry)
            self.opened_at[number] = record.timestamp
        elif number not in self.opened_at:
            return f"opens epoch {number}, and epoch {last} is the last one that was opened or is still open"
        return None


def _end_of(epoch: Epoch) -> str:
    return f"end of {epoch.nonce.hex()}"


def _ended_at(entry: EpochClosed, ends: Vector, **changed: Any) -> EpochClosed:
    end, *further = ends
    return msgspec.structs.replace(entry, end_offset=end, further_ends=tuple(further), **changed)


def known_labels_of(settings: Settings, epoch: Epoch) -> KnownLabels:
    """What `epoch` knew of labels when it began, from the topic of the epochs.  Raises `LogRefused`."""
    return NOTHING_KNOWN if epoch.known is None else EpochJournal(settings).known_labels(epoch)


def check_key(opened: EpochOpened, key: bytes) -> None:
    """Raise `EpochRefused` unless `key` is the one that the epoch was opened with."""
    if opened.key_check != key_check(key):
        raise EpochRefused(
            f"the noise key is not the one that epoch {opened.epoch.number} was opened with: supply that one, or, if "
            "it is lost, open a new epoch, which is charged, with --new-epoch"
        )


def check_journal(kafka: Kafka, topic: str, found: log.Described | None = None) -> None:
    """Raise `LogRefused` unless `topic` can serve as a journal, whose records stay forever; `found`: see log.py."""
    for forgetful in log.check_topic(kafka, topic, found=found):
        raise log.LogRefused(
            f"{forgetful}, and what was charged would be spent again: set retention.ms and retention.bytes to -1"
        )


def append(kafka: Kafka, topic: str, value: bytes, at: int) -> int:
    """Write a record with this time, in milliseconds, and wait until the broker has it; returns its offset."""
    return append_all(kafka, topic, [value], at)[0]


def append_all(kafka: Kafka, topic: str, values: Iterable[bytes], at: int) -> list[int]:
    """Append several records that are on their way at the same time; returns their offsets."""
    with naming("WRITE", topic), borrowed(_appender, kafka) as producer:
        sent = [producer.send(topic, value, timestamp_ms=at) for value in values]
        return [int(each.get(timeout=_ANSWER_SECONDS).offset) for each in sent]


def _appender(kafka: Kafka) -> KafkaProducer:
    producer = producer_client(kafka)
    producer._metadata.config["retry_backoff_ms"] = _LOOK_AGAIN_MILLISECONDS
    return producer
