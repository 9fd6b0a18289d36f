"""The statement for a privacy officer, as a value, as Markdown, and as HTML that prints on one page."""

from collections.abc import Iterator
from html import escape

import msgspec

_SHOWN_CHARGES = 6
_SHOWN_BUDGETS = 3
"""So many of the latest are on the page, which must stay one page; JSON has all."""

_OPERATORS = (
    "Operators: whoever can read the events topic, Redis or the dead letters sees private data, and whoever has the "
    "noise key can remove the noise from every release."
)
_MANY = "What is true of many: if most people buy tea, the releases say so."
_TIMES = "The number of events and their times, which are public by definition."
_ELSEWHERE = "What is published elsewhere about the same events."

NOT_PROTECTED = {
    "event": (
        "Someone with many events is not hidden as a person: n events have n times epsilon, and a larger delta.",
        _MANY,
        _TIMES,
        _OPERATORS,
        _ELSEWHERE,
    ),
    "user": (
        "Groups of users: n users have n times epsilon, and a larger delta.",
        _MANY,
        _TIMES,
        _OPERATORS,
        _ELSEWHERE,
    ),
    "user-day": (
        "Someone who comes back on many days: n days have n times epsilon, and a larger delta.",
        _MANY,
        _TIMES,
        _OPERATORS,
        _ELSEWHERE,
    ),
}
"""By unit: what the guarantee does not cover.  docs/guarantee.md has the whole list."""


class SetBudget(msgspec.Struct, frozen=True):
    """A budget that somebody set."""

    at: str
    by: str
    epsilon: float
    delta: float


class Charged(msgspec.Struct, frozen=True):
    """One charge; `epsilon` and `own_delta` are its guarantee by itself, null if only rho is known."""

    at: str | None
    what: str
    rho: float
    delta: float
    epsilon: float | None
    own_delta: float | None


class Statement(msgspec.Struct, frozen=True, kw_only=True):
    """What a stream's last epoch guarantees, and what has been charged to its source.

    `budget` and `spent` are an epsilon and a delta; an epsilon of null is unbounded.  `more_like_the_last`: how many
    more charges like the last fit on the same events.  `at_least` is the least count of a label that is ever found,
    null if none is promised, and `never_shown` says it in words.  The digests are public: `settings_digest` stands for
    all that was frozen with the epoch, `key_check` for the noise key, `known_labels` for the list of known labels.
    """

    stream: str
    source: str
    written: str
    program: str
    epoch: int
    opened: str
    closed: str | None
    unit: str
    epsilon: float
    delta: float
    odds: str
    protected: str
    not_protected: list[str]
    counted: str
    at_least: int | None
    never_shown: str
    mechanism: str
    rounds: str
    horizon: int | None
    unmetered: bool
    budget: tuple[float, float] | None
    set_by: list[SetBudget]
    spent: tuple[float | None, float]
    more_like_the_last: int | None
    charges: list[Charged]
    settings_digest: str
    key_check: str
    known_labels: str | None


class _Section(msgspec.Struct):
    title: str
    lines: list[str] = []
    rows: list[tuple[str, ...]] = []
    code: list[str] = []


def markdown(found: Statement) -> str:
    """The statement as Markdown."""
    written = [f"# Privacy statement: {_plain(found.stream)}", "", _heading(found)]
    for section in _sections(found):
        written += ["", f"## {section.title}", ""]
        written += [f"- {_plain(line)}" for line in section.lines]
        if section.rows:
            head, *rows = section.rows
            written += [_row(head), _row(("---",) * len(head)), *map(_row, rows)]
        if section.code:
            written += ["```sh", *section.code, "```"]
    return "\n".join(written) + "\n"


def html(found: Statement) -> str:
    """The statement as one HTML file without scripts, which prints on one page."""
    body = [f"<h1>Privacy statement: {escape(found.stream)}</h1>", f"<p>{escape(_heading(found))}</p>"]
    for section in _sections(found):
        body.append(f"<h2>{escape(section.title)}</h2>")
        if section.lines:
            body.append(f"<ul>{''.join(f'<li>{escape(line)}</li>' for line in section.lines)}</ul>")
        if section.rows:
            head, *rows = section.rows
            body.append(f"<table><tr>{_cells(head, 'th')}</tr>")
            body += [f"<tr>{_cells(row, 'td')}</tr>" for row in rows]
            body.append("</table>")
        if section.code:
            body.append(f"<pre>{escape(chr(10).join(section.code))}</pre>")
    return _PAGE.format(title=escape(found.stream), body="\n".join(body))


def _heading(found: Statement) -> str:
    until = "still open" if found.closed is None else f"closed {found.closed}"
    return (
        f"Epoch {found.epoch} over {found.source}, opened {found.opened}, {until}. "
        f"Written {found.written} by stream_dp {found.program}."
    )


def _sections(found: Statement) -> Iterator[_Section]:
    least = [found.never_shown] * bool(found.never_shown)
    yield _Section("Who is protected", [found.protected, *least, found.counted, *_rounds(found)])
    yield _Section("What is not protected", found.not_protected)
    yield _Section("What was spent, and what is left", _spending(found))
    if found.set_by:
        rows = [
            (each.at, each.by, f"{each.epsilon:g}", f"{each.delta:g}")
            for each in found.set_by[-_SHOWN_BUDGETS:]
        ]
        yield _Section("Who set the budget", rows=[("when", "who", "epsilon", "delta"), *rows])
    if found.charges:
        yield _Section("Charges", rows=[("when", "what", "epsilon", "delta", "rho"), *_charges(found)])
    yield _Section(
        "How to verify it",
        [
            "Both commands need the noise key. The certificate that the first one prints may be shown to anybody."
        ],
        code=[
            f"stream-dp verify --stream {found.stream}",
            f"stream-dp budget explain --source {found.source}",
        ],
    )
    digests = [("settings of the epoch", found.settings_digest), ("check of the noise key", found.key_check)]
    if found.known_labels is not None:
        digests.append(("list of known labels", found.known_labels))
    yield _Section("Digests", rows=[("of", "digest"), *digests])
    yield _Section("Signature", ["Name, place, date: ______________________________________________"])


def _rounds(found: Statement) -> Iterator[str]:
    most = "It never ends" if found.horizon is None else f"It covers at most {found.horizon:,} rounds"
    yield f"{most}; rounds end {found.rounds}; the mechanism is {found.mechanism}."
    if found.unmetered:
        yield "UNMETERED: the source had no budget when the epoch opened, so nothing bounds what all releases reveal."


def _spending(found: Statement) -> list[str]:
    lines = []
    if found.budget is None:
        lines.append("No budget is set.")
    else:
        lines.append(f"The budget is epsilon {found.budget[0]:g} at delta {found.budget[1]:g}.")
    spent = "unbounded" if found.spent[0] is None else f"{found.spent[0]:.4g}"
    lines.append(f"Spent on the costliest events: epsilon {spent} at delta {found.spent[1]:g}.")
    if found.more_like_the_last is not None:
        lines.append(
            f"Left: room for {found.more_like_the_last:,} more charges like the last, on the same events."
        )
    return lines


def _charges(found: Statement) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [
        (
            each.at or "",
            each.what,
            "" if each.epsilon is None else f"{each.epsilon:.4g}",
            f"{each.delta if each.own_delta is None else each.own_delta:.3g}",
            f"{each.rho:.4g}",
        )
        for each in found.charges[-_SHOWN_CHARGES:]
    ]
    left_out = len(found.charges) - len(rows)
    return [("", f"{left_out:,} earlier charges", "", "", "")] * bool(left_out) + rows


def _row(cells: tuple[str, ...]) -> str:
    return f"| {' | '.join(map(_plain, cells))} |"


def _cells(cells: tuple[str, ...], tag: str) -> str:
    return "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells)


def _plain(text: str) -> str:
    """Text in which Markdown finds nothing to interpret: names of jobs come from requests."""
    return "".join(f"\\{each}" if each in "\\`*[]<>|#" else each for each in text.replace("\n", " "))


_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Privacy statement: {title}</title>
<style>
@page {{ size: A4; margin: 14mm; }}
body {{ font: 10.5pt/1.35 system-ui, sans-serif; max-width: 46rem; margin: 1.5rem auto; padding: 0 1rem; }}
h1 {{ font-size: 16pt; margin: 0; }}
h2 {{ font-size: 11.5pt; margin: 0.9em 0 0.2em; }}
p, ul {{ margin: 0.2em 0; }}
ul {{ padding-left: 1.2em; }}
table {{ border-collapse: collapse; width: 100%; font-size: 9pt; }}
th, td {{ text-align: left; padding: 0.15em 0.6em 0.15em 0; border-bottom: 1px solid #ddd; overflow-wrap: anywhere; }}
pre {{ margin: 0.2em 0; font-size: 9pt; white-space: pre-wrap; }}
@media print {{ body {{ margin: 0; padding: 0; font-size: 9pt; }} }}
</style>
</head>
<body>
<main>
{body}
</main>
</body>
</html>
"""
