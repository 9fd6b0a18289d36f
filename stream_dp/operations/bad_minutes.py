"""Says once a minute if most records are no events.  It goes to the worker's log alone, which is private."""

import logging
import re
from collections import Counter
from collections.abc import Callable, Sequence

from stream_dp.events.dead_letter import DeadLetter

logger = logging.getLogger(__name__)

MINUTE = 60.0
_PLACE_IN_A_LIST = re.compile(r"\[\d+\]")
_MOST_REASONS = 1_000


def kind_of(reason: str) -> str:
    """A reason without the place in a list, so that equal mistakes are counted together.

    >>> kind_of("Expected `str`, got `int` - at `$.items[17]`")
    'Expected `str`, got `int` - at `$.items[...]`'
    """
    return _PLACE_IN_A_LIST.sub("[...]", reason)


class BadMinutes:
    """Counts the records of one minute after the other, and how many of them were no events, by reason."""

    def __init__(self, stream: str, clock: Callable[[], float]) -> None:
        self._stream, self._clock = stream, clock
        self._begin(clock())

    def count(self, records: int, letters: Sequence[DeadLetter]) -> None:
        """So many more records were counted, of which these were no events."""
        now = self._clock()
        if now - self._began >= MINUTE:
            self._tell()
            self._begin(now)
        self._records += records
        self._letters += len(letters)
        for letter in letters:
            kind = kind_of(letter.reason)
            if kind in self._reasons or len(self._reasons) < _MOST_REASONS:
                self._reasons[kind] += 1
                self._examples.setdefault(kind, letter.without_content())

    def _begin(self, now: float) -> None:
        self._began, self._records, self._letters = now, 0, 0
        self._reasons = Counter[str]()
        self._examples: dict[str, DeadLetter] = {}

    def _tell(self) -> None:
        if 2 * self._letters <= self._records or not self._reasons:
            return
        [(reason, count)] = self._reasons.most_common(1)
        example = self._examples[reason]
        logger.warning(
            "stream %s: %d of %d records of the last minute are not events, %d of them because: %s; look at the record "
            "at offset %d of partition %d of %s, and count all reasons with `stream-dp check --sample 1000`",
            self._stream,
            self._letters,
            self._records,
            count,
            reason,
            example.offset,
            example.partition,
            example.topic,
        )
