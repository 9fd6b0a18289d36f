"""Windows of all labels, round by round, from what is shown or has been seen in the last two blocks.

What it does and why: counters/window.py.  Noise is a function of block, place and label, so a label that was forgotten
and comes back has the noise that it would have had: that of the last block is asked for again, W rounds late.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from stream_dp.counters.window import Showing

Cell = Callable[[int, int, str], int]
"""N_b(i) of a label, from b, i and the label; asked for in block b and the next one only."""


@dataclass
class _Label:
    """What is remembered of one label: by block, how many events each place had; of two blocks at most."""

    showing: Showing
    events: dict[int, list[int]] = field(default_factory=dict)

    def until(self, block: int, place: int) -> int:
        """S_b(i)."""
        return sum(self.events.get(block, [])[:place])


class WindowHistogram:
    """The mechanism of one stream from its first round on; it needs no horizon."""

    def __init__(self, window: int, taus: Sequence[int], noise: Cell) -> None:
        """`taus`: that of each place of a block."""
        self._window = window
        self._taus = taus
        self._noise = noise
        self._round = 0
        self._labels: dict[str, _Label] = {}

    def __len__(self) -> int:
        """How many labels it remembers anything of.  Private."""
        return len(self._labels)

    def advance(self, items: Iterable[str]) -> dict[str, int]:
        """Close a round with these items; the noisy window of each label that it shows."""
        block, before = divmod(self._round, self._window)
        self._round += 1
        if before == 0:
            self._begin_block(block)
        found = Counter(items)
        for label, number in found.items():
            known = self._labels.setdefault(label, _Label(Showing(self._window)))
            known.events.setdefault(block, [0] * self._window)[before] += number
        place = before + 1
        return {
            label: self._count(label, block, place)
            for label in sorted(self._labels)
            if self._is_shown(label, block, place, label in found)
        }

    def _begin_block(self, block: int) -> None:
        """Forget what is not shown and has no event in the last block, and what happened before that one."""
        for label, known in list(self._labels.items()):
            known.showing.begin_block()
            known.events.pop(block - 2, None)
            if not known.events and not known.showing.is_shown:
                del self._labels[label]

    def _is_shown(self, label: str, block: int, place: int, has_event: bool) -> bool:
        known = self._labels[label]
        noisy = known.until(block, place) + self._noise(block, place, label)
        return known.showing.step(has_event, noisy, self._taus[place - 1])

    def _count(self, label: str, block: int, place: int) -> int:
        known, length = self._labels[label], self._window
        count = known.until(block, place) + self._noise(block, place, label)
        if block:
            last = block - 1
            count += known.until(last, length) + self._noise(last, length, label)
            count -= known.until(last, place) + self._noise(last, place, label)
        return count
