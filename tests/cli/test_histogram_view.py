"""What people see of a release: all of it true, within 80 columns, and nothing that steers their terminal."""

import io

import msgspec
import pytest
from rich.console import Console

from stream_dp.cli.histogram_view import HistogramView, line, picture, printable
from stream_dp.releases.estimates.intervals import intervals_of
from stream_dp.releases.release import Release
from tests.example_releases import carrying_on, release

RELEASE = release(2048, {"carrier:UA": 12_345, "carrier:B6": 6_000, "dest:ORD": 300, "dest:LAX": 112})


def drawn(shown: Release, most_labels: int = 10, width: int = 80, status: str = "") -> list[str]:
    console = Console(width=width, file=io.StringIO(), record=True, force_terminal=True)
    console.print(picture(shown, width, most_labels, status))
    return console.export_text().splitlines()


def test_a_picture_says_count_interval_threshold_round_and_promise() -> None:
    text = "\n".join(drawn(RELEASE, status="12 flights fed"))
    for piece in (
        "flights",
        "round 2,048 of 65,535",
        "carrier:UA     12,345    12,314–12,376",  # 1.96 * 15.92 = 31.2
        "dest:LAX          112           17–143",
        "tau               112",
        "epsilon 2, delta 1e-06",
        "Taking any one event (up to 3 labels) out of",
        "counts of tau or more are released, so small ones are too high on average",
        "Counts the first 3 items of each event",
        "12 flights fed",
    ):
        assert piece in text


def test_ranks_that_the_intervals_leave_open_are_ranges() -> None:
    text = "\n".join(drawn(release(2048, {"a": 900, "b": 500, "c": 490, "d": 440, "e": 300})))
    rows = [line.split() for line in text.splitlines()]
    ranks = {row[1]: row[0] for row in rows if len(row) > 3 and row[0][0].isdigit()}
    assert ranks == {"a": "1", "b": "2–4", "c": "2–4", "d": "2–4", "e": "5"}


def test_a_terminal_that_is_resized_is_drawn_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has folded the lines of the frame before, which nothing else would remove."""
    monkeypatch.setattr("stream_dp.cli.histogram_view._SECONDS_PER_FRAME", 0.0)
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=100, height=40)

    def shown_next() -> str:
        before = len(out.getvalue())
        view.show(RELEASE)
        return out.getvalue()[before:]

    with HistogramView(console) as view:
        shown_next()
        assert "\x1b[2J" not in shown_next()
        console.width = 60
        _, emptied, drawn_anew = shown_next().partition("\x1b[2J\x1b[H")
        assert emptied
        assert "carrier:UA" in drawn_anew
        assert "\x1b[2J" not in shown_next()


def test_a_picture_of_kept_labels_says_that_they_stay() -> None:
    text = "\n".join(drawn(msgspec.structs.replace(RELEASE, shown="kept")))
    assert "first shown when its noisy count reaches tau" in text
    assert "Only counts of tau" not in text


def test_a_picture_of_an_epoch_that_carries_others_on_has_totals() -> None:
    shown = carrying_on(RELEASE)
    text = " ".join(" ".join(drawn(shown, width=110)).split())
    assert "total over epochs" in text
    assert "12,314–12,376 13,345±49" in text  # 1.96 * 25 = 49
    assert "17–143 112±32" in text  # first shown in this epoch: the noise of its count
    assert line(shown).count("in total") == 4
    assert "in total 13,345±49" in line(shown)
    for without in (RELEASE, msgspec.structs.replace(shown, total_sds=None)):  # the other one is forged
        assert "total" not in "\n".join(drawn(without, width=110)) + line(without)


def test_a_picture_with_totals_fits_into_80_columns() -> None:
    assert max(map(len, drawn(carrying_on(RELEASE)))) <= 80


def test_bars_are_in_proportion_to_counts_and_the_threshold_is_one_of_them() -> None:
    rows = drawn(RELEASE)
    first, second = (
        next(row.count("█") + row.count("▒") for row in rows if name in row)
        for name in ("carrier:UA", "carrier:B6")
    )
    assert first == pytest.approx(2 * second, abs=2)
    level = release(2048, {"a": 112})
    bar, threshold = drawn(level)[4].index("▒"), drawn(level)[5].index("┤")
    assert (
        bar < threshold < drawn(level)[4].rindex("▒")
    )  # a count of tau: the threshold is inside its interval


def test_what_does_not_fit_is_counted() -> None:
    text = "\n".join(drawn(RELEASE, most_labels=3))
    assert "1 more released" in text
    assert "dest:LAX" not in text


def test_an_empty_release_says_so() -> None:
    assert "No label has reached tau yet." in "\n".join(drawn(release(1, {})))
    assert "no label yet" in line(release(1, {}))
    empty = msgspec.structs.replace(release(1_000, {}), shown="kept")
    told = "1,000 rounds without a label: records may not match the mapping; see dead letters"
    assert told in "\n".join(drawn(empty, width=100))
    assert told in line(empty)


@pytest.mark.parametrize("width", [60, 80, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    wide = release(65_535, {"長い名前" * 40: 10_000_000, "x" * 1024: 9_999_999, "[bold]y[/]": 300})
    wide = msgspec.structs.replace(wide, epsilon=0.123456, items_per_event=100_000)
    console = Console(width=width, file=io.StringIO())
    for row in console.render_lines(picture(wide, width, 10)):
        assert sum(segment.cell_length for segment in row) <= width
    assert "[bold]y[/]" in "\n".join(drawn(wide, width=width))


@pytest.mark.parametrize("evil", ["\x1b[2Jgone", "a\rb", "a\nb", "\u202etxet", "\x9b31m", "\ud800"])
def test_labels_cannot_steer_the_terminal(evil: str) -> None:
    shown = "\n".join(drawn(release(9, {evil: 300}))) + line(release(9, {evil: 300}))
    assert evil not in shown
    assert "\N{REPLACEMENT CHARACTER}" in shown
    assert printable("dest:LAX é 長") == "dest:LAX é 長"


def test_a_line_has_the_largest_counts_and_how_many_more() -> None:
    counts = {f"label-{number}": 1000 - number for number in range(7)}
    assert line(release(7, counts)) == (
        "round 7 of 65,535  tau 112  label-0 1,000±31, label-1 999±31, label-2 998±31, label-3 997±31, "
        "label-4 996±31, and 2 more"
    )


def test_a_view_draws_the_first_and_the_last_release_and_few_between() -> None:
    out = io.StringIO()
    with HistogramView(Console(file=out, width=80)) as view:
        for number in range(1, 1001):
            view.show(release(number, {}))
    lines = out.getvalue().splitlines()
    assert lines[0].startswith("round 1 of")
    assert lines[-1].startswith("round 1,000 of")
    assert len(lines) < 500


def test_a_terminal_gets_a_live_table_that_leaves_room_for_what_was_above() -> None:
    out = io.StringIO()
    console = Console(file=out, width=80, height=24, force_terminal=True, color_system=None)
    with HistogramView(console, lines_above=8) as view:
        view.show(release(5, {f"label-{number:02d}": 500 - number for number in range(30)}))
    assert "label-03" in out.getvalue()
    assert "label-04" not in out.getvalue()
    assert "26 more released" in out.getvalue()


def test_a_label_shown_only_just_now_has_an_interval_that_reaches_further_down() -> None:
    kept = msgspec.structs.replace(release(2048, {"a": 300, "b": 112}), shown="kept", previous=2047)
    assert "b 112 (" in line(kept)
    assert "a 300±31, b 112 (17–143)" in line(msgspec.structs.replace(kept, shown="each-round"))
    low, high = intervals_of(kept)
    assert 112 - low[1] > high[1] - 112
    assert f"{low[1]:.0f}–{high[1]:.0f}" in "\n".join(drawn(kept))
