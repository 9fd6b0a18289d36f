"""Releases whose columns are the same again: what is decoded is what stands there, and belongs to its owner."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dp.releases.release import Release, decode_release
from stream_dp.releases.whole_release import WholeRelease, decode_whole_release

LONG = "x" * 100
"""Labels that end alike as bytes, and are as long."""
NUMBERS = st.lists(st.integers(1, 2), max_size=3)


def value(labels: list[str], **changed: Any) -> bytes:
    release = {
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
        "part": 1,
        "parts": 1,
        "horizon": 100,
        "labels": labels,
        "counts": [5] * len(labels),
    }
    return json.dumps(release | changed).encode()


@given(st.lists(st.tuples(st.sampled_from("ab"), NUMBERS | st.none(), NUMBERS | st.none()), min_size=1))
def test_a_release_is_decoded_as_if_there_had_been_no_other(several: list[Any]) -> None:
    for first, found, since in several:
        labels = [first + LONG, "tea", "milk"]
        columns = {name: column for name, column in (("found", found), ("since", since)) if column}
        columns = {name: (column * 3)[:3] for name, column in columns.items()}
        one = value(labels, sds={"1": 2.0, "2": 1.0}, **columns)
        assert decode_release(one) == msgspec.json.decode(one, type=Release)
        whole = decode_whole_release(one)
        assert whole == msgspec.json.decode(one, type=WholeRelease)
        assert type(whole) is WholeRelease


def test_whoever_changes_the_labels_of_a_release_changes_no_other() -> None:
    one = value(["tea", "milk"])
    decode_release(one).labels.sort()
    assert decode_release(one).labels == ["tea", "milk"]


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
        {"horizon": None},
    ],
    ids=str,
)
def test_what_is_no_release_is_refused(changed: dict[str, Any]) -> None:
    decode_release(value(["tea"]))
    wrong = json.dumps(json.loads(value(["tea"])) | changed).encode()
    for decode in (decode_release, decode_whole_release):
        with pytest.raises(msgspec.DecodeError):
            decode(wrong)


@pytest.mark.parametrize("bad", [b'"\xff"', b'"tea', b"tea"], ids=str)
def test_columns_that_are_no_json_are_refused(bad: bytes) -> None:
    wrong = value(["tea"]).replace(b'"tea"', bad)
    with pytest.raises((msgspec.DecodeError, UnicodeError)) as plainly:
        msgspec.json.decode(wrong, type=Release)
    with pytest.raises(plainly.type):
        decode_release(wrong)
