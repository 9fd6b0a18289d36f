"""docs/accuracy.md: tables that are quick to compute are computed again, and the words follow from the tables."""

import re
from pathlib import Path

from benchmarks.accuracy import SECTIONS
from benchmarks.labels_seen import flights_log
from benchmarks.noise_and_thresholds import RULES, theory, thresholds
from benchmarks.rate_test import ENOUGH
from benchmarks.rate_test import RUNS as RATE_TEST_RUNS
from stream_dp.counters import MECHANISMS
from stream_dp.counters.calibration import calibrate
from stream_dp.planning.comparison import survey

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
    last = {tuple(row[:3]): float(row[8]) for row in table}
    kept = {(row[0], row[1]): float(row[8]) for row in table if row[2] == "kept"}
    survey = last["4", "survey", "each-round"]
    assert last["1", "survey", "each-round"] == 0
    for name, least in (("blt", (95, 305, 690)), ("binary", (42, 175, 470))):
        assert all(kept[epsilon, name] >= most for epsilon, most in zip("124", least, strict=True))
    assert all(row[8] == row[9] for row in table if row[2] == "kept")  # none of them disappears
    assert all(
        kept[epsilon, name] > last[epsilon, name, "each-round"] for epsilon in "124" for name in MECHANISMS
    )
    assert f"shows {kept['4', 'blt']:g} where the survey's statement shows {survey:g}" in PAGE
    assert f": {kept['4', 'blt'] / survey:.0f} times as many" in PAGE
    assert f"At epsilon 1 it shows {kept['1', 'blt']:g}, and the survey's statement none." in PAGE
    by_rule = (
        " / ".join(f"{of[epsilon]:g}" for epsilon in "124")
        for of in (
            {epsilon: kept[epsilon, "binary"] for epsilon in "124"},
            {epsilon: last[epsilon, "binary", "each-round"] for epsilon in "124"},
        )
    )
    assert "gives `binary` {} labels at epsilon 1 / 2 / 4 in place of {}".format(*by_rule) in PAGE
    assert len(table) == 3 * (2 * len(MECHANISMS) + 1)


def test_what_is_said_of_the_flights_follows_from_their_table() -> None:
    table = rows("to 67,356")
    assert len(table) == 2 * (2 * len(MECHANISMS) + 1)
    last = {tuple(row[:3]): float(row[8]) for row in table}
    binary, blt = ((last["0.5", name, "kept"], last["0.5", name, "each-round"]) for name in ("binary", "blt"))
    assert "keeping labels shows {:g} for `binary` in place of {:g}, ".format(*binary) in PAGE
    labels = len(flights_log().counts)
    assert f"and {blt[0]:g} of the {labels} labels for `blt` in place of {blt[1]:g}." in PAGE
    assert all(row[8] == row[9] for row in table if row[2] == "kept")  # none of them disappears


def test_what_is_said_of_the_rate_test_follows_from_its_tables() -> None:
    """The figures that it must reach, and why it stays out all the same."""
    gains = {
        (log, float(epsilon)): (float(both), float(times))
        for log, _, epsilon, _, both, times in rows("counts and rates")
    }
    for epsilon, least in ((1, 125), (2, 360), (4, 800)):
        assert gains["invoices", epsilon][0] >= least
    logs = {log for log, _ in gains}
    enough = {
        log for log in logs if all(times >= ENOUGH for (of, _), (_, times) in gains.items() if of == log)
    }
    assert enough == {"invoices"}
    assert logs == set(RATE_TEST_RUNS)
    for chance, measured, broken in rows("measured \\| broken on purpose"):
        assert float(measured) <= float(chance) < float(broken)


def test_the_readme_has_its_numbers_from_this_page() -> None:
    last = {tuple(row[:3]): float(row[8]) for row in rows("to 4,146")}
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    for name, *contestant in (
        ("the Binary Mechanism as the literature states it", "survey", "each-round"),
        ('`mechanism = "binary"`', "binary", "kept"),
        ('`mechanism = "blt"` with `discover = "every-round"`', "blt", "kept"),
    ):
        labels = " | ".join(f"{last[epsilon, *contestant]:.0f}" for epsilon in "124")
        assert f"| {name} | {labels} |" in readme
    found = [float(row[7]) for row in rows("first fifth") if row[0] == "invoices"]
    assert f"| the default | {' | '.join(f'{labels:.0f}' for labels in found)} |" in readme


def test_other_libraries_agree() -> None:
    for theirs, ours in zip(*[iter(rows("library"))] * 2, strict=True):
        assert (theirs[1], ours[1]) == ("OpenDP", "stream_dp")
        assert theirs[2:4] == ours[2:4]
        assert abs(float(theirs[4]) / float(ours[4]) - 1) < 0.02
    for _, theirs, ours, reference, here in rows("jax-privacy BLT"):
        assert abs(float(theirs.split()[0]) / float(ours) - 1) < 0.002
        assert reference == here
    sds = {row[0]: tuple(map(float, row[1:])) for row in rows("most \\| mean")}
    pairs = zip(sds["TensorFlow Privacy TreeAggregator"], sds["stream_dp binary"], strict=True)
    assert all(abs(one / other - 1) < 0.01 for one, other in pairs)


def test_what_is_said_of_the_verses_follows_from_their_table() -> None:
    table = rows("to 6,221")
    assert len(table) == 2 * (2 * len(MECHANISMS) + 1)
    last = {tuple(row[:3]): float(row[8]) for row in table}
    said = (
        last["1", name, rule]
        for name, rule in (("survey", "each-round"), ("binary", "kept"), ("blt", "kept"))
    )
    assert (
        "shows {:g} words after the last verse, `binary` with kept labels {:g}, and `blt` {:g}.".format(*said)
        in PAGE
    )
    assert all(row[8] == row[9] for row in table if row[2] == "kept")


def test_what_had_to_be_reached_has_its_figures_from_the_tables() -> None:
    table = rows("to 4,146")
    for name in ("blt", "binary"):
        kept = " / ".join(f"{float(row[8]):g}" for row in table if row[1:3] == [name, "kept"])
        assert f"| {kept} |" in PAGE
    with_rates = " / ".join(row[4] for row in rows("counts and rates") if row[0] == "invoices")
    assert f"| {with_rates} |" in PAGE
