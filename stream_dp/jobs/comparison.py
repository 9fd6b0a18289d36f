"""What every mechanism of a job finds on a log that everybody may see, compared with the truth.

On private data none of this has a guarantee: `stream-dp advise` refuses without a promise that the log is public.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from stream_dp.batch.result import Outcome
from stream_dp.jobs.declared import MECHANISMS
from stream_dp.jobs.defaults import default_mechanism
from stream_dp.jobs.mechanisms import calibrate, needs, takes
from stream_dp.jobs.request import BadRequest, JobName, JobRequest, request_from
from stream_dp.jobs.rows import Rows
from stream_dp.privacy.one_shot_noise import OneShotNoise


class Finds(msgspec.Struct, frozen=True):
    """What one mechanism with these parameters finds, on average over some runs.

    `labels`: how many it releases.  `recall`: the part of the true top k among them; None for other jobs.  `error`: the
    median relative error of the counts that it releases; None without counts.  `over_cap`: the share of the users who
    hold more than its `items_per_user`; None without a bound.  `score`: what a better one has more of.
    """

    mechanism: str
    parameters: dict[str, Any]
    labels: float
    recall: float | None
    error: float | None
    is_default: bool
    over_cap: float | None

    @property
    def score(self) -> float:
        return self.labels if self.recall is None else self.recall


@dataclass(frozen=True)
class Question:
    """What is asked of every mechanism: a job at one guarantee; `k` is that of a top-k."""

    job: JobName
    epsilon: float
    delta: float
    k: int = 10

    @property
    def default(self) -> str:
        """The mechanism of a request that names none."""
        return default_mechanism(self.job, {})

    def asked(self, mechanism: str, **more: float) -> JobRequest:
        """The request to one mechanism.  Raises `BadRequest`."""
        fields: dict[str, Any] = {"delta": self.delta, "k": self.k}
        taken = {name: value for name, value in fields.items() if takes(self.job, mechanism, name)}
        named = {"id": "advice", "job": self.job, "mechanism": mechanism, "epsilon": self.epsilon}
        request = request_from(named | taken | more)
        assert isinstance(request, JobRequest)
        return request

    def requests(self, items_per_user: Sequence[int]) -> list[JobRequest]:
        """All that can be tried: each mechanism that releases labels and needs nothing else, with these bounds too.

        Raises `BadRequest` where not even the default can be asked.
        """
        default = self.asked(self.default)
        calibrate(default)
        found = {_identity(default): default}
        for mechanism, declared in MECHANISMS[self.job].items():
            if declared.releases == "rank" or needs(declared) - {"epsilon", "delta", "k"}:
                continue
            tries: list[dict[str, float]] = [{}]
            further = (
                ("items_per_user", items_per_user),
                ("alpha", _ALPHAS),
                ("penalty", _PENALTIES),
                ("least", (max(1, self.k // 2),)),
            )
            for name, values in further:
                if takes(self.job, mechanism, name):
                    tries += [{name: value} for value in values]
            for each in tries:
                request = self.asked(mechanism, **each)
                with suppress(BadRequest):
                    found.setdefault(_identity(request), request)
        return list(found.values())

    def finds(
        self, rows: Rows, request: JobRequest, runs: int, done: Callable[[], None] = lambda: None
    ) -> Finds:
        """What this request finds in `runs` runs, each with noise that is thrown away.  Raises `BadRequest`."""
        calibrated, true = calibrate(request), rows.counts()
        outcomes = []
        for _ in range(runs):
            outcomes.append(calibrated.run(rows, OneShotNoise.fresh()))
            done()
        return Finds(
            request.mechanism,
            {name: value for name, value in calibrated.parameters.items() if name not in _SHARED},
            float(np.mean([len(each.items) for each in outcomes])),
            None
            if self.job != "top-k"
            else float(np.mean([recall(each, true, self.k) for each in outcomes])),
            _error(outcomes, true),
            request == self.asked(self.default),
            _over(rows, calibrated.parameters.get("items_per_user")),
        )


_ALPHAS = (3.0, 8.0, 30.0)
_PENALTIES = (0.5, 2.0)
_SHARED = ("epsilon", "delta", "k")


def _identity(request: JobRequest) -> str:
    """What tells requests apart that ask for the same with other words.  Raises `BadRequest`."""
    return f"{request.mechanism} {sorted(calibrate(request).parameters.items())}"


def recall(found: Outcome, true: NDArray[np.int64], k: int) -> float:
    """The part of the true top k that was found; of items that tie at the end, any may stand for the others."""
    held = np.sort(true[true > 0])[::-1][:k]
    if not len(held):
        return 1.0
    top = found.items[true[found.items] >= held[-1]]
    return min(len(top), len(held)) / len(held)


def bound_of_most(rows: Rows) -> int:
    """The least bound that at most a tenth of the users exceed; `rows` are not empty."""
    return int(np.quantile(np.diff(rows.baskets().starts), 0.9, method="inverted_cdf"))


def _over(rows: Rows, bound: int | None) -> float | None:
    """The share of the users who hold more than a bound."""
    if bound is None:
        return None
    within, over = rows.sizes((1, bound + 1)).tolist()
    return over / max(1, within + over)


def _error(outcomes: Sequence[Outcome], true: NDArray[np.int64]) -> float | None:
    errors = [
        np.abs(each.counts - true[each.items]) / np.maximum(true[each.items], 1)
        for each in outcomes
        if each.counts is not None and len(each.items)
    ]
    return float(np.median(np.concatenate(errors))) if errors else None


def best(found: Sequence[Finds]) -> Finds:
    """The one that finds most; of equals the default, then the first."""
    return max(found, key=lambda each: (each.score, each.is_default))
