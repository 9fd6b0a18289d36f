"""Which rounds are released, where not all of them are.

Leaving rounds out is post-processing of the same noise and costs nothing; the horizon counts all rounds.  Which are
left out follows from round numbers and from the broker's timestamps of the records that closed them, both public.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

NEVER = -1
"""The timestamp of the last round before there was one."""

_EVERY, _MILLISECONDS = "every-", "ms"


@dataclass(frozen=True)
class ReleaseSchedule:
    """Every `rounds`-th round and the last of the epoch, or the first round of each stretch of `milliseconds`."""

    rounds: int = 1
    milliseconds: int = 0

    @classmethod
    def of(cls, setting: str) -> "ReleaseSchedule":
        """The schedule that the setting `release` names.

        >>> ReleaseSchedule.of("every-round"), ReleaseSchedule.of("every-250ms")
        (ReleaseSchedule(rounds=1, milliseconds=0), ReleaseSchedule(rounds=1, milliseconds=250))
        """
        every = setting.removeprefix(_EVERY)
        if every == "round":
            return cls()
        if every.endswith(_MILLISECONDS):
            return cls(milliseconds=int(every.removesuffix(_MILLISECONDS)))
        return cls(rounds=int(every))

    def wanted(self, first: int, timestamps: Sequence[int], before: int, horizon: int) -> NDArray[np.bool_]:
        """Which of the rounds from `first` on are released, bool of shape (rounds,).

        `timestamps` tell when each was closed and `before` when the one before them was, milliseconds since 1970.
        """
        if self.milliseconds:
            stretches = np.array([before, *timestamps]) // self.milliseconds
            return np.diff(stretches) != 0
        rounds = np.arange(first, first + len(timestamps))
        return (rounds % self.rounds == 0) | (rounds == horizon)
