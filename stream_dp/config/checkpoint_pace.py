"""How often a worker saves its state: after so many rounds, or after so much time."""

import re
from dataclasses import dataclass
from math import inf
from typing import Self

from stream_dp.config.times import SECONDS

_SECONDS = SECONDS | {"ms": 0.001}


@dataclass(frozen=True)
class CheckpointPace:
    """Rounds, or seconds in which there was any round, after which a checkpoint is due; the other one is infinite."""

    rounds: float = inf
    seconds: float = inf

    @classmethod
    def of(cls, every: str) -> Self:
        """From the setting `checkpoint_every`.

        >>> CheckpointPace.of("500ms"), CheckpointPace.of("20")
        (CheckpointPace(rounds=inf, seconds=0.5), CheckpointPace(rounds=20, seconds=inf))
        """
        number, unit = re.fullmatch(r"([0-9]+)([a-z]*)", every).groups()  # type: ignore[union-attr]
        return cls(seconds=int(number) * _SECONDS[unit]) if unit else cls(rounds=int(number))

    def is_due(self, rounds: int, seconds: float) -> bool:
        """Whether state that is so many rounds and seconds old is to be saved."""
        return rounds >= self.rounds or (rounds > 0 and seconds >= self.seconds)
