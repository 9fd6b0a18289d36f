"""Releases of a block of rounds are those of each round alone, however many rows are written at once."""

import json
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from stream_dp.engine.released_block import ReleasedBlock
from stream_dp.releases import part_encoder
from stream_dp.releases.part_encoder import PartEncoder

ROUNDS, LABELS = 30, 7
RANDOM = np.random.default_rng(5)
COUNTS = RANDOM.integers(-99, 10_000, (ROUNDS, LABELS))
TOTALS = RANDOM.integers(-99, 10_000, (ROUNDS, LABELS))
NAMES = np.array([f"label [{number}],[" for number in range(LABELS)], object)
SIZES = np.repeat([0, 3, LABELS], 10)
SHOWN = np.repeat(RANDOM.integers(0, 2, (ROUNDS // 5, LABELS)).astype(bool), 5, axis=0)


def block(shown: NDArray[np.bool_] | None) -> ReleasedBlock:
    sizes = SIZES if shown is None else np.count_nonzero(shown, axis=1)
    return ReleasedBlock(np.arange(ROUNDS), sizes, COUNTS, NAMES, [b""] * ROUNDS, shown)


def expected(of: ReleasedBlock, row: int) -> dict[str, Any]:
    """What the parts of a release say together, from the columns themselves."""
    places = of.places(row)
    columns = {"labels": NAMES, "counts": COUNTS[row], "totals": TOTALS[row], "since": np.arange(LABELS)}
    return {"round": row, **{name: column[places].tolist() for name, column in columns.items()}}


def together(parts: list[bytes]) -> dict[str, Any]:
    told = [json.loads(part) for part in parts]
    assert [(each.pop("part"), each.pop("parts")) for each in told] == [
        (part, len(told)) for part in range(1, 1 + len(told))
    ]
    joined = {name: [value for each in told for value in each[name]] for name in told[0] if name != "round"}
    return {"round": told[0]["round"], **joined}


@pytest.mark.parametrize("cells", [1, 20, 1 << 14])
@pytest.mark.parametrize("largest", [60, 900_000])
@pytest.mark.parametrize("shown", [None, SHOWN])
def test_each_release_says_what_its_round_released(
    shown: NDArray[np.bool_] | None, largest: int, cells: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part_encoder, "LARGEST_PART", largest)
    monkeypatch.setattr(part_encoder, "_CELLS_AT_ONCE", cells)
    of, openings = block(shown), [b'{"round":%d' % row for row in range(ROUNDS)]
    found = PartEncoder().encode(of, openings, {"since": np.arange(LABELS)}, {"totals": TOTALS})
    assert [together(parts) for parts in found] == [expected(of, row) for row in range(ROUNDS)]
    assert (max(map(len, found)) > 1) == (largest == 60)
