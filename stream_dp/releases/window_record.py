"""A window as JSON: what `stream-dp tail --window` prints, the dashboard answers and `<stream>.windows` holds."""

import msgspec
import numpy as np

from stream_dp.releases.new_labels import NewLabel
from stream_dp.releases.release import LARGEST_PART, VERSION
from stream_dp.releases.windows import Move, Span, Window


class WindowRecord(msgspec.Struct, frozen=True, kw_only=True):
    """How often each label occurred in the `window` that ends with the release of `round`; largest count first.

    It begins after the release of `since_round`, of epoch `since_epoch` and time `since`; these are 0, the epoch's own
    number and null where it begins with its epoch, and those of `round` if nothing was released within the window.
    `left_out`: how many labels with small counts are not named, because the record would be too large.  The upper end
    of a new label's interval is null where nothing bounds it.
    The other fields are those of `windows.Window`.
    """

    v: int
    stream: str
    window: str
    epoch: int
    nonce: str
    round: int
    ts: str
    since_epoch: int
    since_round: int
    since: str | None
    complete: bool
    sd: float
    labels: list[str]
    counts: list[int]
    low: list[float]
    high: list[float | None]
    new: list[NewLabel]
    moves: list[Move] | None
    left_out: int = 0
    units: int | None = None
    over_cap: int | None = None
    units_sd: float | None = None


def record_of(window: Window, span: Span) -> WindowRecord:
    """The record of a whole window, however large."""
    release, since = window.release, window.since
    return WindowRecord(
        v=VERSION,
        stream=release.stream,
        window=str(span),
        epoch=release.epoch,
        nonce=release.nonce,
        round=release.round,
        ts=release.ts,
        since_epoch=since.epoch if since else release.epoch,
        since_round=since.round if since else 0,
        since=since.ts if since else None,
        complete=window.complete,
        sd=window.sd,
        labels=window.labels,
        counts=window.counts.tolist(),
        low=window.low.round(1).tolist(),
        high=[None if np.isinf(end) else end for end in window.high.round(1).tolist()],
        new=window.new,
        moves=window.moves,
        units=window.units,
        over_cap=window.over_cap,
        units_sd=window.units_sd,
    )


def cut_to_fit(record: WindowRecord) -> WindowRecord:
    """The record, or so many of its largest counts that it fits into one message of Kafka."""
    most = len(record.labels)
    found = record
    while len(msgspec.json.encode(found)) > LARGEST_PART and most:
        most //= 2
        found = _cut(record, most)
    return found


def _cut(record: WindowRecord, most: int) -> WindowRecord:
    columns = {name: getattr(record, name)[:most] for name in ("labels", "counts", "low", "high")}
    columns["moves"] = record.moves and record.moves[:most]
    named = {*columns["labels"]}
    columns["new"] = [each for each in record.new if each.label in named]
    return msgspec.structs.replace(record, **columns, left_out=len(record.labels) - len(named))
