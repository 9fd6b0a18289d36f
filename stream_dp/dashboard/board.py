"""What is known about the stream at this moment.  The reader's thread writes it, the server's event loop reads it."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Lock

from stream_dp.dashboard.answers import HistoryAnswer, State
from stream_dp.dashboard.history import History
from stream_dp.dashboard.results import Result, joined
from stream_dp.releases.release import Release

RATE_SECONDS = 10.0
MOST_RESULTS = 20
_MOST_NEW = 8
_SECONDS_BETWEEN_MARKS = 0.1
_FORGETFUL_ABOVE = 10_000  # labels that are remembered whether or not they are still released


@dataclass(frozen=True)
class BoardView:
    """The board at one moment.

    `published`: when the release was written into its topic, in seconds since 1970.  `delay`: how much older the
    event is that closed its round.  `behind`: newer records that wait in the topic.  `new`: labels released for
    the first time, with their rounds, newest first.  `rate`: rounds a second, None while it is too early to say.
    `unmetered`: whether nothing bounds what all that is released from the stream's source reveals.
    """

    version: int
    state: State
    release: Release | None
    published: float
    delay: float
    behind: int
    rate: float | None
    new: list[tuple[str, int]]
    results: list[Result]
    results_version: int
    history: tuple[int, int]
    unmetered: bool


@dataclass
class _Epoch:
    """What is remembered of the epoch that is shown."""

    nonce: str
    history: History = field(default_factory=History)
    known: set[str] = field(default_factory=set)
    new: deque[tuple[str, int]] = field(default_factory=lambda: deque(maxlen=_MOST_NEW))
    marks: deque[tuple[float, int]] = field(default_factory=deque)
    heard: float = 0.0


class Board:
    """Safe to use from several threads; every method returns at once."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._version = 0
        self._state: State = "connecting"
        self._release: Release | None = None
        self._published = self._delay = 0.0
        self._behind = 0
        self._epoch = _Epoch("")
        self._results: dict[str, Result] = {}
        self._results_version = 0
        self._unmetered: set[str] = set()

    @property
    def version(self) -> int:
        """Grows with every change."""
        return self._version

    @property
    def release(self) -> Release | None:
        """The newest release."""
        return self._release

    @property
    def results(self) -> list[Result]:
        """The results, newest first."""
        with self._lock:
            return list(reversed(self._results.values()))

    def set_state(self, state: State) -> None:
        """Tell how it stands with Kafka."""
        with self._lock:
            self._version += state != self._state
            self._state = state

    def confirm(self) -> None:
        """Kafka has answered: what is shown is all there is."""
        with self._lock:
            state: State = "empty" if self._release is None else "open"
            self._version += state != self._state
            self._state = state

    def take(
        self, release: Release, published: float, delay: float, behind: int, now: float, live: bool
    ) -> None:
        """Show a whole release, newer than those before.  `now` comes from a monotonic clock.

        Labels of a release that is not `live`, but was there before this program, are not called new, and neither are
        those that were known before the epoch.
        """
        with self._lock:
            if release.nonce != self._epoch.nonce:
                self._epoch = _Epoch(release.nonce)
            epoch = self._epoch
            self._version += 1
            self._state = "open"
            self._release, self._published, self._delay, self._behind = release, published, delay, behind
            epoch.history.add(release)
            self._note_labels(epoch, release, live)
            epoch.heard = now
            if live and (not epoch.marks or now - epoch.marks[-1][0] >= _SECONDS_BETWEEN_MARKS):
                epoch.marks.append((now, release.round))

    def take_past(self, release: Release) -> None:
        """Keep a release of the past for the history, if it is of the epoch that is shown."""
        with self._lock:
            if release.nonce == self._epoch.nonce and self._epoch.history.add(release):
                self._version += 1
                self._epoch.known.update(release.labels)

    def missing(self, since: int) -> list[int]:
        """Rounds from which on the history lacks releases, if all from `since` on were taken: see `History.missing`."""
        with self._lock:
            return self._epoch.history.missing(since)

    def take_result(self, result: Result) -> None:
        """Show a result; one with the same id takes the place of the earlier one, or continues it as its next part."""
        with self._lock:
            earlier = self._results.pop(result.id, None)
            self._results[result.id] = (earlier and joined(earlier, result)) or result
            while len(self._results) > MOST_RESULTS:
                del self._results[next(iter(self._results))]
            self._version += 1
            self._results_version += 1

    def note_unmetered(self, nonce: str) -> None:
        """The epoch of this nonce was opened without a budget."""
        with self._lock:
            self._version += nonce not in self._unmetered
            self._unmetered.add(nonce)

    def is_unmetered(self, release: Release) -> bool:
        """Whether the epoch of this release is known to have been opened without a budget."""
        return release.nonce in self._unmetered

    def series(self, labels: Sequence[str]) -> HistoryAnswer:
        """The history of these labels: see `History.series`."""
        with self._lock:
            return self._epoch.history.series(labels)

    def view(self, now: float) -> BoardView:
        """Everything, as it stands at `now` of the monotonic clock."""
        with self._lock:
            epoch = self._epoch
            return BoardView(
                self._version,
                self._state,
                self._release,
                self._published,
                self._delay,
                self._behind,
                self._rate(now),
                list(reversed(epoch.new)),
                list(reversed(self._results.values())),
                self._results_version,
                (epoch.history.stride, epoch.history.last),
                epoch.nonce in self._unmetered,
            )

    def _rate(self, now: float) -> float | None:
        """Rounds a second over the last seconds, or between the last releases where these are further apart.

        It falls to zero when nothing comes any more.
        """
        marks, heard = self._epoch.marks, self._epoch.heard
        apart = marks[-1][0] - marks[-2][0] if len(marks) > 1 else 0.0
        if marks and heard < now - max(RATE_SECONDS, 2 * apart):
            return 0.0
        while len(marks) > 2 and marks[1][0] < now - RATE_SECONDS:
            marks.popleft()
        if not marks or self._release is None or now - marks[0][0] < 1:
            return None
        return (self._release.round - marks[0][1]) / (max(heard, now - apart) - marks[0][0])

    @staticmethod
    def _note_labels(epoch: _Epoch, release: Release, live: bool) -> None:
        if epoch.known.issuperset(release.labels):
            return
        for place, label in enumerate(release.labels):
            if label not in epoch.known:
                epoch.known.add(label)
                if live and not release.is_known(place):
                    epoch.new.append((label, release.round))
        if len(epoch.known) > _FORGETFUL_ABOVE + 4 * len(release.labels):
            epoch.known = set(release.labels)
