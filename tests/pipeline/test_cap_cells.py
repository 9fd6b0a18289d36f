"""The two cells beside the labels: what they count, what noise they have, and that a cut of the log changes nothing."""

from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_dp.config.settings import Settings
from stream_dp.counters.calibration import calibrate
from stream_dp.engine.cap_cells import CELL_NAMES, CapCells, as_array
from stream_dp.engine.epoch import Epoch
from stream_dp.events.barrier_chain import beginning
from stream_dp.pipeline.pipeline import Output, Pipeline
from stream_dp.privacy.accounting import gaussian_delta
from stream_dp.privacy.composition import Unit
from stream_dp.privacy.keyed_noise import KeyedNoise
from stream_dp.releases.release import decode_release
from tests.pipeline.test_pipeline import (
    FIVE_HOURS,
    ITEMS_PER_EVENT,
    KEY,
    NONCE,
    json_event,
    log_for,
    log_of,
    output_of,
    values_and_barriers,
)

Values = list[bytes | Literal[0] | None]
COUNTERS: list[dict[str, Any]] = [{"mechanism": "binary"}, {"discover": "every-round"}, {}]


def epoch(unit: Unit = "event", rounds: str = "per-event", **further: Any) -> Epoch:
    """An epoch that counts cells, with a fixed nonce."""
    told = {"items_per_event": ITEMS_PER_EVENT, "epsilon": 20.0, "horizon": 1023, "cap_share": True} | further
    if unit != "event":
        told["items_per_user"] = ITEMS_PER_EVENT
    opened = Epoch.open(Settings(stream="s", unit=unit, rounds=rounds, **told), 1, 0)
    after = beginning(NONCE.hex(), 0, 0) if rounds == "ticks" else None
    return replace(opened, nonce=NONCE, after_barrier=after)


KINDS = [
    *(epoch(**each) for each in COUNTERS),
    epoch("user"),
    epoch("event", "ticks"),
    epoch("user", "every-3", mechanism="binary"),
    epoch("user-day", "ticks"),
    epoch(release="every-3"),
]


@settings(max_examples=60)
@given(st.sampled_from(KINDS), st.lists(values_and_barriers, max_size=60), st.data())
def test_neither_batches_nor_a_restart_make_a_difference(
    kind: Epoch, values: Values, data: st.DataObject
) -> None:
    records = log_for(kind, values)
    expected = output_of(Pipeline(kind, KEY, "s.events"), records)
    pipeline, seen = Pipeline(kind, KEY, "s.events"), Output()
    for cut in sorted(data.draw(st.lists(st.integers(0, len(records)), max_size=3))):
        seen.releases += pipeline.process(records[:cut]).releases
        state, pairs = pipeline.state(), bytes(pipeline.intake.pairs)
        pipeline = Pipeline(kind, KEY, "s.events", pipeline.position, state, pairs)
    seen.releases += pipeline.process(records).releases
    assert expected.releases == seen.releases
    if seen.releases and seen.releases[-1].round == pipeline.round:
        previous = decode_release(seen.releases[-1].value).previous
        assert pipeline.last_release(previous) == [seen.releases[-1].value]


@settings(max_examples=60)
@given(st.sampled_from(KINDS), st.lists(values_and_barriers, max_size=60))
def test_they_count_units_and_those_over_the_cap(kind: Epoch, values: Values) -> None:
    """Counted the slow way: events by themselves, users once, and once a day."""
    pipeline = Pipeline(kind, KEY, "s.events")
    pipeline.process(log_for(kind, values))
    cells = pipeline.state().cells
    assert cells is not None
    assert tuple(cells.counts.tolist()) == slowly(values, kind.privacy["rounds"], kind.guarantee.unit)


def slowly(values: Values, rounds: str, unit: Unit) -> tuple[int, int]:
    """How many units the closed rounds hold, and how many of them have more than `ITEMS_PER_EVENT` distinct items."""
    held: dict[str, set[str]] = {}
    units, over, passed, size = 0, 0, 0, 0
    open_units, open_over = 0, 0
    for offset, value in enumerate(values):
        event = json_event(value) if value != 0 else None
        user = event.get("user") if event and unit != "event" else f"{offset}"
        if event and user is not None:
            before = len(held.setdefault(user, set()))
            held[user] |= {*event["items"]}
            open_units += not before
            open_over += before <= ITEMS_PER_EVENT < len(held[user])
        size += value != 0
        if value == 0 if rounds == "ticks" else size == {"per-event": 1, "every-3": 3}[rounds]:
            passed, size = passed + (rounds == "ticks"), 0
            over_midnight = passed * FIVE_HOURS // DAY > (passed - 1) * FIVE_HOURS // DAY
            if unit == "user-day" and over_midnight:
                held = {}
            else:
                units, over = units + open_units, over + open_over
            open_units = open_over = 0
    return units, over


DAY = 24 * 3_600_000


@pytest.mark.parametrize("counter", COUNTERS, ids=str)
def test_an_event_over_the_cap_shows_in_the_chain(counter: dict[str, Any]) -> None:
    """Equal labels and other cells are another log, so all noise after it is other noise."""
    kind = epoch(**counter)
    within, over = b'{"items": ["a", "b", "c"]}', b'{"items": ["a", "b", "c", "d"]}'
    logs = [[within, within, within], [within, over, within]]
    heads = [Pipeline(kind, KEY, "s.events").process(log_of([*log])).heads for log in logs]
    same = [one == other for one, other in zip(*heads, strict=True)]
    assert same == [True, False, False]


def test_without_cells_the_chain_is_the_one_of_before() -> None:
    logs = [[b'{"items": ["a", "b", "c"]}'], [b'{"items": ["a", "b", "c", "d"]}']]
    kind = epoch(cap_share=False)
    one, other = (Pipeline(kind, KEY, "s.events").process(log_of([*log])) for log in logs)
    assert (one.heads, one.releases) == (other.heads, other.releases)


def test_no_label_has_the_name_of_a_cell() -> None:
    """Labels of every format are text, and text has no such bytes."""
    for name in CELL_NAMES:
        with pytest.raises(UnicodeDecodeError):
            name.decode()


@pytest.mark.parametrize("counter", COUNTERS, ids=str)
def test_their_noise_is_four_times_that_of_a_label_and_no_multiple_of_anything(
    counter: dict[str, Any],
) -> None:
    mechanism = epoch(**counter).mechanism
    rounds = 700
    names = [b"\xff%d" % number for number in range(400)]
    cells = CapCells(mechanism, KeyedNoise(KEY, "s", NONCE), names=names)
    shown = cells.observe(np.zeros((rounds, len(names)), np.int64), [bytes(32)] * rounds)
    numbers = np.arange(1, rounds + 1)
    assert shown.std(axis=1) == pytest.approx(mechanism.cells.sds(numbers), rel=0.25)
    labels = mechanism.sds(numbers) if counter else mechanism.cells.sds(numbers) / 4
    assert mechanism.cells.sds(numbers) == pytest.approx(4 * labels, rel=0.05)
    for divisor in (2, 3, 4):
        shares = np.bincount(shown.reshape(-1) % divisor) / shown.size
        assert shares == pytest.approx([1 / divisor] * divisor, abs=0.02)


@pytest.mark.parametrize("unit", ["event", "user"])
@pytest.mark.parametrize("tests", [(), (64, 512)])
@pytest.mark.parametrize(("mechanism", "epsilon"), [("binary", 1.0), ("binary", 30.0), ("blt", 1.0)])
def test_they_are_paid_for(mechanism: str, epsilon: float, tests: tuple[int, ...], unit: Unit) -> None:
    """Two cells of weight 1/4 beside four items: the charge is that of 4 + 2/16 items, thresholds stay those of 4."""
    if tests and mechanism != "blt":
        pytest.skip("only blt has tests")
    bare, cells = (
        calibrate(epsilon, 1e-6, 1023, 4, mechanism, unit, tests=tests, cap_share=each)
        for each in (False, True)
    )
    round_ = np.array([700])
    more = float(cells[0].sds(round_)[0] / bare[0].sds(round_)[0])
    assert 1.015 < more < (1.02 if epsilon == 1 else 1.3)
    assert cells[1].rho == pytest.approx(4.125 / 4 * bare[1].rho / more**2, rel=1e-3)
    mu_squared = cells[0].loss.gaussian
    if epsilon == 1:
        assert gaussian_delta(mu_squared / 2, epsilon) <= 5e-7
    if mechanism == "blt":
        assert mu_squared == pytest.approx(2 * cells[0].rho)


def test_rounds_that_are_not_released_count_too() -> None:
    every, third = epoch(), epoch(release="every-3")
    log = log_of([b'{"items": ["a", "b", "c", "d"]}'] * 9)
    shown = [
        [
            (each.round, decode_release(each.value))
            for each in Pipeline(kind, KEY, "s.events").process(log).releases
        ]
        for kind in (every, third)
    ]
    told = [{number: (one.units, one.over_cap, one.units_sd) for number, one in each} for each in shown]
    assert told[1] == {number: told[0][number] for number in (3, 6, 9)}


def test_an_empty_batch_adds_nothing() -> None:
    cells = CapCells(epoch().mechanism, KeyedNoise(KEY, "s", NONCE))
    assert cells.observe(as_array([]), []).shape == (0, 2)
    assert cells.round == 0


def test_a_state_without_them_is_refused() -> None:
    pipeline = Pipeline(epoch(), KEY, "s.events")
    pipeline.process(log_of([b'{"items": ["a"]}']))
    with pytest.raises(ValueError, match="missing"):
        Pipeline(epoch(), KEY, "s.events", pipeline.position, pipeline.histogram.state())
