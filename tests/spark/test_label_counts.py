"""Files of labels that are not shown: what was written comes back, added up, or is refused."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from stream_dp.privacy.keyed_noise import KeyedNoise
from stream_dp.spark.label_counts import BUCKETS, LabelFiles, LabelRun, LabelsDamaged, in_buckets

KEY = bytes(range(32))
NOISE = KeyedNoise(KEY, "shop", bytes(16))

counts = st.dictionaries(st.text(max_size=5), st.integers(1, 1_000), max_size=30)


def counted(run: LabelRun) -> dict[str, int]:
    return dict(zip(run.labels(), run.counts.tolist(), strict=True))


@given(st.lists(counts, max_size=4))
def test_a_sum_of_runs_counts_each_label_once(parts: list[dict[str, int]]) -> None:
    total = Counter[str]()
    for part in parts:
        total.update(part)
    joined = LabelRun.joined([LabelRun.of(part, NOISE) for part in parts])
    assert counted(joined) == total
    assert [*joined.ids.tolist()] == sorted(joined.ids.tolist())
    ids = NOISE.label_ids(label.encode() for label in joined.labels())
    np.testing.assert_array_equal(joined.ids, ids)


def test_identities_that_share_their_first_half_are_in_order_too() -> None:
    ids = np.array([[7, 3], [9, 1], [7, 1], [7, 2]], np.uint64)
    runs = [LabelRun(ids[place : place + 2], *_texts("ab")) for place in (0, 2)]
    joined = LabelRun.joined([run.take(np.argsort(run.ids[:, 1], kind="stable")) for run in runs])
    assert joined.ids.tolist() == [[7, 1], [7, 2], [7, 3], [9, 1]]


def _texts(text: str) -> tuple[NDArray[np.int32], NDArray[np.uint8], NDArray[np.int64]]:
    ends = np.arange(1, len(text) + 1)
    return np.ones(len(text), np.int32), np.frombuffer(text.encode(), np.uint8), ends


def test_each_label_is_in_one_bucket(tmp_path: Path) -> None:
    known = {f"label {number}": number + 1 for number in range(1_000)}
    files = LabelFiles(tmp_path, KEY)
    files.write("all", in_buckets(LabelRun.of(known, NOISE)))
    found = [files.read("all", bucket) for bucket in range(BUCKETS)]
    assert sum(map(len, found)) == len(known)
    assert {label: count for run in found for label, count in counted(run).items()} == known


def test_every_flipped_bit_is_noticed(tmp_path: Path) -> None:
    files = LabelFiles(tmp_path, KEY)
    files.write("all", [(0, LabelRun.of({"tea": 2, "milk": 1}, NOISE))])
    content = (tmp_path / "all").read_bytes()
    for place in range(len(content)):
        (tmp_path / "all").write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.raises(LabelsDamaged):
            files.read("all", 0)


def test_a_file_under_another_name_is_refused(tmp_path: Path) -> None:
    files = LabelFiles(tmp_path, KEY)
    files.write("one", [(0, LabelRun.of({"tea": 2}, NOISE))])
    (tmp_path / "one").rename(tmp_path / "two")
    with pytest.raises(LabelsDamaged):
        files.read("two", 0)
