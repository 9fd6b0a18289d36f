"""What is a valid event, how a release reads, and when it is split into parts."""

import json

import numpy as np
import pytest

from stream_dp.config.settings import Settings
from stream_dp.config.times import iso_timestamp
from stream_dp.counters.calibration import calibrate
from stream_dp.engine.epoch import Epoch
from stream_dp.events.dead_letter import DeadLetter
from stream_dp.events.event import DEEPEST_NESTING, LONGEST_LABEL, BadRecord, decode_event
from stream_dp.events.record import Record
from stream_dp.pipeline.pipeline import Pipeline
from stream_dp.releases.encoder import without_zone
from stream_dp.releases.release import LARGEST_PART, decode_release
from tests.nodes import live_nodes

KEY = bytes(32)


def test_the_fields_of_an_event() -> None:
    event = decode_event(
        b'{"items":["b","a","b"],"user":"u1","id":"e-17","ts":"2026-01-31T12:00:00Z","x":[1]}'
    )
    assert (
        event.items,
        event.user,
        event.id,
        event.ts,
    ) == (["b", "a", "b"], "u1", "e-17", "2026-01-31T12:00:00Z")


def test_a_label_may_be_as_long_in_characters_as_it_says() -> None:
    longest = "é" * LONGEST_LABEL
    assert decode_event(json.dumps({"items": [longest]}).encode()).items == [longest]
    with pytest.raises(BadRecord, match="length"):
        decode_event(json.dumps({"items": [longest + "é"]}).encode())


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "no value"),
        (b"", "no value"),
        (b"{", "not valid UTF-8 JSON"),
        (b"\xff\xfe", "not valid UTF-8 JSON"),
        (b'{"items":["a"],"note":"\xff"}', "not valid UTF-8 JSON"),
        (b'{"x":' + b"[" * 1_000_000, "nested more than 100 deep"),
        (b'{"x":' + b"[" * 90, "not valid UTF-8 JSON"),
        (b"{}", "`items`"),
        (b'{"items":[]}', "length >= 1"),
        (b'{"items":[""]}', "items"),
        (b'{"items":[null]}', r"items\[0\]"),
        (b'{"items":["a",[]]}', r"items\[1\]"),
        (b'{"items":["a"],"user":""}', "user"),
        (b'{"items":["a"],"user":1}', "user"),
    ],
)
def test_a_bad_record_says_why(value: bytes | None, reason: str) -> None:
    with pytest.raises(BadRecord, match=reason):
        decode_event(value)


def deep(levels: int, opening: bytes = b"[", closing: bytes = b"]") -> bytes:
    """An event of so many arrays and objects around its innermost value."""
    return b'{"items":["a"],"x":%b1%b}' % (opening * (levels - 1), closing * (levels - 1))


@pytest.mark.parametrize(
    "value",
    [
        b'{"items": [7], "user": "hush"}',
        b'{"items": {"hush": "hush"}}',
        b'{"items": ["a"], "id": ["hush"]}',
        b'{"items": ["hush" "hush"]}',
        b'["hush"]',
    ],
)
def test_the_reason_never_quotes_the_record(value: bytes) -> None:
    with pytest.raises(BadRecord) as bad:
        decode_event(value)
    assert "hush" not in str(bad.value)


@pytest.mark.parametrize("frames", [0, 600])
def test_how_deep_an_event_may_be_nested_does_not_depend_on_who_decodes_it(frames: int) -> None:
    """The decoder alone would stop at a depth that the calls around it have a part in."""

    def decode(value: bytes, frames: int) -> list[str]:
        return decode(value, frames - 1) if frames else decode_event(value).items

    for opening, closing in ((b"[", b"]"), (b'{"y":', b"}")):
        assert decode(deep(DEEPEST_NESTING, opening, closing), frames) == ["a"]
        for levels in (DEEPEST_NESTING + 1, 400, 100_000):
            with pytest.raises(BadRecord, match="nested more than 100 deep"):
                decode(deep(levels, opening, closing), frames)


def test_brackets_in_labels_and_side_by_side_are_not_nested() -> None:
    label = "[{" * 200 + '\\"' + "[" * 200
    assert decode_event(json.dumps({"items": [label]}).encode()).items == [label]
    assert decode_event(b'{"items":["a"],"x":[%b[]]}' % (b"[]," * 500)).items == ["a"]


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (-1, "1970-01-01T00:00:00.000Z"),
        (999, "1970-01-01T00:00:00.999Z"),
        (951_782_400_001, "2000-02-29T00:00:00.001Z"),
        (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
        (2**63 - 1, "9999-12-31T23:59:59.999Z"),
    ],
)
def test_timestamps_are_iso_8601_in_utc(milliseconds: int, text: str) -> None:
    assert text == iso_timestamp(milliseconds)
    assert text == f"{without_zone([milliseconds])[0]}Z"


def test_a_dead_letter_says_where_its_record_was() -> None:
    letter = DeadLetter("why", "s.events", 0, 17, b"k", b"v")
    assert letter.headers == [
        ("reason", b"why"),
        ("topic", b"s.events"),
        ("partition", b"0"),
        ("offset", b"17"),
    ]


def test_a_large_release_is_split_and_its_parts_are_the_whole() -> None:
    """Labels that need several times their length in JSON; parts stay below the limit and repeat nothing."""
    labels = [f"{number:04d}" + "\u0001" * 1020 for number in range(160)]
    mechanism, guarantee = calibrate(20.0, 1e-2, 255, 160)
    privacy = Settings(stream="s", release="every-50").privacy
    epoch = Epoch(1, bytes(16), 0, privacy, mechanism, guarantee)
    pipeline = Pipeline(epoch, KEY, "s.events")
    value = json.dumps({"items": labels}).encode()
    output = pipeline.process([Record(offset, offset, None, value) for offset in range(250)])
    last = [decode_release(release.value) for release in output.releases if release.round == 250]
    assert len(last) > 1
    assert [(part.part, part.parts) for part in last] == [(n, len(last)) for n in range(1, len(last) + 1)]
    assert all(len(release.value) < LARGEST_PART + 1000 for release in output.releases)
    found = [pair for part in last for pair in zip(part.labels, part.counts, strict=True)]
    assert len({label for label, _ in found}) == len(found) > 150
    noisy = pipeline.histogram.state().counts.astype(np.int64)
    for node in live_nodes(pipeline.histogram.state()):
        noisy = noisy + node.noise[: len(noisy)]
    tau = mechanism.tau(250)
    expected = {
        label: int(count)
        for label, count in zip(pipeline.histogram.state().labels, noisy, strict=True)
        if count >= tau
    }
    assert expected == dict(found)
