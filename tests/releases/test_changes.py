"""Do the changes from release to release lead from one to the next, whatever comes, goes and stays?"""

from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from stream_dp.releases.changes import Change, derive
from stream_dp.releases.release import LARGEST_PART
from stream_dp.releases.whole_release import WholeRelease

Counts = dict[str, int]


def release(number: int, counts: Counts, epoch: int = 1) -> WholeRelease:
    ordered = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    return WholeRelease(
        v=1, stream="s", epoch=epoch, nonce=f"{epoch:032x}", round=number, horizon=100, ts="2026-01-31T12:00:00.000Z",
        unit="event", mechanism="binary", epsilon=1.0, delta=1e-6, rho=0.1, items_per_event=4, shown="kept",
        previous=number - 1, tag="00" * 16, sd=3.0, tau=5, part=1, parts=1,
        labels=[label for label, _ in ordered], counts=[count for _, count in ordered],
    )  # fmt: skip


def applied(held: Counts, changes: list[Change]) -> Counts:
    """What a reader makes of them, who does as docs/releases.md says."""
    for change in changes:
        if change.since == 0 and change.part == 1:
            held = {}
        held = held | change.entered | change.changed
        held = {label: count for label, count in held.items() if label not in change.left}
    return held


histograms = st.dictionaries(st.sampled_from("abcdefgh"), st.integers(5, 8))


@hypothesis_settings(derandomize=True, deadline=None)
@given(st.lists(st.tuples(histograms, st.booleans()), min_size=1, max_size=12))
def test_a_reader_of_changes_has_every_release(rounds: list[tuple[Counts, bool]]) -> None:
    before, held, epoch = None, dict[str, int](), 1
    for number, (counts, another_epoch) in enumerate(rounds, 1):
        epoch += another_epoch
        current = release(number, counts, epoch)
        changes = derive(before, current)
        held = applied(held, changes)
        assert held == counts
        assert [change.part for change in changes] == list(range(1, changes[0].parts + 1))
        if before is not None and not another_epoch:
            assert not set(changes[0].entered) & set(before.histogram)
            assert all(before.histogram[label] != count for label, count in changes[0].changed.items())
            assert changes[0].since == number - 1
        else:
            assert changes[0].since == 0
        before = current


def test_nothing_new_is_a_change_too() -> None:
    """So that a reader knows the round, its noise and its threshold."""
    [change] = derive(release(1, {"a": 5}), release(2, {"a": 5}))
    assert (change.entered, change.changed, change.left) == ({}, {}, [])
    assert (change.round, change.since) == (2, 1)


def test_a_large_change_comes_in_parts_that_fit() -> None:
    counts = {f"{number:05d}" + "x" * 900: 9 for number in range(2_500)}
    changes = derive(None, release(1, counts))
    assert len(changes) > 2
    assert applied({}, changes) == counts
    assert all(sum(len(label) + 16 for label in change.entered) <= LARGEST_PART for change in changes)
