"""What happened lately, as people see it in a terminal: the labels of a window, ranked by it."""

import numpy as np
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from stream_dp.cli.histogram_view import LiveView, bar, heading, printable, with_interval
from stream_dp.cli.mistakes import Mistake
from stream_dp.releases.new_labels import NewLabel
from stream_dp.releases.windows import Span, Window

_WIDEST_LABEL = 28
_PLAIN_LABELS = 5


class WindowView(LiveView[Window]):
    """Shows the newest window."""

    def __init__(self, console: Console, lines_above: int = 0) -> None:
        """See `LiveView`."""
        super().__init__(console, line, picture, lines_above)


def span_of(text: str) -> Span:
    """What --window says; raises `Mistake`."""
    try:
        return Span.of(text)
    except ValueError as error:
        raise Mistake(f"--window: {error}") from None


def line(window: Window) -> str:
    """One window as one line of text; `--json` gives all of its labels."""
    found = zip(window.labels[:_PLAIN_LABELS], window.counts, window.low, window.high, strict=False)
    new = {each.label for each in window.new}
    shown = [
        f"{printable(label)} {f'at least {max(0.0, low):,.0f}' if label in new else with_interval(count, low, high)}"
        for label, count, low, high in found
    ]
    more = [f"and {len(window.labels) - _PLAIN_LABELS:,} more"] if len(window.labels) > _PLAIN_LABELS else []
    return f"{_reach(window)}: {', '.join(shown + more) or 'no label yet'}"


def picture(window: Window, width: int, most_labels: int, status: str = "") -> RenderableType:
    """The largest counts of a window as ranked bars, and what they mean."""
    shown = min(most_labels, len(window.labels))
    hidden = len(window.labels) - shown
    return Group(
        heading(window.release, status),
        Text(_reach(window), style="bold"),
        _ranking(window, shown, width),
        Text(f"{hidden:,} more" if hidden else "" if window.labels else "No label yet.", style="dim"),
        *_notes(window),
    )


def _reach(window: Window) -> str:
    """From where to where."""
    last = window.release.round
    if window.since is None:
        return f"rounds 1 to {last:,}, since the epoch began"
    short = "" if window.complete else ", as far back as releases are kept"
    if window.since.epoch != window.release.epoch:
        begins = f"round {window.since.round:,} of epoch {window.since.epoch}"
        return f"from after {begins} to round {last:,}, since {window.since.ts[:19]}Z{short}"
    return f"rounds {window.since.round + 1:,} to {last:,}, since {window.since.ts[:19]}Z{short}"


def _ranking(window: Window, shown: int, width: int) -> Table:
    label_width = min(_WIDEST_LABEL, max([9, *(len(printable(name)) for name in window.labels[:shown])]))
    bar_width = max(8, width - label_width - 41)
    moves = dict.fromkeys(window.rising, Text("▲", "green")) | dict.fromkeys(window.falling, Text("▼", "red"))
    new = {each.label: each for each in window.new}
    largest = max(
        [1.0, *np.where(np.isin(window.labels, [*new]), window.counts, window.high)[:shown].tolist()]
    )
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", show_edge=False)
    table.add_column("#", justify="right", width=3)
    table.add_column("label", width=label_width, no_wrap=True, overflow="ellipsis")
    table.add_column("", width=1)
    table.add_column("in window", justify="right", width=9)
    table.add_column("95% interval", justify="right", width=15)
    table.add_column("", width=bar_width, no_wrap=True)
    for rank, (label, count, lowest, highest) in enumerate(
        zip(window.labels[:shown], window.counts, window.low, window.high, strict=False), start=1
    ):
        low, high = max(0.0, lowest), max(0.0, highest)
        table.add_row(
            str(rank),
            Text(printable(label), style="bold"),
            moves.get(label, ""),
            f"≥{low:,.0f}" if label in new else f"{count:,}",
            Text(_since(new[label]) if label in new else f"{low:,.0f}–{high:,.0f}", style="dim"),
            Text(bar(low / largest, min(1.0, high / largest), bar_width), style="green"),
        )
    return table


def _since(new: NewLabel) -> str:
    return "" if new.since is None else f"since {new.since[11:19]}"


def _notes(window: Window) -> list[Text]:
    new = (
        f" {len(window.new):,} labels that were not shown at its beginning: counted at least so often since then."
        if window.new
        else ""
    )
    text = f"The difference of two releases, which spends nothing of the guarantee. sd {window.sd:,.1f}.{new}"
    return [Text(text, style="dim"), Text(_moves(window), style="dim")]


def _moves(window: Window) -> str:
    if window.moves is None:
        return "What rose or fell cannot be told yet: there is no window of that length before this one."
    if not window.moves:
        return "Nothing rose or fell since the window before by more than noise and chance explain."
    return (
        "▲ and ▼ mark labels that rose or fell since the window before by more than noise and chance explain."
    )
