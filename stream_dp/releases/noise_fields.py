"""What a release says of its noise and thresholds, as the inside of a JSON object, and which test found each label."""

from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from stream_dp.counters.discovery import KNOWN, DiscoveryMechanism
from stream_dp.counters.protocol import CalibratedCounter
from stream_dp.engine.released_block import ReleasedBlock

_DIGITS = 3  # of standard deviations, after the point
_STRETCH = 1 << 10  # rounds whose fields are written at once


def noise_fields(mechanism: CalibratedCounter, block: ReleasedBlock) -> list[str]:
    """The fields of each round of a block."""
    if isinstance(mechanism, DiscoveryMechanism):
        return _fields_of_tests(mechanism, block)
    taus, sds = mechanism.taus(block.rounds).tolist(), mechanism.sds(block.rounds).round(_DIGITS).tolist()
    return [_sd_and_tau(sd, tau) for sd, tau in zip(sds, taus, strict=True)]


def cell_fields(mechanism: CalibratedCounter, block: ReleasedBlock) -> list[str]:
    """The fields of each round about the cells beside the labels, behind a comma; nothing if there are none."""
    if block.cap_cells is None:
        return [""] * len(block.rounds)
    sds = mechanism.cells.sds(block.rounds).round(_DIGITS).tolist()
    rows = zip(block.cap_cells.tolist(), sds, strict=True)
    return [f',"units":{units},"over_cap":{over},"units_sd":{sd}' for (units, over), sd in rows]


def known_sds(mechanism: CalibratedCounter, rounds: NDArray[np.int64]) -> NDArray[np.float64]:
    """The standard deviation of the counts of labels that were known before the epoch."""
    if isinstance(mechanism, DiscoveryMechanism):
        return mechanism.sds_since(KNOWN, rounds)
    return mechanism.sds(rounds)


def fields(values: dict[str, Any]) -> str:
    """The inside of a JSON object."""
    return orjson.dumps(values).decode()[1:-1]


@lru_cache(maxsize=1024)
def _sd_and_tau(sd: float, tau: int) -> str:
    return fields({"sd": sd, "tau": tau})


def _fields_of_tests(mechanism: DiscoveryMechanism, block: ReleasedBlock) -> list[str]:
    """All rounds of a block have the same labels, and so the same tests that found them, in their order."""
    found = np.empty(0, np.int64) if block.found is None else block.found.astype(np.int64)
    there = tuple(found[np.flatnonzero(np.diff(found, prepend=-1))].tolist())
    tests, stretches = mechanism.tests_by(block.rounds), block.rounds // _STRETCH
    places = [*zip(tests.tolist(), stretches.tolist(), strict=True)]
    written = {place: _fields_of_stretch(mechanism, there, *place) for place in set(places)}
    return [written[place][number] for place, number in zip(places, block.rounds.tolist(), strict=True)]


@lru_cache(maxsize=4)
def _fields_of_stretch(
    mechanism: DiscoveryMechanism, there: tuple[int, ...], test: int, stretch: int
) -> dict[int, str]:
    """The fields of each round of a stretch from this test to the next, if labels of the tests `there` are shown."""
    last, following = [0, *mechanism.tests, mechanism.horizon + 1][test : test + 2]
    rounds = np.arange(max(1, last, stretch * _STRETCH), min(following, (stretch + 1) * _STRETCH))
    of_tests = mechanism.sds_since(np.array(there, np.int64)[:, np.newaxis], rounds)
    numbers = np.column_stack([mechanism.sds(rounds), of_tests.T]).round(_DIGITS)
    told = _tests_told(mechanism, tuple(each for each in there if each != KNOWN))
    next_test = f',"next_test":{following}' if test < len(mechanism.tests) else ""
    is_test, names, written = rounds == last, [*map(str, there)], list[str]()
    for start, end in pairwise(changes(np.column_stack([is_test, numbers]))):
        sd, *sds = numbers[start].tolist()
        tau = f',"tau":{mechanism.test_taus[test - 1]}' if is_test[start] else ""
        by_test = fields({"sds": dict(zip(names, sds, strict=True))})
        written += [f"{fields({'sd': sd})}{tau}{next_test},{by_test},{told}"] * (end - start)
    return dict(zip(rounds.tolist(), written, strict=True))


def changes(rows: NDArray[Any]) -> list[int]:
    """Where rows begin that differ from the one before, and how many rows there are."""
    different = np.append(True, (rows[1:] != rows[:-1]).any(axis=1))[: len(rows)]
    return [*np.flatnonzero(different).tolist(), len(rows)]


@lru_cache(maxsize=64)
def _tests_told(mechanism: DiscoveryMechanism, tests: tuple[int, ...]) -> str:
    """The field `tests`, of those that found labels."""
    sds, taus = mechanism.test_sds.round(_DIGITS).tolist(), mechanism.test_taus.tolist()
    return fields(
        {
            "tests": {
                f"{test}": {"round": mechanism.tests[test - 1], "tau": taus[test - 1], "sd": sds[test - 1]}
                for test in tests
            }
        }
    )
