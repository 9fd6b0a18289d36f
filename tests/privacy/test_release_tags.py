"""Every release shows, to whoever holds the key, from which log it came, and to everybody which one came before."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_dp.pipeline.pipeline import Pipeline, ReleasedPart
from stream_dp.releases.release import Release, decode_release
from stream_dp.verification.verify import Verdict, verify
from tests.pipeline.pieces import KEY, TOPIC, cut, epoch, log_of, one_worker

SILENT = epoch()
LOG = log_of([b'{"items": ["label %d"]}' % n for n in range(12)])
EDITED = [*LOG[:7], LOG[7]._replace(value=b'{"items": ["another"]}'), *LOG[8:]]
SCHEDULES = ("every-round", "every-5", "every-7ms")


def told(parts: Sequence[ReleasedPart]) -> list[Release]:
    return [decode_release(part.value) for part in parts]


def test_a_tag_differs_from_the_first_round_that_counts_something_else_though_nothing_is_visible() -> None:
    ours, theirs = told(one_worker(LOG)), told(one_worker(EDITED))
    assert not any(release.labels for release in (*ours, *theirs)), "the edit shows: take fewer events"
    assert [one.tag == other.tag for one, other in zip(ours, theirs, strict=True)] == [True] * 7 + [False] * 5


def test_verify_finds_an_edit_that_shows_in_no_release_without_any_checkpoint() -> None:
    releases = one_worker(LOG)
    found = verify(SILENT, KEY, TOPIC, EDITED, releases)
    assert (found.certificate.verdict, found.certificate.rounds) == (Verdict.EDITED, 7)
    assert verify(SILENT, KEY, TOPIC, LOG, releases).certificate.verdict is Verdict.IDENTICAL


def test_an_edit_of_what_is_never_counted_leaves_the_tag() -> None:
    """Fields that nobody reads, an item beyond the bound: such a log gives the same releases, now and later."""
    values = [b'{"items": ["label %d"], "note": "new"}' % n for n in range(12)]
    assert one_worker(log_of(values)) == one_worker(LOG)


@pytest.mark.parametrize("changed", ["key", "nonce", "stream"])
def test_no_tag_comes_twice(changed: str) -> None:
    """Not in another round, nor for an equal log under another key, nonce or stream."""
    other = replace(SILENT, nonce=bytes(16)) if changed == "nonce" else SILENT
    if changed == "stream":
        other = replace(other, privacy=other.privacy | {"stream": "t"})
    empty = log_of([None] * 50)
    releases = Pipeline(other, bytes(32) if changed == "key" else KEY, TOPIC).process(empty).releases
    tags = [release.tag for release in (*told(one_worker(empty)), *told(releases))]
    assert len(set(tags)) == 100
    assert {len(tag) for tag in tags} == {32}


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(SCHEDULES), st.lists(st.integers(0, 60), max_size=5), st.booleans())
def test_each_release_names_the_one_before_across_batches_and_restarts(
    schedule: str, cuts: list[int], restarts: bool
) -> None:
    of, records = epoch(release=schedule), log_of([b'{"items": ["tea"]}'] * 60)
    pipeline, parts = Pipeline(of, KEY, TOPIC), list[ReleasedPart]()
    for batch in cut(records, cuts):
        parts += pipeline.process(batch).releases
        if restarts:
            pipeline = Pipeline(of, KEY, TOPIC, pipeline.position, pipeline.state())
    assert parts == one_worker(records, of)
    releases = told(parts)
    assert len(releases) > 5
    assert releases[0].previous == 0
    assert all(later.previous == earlier.round for earlier, later in pairwise(releases))
    assert pipeline.position.released == releases[-1].round
