"""Errors in Spark's processes, which Spark writes to its logs, say nothing of the data."""

import traceback

import pytest

from stream_dp.jobs.task_errors import TaskFailed, untold


class Spoken(Exception):
    """Stands for an error whose message has no data in it."""


def test_an_error_says_its_kind_and_its_line_alone() -> None:
    with (
        pytest.raises(TaskFailed, match=r"^ValueError in .*test_task_errors\.py:\d+$") as raised,
        untold(Spoken),
    ):
        _fail("tea")
    shown = "".join(traceback.format_exception(raised.value))
    assert "cannot read" not in shown.replace('raise ValueError(f"cannot read {label}")', "")
    assert "cannot read tea" not in shown


def test_what_has_no_data_in_it_is_said() -> None:
    with pytest.raises(TaskFailed, match=r"^Spoken: the file is gone$"), untold(Spoken):
        raise Spoken("the file is gone")


def _fail(label: str) -> None:
    raise ValueError(f"cannot read {label}")
