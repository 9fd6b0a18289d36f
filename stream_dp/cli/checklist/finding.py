"""One line of the checklist."""

from dataclasses import dataclass
from typing import Literal

from stream_dp.cli.mistakes import sentence


@dataclass(frozen=True)
class Finding:
    """One line of the checklist; `detail` of a failed one says what to change."""

    name: str
    state: Literal["ok", "warning", "failed"]
    detail: str


def not_passed(name: str, error: Exception) -> Finding:
    """The failed line of an error that is the user's to mend; any other error is a defect and goes on."""
    told = sentence(error)
    if told is None:
        raise error
    return Finding(name, "failed", told)
