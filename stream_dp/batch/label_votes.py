"""Labels for unlabelled examples by the votes of teachers (PATE), any number of labels per example.

Every query is one run of `stable_top_k` on the number of teachers that vote for each label; T queries compose to
(T * test_delta)-approximate (T * rho)-zCDP. Source: Zhu and Wang 2022, Example 14 and Theorem 11.

The unit is part of the result:
- `teacher` (the paper's): one teacher, with all its votes, is added or removed. A gap moves by 1.
- `record`: one training record changes, so the whole vote of the one teacher trained on it is REPLACED. Counts move
  by 1 in both directions and a gap moves by 2: noise of twice the size, and only gaps above 2 are released. The paper
  leaves this unit out, although it is the one that protects the people in the training data.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from stream_dp.batch.cost import Cost, require_count
from stream_dp.batch.largest_gap import Ranks
from stream_dp.batch.result import BatchResult
from stream_dp.batch.stable_top_k import StableTopK, stable_top_k
from stream_dp.privacy import loss
from stream_dp.privacy.one_shot_noise import OneShotNoise

Unit = Literal["teacher", "record"]


@dataclass(frozen=True, slots=True)
class LabelVotes:
    """`rho` and `test_delta` per query; `kbar`: at most this many labels per example."""

    rho: float
    test_delta: float
    kbar: int
    queries: int
    unit: Unit

    def __post_init__(self) -> None:
        if self.unit not in ("teacher", "record"):
            raise ValueError(f"unit must be 'teacher' or 'record', not {self.unit!r}.")
        require_count("queries", self.queries)
        _ = self.query  # checks the rest

    @property
    def query(self) -> StableTopK:
        """The mechanism that answers one query."""
        return StableTopK(self.rho, self.test_delta, Ranks(self.kbar), 1 if self.unit == "teacher" else 2)

    @property
    def cost(self) -> Cost:
        return Cost(
            self.queries * self.rho,
            self.queries * self.test_delta,
            loss=loss.gaussian(self.queries * self.rho)
            + loss.bounded_range(2 * math.sqrt(self.rho), self.queries),
        )


@dataclass(frozen=True, slots=True)
class Labelling:
    """One result per query, with its own cost; the bottom mark stands for "no stable answer"."""

    answers: tuple[BatchResult, ...]
    unit: Unit
    cost: Cost


def label_votes(tallies: NDArray[np.int64], parameters: LabelVotes, noise: OneShotNoise) -> Labelling:
    """A set of labels for every query.

    `tallies`: int64 of shape (queries, labels), teachers that vote for each label; a teacher counts once per label.
    """
    if tallies.ndim != 2 or len(tallies) != parameters.queries:
        raise ValueError(f"tallies must hold one row for each of the {parameters.queries} queries.")
    answers = tuple(stable_top_k(row, parameters.query, noise) for row in tallies)
    return Labelling(answers, parameters.unit, parameters.cost)
