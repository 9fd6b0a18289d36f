"""Do the intervals of shares hold what they say, and do people read how much the cap leaves out?"""

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from stream_dp.privacy.share import share_of
from stream_dp.releases.release import Release
from stream_dp.releases.table_row import decode_row, rows_of
from stream_dp.releases.whole_release import WholeRelease, decode_whole_release
from tests.example_releases import release


def of(units: int, over_cap: int, sd: float) -> Release:
    return replace(release(5, {"tea": 300, "milk": 20}), units=units, over_cap=over_cap, units_sd=sd)


@pytest.mark.parametrize(("part", "whole"), [(450, 1000), (5, 1000), (990, 1000), (100, 250)])
@pytest.mark.parametrize("part_sd", [10.0, 40.0])
def test_an_interval_holds_the_true_share(part: int, whole: int, part_sd: float) -> None:
    random, runs, sd = np.random.default_rng(7), 4_000, 40.0
    noisy = zip(random.normal(part, part_sd, runs), random.normal(whole, sd, runs), strict=True)
    found = [share_of(one, part_sd, other, sd) for one, other in noisy]
    assert None not in found
    held = [share is not None and share.low <= part / whole <= share.high for share in found]
    assert 0.935 < np.mean(held) < (0.965 if 0.1 < part / whole < 0.9 else 1)


def test_nobody_can_tell_a_share_of_what_may_be_nothing() -> None:
    assert share_of(10, 40.0, 70, 40.0) is None
    assert share_of(-500, 40.0, -600, 40.0) is None
    with pytest.raises(ValueError, match="confidence"):
        share_of(1, 1.0, 2, 1.0, 1.0)


def test_people_read_how_much_the_cap_leaves_out() -> None:
    plain = "Counts the first 3 items of each event; what comes after is left out."
    assert release(5, {"tea": 3}).counts_what == of(70, 10, 40.0).counts_what == plain
    assert of(20_000, 9_000, 40.0).counts_what == (
        "Counts the first 3 items of each event; 45% (44% to 46%) of the events have more, and what comes after is "
        "left out."
    )


def test_rows_say_it_in_either_format() -> None:
    whole = decode_whole_release(msgspec.json.encode(of(20_000, 9_000, 40.0)))
    for table_format in ("json", "connect"):
        for key, value in rows_of(whole, table_format).items():
            row = decode_row(key, value)
            assert row is not None
            assert (row.units, row.over_cap, row.units_sd) == (20_000, 9_000, 40.0)
            assert (b'"field":"over_cap"' in value) == (table_format == "connect")


def test_a_label_has_a_share_of_the_units() -> None:
    whole: WholeRelease = decode_whole_release(msgspec.json.encode(of(1_000, 90, 40.0)))
    found = whole.share("tea")
    assert found is not None
    assert found.low < 0.3 < found.high
    assert decode_whole_release(msgspec.json.encode(release(5, {"tea": 3}))).share("tea") is None
