"""What comes of a request, as `<stream>.results` shows it.  Everything in it is public.

Schema: docs/schemas/result.json.  How many rows were read, left out or seen is private: it is logged where the job
runs, and never stands here.
"""

from itertools import pairwise
from typing import Any, Literal

import msgspec

from stream_dp.batch.result import Outcome
from stream_dp.jobs.calibrated import Calibrated
from stream_dp.jobs.request import VERSION, JobRequest, Unit
from stream_dp.privacy.composition import Budget
from stream_dp.privacy.share import Share
from stream_dp.privacy.vector import Vector
from stream_dp.privacy.wording import UNMETERED, in_words, sampled, unit_in_words

Status = Literal["done", "refused", "cancelled"]

LARGEST_PART = 900_000
"""A result of more bytes of labels than this is split into parts, to stay below Kafka's default limit of a message."""

_NUMBERS = 4 * 24
"""The bytes that a label's quotes and three numbers take at the most."""

LONGEST_REASON = 1_000
"""Most characters of a reason.  It may quote what others wrote, and a result has to fit into a message."""

_COLUMNS = ("counts", "low", "high")
_EITHER_UNIT = "one unit of the source (an event, or a user with all of their events)"


class ResultCost(msgspec.Struct, frozen=True):
    """What the job was charged: rho and delta for the ledger, and the least epsilon known at `at_delta`.

    The cost of a pay-what-you-get budget was charged once, for all jobs that draw from it.
    `unmetered`: the source has no budget, so nothing bounds what all that is released from it costs.
    """

    rho: float
    delta: float
    epsilon: float
    at_delta: float
    unmetered: bool = False


class JobResult(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to one request, or one part of it.

    `labels` are in the order that the mechanism gives a meaning.  Where it releases `counts`, `low` and `high` are the
    ends of their 95% intervals, which allow for labels being released because their noise was high.  `first_offset` and
    `end_offset` are those of the first partition that was read, `further_offsets` and `further_ends` those of the
    others.  `sd`: standard deviation of the noise in every count.  `rank`: what a gap mechanism releases instead.
    `bottom`: the mechanism says that it found fewer labels than asked for.  `over_cap`: which share of the users holds
    more than the `items_per_user` of `parameters`, between two 95% limits, by a noisy estimate that is part of what was
    charged, and `counts_what` says in words what counts leave out.  `cost` is null if nothing was charged.
    """

    v: int = VERSION
    id: str | None
    status: Status
    reason: str | None = None
    digest: str | None = None
    job: str | None = None
    mechanism: str | None = None
    parameters: dict[str, Any] = {}
    unit: Unit | None = None
    source: str | None = None
    first_offset: int | None = None
    end_offset: int | None = None
    further_offsets: Vector = ()
    further_ends: Vector = ()
    ts: str | None = None
    cost: ResultCost | None = None
    guarantee: str | None = None
    labels: list[str] = []
    counts: list[int] | None = None
    low: list[int] | None = None
    high: list[int] | None = None
    sd: float | None = None
    rank: int | None = None
    bottom: bool | None = None
    over_cap: Share | None = None
    counts_what: str | None = None
    part: int = 1
    parts: int = 1

    def encode(self) -> list[bytes]:
        """The records' values: one, or several parts where the labels are many."""
        edges, reason = _edges(self.labels), self.reason
        if reason is not None and len(reason) > LONGEST_REASON:
            reason = reason[: LONGEST_REASON - 1] + "…"
        parts = [
            msgspec.structs.replace(
                self,
                reason=reason,
                labels=self.labels[start:end],
                **{
                    name: None if column is None else column[start:end]
                    for name, column in ((name, getattr(self, name)) for name in _COLUMNS)
                },
                part=number,
                parts=len(edges) - 1,
            )
            for number, (start, end) in enumerate(pairwise(edges), start=1)
        ]
        return [msgspec.json.encode(part) for part in parts]


def counts_what(unit: Unit | None, parameters: dict[str, Any], found: Outcome) -> str | None:
    """What its counts are of, and which share of the users that leaves out in part; None if it is everything."""
    if found.counts is None:
        return None
    return sampled(
        unit or "user", parameters.get("items_per_user"), found.over_cap, parameters.get("part_counted")
    )


_DECODER = msgspec.json.Decoder(JobResult)


def decode_result(value: bytes) -> JobResult:
    """The result, or part of one, in a record's value; raises msgspec.DecodeError for anything else."""
    return _DECODER.decode(value)


def whole(parts: list[bytes]) -> JobResult:
    """The result that was encoded as these parts."""
    found = [decode_result(part) for part in parts]
    first = found[0]
    labels = [label for part in found for label in part.labels]
    columns = {
        name: None
        if getattr(first, name) is None
        else [number for part in found for number in getattr(part, name) or ()]
        for name in _COLUMNS
    }
    return msgspec.structs.replace(first, labels=labels, part=1, parts=1, **columns)


def of_request(request: JobRequest, status: Status, reason: str | None = None) -> JobResult:
    """The result of a request that released nothing."""
    return JobResult(
        id=request.id,
        status=status,
        reason=reason,
        digest=request.digest,
        job=request.job,
        mechanism=request.mechanism,
        parameters=_short(request.parameters),
        unit=request.unit,
    )


def _short(parameters: dict[str, Any]) -> dict[str, Any]:
    """The parameters, and of long ones only how long: the request has them, and the digest stands for it."""
    return {
        name: len(value) if name in ("bins", "examples", "frequencies") else value
        for name, value in parameters.items()
    }


def cost_of(calibrated: Calibrated, budget: Budget | None) -> ResultCost:
    """What is charged, at the delta of the ledger where it has a budget with one that is not below the job's own."""
    at_delta = calibrated.delta
    if budget is not None and budget.delta >= at_delta:
        at_delta = budget.delta
    cost = calibrated.cost
    return ResultCost(cost.rho, cost.delta, calibrated.epsilon_at(at_delta), at_delta, budget is None)


def guarantee(unit: Unit | None, calibrated: Calibrated) -> str:
    """The guarantee in words, for people who read a result."""
    shared = calibrated.shared
    released = (
        "this job releases" if shared is None else f"all jobs of the budget {shared.name} release together"
    )
    return in_words(
        calibrated.protects or (unit_in_words(unit) if unit else _EITHER_UNIT),
        released,
        calibrated.epsilon,
        calibrated.delta,
    )


def done(
    request: JobRequest, calibrated: Calibrated, cost: ResultCost, found: Outcome, labels: list[str]
) -> JobResult:
    """The result of a job that released `found`."""
    parameters = _short(calibrated.parameters | found.chosen)
    return msgspec.structs.replace(
        of_request(request, "done"),
        parameters=parameters,
        cost=cost,
        guarantee=guarantee(request.unit, calibrated) + (UNMETERED if cost.unmetered else ""),
        labels=labels,
        **found.columns(),
        sd=found.sd,
        rank=found.rank,
        bottom=found.bottom,
        over_cap=found.over_cap,
        counts_what=counts_what(request.unit, parameters, found),
    )


def _edges(labels: list[str]) -> list[int]:
    """Where parts of the labels begin, and the end of the last."""
    edges, size = [0], 0
    for place, label in enumerate(labels):
        size += 6 * len(label) + _NUMBERS  # no label or count takes more in JSON
        if size > LARGEST_PART and place > edges[-1]:
            edges.append(place)
            size = 6 * len(label) + _NUMBERS
    return [*edges, len(labels)]
