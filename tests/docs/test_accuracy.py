"""docs/accuracy.md: tables that are quick to compute are computed again, and the words follow from the tables."""

import re
from pathlib import Path

from benchmarks.accuracy import RULES, SECTIONS, theory, thresholds
from stream_dp.calibration import calibrate
from stream_dp.comparison import survey
from stream_dp.counters import MECHANISMS

PAGE = (Path(__file__).parents[2] / "docs" / "accuracy.md").read_text()


def rows(column: str) -> list[list[str]]:
    """The cells of the one table that has this column."""
    [found] = re.findall(rf"^\|.*\| {column} \|.*\n\| ---.*\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in found.splitlines()]


def test_the_tables_of_theory_and_thresholds_come_out_again() -> None:
    assert set(theory((2**10, 2**16)).splitlines()) < set(PAGE.splitlines())
    assert f"\n{thresholds()}\n\n" in PAGE
    stated = survey(1, 1e-6, 65_535, 4).tau.max
    mechanism, _ = calibrate(1, 1e-6, 65_535, 4, "blt")
    assert f"had to reach {stated} as stated, and {mechanism.tau(65_535)} with `blt`" in PAGE


def test_there_is_a_table_for_every_section() -> None:
    assert PAGE.count("\n| --- |") == len(SECTIONS)


def test_measured_noise_is_within_a_percent() -> None:
    table = rows("most \\| measured")
    assert {row[0] for row in table} == set(MECHANISMS)
    for row in table:
        for stated, found, off in (row[2:5], row[5:8]):
            assert abs(float(found) / float(stated) - 1) < 0.01
            assert abs(float(off.rstrip("%"))) < 1


def test_no_threshold_exceeds_its_budget() -> None:
    table = rows("budget")
    assert [tuple(row[:2]) for row in table] == 2 * [(name, rule) for name in MECHANISMS for rule in RULES]
    for _, _, budget, measured, most, broken in table:
        assert 0 < float(measured) < float(most) <= float(budget) < float(broken)


def test_what_is_said_of_the_invoices_follows_from_their_table() -> None:
    table = rows("to 4,146")
    last = {(row[0], row[1]): float(row[7]) for row in table}
    assert last["4", "blt"] >= 20 * last["4", "survey"]
    assert last["1", "survey"] == 0
    assert last["1", "blt"] >= 25
    times = last["4", "blt"] / last["4", "survey"]
    assert (
        f"shows {last['4', 'blt']:g} labels where the survey's statement shows {last['4', 'survey']:g}"
        in PAGE
    )
    assert f": {times:.0f} times as many" in PAGE
    assert f"At epsilon 1 it shows {last['1', 'blt']:g}, and the survey's statement none." in PAGE
    assert len(rows("to 67,356")) == len(table) == 2 * (len(MECHANISMS) + 1)


def test_no_release_differs_with_pruning_and_broken_pruning_would_be_noticed() -> None:
    table = rows("that differ")
    assert "No release differs." in PAGE
    assert [row[4] for row in table] == ["0"] * 9
    assert [row[1] for row in table if row[5] != "0"] == ["16", "64", "16", "16", "64"]


def test_other_libraries_agree() -> None:
    for theirs, ours in zip(*[iter(rows("library"))] * 2, strict=True):
        assert (theirs[1], ours[1]) == ("OpenDP", "stream_dp")
        assert theirs[2:4] == ours[2:4]
        assert abs(float(theirs[4]) / float(ours[4]) - 1) < 0.02
    for _, theirs, ours, reference, here in rows("jax-privacy BLT"):
        assert abs(float(theirs.split()[0]) / float(ours) - 1) < 0.002
        assert reference == here
    sds = {row[0]: tuple(map(float, row[1:])) for row in rows("most \\| mean")}
    for theirs, ours in (("TreeAggregator", "binary"), ("EfficientTreeAggregator", "honaker")):
        pairs = zip(sds[f"TensorFlow Privacy {theirs}"], sds[f"stream_dp {ours}"], strict=True)
        assert all(abs(one / other - 1) < 0.01 for one, other in pairs)
