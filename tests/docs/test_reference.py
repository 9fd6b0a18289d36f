"""The package offers what the reference lists, and nothing else."""

import re
from pathlib import Path

import stream_dp

PAGE = (Path(__file__).parents[2] / "docs" / "reference.md").read_text()


def test_the_reference_lists_every_public_name() -> None:
    listed = re.findall(r"^::: stream_dp\.(\w+)$", PAGE, re.MULTILINE)
    assert sorted(listed) == sorted(set(stream_dp.__all__) - {"__version__"})


def test_every_public_name_is_there_and_described() -> None:
    for name in set(stream_dp.__all__) - {"__version__"}:
        assert getattr(stream_dp, name).__doc__, name
    assert set(dir(stream_dp)) == set(stream_dp.__all__)


def test_refusals_can_be_caught_by_one_name() -> None:
    for name in ("LogRefused", "SettingsError"):
        assert issubclass(getattr(stream_dp, name), stream_dp.Refused)
    assert issubclass(stream_dp.BadPosition, stream_dp.StreamDpError)
