"""Does the plan follow from its model, and does the model grow as the work does?"""

import copy
import json
import re
import tracemalloc
from dataclasses import asdict, replace
from math import ceil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from stream_dp.cli import app
from stream_dp.config.settings import Settings
from stream_dp.counters import COMPARED, WINDOW
from stream_dp.counters.calibration import calibrate
from stream_dp.counters.window import WindowMechanism
from stream_dp.engine.histogram import RunningHistogram
from stream_dp.engine.window_histogram import WindowHistogram
from stream_dp.planning.costs import COMPRESSION, COUNTERS, Costs, costs_of
from stream_dp.planning.plan import (
    FORMULAS,
    MOST_LABELS,
    TEST_FORMULAS,
    UTILISATION,
    WINDOW_FORMULAS,
    Workload,
    needs,
    plan,
)
from stream_dp.planning.proposal import host_of, rounds_for
from stream_dp.planning.release_sizes import CODECS
from stream_dp.planning.spark_plan import SPARK_FORMULAS, SparkCosts, spark_plan
from stream_dp.planning.topic_survey import TopicSurvey
from stream_dp.privacy.keyed_noise import KEY_BYTES, NONCE_BYTES, KeyedNoise

COSTS = Costs(
    decode=7e-6, sequence=6e-6, round=1e-5, visible=4e-8, drawn=3e-8, item=5e-7, unmet=1e-6, compress=3e-9,
)  # fmt: skip
WORK = Workload(labels=100_000, visible=1_000, events_per_second=1_000.0, horizon=2**23)
SPARK = replace(WORK, events_per_second=200_000.0, events_per_round=200_000, at_tests=True)
PAGE = (Path(__file__).parents[2] / "docs/scaling.md").read_text()


def test_needs_are_those_of_the_model_by_hand() -> None:
    work = Workload(10_000_000, 2_000, 100_000.0, events_per_round=1_000, items_per_event=4)
    found = needs(work, COSTS, compressed=0.5)
    of_shown, of_items = 2_000 * (4e-8 + 3e-9 * (9 + 16)), 4_000 * (5e-7 + 1e-6)
    release = 400 + 2_000 * 25
    assert found == pytest.approx(
        {
            "reading": 100_000 * 7e-6 + 100 * 6e-6,
            "counting": 100 * (1e-5 + of_shown + 10_000_000 * 3e-8 + of_items),
            "memory": 150e6 + 10_000_000 * 256,
            "Redis": 10_000_000 * 96,
            "Kafka, events": 100_000 * (4 * 19 + 80),
            "Kafka, releases": 100 * release,
            "releases a day": 86_400 * 0.5 * 100 * release,
            "table a day": 86_400 * 2_000 * 192,
        }
    )


def test_labels_that_no_test_has_found_cost_a_worker_their_text_and_a_count() -> None:
    work = replace(WORK, at_tests=True)
    of_a_round = 1e-5 + 1_000 * (4e-8 + 3e-9 * (9 + 16)) + 4 * 5e-7
    found = plan(work, COSTS)
    assert found.needs["counting"] == pytest.approx(1_000 * of_a_round)
    assert found.needs["memory"] == 150e6 + 100_000 * (COSTS.memory_per_hidden + 16) + 1_000 * 200


def test_windows_have_no_horizon_and_each_label_costs_what_it_does_there() -> None:
    work = replace(WORK, events_per_round=100, window=60, horizon=10)
    found = plan(work, COSTS)
    assert found.epoch_seconds is None
    assert not any("horizon" in sentence for sentence in found.limits)
    of_a_round = 1e-5 + 1_000 * (4e-8 + 3e-9 * (9 + 16)) + 99_000 * 3e-8 + 400 * 5e-7
    assert found.needs["counting"] == pytest.approx(10 * of_a_round)
    assert found.needs["memory"] == 150e6 + 100_000 * 616 + 1_000 * 200 + 2 * 60 * 400 * 72
    assert found.needs["Redis"] == 100_000 * 96 + 2 * 60 * (400 * 24 + 32)


@pytest.mark.parametrize(
    ("active", "label_bytes", "unmet"),
    [(None, 16, True), (262_144, 16, False), (262_145, 16, True), (0, 16, False), (160_000, 100, False),
     (170_000, 100, True)],
)  # fmt: skip
def test_items_cost_more_where_events_bring_more_labels_than_are_kept_at_hand(
    active: int | None, label_bytes: int, unmet: bool
) -> None:
    """These are 2^18 labels, of 2^24 characters together."""
    work = Workload(10_000_000, 0, 1.0, items_per_event=8, label_bytes=label_bytes, active=active)
    dear, cheap = (needs(work, costs)["counting"] for costs in (COSTS, replace(COSTS, unmet=0.0)))
    assert dear - cheap == pytest.approx(8e-6 if unmet else 0.0)


def test_a_worker_that_fits_meets_no_limit_and_one_that_does_not_is_told() -> None:
    small = replace(WORK, labels=10_000, visible=100, replicas=1)
    for work, fits in ((small, True), (replace(small, events_per_second=50_000.0), False)):
        found = plan(work, COSTS)
        assert (found.needs["reading"] + found.needs["counting"] <= UTILISATION) == fits
        assert any("too many for one worker" in sentence for sentence in found.limits) != fits


def test_spark_counts_what_is_too_much_for_one_worker() -> None:
    assert plan(replace(SPARK, events_per_second=10_000.0), COSTS).answer == "one worker"
    costs = SparkCosts(1e-6, 2e-6, 3e-6, 4e-6, 5e6, 6.0, 7.0)
    work = replace(SPARK, labels=10**8, events_per_second=1e6, events_per_round=10**6)
    found = plan(work, COSTS).spark
    assert found is not None
    values = {"E": 1e6, "i": 4, "N": 10**8, "L": 16, "U": 1}
    assert spark_plan(values, costs, 0.8).needs == {
        "Spark, counting": pytest.approx(1e6 * (1e-6 + 4 * 5e-6)),
        "Spark, a test": pytest.approx(1e8 * 4e-6),
        "Spark, memory of a core": 5e6 + 10**8 / 64 * 70,
        "Spark, folder": 10**8 * 23,
    }
    assert spark_plan(values, costs, 0.8).cores == 27, "of 21 that are busy"
    assert spark_plan(values | {"N": 10**10}, costs, 0.8).cores == 667, "or a test takes longer than a minute"
    assert spark_plan(values | {"N": 10**10}, costs, 0.8).test_seconds == pytest.approx(625), "on 64 of them"
    assert found == spark_plan(values, SparkCosts(), UTILISATION)


def test_one_worker_holds_what_a_checkpoint_can_write() -> None:
    quiet = replace(WORK, events_per_second=100.0, events_per_round=100, at_tests=True, active=1_000)
    assert plan(replace(quiet, labels=MOST_LABELS), COSTS).spark is None
    assert plan(replace(quiet, labels=MOST_LABELS + 1), COSTS).answer == "one worker, and Spark with 4 cores"


def test_what_spark_does_not_count_stays_with_one_worker() -> None:
    for work in (replace(SPARK, at_tests=False), replace(SPARK, at_tests=False, window=60)):
        assert plan(work, COSTS).spark is None
    many_rounds = replace(SPARK, events_per_round=2, visible=1_000)
    assert plan(many_rounds, COSTS).spark is None, "the worker draws for what is shown in every round"


TOPIC = TopicSurvey("orders", 12, 10**9, 86_400 * 200_000, -1, None)
USERS = {"unit": "user", "items_per_user": 4}


@pytest.mark.parametrize(
    ("topic", "changed", "takes"),
    [
        (replace(TOPIC, a_day=86_400), {}, "one worker, busy for 1% of the time"),
        (TOPIC, {}, "one worker, and Spark with 2 cores: stream-dp plan says more"),
        (
            TOPIC,
            USERS,
            'more than one worker: what Spark takes is known for unit = "event" with tests for labels only',
        ),
    ],
)
def test_it_says_how_many_machines_a_topic_takes(
    topic: TopicSurvey, changed: dict[str, Any], takes: str
) -> None:
    asked = {"stream": "shop", "mechanism": "blt", "horizon": 2**22 - 1, **rounds_for(topic, 1.0)}
    assert host_of(topic, Settings(**{**asked, **changed})) == takes


def test_what_every_counter_and_codec_takes_is_known() -> None:
    assert set(COUNTERS) == {*COMPARED, WINDOW}
    assert tuple(COMPRESSION) == CODECS
    assert costs_of("blt", "none").visible > costs_of("binary", "none").visible


@pytest.mark.parametrize(
    ("counter", "formulas"),
    [("blt", TEST_FORMULAS), ("binary", FORMULAS), (WINDOW, WINDOW_FORMULAS)],
)
def test_the_page_and_the_command_show_the_formulas(counter: str, formulas: dict[str, str]) -> None:
    window = counter == WINDOW
    option = ["--window", "60"] if window else ["--mechanism", counter]
    words = ["plan", "--labels", "50000", "--events-per-second", "500", *option]
    told = CliRunner().invoke(app, words)
    assert told.exit_code == 0, told.output
    for formula in formulas.values():
        assert formula in told.stdout
        assert formula in PAGE
    assert ("W = 60 rounds a window" in told.stdout) == ("for ever" in told.stdout) == window
    assert "E = 500 events and R = 500 rounds" in told.stdout
    found = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)
    work, costs = Workload(**found["workload"]), costs_of(counter, "zstd")
    assert (found["formulas"], found["costs"]) == (formulas, asdict(costs))
    assert found["plan"]["needs"] == plan(work, costs).needs


def page_rows() -> list[list[str]]:
    """The table of bytes a day in docs/scaling.md."""
    section = PAGE.partition("## Bytes a day")[2].partition("\n## ")[0]
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
        (replace(WORK, events_per_second=200_000.0, events_per_round=1_000), "which Spark can count"),
        (
            replace(WORK, labels=2 * 10**8, at_tests=True, events_per_second=90_000.0),
            "holds 134,217,728 labels",
        ),
        (replace(SPARK, labels=5 * 10**9), 'discover = "every-1d"'),
        (SPARK, "needs at least 2 partitions"),
        (replace(WORK, events_per_second=90_000.0), 'rounds = "every-N"'),
        (replace(WORK, horizon=65_535), "lasts 66 seconds"),
        (WORK, "The releases grow by"),
        (replace(WORK, compression="none"), 'set compression = "zstd", leave rounds out'),
    ],
)
def test_what_stands_in_the_way_is_said_with_what_to_change(work: Workload, told: str) -> None:
    assert any(told in sentence for sentence in plan(work, COSTS).limits)


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
    planned = needs(work, COSTS)["memory"] - COSTS.process_bytes
    assert planned / 2 < most < planned


def test_labels_that_are_not_shown_take_at_most_the_memory_of_the_plan() -> None:
    """After 1,023 rounds, 10 nodes are live, and the plan has room for all 16 of the horizon."""
    rounds, further_nodes = 1_023, 16 - 10
    mechanism, _ = calibrate(1.0, 1e-6, 65_535, 4, "binary")
    names = [f"label {i:010d}" for i in range(20_000)]
    noise = KeyedNoise(bytes(KEY_BYTES), "memory", bytes(NONCE_BYTES))
    first = RunningHistogram(mechanism, noise)
    first.observe([names, *[[names[0]]] * (rounds - 2)])
    state = first.state()
    tracemalloc.start()
    try:
        histogram = RunningHistogram(mechanism, noise, copy.deepcopy(state))
        assert histogram.observe([[names[0]]])[-1].round == rounds
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    planned = needs(Workload(20_000, 0, 1.0, label_bytes=16), COSTS)["memory"]
    planned -= COSTS.process_bytes
    assert planned / 2 < taken + len(names) * 8 * further_nodes < planned


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--mechanism", "none"], "mechanism must be one of"),
        (["--mechanism", "blt,binary"], "a plan is for one counter"),
        (["--mechanism", "binary", "--discover", "every-round"], "leave --discover out"),
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


def spark_rows() -> list[list[str]]:
    """The table of what Spark takes in docs/scaling.md."""
    section = PAGE.partition("## More than one worker: Spark")[2].partition("\n## ")[0]
    rows = re.findall(r"^\|(.+)\|$", section, re.MULTILINE)
    return [[cell.strip() for cell in row.split("|")] for row in rows[2:]]


@pytest.mark.parametrize("row", spark_rows())
def test_what_spark_takes_on_the_page_is_the_plan(row: list[str]) -> None:
    labels, rate = row[0].replace(",", ""), row[1].replace(",", "")
    words = ["--labels", labels, "--events-per-second", rate, "--events-per-round", rate]
    told = CliRunner().invoke(app, ["plan", *words, "--horizon", "4194303"])
    assert f"It takes {row[2]}\n" in told.stdout
    lines = {line.partition("  ")[0]: line.partition("  ")[2].strip() for line in told.stdout.splitlines()}
    if row[3]:
        assert f"and {row[3].removesuffix(' cores')} of them are busy with counting" in lines["cores"]
        assert lines["a test"] == f"{row[4]}, while rounds wait"
        assert lines["memory of a core"] == row[5]
        assert lines["shared folder"] == row[6]
    assert all(formula in PAGE for formula in SPARK_FORMULAS.values())
