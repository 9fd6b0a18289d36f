"""The running histogram as people see it in a terminal: drawn from releases alone, at most ten times a second."""

import time
from collections.abc import Callable
from types import TracebackType
from typing import Generic, Self, TypeVar

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from stream_dp.privacy.wording import for_viewers, in_words, unit_in_words
from stream_dp.releases.estimates.intervals import intervals_of, rank_ranges
from stream_dp.releases.release import Release
from stream_dp.releases.silence import silence
from stream_dp.releases.totals import Total, totals_carried

_SECONDS_PER_FRAME = 0.1
_WIDEST_LABEL = 28
_HEADER_AND_NOTES = 12  # lines around the ranked labels
_FEWEST_LABELS = 3
_PLAIN_LABELS = 5
_SHOWN = {
    "kept": "A label is first shown when its noisy count reaches tau, so counts are too high at first.",
    "each-round": "Only counts of tau or more are released, so small ones are too high on average.",
}


Shown = TypeVar("Shown")


class LiveView(Generic[Shown]):
    """Shows the newest of what is given to it: a live picture in a terminal, plain lines elsewhere."""

    def __init__(
        self,
        console: Console,
        line: Callable[[Shown], str],
        picture: Callable[[Shown, int, int, str], RenderableType],
        lines_above: int = 0,
    ) -> None:
        """`picture` is given the width, the most labels that have room, and a status.

        `lines_above`: how many lines of the terminal to leave to what was printed before.
        """
        self._console = console
        self._line, self._picture = line, picture
        self._lines_above = lines_above
        self._live = self._new_live() if console.is_terminal else None
        self._size = console.size
        self._waiting: Shown | None = None
        self._status = ""
        self._drawn_at = 0.0

    def _new_live(self) -> Live:
        return Live(console=self._console, auto_refresh=False)

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
            self._live.update(Text("Waiting for the first release ...", style="dim"), refresh=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._draw()
        if self._live is not None:
            self._live.stop()

    def show(self, newest: Shown | None, status: str = "") -> None:
        """Take the newest, None for no new one; draw if the last frame is old enough."""
        self._waiting, self._status = self._waiting if newest is None else newest, status
        if time.monotonic() - self._drawn_at >= _SECONDS_PER_FRAME:
            self._draw()

    def _draw(self) -> None:
        if self._waiting is None:
            return
        self._drawn_at = time.monotonic()
        if self._live is None:
            self._console.print(self._line(self._waiting), soft_wrap=True, highlight=False, markup=False)
        else:
            self._begin_anew_if_resized(self._live)
            height = max(_FEWEST_LABELS, self._console.height - self._lines_above - _HEADER_AND_NOTES)
            frame = self._picture(self._waiting, self._console.width, height, self._status)
            self._live.update(frame, refresh=True)
        self._waiting = None

    def _begin_anew_if_resized(self, live: Live) -> None:
        """A terminal that is resized folds the lines of the last frame: draw the next one on an empty screen."""
        if self._console.size == self._size:
            return
        self._size = self._console.size
        live.stop()
        self._console.clear()
        self._live = self._new_live()
        self._live.start()


class HistogramView(LiveView[Release]):
    """Shows the newest release."""

    def __init__(self, console: Console, lines_above: int = 0) -> None:
        """See `LiveView`."""
        super().__init__(console, line, picture, lines_above)


def line(release: Release) -> str:
    """One release as one line of text.

    Only the largest counts; `--json` gives all of them.
    """
    release = release.largest_first()
    counts = list(zip(release.labels, release.counts, *intervals_of(release), strict=True))
    shown = [f"{printable(label)} {with_interval(*found)}" for label, *found in counts[:_PLAIN_LABELS]]
    totals = totals_carried(release)
    if totals is not None:
        shown = [
            f"{told}, in total {_with_margin(total)}" for told, total in zip(shown, totals, strict=False)
        ]
    more = [f"and {len(counts) - _PLAIN_LABELS:,} more"] if len(counts) > _PLAIN_LABELS else []
    return (
        f"{how_far(release)}  {_threshold(release)}  "
        f"{', '.join(shown + more) or silence(release) or 'no label yet'}"
    )


def _threshold(release: Release) -> str:
    """The count from which on new labels are shown, or when they are looked for next."""
    if release.found is None:
        return f"tau {release.tau:,}"
    return f"next test in round {release.next_test:,}" if release.next_test else "no further test"


def with_interval(count: int, low: float, high: float) -> str:
    """A count and its 95% interval, which reaches further down where the label was shown only lately."""
    if round(count - low) == round(high - count):
        return f"{count:,}±{high - count:,.0f}"
    return f"{count:,} ({max(0.0, low):,.0f}–{max(0.0, high):,.0f})"


def _with_margin(total: Total) -> str:
    return f"{total.count:,}±{total.margin:,}"


def picture(release: Release, width: int, most_labels: int, status: str = "") -> RenderableType:
    """The largest counts of a release as ranked bars, what they mean, and what is guaranteed."""
    release = release.largest_first()
    shown = min(most_labels, len(release.labels))
    hidden = f"{len(release.labels) - shown:,} more released" if len(release.labels) > shown else ""
    return Group(
        heading(release, status),
        Text(),
        _ranking(release, shown, width),
        Text(hidden, style="dim") if release.labels else _empty(release),
        *_notes(release),
    )


def _empty(release: Release) -> Text:
    """What is said in the place of labels."""
    told = silence(release)
    if told:
        return Text(f"{told}.", style="yellow")
    return Text(
        "No label has reached tau yet." if release.found is None else "No test has found a label yet.",
        style="dim",
    )


def heading(release: Release, status: str) -> RenderableType:
    """Which stream, how far, and how far to go."""
    table = Table.grid(expand=True)
    table.add_column()
    table.add_column(justify="right")
    table.add_row(
        Text.assemble(
            (printable(release.stream), "bold cyan"), f"  epoch {release.epoch}  {release.ts[:19]}Z"
        ),
        Text(how_far(release), style="bold"),
    )
    gone = bar(release.round / release.horizon, 0, 20) if release.horizon else ""
    table.add_row(Text(status, style="dim"), Text(gone, style="cyan"))
    return table


def how_far(release: Release) -> str:
    """The round, and how many there are, or which ones are counted where there is no last one."""
    if release.window_rounds is not None:
        return f"round {release.round:,}, the last {release.window_rounds:,} counted"
    return f"round {release.round:,} of {release.horizon:,}"


def _ranking(release: Release, shown: int, width: int) -> Table:
    """Ranked bars, then the threshold as a bar of its own: what would be shorter is not released."""
    ends = intervals_of(release)
    tau = (release.tau or 0) if release.found is None else 0
    largest = max([tau, 1, *ends[1][:shown].tolist()])
    label_width = min(_WIDEST_LABEL, max([9, *(len(printable(name)) for name in release.labels[:shown])]))
    totals = totals_carried(release)
    bar_width = max(8, width - label_width - (42 if totals is None else 61))
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", show_edge=False)
    table.add_column("rank", justify="right", width=7)
    table.add_column("label", width=label_width, no_wrap=True, overflow="ellipsis")
    table.add_column("count", justify="right", width=9)
    table.add_column("95% interval", justify="right", width=15)
    if totals is not None:
        table.add_column("total over epochs", justify="right", width=17)
    table.add_column("", width=bar_width, no_wrap=True)
    ranks = zip(*(each.tolist() for each in rank_ranges(*ends)), strict=True)
    for rank, (label, count, lowest, highest, (best, worst)) in enumerate(
        zip(release.labels[:shown], release.counts, *ends, ranks, strict=False), start=1
    ):
        low, high = max(0.0, lowest), max(0.0, highest)
        table.add_row(
            f"{rank}" if best == worst else f"{best}–{worst}",
            Text(printable(label), style="bold"),
            f"{count:,}",
            Text(f"{low:,.0f}–{high:,.0f}", style="dim"),
            *([] if totals is None else [_with_margin(totals[rank - 1])]),
            Text(bar(low / largest, high / largest, bar_width), style="green"),
        )
    if release.found is None:
        table.add_row(
            "",
            Text("tau", style="yellow"),
            Text(f"{tau:,}", style="yellow"),
            *([""] if totals is None else ["", ""]),
            Text("┄" * round(bar_width * tau / largest) + "┤", "yellow"),
        )
    return table


def bar(solid: float, light: float, width: int) -> str:
    """Full blocks up to the fraction `solid`, half-tone ones up to the fraction `light`, if that is more."""
    full = round(solid * width)
    return ("█" * full + "▒" * (round(light * width) - full)).ljust(width, " " if light else "░")


def _notes(release: Release) -> list[Text]:
    """What is guaranteed for whom, and how to read the counts."""
    unit = unit_in_words(release.unit, release.items_per_event)
    return [
        Text(for_viewers(release.unit, release.epsilon, release.delta)),
        Text(
            f"Privacy: epsilon {release.epsilon:g}, delta {release.delta:g}. "
            + in_words(unit, "all rounds together show", release.epsilon, release.delta)
        ),
        Text(
            f"{release.counts_what} {_how_shown(release)} sd {release.sd:,.1f}.{_next_test(release)}",
            style="dim",
        ),
    ]


def _how_shown(release: Release) -> str:
    if release.found is None:
        return _SHOWN[release.shown]
    return "A test shows a label if its noisy count is large enough, so counts are too high on average."


def _next_test(release: Release) -> str:
    if release.found is None:
        return ""
    when = f"in round {release.next_test:,}" if release.next_test else "in this epoch no more"
    return f" New labels are looked for {when}."


def printable(text: str) -> str:
    """A label without the characters that would steer a terminal."""
    return "".join(
        character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text
    )
