"""Releases whose columns are the same again: what is decoded is what stands there, and belongs to its owner."""

import json
from collections.abc import Sequence
from itertools import product
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dp.releases import release
from stream_dp.releases.release import Release, decode_release, decoder_of
from stream_dp.releases.whole_release import WholeRelease, decode_whole_release

LONG = "x" * 100
"""Labels that end alike as bytes, and are as long."""
NUMBERS = st.lists(st.integers(1, 2), min_size=1, max_size=3)
WRITTEN = "sds", "part", "parts", "labels", "counts", "totals", "found", "since"
"""The last fields of a release, in the order in which they are written."""


SEPARATORS = (",", ":"), (", ", ": ")
"""As releases are written, and as others may write JSON."""


def value(
    labels: list[str],
    order: Sequence[str] = WRITTEN,
    separators: tuple[str, str] = SEPARATORS[0],
    **changed: Any,
) -> bytes:
    """A release with `changed` fields, of which these stand in this order before all others."""
    opening = {
        "v": 1,
        "stream": "shop",
        "epoch": 1,
        "nonce": "00",
        "round": 9,
        "ts": "2026-01-31T12:00:00.123Z",
        "previous": 8,
        "tag": "",
        "unit": "event",
        "mechanism": "blt",
        "epsilon": 1.0,
        "delta": 1e-6,
        "rho": 0.1,
        "items_per_event": 1,
        "shown": "kept",
        "sd": 2.5,
        "tau": 7,
        "horizon": 100,
    }
    columns = {"part": 1, "parts": 1, "labels": labels, "counts": [5] * len(labels), **changed}
    written = opening | {name: columns[name] for name in order if name in columns} | columns
    return json.dumps(written, separators=separators).encode()


@given(
    st.lists(
        st.tuples(
            st.sampled_from("ab"),
            st.fixed_dictionaries({}, optional=dict.fromkeys(("found", "since", "totals"), NUMBERS)),
            st.just(WRITTEN) | st.permutations(WRITTEN),
            st.just(SEPARATORS[0]) | st.sampled_from(SEPARATORS),
        ),
        min_size=1,
    )
)
def test_a_release_is_decoded_as_if_there_had_been_no_other(several: list[Any]) -> None:
    for first, given_columns, order, separators in several:
        labels = [first + LONG, "tea", "milk"]
        columns = {name: (column * 3)[:3] for name, column in given_columns.items()}
        one = value(labels, order, separators, **columns, sds={"1": 2.0, "2": 1.0})
        assert decode_release(one) == msgspec.json.decode(one, type=Release)
        whole = decode_whole_release(one)
        assert whole == msgspec.json.decode(one, type=WholeRelease)
        assert type(whole) is WholeRelease


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The releases of which the decoder has looked up how their columns are written."""
    found, plainly = list[bytes](), release._columns

    def noted(value: bytes) -> Any:
        found.append(value)
        return plainly(value)

    monkeypatch.setattr(release, "_columns", noted)
    return found


def test_what_releases_say_again_is_looked_at_once(looked_at: list[bytes]) -> None:
    decode = decoder_of(Release)
    for number in range(5):
        for stream, part in product(("shop", "kiosk"), (1, 2)):
            labels = [f"tea of the {stream} {part}", "milk"]
            said: dict[str, Any] = {
                "stream": stream,
                "nonce": "00" * 16,
                "round": number,
                "sds": {"1": 2.0 + number},
            }
            one = value(labels, found=[1, 1], part=part, parts=2, **said)
            assert decode(one).labels == labels
    assert len(looked_at) == 4


def test_columns_that_differ_each_time_are_not_looked_at(looked_at: list[bytes]) -> None:
    decode = decoder_of(Release)
    for number in range(5):
        assert decode(value([f"tea {number}"])).labels == [f"tea {number}"]
    assert not looked_at


def test_whoever_changes_the_labels_of_a_release_changes_no_other() -> None:
    one = value(["tea", "milk"])
    for _ in range(4):
        made = decode_release(one)
        assert made.labels == ["tea", "milk"]
        made.labels.sort()


@pytest.mark.parametrize("before", [0, 1, 2], ids=lambda before: f"after {before}")
@pytest.mark.parametrize("separators", SEPARATORS, ids=str)
@pytest.mark.parametrize(
    "changed",
    [
        {"labels": [1]},
        {"labels": None},
        {"labels": "tea"},
        {"found": ["1"]},
        {"found": {}},
        {"since": [1, 2]},
        {"found": [3], "sds": {"1": 1.0}},
        {"counts": ["5"]},
        {"counts": []},
        {"totals": [5, 5]},
        {"totals": []},
        {"tau": None},
        {"horizon": None},
    ],
    ids=str,
)
def test_what_is_no_release_is_refused(
    changed: dict[str, Any], separators: tuple[str, str], before: int
) -> None:
    wrong = json.dumps(json.loads(value(["tea"])) | changed, separators=separators).encode()
    for decode in (decoder_of(Release), decoder_of(WholeRelease)):
        for _ in range(before):
            decode(value(["tea"]))
        with pytest.raises(msgspec.DecodeError):
            decode(wrong)


@pytest.mark.parametrize("bad", [b'"\xff"', b'"tea', b"tea"], ids=str)
def test_columns_that_are_no_json_are_refused(bad: bytes) -> None:
    wrong = value(["tea"]).replace(b'"tea"', bad)
    with pytest.raises((msgspec.DecodeError, UnicodeError)) as plainly:
        msgspec.json.decode(wrong, type=Release)
    with pytest.raises(plainly.type):
        decode_release(wrong)
