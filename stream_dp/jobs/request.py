"""What is asked on `<stream>.jobs`: a job, or that a job be cancelled.

Schema: docs/schemas/job.json.  Whether a request is valid depends on its own fields alone.
"""

from collections.abc import Iterable
from datetime import datetime
from difflib import get_close_matches
from hashlib import blake2b
from typing import Annotated, Any, Literal, get_args

import msgspec

from stream_dp.config.times import parse_time
from stream_dp.config.wrong_values import Form, first_wrong, short
from stream_dp.errors import StreamDpError
from stream_dp.events.event import LONGEST_LABEL

VERSION = 1
JobName = Literal["top-k", "set-union", "histogram", "label-votes"]
JOBS: tuple[str, ...] = ("top-k", "set-union", "histogram")
"""What a worker answers unless it is told otherwise."""

EVERY_JOB: tuple[str, ...] = get_args(JobName)
Protects = Literal["teacher", "record"]
Unit = Literal["user", "event"]

_LONGEST_ID = 200
_Id = Annotated[
    str,
    msgspec.Meta(pattern=rf"^[A-Za-z0-9][A-Za-z0-9._:@/-]{{0,{_LONGEST_ID - 1}}}$"),
    Form("1 to 200 letters, digits and characters of . _ : @ / -, the first one a letter or a digit"),
]
_Name = Annotated[
    str,
    msgspec.Meta(pattern=r"^[A-Za-z0-9._-]{1,249}$"),
    Form("1 to 249 letters, digits, dots, dashes and underscores"),
]
_Label = Annotated[str, msgspec.Meta(min_length=1, max_length=LONGEST_LABEL)]
_Mechanism = Annotated[str, msgspec.Meta(max_length=100)]
_Place = int | Annotated[str, msgspec.Meta(max_length=100)]
_File = Annotated[str, msgspec.Meta(max_length=4096)]
_Column = Annotated[str, msgspec.Meta(max_length=LONGEST_LABEL)]


class BadRequest(StreamDpError):
    """A request that cannot be served as it stands; the message says what to change.  Nothing was charged.

    `fields`: the names of fields in the message, such as `k` or `source.item`, for whoever gave them by other names.
    """

    def __init__(self, sentence: str, *fields: str) -> None:
        super().__init__(sentence)
        self.fields = fields


class Source(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, rename={"start": "from"}
):
    """What to read: the records of a topic between two places, or a file.

    A place is an offset (a whole number), a time (ISO 8601, without a zone UTC), or earliest / latest.  The registry
    says which data source is charged, and `name` only has to agree; `user` and `item` name the columns of a CSV or
    Parquet file, and `query` that of the examples which votes are about.
    """

    topic: _Name | None = None
    start: _Place | None = None
    to: _Place | None = None
    file: _File | None = None
    name: _Name | None = None
    user: _Column | None = None
    item: _Column | None = None
    query: _Column | None = None


class Means(str):
    """Beside the type of a parameter: what it means, as the help of its option says it."""


_Lines = list[_Label]


class Parameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The parameters of all mechanisms and what they mean; each mechanism declares which of them it takes."""

    epsilon: Annotated[float, Means("Epsilon of the guarantee.")] | None = None
    delta: Annotated[float, Means("Delta of the guarantee.")] | None = None
    k: Annotated[int, Means("The most labels to release.")] | None = None
    least: Annotated[int, Means("The least k that may be chosen.")] | None = None
    kbar: Annotated[int, Means("How many labels are looked at, k or more.")] | None = None
    items_per_user: (
        Annotated[int, Means("How many items of one user are counted, at random where there are more.")]
        | None
    ) = None
    tokens: Annotated[int, Means("How many items a user may help.")] | None = None
    alpha: (
        Annotated[float, Means("How many noise scales above the threshold a label is filled up to.")] | None
    ) = None
    penalty: Annotated[float, Means("What each rank away from k weighs, in users.")] | None = None
    eta: Annotated[float, Means("Weight of the high-pass filter.")] | None = None
    threshold: Annotated[int, Means("The count to reach.")] | None = None
    most: Annotated[int, Means("The most bins to release.")] | None = None
    budget: (
        Annotated[_Name, Means("The budget to draw from; the first job of this name opens it.")] | None
    ) = None
    marks: Annotated[int, Means("How many labels all jobs of the budget may release.")] | None = None
    queries: Annotated[int, Means("How many jobs may draw from the budget.")] | None = None
    protect: (
        Annotated[
            Protects,
            Means(
                "All votes of one teacher, or one record that a teacher has learned from, which needs twice the noise."
            ),
        ]
        | None
    ) = None
    bins: Annotated[_Lines, Means("PUBLIC labels, one a line.")] | None = None
    examples: Annotated[_Lines, Means("The PUBLIC examples that get labels, one a line.")] | None = None
    frequencies: (
        Annotated[
            dict[_Label, int],
            Means("JSON object of labels and how frequent they are in PUBLIC data."),
        ]
        | None
    ) = None


class JobRequest(Parameters, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """One job.  `unit`: None for that of the data source, which has one."""

    v: Literal[1] = 1
    id: _Id
    job: JobName
    mechanism: _Mechanism
    unit: Unit | None = None
    source: Source = Source()

    @property
    def parameters(self) -> dict[str, Any]:
        """The mechanism's parameters that were given, by name."""
        values = {name: getattr(self, name) for name in PARAMETERS}
        return {name: value for name, value in values.items() if value is not None}

    @property
    def digest(self) -> str:
        """Of everything that was asked, however it was written down; a source has one unit, whether named or not."""
        asked = msgspec.structs.replace(self, unit=None)
        return blake2b(msgspec.json.encode(asked, order="sorted"), digest_size=16).hexdigest()

    def encode(self) -> bytes:
        """The bytes of a record of `<stream>.jobs` that ask for this."""
        return msgspec.json.encode({"v": VERSION} | msgspec.to_builtins(self))


PARAMETERS = tuple(field.name for field in msgspec.structs.fields(Parameters))


class Cancel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """That the job of this id shall release nothing more."""

    v: Literal[1]
    id: _Id
    cancel: Literal[True]


def decode_request(value: bytes | None) -> JobRequest | Cancel:
    """The request in a record's value; raises `BadRequest`.

    >>> decode_request(b'{"v": 1, "id": "q-17", "cancel": true}').id
    'q-17'
    """
    found = _fields(value)
    if found.get("v") != VERSION or isinstance(found.get("v"), bool):
        raise BadRequest(f'the request does not say that it is of version {VERSION}: give it "v": {VERSION}')
    return request_from(found)


def request_from(found: dict[str, Any]) -> JobRequest | Cancel:
    """The request with these fields; raises `BadRequest`."""
    kind: type[JobRequest | Cancel] = Cancel if "cancel" in found else JobRequest
    _check_names("field", found, _names(kind))
    source = found.get("source")
    if isinstance(source, dict):
        _check_names("field of source", source, _names(Source))
    wrong = first_wrong(kind, found)
    if wrong is not None and wrong.missing:
        raise BadRequest(f"there is no {wrong.path}: give {wrong.wanted}", wrong.path)
    if wrong is not None:
        raise BadRequest(f"{wrong.path} has to be {wrong.wanted}, not {short(wrong.value)}", wrong.path)
    request = msgspec.convert(found, kind)
    if isinstance(request, JobRequest):
        _check_source(request)
    return request


def id_in(value: bytes | None) -> str | None:
    """The id in a record's value, whatever else is wrong with it."""
    try:
        found = _fields(value).get("id")
    except BadRequest:
        return None
    return found if isinstance(found, str) and 0 < len(found) <= _LONGEST_ID else None


def time_in(text: str) -> datetime:
    """The moment of a place that is a time (times.py); raises `BadRequest`."""
    try:
        return parse_time(text)
    except ValueError:
        raise BadRequest(
            f"{text!r} is not a place in a topic: give an offset, earliest, latest, or a time such as "
            "2026-01-31T12:00:00Z"
        ) from None


def nearest(kind: str, name: str, known: Iterable[str]) -> str:
    """The refusal of a name that nothing has, with the name that may be meant."""
    names = sorted(known)
    close = get_close_matches(name, names, n=1)
    meant = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(names)}"
    return f"unknown {kind} {name[:100]!r}; {meant}"


def _fields(value: bytes | None) -> dict[str, Any]:
    try:
        found = msgspec.json.decode((value or b"").decode())
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise BadRequest("the request is not valid UTF-8 JSON") from None
    if not isinstance(found, dict):
        raise BadRequest("the request is not a JSON object")
    return found


def _names(kind: type[msgspec.Struct]) -> list[str]:
    return [field.encode_name for field in msgspec.structs.fields(kind)]


def _check_names(kind: str, found: Iterable[str], known: list[str]) -> None:
    for name in found:
        if name not in known:
            raise BadRequest(nearest(kind, name, known))


def _check_source(request: JobRequest) -> None:
    source = request.source
    if source.query is not None and request.job != "label-votes":
        raise BadRequest(f"a {request.job} job has no source.query: leave it out", "source.query")
    if source.file is None:
        if (source.user, source.item, source.query) != (None, None, None):
            raise BadRequest(
                "source.user, source.item and source.query name the columns of a file: leave them out for a topic",
                *("source.user", "source.item", "source.query"),
            )
        for field, place in (("source.from", source.start), ("source.to", source.to)):
            try:
                _check_place(place)
            except BadRequest as refused:
                raise BadRequest(f"{field}: {refused}", field) from None
        return
    if source.topic is not None or source.start is not None or source.to is not None:
        raise BadRequest("a source is a topic or a file: give file without topic, from and to")


def _check_place(place: int | str | None) -> None:
    if isinstance(place, int):
        if place < 0:
            raise BadRequest(f"an offset is a whole number from 0 on, not {place}")
    elif place not in (None, "earliest", "latest"):
        time_in(place)
