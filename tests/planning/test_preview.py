"""The preview shows what the true mechanism would have released, and compares it with the true counts."""

from statistics import median

import numpy as np
import orjson
import pytest

from stream_dp.counters import MECHANISMS
from stream_dp.counters.calibration import calibrate
from stream_dp.engine.histogram import HorizonReached, RunningHistogram
from stream_dp.planning.preview import PublicLog, Run, run, seen, throw_away_noise
from stream_dp.privacy.keyed_noise import KeyedNoise

NOISE = KeyedNoise(bytes(32), "preview", bytes(16))
RECORDS = [
    b'{"items": ["b", "a", "b"]}',
    b"not an event",
    None,
    b'{"items": ["b", "c"]}',
    b'{"items": ["c", "d"]}',
]


def test_in_the_user_unit_the_truth_is_the_number_of_users() -> None:
    rows = [("u", ["b", "a"]), ("u", ["b", "c"]), ("v", ["b"]), (None, ["a"]), ("v", ["c", "d"])]
    log = PublicLog.of([orjson.dumps({"user": user, "items": items}) for user, items in rows], "user")
    assert log.counts == {"b": 2, "c": 2, "a": 1, "d": 1}
    assert log.admitted(2) == [["b", "a"], [], ["b"], [], ["c"]]
    assert log.counted(2) == 4 / 6
    assert log.counted(3) == 1


def records(rounds: int) -> list[bytes]:
    """Labels of very different frequencies, six to an event."""
    random = np.random.default_rng(1)
    return [
        b'{"items": [%b]}' % b",".join(b'"label %d"' % rank for rank in random.geometric(0.05, 6))
        for _ in range(rounds)
    ]


def test_the_truth_is_the_number_of_events_that_hold_a_label() -> None:
    log = PublicLog.of(RECORDS)
    assert len(log.events) == 5
    assert list(log.counts.items()) == [("b", 2), ("c", 2), ("a", 1), ("d", 1)]
    assert log.top(3) == ["b", "c", "a"]
    assert log.top(10) == ["b", "c", "a", "d"]
    assert log.counted(1) == 3 / 6
    assert log.counted(2) == 1


@pytest.mark.parametrize("name", MECHANISMS)
def test_a_run_is_what_the_true_mechanism_releases(name: str) -> None:
    log = PublicLog.of(records(300))
    mechanism, _ = calibrate(6.0, 1e-2, 511, 4, mechanism=name)
    told: list[int] = []
    found = run(log, mechanism, NOISE, told.append)
    snapshots = RunningHistogram(mechanism, NOISE).observe(log.admitted(4))
    assert found.sizes.tolist() == [len(snapshot.labels) for snapshot in snapshots]
    assert list(found.shown.items()) == list(
        zip(snapshots[-1].labels, snapshots[-1].counts.tolist(), strict=True)
    )
    first: dict[str, int] = {}
    for snapshot in snapshots:
        for label in snapshot.labels:
            first.setdefault(label, snapshot.round)
    assert found.first == first
    assert len(set(first.values())) > 3
    assert sum(told) == 300


def test_runs_have_noise_of_their_own() -> None:
    log = PublicLog.of(records(300))
    mechanism, _ = calibrate(6.0, 1e-2, 511, 4)
    one, two = (run(log, mechanism, throw_away_noise()) for _ in range(2))
    assert one.shown != two.shown


def test_a_log_beyond_the_horizon_is_refused() -> None:
    mechanism, _ = calibrate(6.0, 1e-2, 255, 4)
    with pytest.raises(HorizonReached):
        run(PublicLog.of(records(300)), mechanism, NOISE)


def given(shown: dict[str, int], first: dict[str, int]) -> Run:
    return Run(shown, np.zeros(0, np.int64), first)


def test_what_was_seen_is_averaged_over_the_runs() -> None:
    counts = {f"label {i:03d}": 1000 - i for i in range(200)}
    log = PublicLog([], counts)
    top = list(counts)
    shown = {label: counts[label] + (50 if place % 2 else 10) for place, label in enumerate(top[:40])}
    first = {label: 100 + place for place, label in enumerate(top[:60])}
    told = seen(log, [given(shown, first), given({}, {}), given(shown, first)])
    assert told.labels == pytest.approx(80 / 3)
    assert told.ever == pytest.approx(40)
    assert told.recall == pytest.approx({10: 2 / 3, 50: 2 / 3 * 0.8, 100: 2 / 3 * 0.4})
    errors = [abs(shown[label] - counts[label]) / counts[label] for label in shown]
    assert told.relative_error == pytest.approx(median(errors))
    assert (told.first_label, told.first_top) == (100, 104.5)


def test_where_nothing_is_seen_there_is_no_error_and_no_time() -> None:
    told = seen(PublicLog([], {"a": 3}), [given({}, {})] * 2)
    assert (told.labels, told.relative_error, told.first_label, told.first_top) == (0, None, None, None)
    assert told.recall == {10: 0, 50: 0, 100: 0}


def test_half_of_the_top_ten_is_enough_for_a_time_and_less_is_not() -> None:
    top = {f"label {i}": 20 - i for i in range(10)}
    log = PublicLog([], top)
    for labels, expected in ((4, None), (6, 7)):
        first = dict.fromkeys(list(top)[:labels], 7)
        assert seen(log, [given({}, first)]).first_top == expected
