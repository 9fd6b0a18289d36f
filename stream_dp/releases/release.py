"""A release as subscribers read it from `<stream>.releases`.  JSON Schema: docs/schemas/release.json."""

from collections.abc import Callable
from functools import lru_cache
from typing import Literal, Self, TypeVar

import msgspec

from stream_dp.config.times import milliseconds, parse_time
from stream_dp.privacy.share import Share, share_over_cap
from stream_dp.privacy.shown import Shown
from stream_dp.privacy.wording import counted

_Release = TypeVar("_Release", bound="Release")

VERSION: Literal[1] = 1
LARGEST_PART = 900_000
"""A release of more bytes than this is split into parts, to stay below Kafka's default limit of a message."""


_TIME_FIELD = b',"ts":"'
_LONGEST_TIME = len("9999-12-31T23:59:59.999Z")


def release_time(value: bytes) -> int:
    """The `ts` of the release in a record's value, in milliseconds since 1970.

    >>> release_time(b'{"v":1,"round":7,"ts":"2026-01-31T12:00:00.123Z"}')
    1769860800123
    """
    start = value.index(_TIME_FIELD) + len(_TIME_FIELD)  # no text that users write comes before it
    return _milliseconds(value[start : start + _LONGEST_TIME])


@lru_cache(maxsize=1024)
def _milliseconds(iso: bytes) -> int:
    return milliseconds(parse_time(iso.decode()))


class TestRecord(msgspec.Struct, frozen=True):
    """A test that found labels: its round, its threshold, and the standard deviation of the noise of what it measured.

    That noise stays in the counts of the labels that it found.
    """

    round: int
    tau: int
    sd: float


class Release(msgspec.Struct, frozen=True, kw_only=True):
    """One part of the snapshot that one round released, as subscribers read it.

    `labels` and `counts` run in parallel, in the order in which the epoch found the labels, then by label: it never
    changes, so labels that come later stand at the end.  `sd` is the standard deviation of every count of this round.
    Where `shown` is "kept", a label is shown from the first released round on in which
    its noisy count is at least that round's `tau`, whatever its count is later; where it is "each-round", only in the
    rounds in which its count is.  `horizon` is the last round of the epoch, where it has one.  Where it has none, the
    counts are those of the last `window_rounds` rounds (in JSON `window`), `shown` is "window", and a label is shown
    from the first round on in which it has passed `tau` (by a count of its own: counters/window.py) until so many
    rounds after the last one.
    `items_per_user` is there where the unit is the user, or a user's day; `items_per_event` is then the same number,
    because no event can bring more.
    `previous` is the round that the epoch released before, 0 if none, and `tag` shows from which log the release came
    (privacy/release_tags.py).

    Where labels are found at tests, `found` says of each label which test found it, 0 for one that was known before.
    Then `tau` is there in test rounds alone, `sds` has the standard deviation of the counts by the test that found the
    label, and `sd` is the largest of any count, and `tests` says more of these tests.  `next_test` is the
    round of the next one, None after the last.  No label is found that fewer than `at_least` events hold, or users.
    `test_draw_sd` and `draw_sd` are the standard deviations of one draw at a test, and of one of the counter of shown
    labels.

    `since`, `totals` and `total_sds` are there in epochs that knew labels when they began.  `since` says of each label
    which epoch showed it first, 0 for one that a list names.  `totals` are there where epochs before this one are
    carried on: the last counts of each label in them and its count here, added up, from the epoch of its `since` on,
    or where that is 0 from the first; `total_sds` are their standard deviations, by `since`.

    `units`, `over_cap` and `units_sd` are there with the setting `cap_share`: how many events (users, users' days) the
    epoch has counted that hold an item, how many of them hold more distinct items than count, and the standard
    deviation of the noise in either.
    """

    v: int
    stream: str
    epoch: int
    nonce: str
    round: int
    ts: str
    previous: int
    tag: str
    unit: str
    mechanism: str
    epsilon: float
    delta: float
    rho: float
    items_per_event: int
    shown: Shown
    sd: float
    part: int
    parts: int
    labels: list[str]
    counts: list[int]
    tau: int | None = None
    horizon: int | None = None
    window_rounds: int | None = msgspec.field(name="window", default=None)
    items_per_user: int | None = None
    found: list[int] | None = None
    at_least: int | None = None
    next_test: int | None = None
    tests: dict[str, TestRecord] | None = None
    sds: dict[str, float] | None = None
    draw_sd: float | None = None
    test_draw_sd: float | None = None
    since: list[int] | None = None
    totals: list[int] | None = None
    total_sds: dict[str, float] | None = None
    units: int | None = None
    over_cap: int | None = None
    units_sd: float | None = None

    @property
    def label_sds(self) -> list[float]:
        """The standard deviation of each label's count, in the order of `labels`."""
        if self.found is None:
            return [self.sd] * len(self.labels)
        sds = self.sds or {}
        return [sds[str(test)] for test in self.found]

    @property
    def over_cap_share(self) -> Share | None:
        """Which share of the units has more items than are counted; None if releases do not say, or nobody can tell."""
        return share_over_cap(self.over_cap, self.units, self.units_sd)

    @property
    def counts_what(self) -> str:
        """What its counts are of, and which share of the units has more than that, in a sentence."""
        over = self.over_cap_share
        return counted(self.unit, self.items_per_event, None if over is None else over.percent)

    def largest_first(self) -> Self:
        """The same release with its columns by count, the largest first, then by label."""
        counts, labels = self.counts, self.labels
        order = sorted(range(len(counts)), key=lambda place: (-counts[place], labels[place]))
        columns = {name: getattr(self, name) for name in ("labels", "counts", "since", "totals", "found")}
        sorted_ = {
            name: column if column is None else [column[place] for place in order]
            for name, column in columns.items()
        }
        return msgspec.structs.replace(self, **sorted_)

    def is_known(self, label: int) -> bool:
        """Whether the label in this place was known before its epoch began, so that it is shown whatever its count."""
        return self.since is not None and self.since[label] < self.epoch


def decoder_of(kind: type[_Release]) -> Callable[[bytes], _Release]:
    """What decodes a record's value as `kind`; it raises msgspec.DecodeError for anything else.

    Which labels a release has, and what is known of them, is the same in most of them, and then is not decoded again:
    see `_Same`.
    """
    decode = msgspec.json.Decoder(kind).decode
    known: dict[bytes, _Same] = {}
    near = 0  # where the labels of the release before stand

    def decoded(value: bytes) -> _Release:
        nonlocal near
        start = value.rfind(_LABELS, 0, near + _MOVED)
        near = start = max(0, value.find(_LABELS) if start < 0 else start)
        which = value[:_BEGINNING] + value[max(0, start - _PART) : start]
        same = known.get(which)
        rest = None if same is None else same.cut_from(value, start)
        if same is not None and rest is not None:
            release = decode(rest)
            if same.complete(release):
                return release
        release = decode(value)
        if same is not None and same.stands_in(release):
            same.learn(value)
            same.check(release)
            return release
        if len(known) >= _KNOWN:
            known.clear()
        known[which] = _Same(release)
        return release

    return decoded


class _Columns(msgspec.Struct):
    """The columns that most releases say again, in the order in which they are written."""

    labels: msgspec.Raw
    found: msgspec.Raw = msgspec.Raw()
    since: msgspec.Raw = msgspec.Raw()


class _Same:
    """What stands in these columns.  If two releases have the same, it is cut out of later ones, and only compared."""

    def __init__(self, release: Release) -> None:
        """Raises msgspec.ValidationError for a release whose fields contradict each other."""
        self._labels = release.labels.copy()
        self._found, self._since = (
            None if column is None else column.copy() for column in (release.found, release.since)
        )
        self._tests = frozenset(map(str, {*(release.found or ())}))
        self._head = self._tail = b""
        if any(
            column is not None and len(column) != len(release.labels) for column in (self._found, self._since)
        ):
            raise msgspec.ValidationError("since and found must be as long as labels")
        self.check(release)

    def stands_in(self, release: Release) -> bool:
        """Whether the release has the same in all of them."""
        told = release.labels, release.found, release.since
        return told == (self._labels, self._found, self._since)

    def learn(self, value: bytes) -> None:
        """How it is written, from a release that has it."""
        written = _columns(value)
        self._head = b"%b%b" % (_LABELS, bytes(written.labels)[1:])
        beside = [(name, bytes(getattr(written, name))) for name in ("found", "since")]
        self._tail = b"".join(b',"%b":%b' % (name.encode(), text) for name, text in beside if text) + b"}"

    def cut_from(self, value: bytes, start: int) -> bytes | None:
        """The release without them, whose labels stand at `start`; None unless it is known to have the same there."""
        if not (self._head and value.startswith(self._head, start) and value.endswith(self._tail)):
            return None
        return b"".join((value[:start], _NO_LABELS, value[start + len(self._head) : -len(self._tail)], b"}"))

    def complete(self, release: Release) -> bool:
        """Put them into a release from which they were cut, as lists of its own; False if it has columns left.

        Raises msgspec.ValidationError.
        """
        if release.labels or release.found is not None or release.since is not None:
            return False
        _set(release, "labels", self._labels.copy())
        if self._found is not None:
            _set(release, "found", self._found.copy())
        if self._since is not None:
            _set(release, "since", self._since.copy())
        self.check(release)
        return True

    def check(self, release: Release) -> None:
        """Raise msgspec.ValidationError unless the fields of a release with these columns fit each other."""
        if (release.horizon is None) == (release.window_rounds is None):
            raise msgspec.ValidationError("a release has either a horizon or a window")
        if release.tau is None and release.found is None:
            raise msgspec.ValidationError("a release names its threshold, unless labels are found at tests")
        numbers = release.counts if release.totals is None else release.totals
        if not len(numbers) == len(release.counts) == len(release.labels):
            raise msgspec.ValidationError("counts and totals must be as long as labels")
        if self._tests and not self._tests <= (release.sds or {}).keys():
            raise msgspec.ValidationError("sds must name each test in found")


_LABELS = b',"labels":['
_BEGINNING = 64
"""So many bytes tell streams and epochs apart, mostly, and stand before the round."""

_PART = len(b'"part":1,"parts":1')
"""So many bytes before the labels tell the parts of releases apart."""

_MOVED = 64
"""So far behind those of the release before the labels may stand, mostly."""

_KNOWN = 32
_NO_LABELS = _LABELS + b"]"
_set = msgspec.structs.force_setattr
_columns = msgspec.json.Decoder(_Columns).decode

decode_release = decoder_of(Release)
"""The release in a record's value; raises msgspec.DecodeError for anything else."""
