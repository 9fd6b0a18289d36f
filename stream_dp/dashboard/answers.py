"""What the dashboard answers, as structs.  static/openapi.json is generated from them: `make schemas`."""

from typing import Literal

from msgspec import UNSET, Struct, UnsetType, field

from stream_dp.dashboard.results import Result
from stream_dp.privacy.shown import Shown
from stream_dp.releases.release import Release, TestRecord

State = Literal["connecting", "unreachable", "no-topic", "empty", "open"]
"""How it stands with Kafka: `empty` is a topic without a release, `open` one that is being followed."""


class ToldRelease(Release, frozen=True, kw_only=True):
    """A whole release as viewers are told it.

    `low` and `high` are the ends of each label's 95% interval.  `totals`, `total_margins` and `since` are by label, and
    null where nothing is carried on.  `protects`, `guarantee` and `counts_what` are sentences.
    """

    low: list[int]
    high: list[int]
    total_margins: list[int] | None
    protects: str
    guarantee: str
    counted: str = field(name="counts_what")


class LabelHistory(Struct, frozen=True):
    """The counts of one label and their 95% intervals, oldest first; null where it was not released."""

    label: str
    counts: list[int | None]
    low: list[int | None]
    high: list[int | None]


class HistoryAnswer(Struct, frozen=True):
    """Columns of equal length, one place for each release that is kept, and the counts of each label asked for."""

    rounds: list[int]
    ts: list[str]
    sd: list[float]
    tau: list[int | None]
    series: list[LabelHistory]


class Problem(Struct, frozen=True):
    """Why there is no other answer."""

    error: str


class FrameRelease(Struct, frozen=True, kw_only=True):
    """A release without its labels and counts; `counts_what` says what these are of."""

    stream: str
    epoch: int
    nonce: str
    round: int
    horizon: int | None
    window_rounds: int | None = field(name="window")
    ts: str
    unit: str
    mechanism: str
    epsilon: float
    delta: float
    rho: float
    items_per_event: int
    sd: float
    tau: int | None
    next_test: int | None
    tests: dict[str, TestRecord] | None
    test_draw_sd: float | None
    shown: Shown
    units: int | None
    over_cap: int | None
    units_sd: float | None
    counts_what: str


class Frame(Struct, kw_only=True):
    """What viewers are told at one moment.  Fields that have not changed since the frame before are left out."""

    state: State
    stream: str
    age: float | None
    delay: float
    behind: int
    rate: float | None
    history: tuple[int, int]
    viewers: int
    release: FrameRelease | UnsetType = UNSET
    ids: list[int] | UnsetType = UNSET
    counts: list[int] | UnsetType = UNSET
    low: list[int] | UnsetType = UNSET
    high: list[int] | UnsetType = UNSET
    totals: list[int] | UnsetType | None = UNSET
    total_margins: list[int] | UnsetType | None = UNSET
    since: list[int] | UnsetType | None = UNSET
    found: list[int] | UnsetType | None = UNSET
    labels: list[str] | UnsetType = UNSET
    guarantee: str | UnsetType = UNSET
    protects: str | UnsetType = UNSET
    new: list[tuple[str, int]] | UnsetType = UNSET
    results: list[Result] | UnsetType = UNSET


class StreamSummary(Struct, frozen=True, kw_only=True):
    """How one stream is.  `address`: where its page is, relative to the index.  The rest is as in `Frame`.

    `released`: how many labels the release holds.  `largest`: the first of them.  `rounds` and `counts`: how the count
    of the first one grew, null where it was not shown.  All that is of a release is null before there is one.
    """

    stream: str
    address: str
    state: State
    age: float | None
    delay: float
    behind: int
    release: FrameRelease | None
    released: int | None
    largest: list[str]
    rounds: list[int]
    counts: list[int | None]
    protects: str | None
    unmetered: bool
