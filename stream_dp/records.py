"""The records on the wire: what is read from `<stream>.events` and written to `<stream>.releases`.

Everything that decides whether a record is valid lives here.  JSON Schemas: docs/schemas/.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from itertools import pairwise
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from stream_dp.calibration import Guarantee
from stream_dp.counters.protocol import CalibratedCounter, Shown
from stream_dp.histogram import ReleasedBlock
from stream_dp.privacy.release_tags import ReleaseTags
from stream_dp.record import LARGEST_VALUE as LARGEST_VALUE
from stream_dp.record import Record as Record
from stream_dp.times import milliseconds, parse_time

VERSION: Literal[1] = 1
LONGEST_LABEL = 1024
"""Most characters of one item.  A longer one makes its whole record a dead letter."""

DEEPEST_NESTING = 100
"""Most arrays and objects around any value of an event.  How deep the decoder itself could go depends on its caller."""

LARGEST_PART = 900_000
"""A release of more bytes than this is split into parts, to stay below Kafka's default limit of a message."""

_LATEST_TIMESTAMP = 253_402_300_799_999  # the last millisecond of the year 9999
_Label = Annotated[str, msgspec.Meta(min_length=1, max_length=LONGEST_LABEL)]


class Event(msgspec.Struct, frozen=True, gc=False):
    """One event: the items it holds, in order.  Fields that this version does not know are left unread."""

    items: Annotated[list[_Label], msgspec.Meta(min_length=1)]
    user: _Label | None = None
    id: str | int | None = None
    ts: str | None = None


class BadRecord(Exception):
    """A record that is no valid event; its message says why, without quoting the record."""


_EVENT_DECODER = msgspec.json.Decoder(Event)
_ALL_BUT_STRUCTURE = bytes(set(range(256)) - set(b'"[]{}'))
_LEVELS = np.zeros(256, np.int8)
_LEVELS[[*b"[{"]], _LEVELS[[*b"]}"]] = 1, -1


def decode_event(value: bytes | None) -> Event:
    """The event in the bytes of a record's value; raises `BadRecord`.  Its cost is linear in the size of the value.

    >>> decode_event(b'{"items": ["tea", "milk"]}').items
    ['tea', 'milk']
    """
    if not value:
        raise BadRecord("the record has no value")
    if len(value) > LARGEST_VALUE:
        raise BadRecord(f"the value has more than {LARGEST_VALUE} bytes")
    try:
        text = value.decode()  # unread fields must be UTF-8 too
        if value.count(b"[") + value.count(b"{") > DEEPEST_NESTING and _nesting(value) > DEEPEST_NESTING:
            raise BadRecord(f"arrays and objects are nested more than {DEEPEST_NESTING} deep")
        return _EVENT_DECODER.decode(text)
    except msgspec.ValidationError as error:
        raise BadRecord(str(error)) from None
    except (msgspec.DecodeError, UnicodeError) as error:
        raise BadRecord(f"not valid UTF-8 JSON ({type(error).__name__})") from None


def _nesting(value: bytes) -> int:
    """How deep arrays and objects lie in each other.  Every step is one pass, whatever the bytes."""
    unescaped = value.replace(b"\\\\", b"").replace(b'\\"', b"")  # every quote left begins or ends a string
    marks = np.frombuffer(unescaped.translate(None, _ALL_BUT_STRUCTURE), np.uint8)
    in_string = np.logical_xor.accumulate(marks == ord('"'))
    return int(np.cumsum(_LEVELS[marks] * ~in_string, dtype=np.int32).max(initial=0))


def iso_timestamp(milliseconds: int) -> str:
    """A broker's timestamp (milliseconds since 1970) as ISO 8601 in UTC, within the years 1970 to 9999.

    >>> iso_timestamp(1769860800123)
    '2026-01-31T12:00:00.123Z'
    """
    milliseconds = min(max(milliseconds, 0), _LATEST_TIMESTAMP)
    return f"{_iso_second(milliseconds // 1000)}.{milliseconds % 1000:03d}Z"


@lru_cache(maxsize=1024)
def _iso_second(second: int) -> str:
    return f"{datetime.fromtimestamp(second, UTC):%Y-%m-%dT%H:%M:%S}"


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


class Release(msgspec.Struct, frozen=True, kw_only=True):
    """One part of the snapshot that one round released, as subscribers read it.

    `labels` and `counts` run in parallel, largest count first, then by label.  `sd` is the standard deviation
    of every count of this round.  Where `shown` is "kept", a label is shown from the first released round on in which
    its noisy count is at least that round's `tau`, whatever its count is later; where it is "each-round", only in the
    rounds in which its count is.  `items_per_user` is there where the unit is the user; `items_per_event` is then the
    same number, because no event can bring more.
    `previous` is the round that the epoch released before, 0 if none, and `tag` shows from which log the release came
    (privacy/release_tags.py); both are missing in epochs that were opened before releases had them.
    """

    v: int
    stream: str
    epoch: int
    nonce: str
    round: int
    horizon: int
    ts: str
    unit: str
    mechanism: str
    epsilon: float
    delta: float
    rho: float
    items_per_event: int
    sd: float
    tau: int
    part: int
    parts: int
    labels: list[str]
    counts: list[int]
    items_per_user: int | None = None
    previous: int | None = None
    tag: str | None = None
    shown: Shown = "each-round"


_RELEASE_DECODER = msgspec.json.Decoder(Release)


def decode_release(value: bytes) -> Release:
    """The release in a record's value; raises msgspec.DecodeError for anything else."""
    return _RELEASE_DECODER.decode(value)


class ReleaseEncoder:
    """Writes the releases of one epoch.  Equal snapshots and timestamps give equal bytes, however cut into blocks."""

    def __init__(
        self,
        stream: str,
        epoch: int,
        nonce: bytes,
        mechanism: CalibratedCounter,
        guarantee: Guarantee,
        shard: tuple[int, int] | None = None,
        tags: ReleaseTags | None = None,
    ) -> None:
        """`shard`: which one of how many writes these releases; None for a worker that has the stream alone.

        `tags`: None for an epoch whose releases name neither their tag nor the release before them.
        """
        self._tags = tags
        self._mechanism = mechanism
        self._parts = PartEncoder()
        promise = {
            "unit": guarantee.unit,
            "mechanism": mechanism.name,
            "epsilon": guarantee.epsilon,
            "delta": guarantee.delta,
            "rho": guarantee.rho,
            "items_per_event": mechanism.items_per_event,
        }
        if guarantee.unit == "user":
            promise["items_per_user"] = mechanism.items_per_event
        if mechanism.shown != "each-round":  # which releases did not name before there was another rule
            promise["shown"] = mechanism.shown
        self._epoch = _fields({"v": VERSION, "stream": stream, "epoch": epoch, "nonce": nonce.hex()})
        self._horizon = _fields({"horizon": mechanism.horizon})
        self._promise = _fields(promise)
        self._shard = "" if shard is None else f'{SHARD_FIELD.decode()}{shard[0]},"shards":{shard[1]}'

    def encode(self, block: ReleasedBlock, timestamps: Sequence[int], previous: int = 0) -> list[list[bytes]]:
        """The parts of each round's release; its round `rounds[i]` was closed at `timestamps[i]`.

        `previous`: the round that was released before the first of them, 0 if there was none.
        """
        rounds = block.rounds
        sds, taus = self._mechanism.sds(rounds).tolist(), self._mechanism.taus(rounds).tolist()
        openings = [
            f'{{{self._epoch},"round":{number},{self._horizon},"ts":"{iso_timestamp(timestamp)}",{proof}'
            f"{self._promise},{_noise_fields(sd, tau)}{self._shard}".encode()
            for number, timestamp, proof, sd, tau in zip(
                rounds.tolist(), timestamps, self._proofs(block, previous), sds, taus, strict=True
            )
        ]
        return self._parts.encode(block, openings)

    def _proofs(self, block: ReleasedBlock, previous: int) -> list[str]:
        """The fields of each release that link it to the one before and to the log."""
        rounds, tags = block.rounds.tolist(), self._tags
        if tags is None:
            return [""] * len(rounds)
        return [
            f'"previous":{before},"tag":"{tags.tag(number, head)}",'
            for (before, number), head in zip(pairwise([previous, *rounds]), block.heads, strict=True)
        ]


def _binaries(values: list[bytes]) -> pa.LargeBinaryArray:
    """An Arrow column of these values.

    From buffers, like `_integers`: `pa.array` would import pandas where there is one, and every worker would wait.
    """
    edges = np.zeros(len(values) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, values), np.int64, len(values)), out=edges[1:])
    return pa.Array.from_buffers(
        pa.large_binary(), len(values), [None, pa.py_buffer(edges), pa.py_buffer(b"".join(values))]
    )


def _integers(values: NDArray[Any]) -> pa.Array:
    """An Arrow column of these integers, shape (n,)."""
    kind = pa.from_numpy_dtype(values.dtype)
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])


SHARD_FIELD = b',"shard":'
"""Begins what the release of a shard says between the opening that all shards of its round share and its own part."""


class PartEncoder:
    """Writes the labels and counts of releases behind openings that say everything else."""

    def __init__(self) -> None:
        self._labels: NDArray[np.object_] | None = None
        self._quoted = _binaries([])

    def encode(self, block: ReleasedBlock, openings: Sequence[bytes]) -> list[list[bytes]]:
        """The parts of each round's release; an opening is the JSON of a release up to the field `part`.

        The labels' JSON is gathered for the whole block at once: each label is quoted once, with its comma.
        """
        if block.labels is not self._labels:
            self._labels = block.labels
            self._quoted = _binaries([orjson.dumps(label) + b"," for label in block.labels])
        gathered = pc.take(self._quoted, _integers(block.ranks), boundscheck=False)
        edges = np.frombuffer(gathered.buffers()[1], np.int64)
        columns = _Columns(memoryview(gathered.buffers()[2] or b""), edges, block.counts)
        ends = np.cumsum(block.sizes)
        places = zip(openings, (ends - block.sizes).tolist(), ends.tolist(), strict=True)
        return [_parts(opening, columns.pieces(start, end)) for opening, start, end in places]


def _parts(opening: bytes, pieces: Sequence[tuple[memoryview, bytes]]) -> list[bytes]:
    """The parts of one release, each with its piece of the columns."""
    number = len(pieces)
    return [
        b"".join(
            (
                opening,
                b',"part":%d,"parts":%d,"labels":[' % (part, number),
                labels,
                b'],"counts":',
                counts,
                b"}",
            )
        )
        for part, (labels, counts) in enumerate(pieces, 1)
    ]


@lru_cache(maxsize=1024)
def _noise_fields(sd: float, tau: int) -> str:
    return _fields({"sd": sd, "tau": tau})


def _fields(values: dict[str, Any]) -> str:
    """The inside of a JSON object."""
    return orjson.dumps(values).decode()[1:-1]


class _Columns(NamedTuple):
    """The releases of a block: label i is `quoted[edges[i] : edges[i + 1]]`, a comma at its end, with `counts[i]`."""

    quoted: memoryview
    edges: NDArray[np.int64]
    counts: NDArray[Any]

    def pieces(self, start: int, end: int) -> list[tuple[memoryview, bytes]]:
        """The two columns of labels `start` to before `end` as JSON, halved until each piece fits into a part."""
        first = self.edges.item(start)
        labels = self.quoted[first : max(first, self.edges.item(end) - 1)]
        counts = orjson.dumps(self.counts[start:end], option=orjson.OPT_SERIALIZE_NUMPY)
        if len(labels) + len(counts) <= LARGEST_PART or end - start == 1:
            return [(labels, counts)]
        middle = (start + end) // 2
        return self.pieces(start, middle) + self.pieces(middle, end)


_BYTES_BESIDE_CONTENT = 500


@dataclass(frozen=True)
class DeadLetter:
    """A record that was counted as an empty event: the original bytes and why.  RAW DATA."""

    reason: str
    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    left_out: bool = False

    @property
    def size(self) -> int:
        """About how many bytes it takes in memory."""
        return len(self.key or b"") + len(self.value or b"") + len(self.reason) + _BYTES_BESIDE_CONTENT

    def without_content(self) -> "DeadLetter":
        """The same without the original key and value, which are too large to be sent once more."""
        return replace(self, key=None, value=None, left_out=True)

    @property
    def headers(self) -> list[tuple[str, bytes]]:
        """What the dead-letter topic's record carries beside the original key and value."""
        fields: dict[str, str | int] = {
            "reason": self.reason,
            "topic": self.topic,
            "partition": self.partition,
            "offset": self.offset,
        }
        if self.left_out:
            fields["left-out"] = "key and value: too large"
        return [(name, str(value).encode()) for name, value in fields.items()]
