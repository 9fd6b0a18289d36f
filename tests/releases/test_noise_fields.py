"""What a release says of its noise and of tests, beside what the mechanism gives for that round alone."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from stream_dp.counters.discovery import KNOWN, DiscoveryMechanism
from stream_dp.counters.protocol import EpochParameters
from stream_dp.engine.released_block import ReleasedBlock
from stream_dp.releases.noise_fields import noise_fields

HORIZON = 5_000
TESTS = (64, 65, 1_023, 1_024, 3_000)


def mechanism(tests: tuple[int, ...] = TESTS) -> DiscoveryMechanism:
    return DiscoveryMechanism.of(EpochParameters(HORIZON, 2, 1e-6, "kept"), 0.5, tests)


def told(of: DiscoveryMechanism, rounds: Sequence[int], found: Sequence[int]) -> list[dict[str, Any]]:
    """The fields of rounds that are released together, with labels of these tests."""
    numbers, counts = np.array(rounds), np.zeros((len(rounds), len(found)), np.int32)
    labels = np.array([f"label {place}" for place in range(len(found))], np.object_)
    sizes, tests = np.full(len(rounds), len(found)), np.array(found, np.int32)
    block = ReleasedBlock(numbers, sizes, counts, labels, [b""] * len(rounds), found=tests)
    return [json.loads(f"{{{fields}}}") for fields in noise_fields(of, block)]


@pytest.mark.parametrize("found", [[], [KNOWN, KNOWN], [1, 1, 2, 4], [KNOWN, 5]])
def test_every_round_tells_what_the_mechanism_gives_for_it_alone(found: list[int]) -> None:
    """Whatever is released together: the ends of stretches and tests stand within, and a test may find nothing."""
    of = mechanism()
    for number, fields in enumerate(told(of, range(1, HORIZON + 1), found), 1):
        [sd], [by] = of.sds(np.array([number])), of.tests_by(np.array([number]))
        assert fields["sd"] == pytest.approx(sd, abs=6e-4)
        assert fields.get("next_test") == (TESTS[by] if by < len(TESTS) else None)
        assert fields.get("tau") == (of.test_taus[by - 1] if number in TESTS else None)
        assert list(fields["sds"]) == [*map(str, dict.fromkeys(found))]
        for test, each in fields["sds"].items():
            assert each == pytest.approx(of.sds_since(int(test), np.array([number]))[0], abs=6e-4)
        assert {*fields["tests"]} == {str(test) for test in found if test != KNOWN}


def test_how_rounds_are_cut_changes_nothing() -> None:
    of, rounds = mechanism(), range(900, 3_200)
    whole = told(of, rounds, [1, 3])
    assert [told(of, [number], [1, 3])[0] for number in rounds] == whole
    assert told(of, rounds[::700], [1, 3]) == whole[::700]
    assert told(mechanism((64,)), rounds, [1, 1]) != whole


def test_no_rounds_tell_nothing() -> None:
    assert told(mechanism(), [], [1]) == []
