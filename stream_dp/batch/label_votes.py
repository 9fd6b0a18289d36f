"""Labels for unlabelled examples by the votes of teachers (PATE).

`label_votes`: any number of labels per example. Every query is one run of `stable_top_k` on the number of teachers that
vote for each label; T queries compose to (T * test_delta)-approximate (T * rho)-zCDP. Source: Zhu and Wang 2022,
Example 14 and Theorem 11.

`argmax_votes`: one label of a PUBLIC list per example, by Gumbel noise of scale step / epsilon on the votes, which is
the exponential mechanism. T queries compose to T epsilon^2 / 8 -zCDP. Source: Papernot et al. 2017, with Gumbel instead
of Laplace noise; bounded range: Cesar and Rogers 2021. Only this cost, which is known before any vote is read, is ever
published: the smaller one that follows from how clear the votes were would itself reveal them.

The unit is part of the result:
- `teacher` (the paper's): one teacher, with all its votes, is added or removed. A gap moves by 1.
- `record`: one training record changes, so the whole vote of the one teacher trained on it is REPLACED. Counts move
  by 1 in both directions and a gap moves by 2: noise of twice the size, and only gaps above 2 are released. The votes
  for one label likewise move against those for another by at most 2 instead of 1. The paper leaves this unit out,
  although it is the one that protects the people in the training data.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from stream_dp.batch.cost import Cost, require_count, require_positive
from stream_dp.batch.gumbel_top_k import KnownTopK, known_top_k
from stream_dp.batch.largest_gap import Ranks
from stream_dp.batch.result import Outcome
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
        _step(self.unit)
        require_count("queries", self.queries)
        _ = self.query  # checks the rest

    @property
    def query(self) -> StableTopK:
        """The mechanism that answers one query."""
        return StableTopK(self.rho, self.test_delta, Ranks(self.kbar), _step(self.unit))

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

    answers: tuple[Outcome, ...]
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


@dataclass(frozen=True, slots=True)
class ArgmaxVotes:
    """`epsilon` per query; `labels`: how many the public list holds."""

    epsilon: float
    labels: int
    queries: int
    unit: Unit

    def __post_init__(self) -> None:
        _step(self.unit)
        require_positive("epsilon", self.epsilon)
        require_count("labels", self.labels)
        require_count("queries", self.queries)

    @property
    def query(self) -> KnownTopK:
        """The mechanism that answers one query."""
        return KnownTopK(self.epsilon / _step(self.unit), self.labels, 1)

    @property
    def cost(self) -> Cost:
        return Cost(
            self.queries * self.epsilon**2 / 8,
            0.0,
            (self.queries * self.epsilon, 0.0),
            loss=loss.bounded_range(self.epsilon, self.queries),
        )


def argmax_votes(
    tallies: NDArray[np.int64], parameters: ArgmaxVotes, noise: OneShotNoise
) -> NDArray[np.int64]:
    """The number of one label for every query, int64 of shape (queries,).

    `tallies`: int64 of shape (queries, labels), teachers that vote for each label; a teacher counts once per label.
    """
    if tallies.shape != (parameters.queries, parameters.labels):
        raise ValueError(
            f"tallies must hold {parameters.labels} labels for each of the {parameters.queries} queries."
        )
    return np.array([known_top_k(row, parameters.query, noise).items[0] for row in tallies], np.int64)


def _step(unit: Unit) -> int:
    """How far one unit moves the votes for one label against those for another.  Raises ValueError."""
    if unit not in ("teacher", "record"):
        raise ValueError(f"unit must be 'teacher' or 'record', not {unit!r}.")
    return 1 if unit == "teacher" else 2
