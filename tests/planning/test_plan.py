"""Does the plan follow from its model, and does the model grow as the work does?"""

import copy
import json
import re
import tracemalloc
from dataclasses import asdict, replace
from itertools import count
from math import ceil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from stream_dp.cli import app
from stream_dp.counters.calibration import calibrate
from stream_dp.counters.window import WindowMechanism
from stream_dp.engine.histogram import RunningHistogram
from stream_dp.engine.noise_table import Pruning
from stream_dp.engine.released_block import ReleasedBlock
from stream_dp.engine.window_histogram import WindowHistogram
from stream_dp.planning.costs import MEASUREMENTS, Costs, measure_costs
from stream_dp.planning.plan import (
    FORMULAS,
    UTILISATION,
    WINDOW_FORMULAS,
    Workload,
    labels_are_unmet,
    plan,
    sequencer_busy,
    shard_busy,
)
from stream_dp.planning.release_sizes import compressed_share, sample_releases
from stream_dp.planning.window_costs import measure_window_costs, seconds_per_round
from stream_dp.privacy.keyed_noise import KEY_BYTES, NONCE_BYTES, KeyedNoise

COSTS = Costs(
    decode=7e-6, sequence=6e-6, frame=2e-8, round=1e-5, visible=4e-8,
    idle=2e-8, drawn=3e-8, item=5e-7, unmet=1e-6, unpack=2e-7, compress=3e-9,
)  # fmt: skip
WORK = Workload(labels=100_000, visible=1_000, events_per_second=1_000.0, horizon=2**23)


def test_busy_shares_are_those_of_the_model_by_hand() -> None:
    work = Workload(10_000_000, 2_000, 100_000.0, events_per_round=1_000, items_per_event=4)
    assert sequencer_busy(work, COSTS, 8) == pytest.approx(100_000 * 7e-6 + 100 * (6e-6 + 8 * 2e-8))
    by_labels = 2_000 * 4e-8 + 10_000_000 / 256 * 2e-8 + 4_000 * (5e-7 + 1e-6)
    compressing = 2_000 * 3e-9 * (9 + 16)
    assert shard_busy(work, COSTS, 8) == pytest.approx(100 * (1e-5 + (by_labels + compressing) / 8))


@pytest.mark.parametrize(
    ("active", "label_bytes", "unmet"),
    [(None, 16, True), (2_097_152, 16, False), (2_097_153, 16, True), (0, 16, False), (1_300_000, 100, False),
     (1_400_000, 100, True)],
)  # fmt: skip
def test_items_cost_more_where_a_shard_meets_more_labels_than_it_keeps_at_hand(
    active: int | None, label_bytes: int, unmet: bool
) -> None:
    """It keeps 2^18 labels at hand, of 2^24 characters together."""
    work = Workload(10_000_000, 0, 1.0, items_per_event=8, label_bytes=label_bytes, active=active)
    assert labels_are_unmet(work, 8) == unmet
    dearer = shard_busy(work, COSTS, 8) - shard_busy(work, replace(COSTS, unmet=0.0), 8)
    assert dearer == pytest.approx(1e-6 if unmet else 0.0)


def test_the_fewest_shards_that_fit_are_taken() -> None:
    work = replace(WORK, events_per_second=4_000.0, visible=20_000, horizon=2**24, replicas=1)
    found = plan(work, COSTS)
    assert found.shards is not None
    assert found.shards > 1
    assert found.shard_busy <= UTILISATION < shard_busy(work, COSTS, found.shards - 1)
    assert [sentence for sentence in found.limits if "grow by" not in sentence] == []


def test_one_worker_that_has_time_for_both_is_enough() -> None:
    found = plan(WORK, COSTS)
    assert (found.shards, found.frames_bandwidth) == (1, 0)
    assert found.sequencer_busy + found.shard_busy <= UTILISATION
    assert found.redis == 100_000 * 96


@pytest.mark.parametrize("window", [0, 60])
@pytest.mark.parametrize("shards", [1, 8])
def test_the_plan_is_what_the_formulas_say(shards: int, window: int) -> None:
    labels = 100_000 if window else 10_000_000
    work = Workload(labels, 2_000, 40_000.0 if shards > 1 else 400.0, 500, 3, 2**24, 21, window=window)
    found = plan(work, replace(COSTS, visible=4e-6) if shards > 1 else COSTS)
    assert (found.shards or 0) > 1 if shards > 1 else found.shards == 1
    costs = asdict(replace(COSTS, visible=4e-6)) if shards > 1 else asdict(COSTS) | {"frame": 0.0}
    size = {
        "S": found.shards,
        "P": 12,
        "E": work.events_per_second,
        "R": work.rounds_per_second,
        "i": 3,
        "k": 1_500,
    }
    names = costs | size | {"N": work.labels, "V": work.visible, "L": 21, "B": 256, "W": window}
    names["U"] = labels_are_unmet(work, found.shards or 0)
    names["C"] = compressed_share(2_000, 21, work.rounds_per_second, "zstd")
    said = {name: eval(formula, {}, names) for name, formula in work.formulas.items()}
    if shards == 1:
        said["Kafka, frames"] = 0
        said["a group"] += work.rounds_per_second * 12 * COSTS.frame
    assert list(said.values()) == pytest.approx(
        [
            *(found.sequencer_busy, found.shard_busy, found.group_busy),
            *(found.group_shard_busy, found.shard_memory, found.group_shard_memory, found.redis),
            *(
                found.events_bandwidth,
                found.frames_bandwidth,
                found.group_bandwidth,
                found.releases_bandwidth,
            ),
            found.releases_a_day.bytes_a_day,
            found.table_a_day.bytes_a_day,
        ]
    )


def test_the_page_and_the_command_show_the_formulas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stream_dp.cli.plan.measure_costs", lambda *_: COSTS)
    told = CliRunner().invoke(app, ["plan", "--labels", "50000", "--events-per-second", "500"])
    assert told.exit_code == 0, told.output
    page = (Path(__file__).parents[2] / "docs/scaling.md").read_text()
    of_windows = CliRunner().invoke(
        app, ["plan", "--labels", "50000", "--events-per-second", "500", "--window", "60"]
    )
    assert of_windows.exit_code == 0, of_windows.output
    for formulas, output in ((FORMULAS, told.stdout), (WINDOW_FORMULAS, of_windows.stdout)):
        for formula in formulas.values():
            assert formula in output
            assert formula in page
    assert "W = 60 rounds a window" in of_windows.stdout
    assert "for ever" in of_windows.stdout
    assert "U = 0 because a shard keeps all labels at hand" in told.stdout
    assert "E = 500 events and R = 500 rounds" in told.stdout
    assert "decode 7, sequence 6, frame 0.02, round 10, visible 0.04" in told.stdout
    assert "compress 0.003" in told.stdout
    assert "process_bytes 150,000,000" in told.stdout


def page_rows() -> list[list[str]]:
    """The table of bytes a day in docs/scaling.md."""
    page = (Path(__file__).parents[2] / "docs/scaling.md").read_text()
    section = page.partition("## Bytes a day")[2].partition("\n## ")[0]
    rows = re.findall(r"^\|(.+)\|$", section, re.MULTILINE)
    return [[cell.strip() for cell in row.split("|")] for row in rows[2:]]


@pytest.mark.parametrize("row", page_rows())
def test_bytes_a_day_on_the_page_are_the_plan(row: list[str]) -> None:
    """Nearly: another version of a codec leaves a little more or less."""
    labels, per_second, compression, *said = row
    visible = int(labels.replace(",", ""))
    work = Workload(visible, visible, float(per_second.replace(",", "")), compression=compression)
    a_day = plan(work, COSTS).releases_a_day
    units = {"GB": 1e9, "TB": 1e12}
    stated = [float(size) * units[unit] for size, unit in map(str.split, said)]
    assert stated == pytest.approx([a_day.bytes_a_day, a_day.everywhere], rel=0.05)


@pytest.mark.parametrize(
    ("work", "told"),
    [
        (replace(WORK, events_per_second=200_000.0, events_per_round=1_000), "among several streams"),
        (replace(WORK, events_per_second=200_000.0, events_per_round=100_000), "let a group of 2 read them"),
        (replace(WORK, events_per_second=90_000.0), 'rounds = "every-N"'),
        (replace(WORK, horizon=65_535), "lasts 66 seconds"),
        (WORK, "The releases grow by"),
        (replace(WORK, compression="none"), 'set compression = "zstd", leave rounds out'),
    ],
)
def test_what_stands_in_the_way_is_said_with_what_to_change(work: Workload, told: str) -> None:
    assert any(told in sentence for sentence in plan(work, COSTS).limits)


def test_costs_are_those_of_the_work_that_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Taken apart again where every piece of work takes as long as the model says."""

    def of_a_round(
        mechanism: object, guarantee: object, labels: int, visible: int, items: int, brought: int
    ) -> float:
        item = COSTS.item + (COSTS.unmet if brought > 256 * items else 0.0)  # others came in the block before
        return COSTS.round + visible * COSTS.visible + labels / 256 * COSTS.idle + items * item

    def of_an_event(shards: int, events_per_round: int) -> float:
        closing = COSTS.sequence + (shards - 1) * COSTS.frame
        return COSTS.decode + (closing if events_per_round == 1 else 0)

    monkeypatch.setattr("stream_dp.planning.costs._seconds_per_round", of_a_round)
    monkeypatch.setattr("stream_dp.planning.costs._seconds_per_event", of_an_event)
    monkeypatch.setattr("stream_dp.planning.costs._seconds_per_byte", lambda _: COSTS.compress)
    monkeypatch.setattr("stream_dp.planning.costs._seconds_per_label_drawn", lambda _: COSTS.drawn)
    monkeypatch.setattr("stream_dp.planning.costs._seconds_per_label_of_a_frame", lambda: COSTS.unpack)
    # Not exactly: 64 idle labels are in every measurement, and visible ones are examined as idle ones are.
    assert asdict(measure_costs()) == pytest.approx(asdict(COSTS), rel=1e-2)


def test_a_plan_of_windows_has_no_horizon_and_each_label_costs_what_it_does_there() -> None:
    work = replace(WORK, events_per_round=100, window=60, horizon=10)
    found = plan(work, COSTS)
    assert found.epoch_seconds is None
    assert not any("horizon" in sentence for sentence in found.limits)
    compressing = 3e-9 * (9 + 16)
    of_a_round = 1e-5 + 1_000 * (4e-8 + compressing) + 99_000 * 3e-8 + 400 * 5e-7
    assert shard_busy(work, COSTS, 1) == pytest.approx(10 * of_a_round)
    assert found.shard_memory == 150e6 + 100_000 * 616 + 1_000 * 200 + 2 * 60 * 400 * 72
    assert found.group_shard_memory == found.shard_memory
    assert found.redis == 100_000 * 96 + 2 * 60 * (400 * 24 + 32)


@pytest.mark.parametrize("window", [1, 60, 10_000])
def test_costs_of_windows_are_those_of_the_work_that_is_measured(
    monkeypatch: pytest.MonkeyPatch, window: int
) -> None:
    """Taken apart again where every piece of work takes as long as the model says."""

    def of_a_round(
        mechanism: WindowMechanism, guarantee: object, labels: int, shown: int, items: int
    ) -> float:
        assert labels <= items * mechanism.window or shown, (
            "who is not shown is tested for an event of the block"
        )
        tested = labels - shown
        return COSTS.round + shown * COSTS.visible + tested * COSTS.drawn + items * COSTS.item

    monkeypatch.setattr("stream_dp.planning.window_costs.seconds_per_round", of_a_round)
    monkeypatch.setattr("stream_dp.planning.window_costs._seconds_per_label_not_met", lambda: COSTS.unmet)
    steps = list[None]()
    found = measure_window_costs(window, lambda: steps.append(None))
    # In a block of one round every label that is tested has an item.
    drawn = COSTS.drawn if window > 1 else 0.0
    assert tuple(found) == pytest.approx(
        (COSTS.round, COSTS.visible, drawn, COSTS.item + COSTS.drawn - drawn, COSTS.unmet), rel=1e-3
    )
    assert len(steps) == 5


@pytest.mark.parametrize("shown", [0, 7])
def test_rounds_of_windows_are_measured_with_as_many_labels_shown_as_it_says(
    monkeypatch: pytest.MonkeyPatch, shown: int
) -> None:
    """By a clock that goes on by a second whenever it is read: all rounds of some blocks take one then."""
    clock, sizes = count(), set[int]()

    class Encoder:
        def __init__(self, *_: object) -> None: ...

        def encode(self, block: ReleasedBlock, _: object) -> None:
            sizes.update(block.sizes.tolist())

    monkeypatch.setattr("stream_dp.planning.window_costs.process_time", lambda: float(next(clock)))
    monkeypatch.setattr("stream_dp.planning.window_costs.ReleaseEncoder", Encoder)
    mechanism, guarantee = calibrate(1.0, 1e-6, 60, 4, "window")
    assert isinstance(mechanism, WindowMechanism)
    assert seconds_per_round(mechanism, guarantee, 40, shown, 1) == 1 / 180
    assert sizes == {shown}


@pytest.mark.parametrize("shown", [0, 20_000])
def test_windows_take_at_most_the_memory_of_the_plan(shown: int) -> None:
    mechanism, _ = calibrate(1.0, 1e-6, 60, 4, "window")
    assert isinstance(mechanism, WindowMechanism)
    names = [f"label {i:010d}" for i in range(20_000)]
    noise = KeyedNoise(bytes(KEY_BYTES), "memory", bytes(NONCE_BYTES))
    first = WindowHistogram(mechanism, noise)
    for _ in first.blocks([[], names] + [[]] * 58):
        pass
    state = first.state()
    next(column.cells for column in state.counter.columns if column.name == "until")[:shown] = 2**62
    tracemalloc.start()
    try:
        histogram = WindowHistogram(mechanism, noise, state)
        for _ in range(3):
            for block in histogram.blocks([names[place::60] for place in range(60)]):
                assert len(block.labels) >= shown
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    items = ceil(len(names) / 60)
    work = Workload(20_000, shown, 1.0 * items, items, 1, label_bytes=16, window=60)
    planned = plan(work, COSTS).shard_memory - COSTS.process_bytes
    assert planned / 2 < most < planned


@pytest.mark.parametrize("pruning", [Pruning(256), None])
def test_idle_labels_take_at_most_the_memory_of_the_plan(pruning: Pruning | None) -> None:
    """After 1,023 rounds, 10 nodes are live; where nothing is pruned, the plan has room for all 16 of the horizon."""
    rounds, further_nodes = 1_023, 0 if pruning else 16 - 10
    mechanism, _ = calibrate(1.0, 1e-6, 65_535, 4)
    names = [f"label {i:010d}" for i in range(20_000)]
    noise = KeyedNoise(bytes(KEY_BYTES), "memory", bytes(NONCE_BYTES))
    first = RunningHistogram(mechanism, noise, pruning=pruning)
    first.observe([names, *[[names[0]]] * (rounds - 2)])
    state = first.state()
    tracemalloc.start()
    try:
        histogram = RunningHistogram(mechanism, noise, copy.deepcopy(state), pruning)
        assert histogram.observe([[names[0]]])[-1].round == rounds
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    found = plan(Workload(20_000, 0, 1.0, label_bytes=16), COSTS)
    planned = (found.shard_memory if pruning else found.group_shard_memory) - COSTS.process_bytes
    assert planned / 2 < taken + len(names) * 8 * further_nodes < planned


def test_work_is_measured_in_seconds_of_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that goes on by a second whenever it is read: 256 rounds take one then, and so do 50 events."""
    clock, steps = count(), list[None]()
    monkeypatch.setattr("stream_dp.planning.costs.process_time", lambda: float(next(clock)))
    for name, number in (("EVENTS", 50), ("VISIBLE", 20), ("LABELS", 300)):
        monkeypatch.setattr(f"stream_dp.planning.costs._MEASURED_{name}", number)
    packed = sum(map(len, sample_releases(1_000, 16)))
    found = measure_costs(progress=lambda: steps.append(None))
    assert found == Costs(
        1 / 50,
        sequence=0,
        frame=0,
        round=1 / 256,
        visible=0,
        idle=0,
        drawn=1 / 2400,
        item=0,
        unmet=0,
        unpack=1 / 8192,
        compress=1 / packed,
    )
    assert len(steps) == MEASUREMENTS


def test_the_command_prints_the_plan_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stream_dp.cli.plan.measure_costs", lambda *_: COSTS)
    options = ["--labels", "50000", "--events-per-second", "500", "--json"]
    told = CliRunner().invoke(app, ["plan", *options])
    assert told.exit_code == 0, told.output
    found = json.loads(told.stdout)
    work, costs = Workload(**found["workload"]), Costs(**found["costs"])
    assert (work, costs) == (Workload(50_000, 1_000, 500.0), COSTS)
    assert found["formulas"] == FORMULAS
    assert found["plan"]["shards"] == plan(work, costs).shards == 1


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--mechanism", "none"], "mechanism must be one of"),
        (["--visible", "200"], "lower --visible"),
        (["--active", "200"], "lower --active"),
        (["--compression", "zip"], "compression must be one of none, gzip"),
        (["--horizon", "99999999"], "let a round hold more events"),
        (["--mechanism", "window"], "such as --window 60"),
        (["--mechanism", "blt", "--window", "60"], "leave --window or --mechanism blt out"),
        (["--window", "70000"], "a window has at most 65,536 rounds"),
    ],
)
def test_mistakes_are_sentences(options: list[str], told: str) -> None:
    found = CliRunner().invoke(app, ["plan", "--labels", "100", "--events-per-second", "1", *options])
    assert found.exit_code == 2
    assert told in " ".join(found.stderr.split())
