"""Where rounds end: at every event, at every N events, or at tick records.  The log and the key alone decide.

A tick record is written into the events topic by the worker, so that rounds end at certain times although nothing that
decides about releases ever reads a clock.  It carries a number and a keyed digest of it: whoever may merely write
events cannot write a tick, so no event can be one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from hmac import compare_digest
from typing import NamedTuple

from stream_dp.privacy.keyed_noise import subkey
from stream_dp.records import Record, Tick, decode_tick, encode_tick

PER_EVENT, TICKS = "per-event", "ticks"
_EVERY = "every-"


def events_of(rounds: str) -> int | None:
    """How many events end a round under the setting `rounds`; None where ticks do.

    >>> events_of("per-event"), events_of("every-100"), events_of("ticks")
    (1, 100, None)
    """
    if rounds == TICKS:
        return None
    return 1 if rounds == PER_EVENT else int(rounds.removeprefix(_EVERY))


class TickCodec:
    """Writes and recognises the ticks of one stream under its noise key."""

    def __init__(self, noise_key: bytes, stream: str) -> None:
        self._key = subkey(noise_key, b"tick")
        self._stream = stream

    def encode(self, number: int) -> bytes:
        """The value of the tick record `number`; its key is `TICK_KEY`."""
        return encode_tick(Tick(number, self._digest(number)))

    def number(self, record: Record) -> int | None:
        """The number of a tick of this stream; None for any other record."""
        tick = decode_tick(record.key, record.value)
        if tick is None or not compare_digest(tick.digest.encode(), self._digest(tick.tick).encode()):
            return None
        return tick.tick

    def _digest(self, number: int) -> str:
        return blake2b(f"{number} {self._stream}".encode(), key=self._key, digest_size=16).hexdigest()


class Round(NamedTuple):
    """The records of one round, the last of which closed it; `events` are those that may hold an event."""

    records: Sequence[Record]
    events: Sequence[Record]
    tick: int


@dataclass
class RoundCutter:
    """Cuts the records of one events partition into rounds.

    The records of the open round are kept as they came, and nothing of them has entered any state.  `next_offset` is
    the first that has not been taken; `tick` the number of the last tick that closed a round.  Ticks with that number
    or a lower one are passed over: they are neither events nor the end of a round.
    """

    events_per_round: int | None
    ticks: TickCodec
    next_offset: int
    tick: int = 0
    _records: list[Record] = field(default_factory=list)
    _events: list[Record] = field(default_factory=list)

    @property
    def open_records(self) -> int:
        """How many records the open round holds by now."""
        return len(self._records)

    def cut(self, records: Sequence[Record], most: int) -> list[Round]:
        """Take records in the order of their offsets; returns the rounds that they closed, at most `most` of them.

        Records that were taken before are skipped, and those after the last of `most` rounds are left.
        """
        if self.events_per_round == 1:  # nothing is ever left open: spare each event the look at what is
            fresh = [record for record in records if record.offset >= self.next_offset][:most]
            self.next_offset = fresh[-1].offset + 1 if fresh else self.next_offset
            return [Round(alone, alone, self.tick) for alone in zip(fresh, strict=True)]
        rounds: list[Round] = []
        for record in records:
            if record.offset < self.next_offset:
                continue
            if len(rounds) == most:
                break
            self.next_offset = record.offset + 1
            self._records.append(record)
            if self._closes(record):
                rounds.append(Round(self._records, self._events, self.tick))
                self._records, self._events = [], []
        return rounds

    def _closes(self, record: Record) -> bool:
        if self.events_per_round is not None:
            self._events.append(record)
            return len(self._events) == self.events_per_round
        number = self.ticks.number(record)
        if number is None:
            self._events.append(record)
        elif number > self.tick:
            self.tick = number
            return True
        return False


class TickTimes:
    """When the worker is to write a tick: at the multiples of `seconds` since 1970, one at a time.

    A tick's number is the time it was due, in milliseconds since 1970, so that two workers who write for the same
    moment write the same number, and numbers go up from epoch to epoch; should a clock have gone back, it is one more
    than the last.  Moments that were missed are made up for by one tick.  `clock` gives seconds since 1970.
    """

    def __init__(self, seconds: float, clock: Callable[[], float]) -> None:
        self._interval = max(1, round(seconds * 1000))
        self._clock = clock
        self._due = self._moment()
        self._written = 0

    def due(self, last: int) -> int | None:
        """The number of the tick to be written now, if any; `last` is that of the last one which was read.

        The one written before must have been read: at most one is on its way.
        """
        moment = self._moment()
        if last < self._written or moment <= min(last, self._due):
            return None
        return max(moment, last + 1)

    def written(self, number: int) -> None:
        """A tick of this number was handed to the broker."""
        self._written, self._due = number, self._moment()

    def seconds_left(self) -> float:
        """Until the next multiple."""
        return (self._interval - self._now() % self._interval) / 1000

    def _now(self) -> int:
        return int(self._clock() * 1000)

    def _moment(self) -> int:
        return self._now() // self._interval * self._interval
