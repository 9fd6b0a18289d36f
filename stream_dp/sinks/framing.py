"""Where the record batches of a public topic end.  Whoever reads the topic sees that, so only public facts decide it.

A batch ends after a round whose number is a multiple of a fixed number, where the log that is counted ended when the
batch began, and where another release would make it too large.  Behind the last release that a new start found, the
first batches have 1, 2, 4, ... rounds, so that a backlog shows at once.  It never ends where a fetch happened to end:
how many records a fetch holds depends on how large they are, and so on what they hold.
"""

from collections.abc import Iterable, Iterator

from stream_dp.events.rounds import events_of
from stream_dp.pipeline.pipeline import ReleasedPart

LARGEST_BATCH = 1 << 20
"""Most bytes that go to a partition at once: a little below Kafka's default limit."""

_HEADER, _BYTES_BESIDE_VALUE = 61, 32
"""What a batch takes at most beside its records, and a record beside its key and value."""


def rounds_per_batch(rounds: str, batch_rounds: int) -> int:
    """After how many rounds a batch ends: those that `batch_rounds` events close, at least one.

    A barrier ends a batch: the round that it closes is all that is released at its time.

    >>> [rounds_per_batch(rounds, 500) for rounds in ("per-event", "every-100", "every-1000", "ticks")]
    [500, 5, 1, 1]
    """
    events = events_of(rounds)
    return 1 if events is None else max(1, batch_rounds // events)


def last_of_batch(round_number: int, rounds: int) -> int:
    """The last round of the batch that holds this round, where a batch ends after every multiple of `rounds`.

    >>> [last_of_batch(number, 5) for number in (1, 5, 6)]
    [5, 5, 10]
    """
    return -(-round_number // rounds) * rounds


def first_ends(released: int, batch_rounds: int) -> list[int]:
    """After which rounds batches end too, where a start found rounds up to `released`: after 1, 2, 4, ... more.

    Where a producer begins shows in its batches, and what was released shows anyway, so these tell nothing new.

    >>> first_ends(40, 10)
    [41, 43, 47]
    """
    return [released + (2 << k) - 1 for k in range((batch_rounds - 1).bit_length() - 1)]


def records_left(
    rounds: str, batch_rounds: int, closed: int, open_records: int, first_end: int | None = None
) -> int:
    """How many records are missing until a batch ends, after so many closed rounds and records of the open one.

    None of them is in the next batch.  Where barriers end rounds, it is how many barriers to take at once.
    `first_end`: a round that `first_ends` names.

    >>> records_left("every-100", 500, 7, 30), records_left("every-100", 500, 7, 30, first_end=8)
    (270, 70)
    """
    events = events_of(rounds)
    if events is None:
        return batch_rounds if first_end is None else min(batch_rounds, first_end - closed)
    ends = last_of_batch(closed + 1, rounds_per_batch(rounds, batch_rounds))
    return ((ends if first_end is None else min(ends, first_end)) - closed) * events - open_records


class Framing:
    """Cuts the releases of one partition, as they come, into batches; it keeps what belongs to one that is open.

    `rounds`: a batch ends after every multiple of it; `key_bytes`: the size of each record's key.
    """

    def __init__(self, rounds: int, key_bytes: int, largest: int = LARGEST_BATCH) -> None:
        self._rounds, self._largest = rounds, largest
        self._beside = _BYTES_BESIDE_VALUE + key_bytes
        self._open: list[ReleasedPart] = []
        self._size = _HEADER

    @property
    def is_open(self) -> bool:
        """Whether releases of an unfinished batch are held back."""
        return bool(self._open)

    def cut(
        self, parts: Iterable[ReleasedPart], reached: int, ends: bool = False
    ) -> Iterator[list[ReleasedPart]]:
        """The batches that have ended with `parts`, which go on where the last ones ended; take all of them.

        `reached`: all releases of the rounds up to it are given by now.  `ends`: a batch ends there, because the log
        did.
        """
        for part in parts:
            size = self._beside + len(part.value)
            if self._open and (self._size + size > self._largest or self._ends_before(part.round)):
                yield self._taken()
            self._open.append(part)
            self._size += size
        if self._open and (ends or self._ends_before(reached + 1)):
            yield self._taken()

    def rest(self) -> list[ReleasedPart]:
        """What it has kept, as a batch: nothing more belongs to it."""
        return self._taken()

    def _ends_before(self, round_number: int) -> bool:
        """Whether a batch ends between the last release it keeps and this round, which may be of the next epoch."""
        last = self._open[-1].round
        return round_number < last or last_of_batch(last, self._rounds) < round_number

    def _taken(self) -> list[ReleasedPart]:
        taken, self._open, self._size = self._open, [], _HEADER
        return taken
