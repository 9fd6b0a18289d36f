"""One-shot jobs in your own program: top-k, set unions and histograms of a complete table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from stream_dp.frames import Framed
from stream_dp.jobs.column_rows import add_batch, check_columns
from stream_dp.jobs.defaults import default_mechanism
from stream_dp.jobs.mechanisms import calibrate, takes
from stream_dp.jobs.request import BadRequest, JobName, JobRequest, Protects, Unit, request_from
from stream_dp.jobs.result import counts_what, guarantee
from stream_dp.jobs.rows import RowCollector, Rows
from stream_dp.jobs.votes import columns_of
from stream_dp.local.columns import table_of
from stream_dp.local.ledger import Ledger, charge_of
from stream_dp.privacy.one_shot_noise import OneShotNoise
from stream_dp.privacy.share import Share

_DELTA = 1e-6


@dataclass(frozen=True)
class Answer(Framed):
    """What a one-shot job released; everything in it may be published.

    `labels` are in the order that the mechanism gives a meaning.  `counts` beside them are noisy, `sd` is the standard
    deviation of the noise in each, and `low` and `high` are the ends of 95% intervals, which allow for labels being
    released because their noise was high; all are None where the mechanism releases labels only.  `rank`: what gap
    mechanisms release instead of labels.  `bottom`: the mechanism says itself that it found fewer than it was asked
    for.  `guarantee` says in words what was spent.  `queries`: the example of each label, if labels are for examples.
    `over_cap`: which share of the users holds more items than are counted, as a noisy estimate with its 95% limits, and
    `counts_what` says in words what counts leave out; both are None where nothing is left out, or nobody can tell.
    """

    labels: list[str]
    counts: list[int] | None
    sd: float | None
    rank: int | None
    bottom: bool
    mechanism: str
    parameters: dict[str, Any]
    guarantee: str
    queries: list[str] | None = None
    over_cap: Share | None = None
    counts_what: str | None = None
    low: list[int] | None = None
    high: list[int] | None = None

    def _columns(self) -> dict[str, Any]:
        """`label`, and `query` if there is one, or `count` with the ends of its 95% interval."""
        columns: dict[str, Any] = {} if self.queries is None else {"query": self.queries}
        columns["label"] = self.labels
        if self.counts is None:
            return columns
        columns["count"] = self.counts
        return columns if self.low is None else columns | {"low": self.low, "high": self.high}

    def _caption(self) -> str:
        """What was spent and what is counted, for a notebook."""
        return " ".join(filter(None, (self.guarantee, self.counts_what)))


def top_k(
    data: Any,
    k: int,
    *,
    item: str | Sequence[str] = "item",
    user: str | None = "user",
    epsilon: float = 1.0,
    delta: float | None = None,
    mechanism: str | None = None,
    ledger: Ledger | None = None,
    **parameters: Any,
) -> Answer:
    """The `k` labels that most users hold, in noisy order.

        stream_dp.top_k(sales, 20, item="sku", user="customer", epsilon=1).labels

    `data`: a table of Arrow, pandas or Polars, or columns by name.  `item` names the column of labels, or of lists of
    labels, or several columns, each a family: `["country", "product"]` gives labels such as `country:UK`.  `user` names
    that of the people whom the guarantee protects, None where each row is to be protected by itself.  `mechanism` and
    `parameters` are those of docs/jobs.md.

    The noise is drawn anew: each call spends epsilon and delta once more.  A `ledger` adds that up, and refuses what
    does not fit any more.  Without `delta` a call takes 1e-6, or a tenth of the ledger's.  Raises `BadRequest`, and
    `Refused` if the ledger has no room.
    """
    return _run("top-k", data, item, user, mechanism, epsilon, delta, ledger=ledger, k=k, **parameters)


def set_union(
    data: Any,
    *,
    item: str | Sequence[str] = "item",
    user: str | None = "user",
    epsilon: float = 1.0,
    delta: float | None = None,
    mechanism: str | None = None,
    ledger: Ledger | None = None,
    **parameters: Any,
) -> Answer:
    """As many of all labels as the guarantee allows; the arguments are those of `top_k`."""
    return _run("set-union", data, item, user, mechanism, epsilon, delta, ledger=ledger, **parameters)


def histogram(
    data: Any,
    *,
    item: str | Sequence[str] = "item",
    user: str | None = "user",
    epsilon: float = 1.0,
    delta: float | None = None,
    mechanism: str | None = None,
    ledger: Ledger | None = None,
    **parameters: Any,
) -> Answer:
    """How many users hold each label, of those that enough users hold; everything else is as for `top_k`."""
    return _run("histogram", data, item, user, mechanism, epsilon, delta, ledger=ledger, **parameters)


def label_votes(
    data: Any,
    examples: Sequence[str],
    *,
    query: str = "query",
    teacher: str = "teacher",
    label: str = "label",
    labels: Sequence[str] | None = None,
    k: int = 1,
    protect: Protects = "record",
    epsilon: float = 1.0,
    delta: float | None = None,
    ledger: Ledger | None = None,
) -> Answer:
    """Labels for the public `examples`, by the votes of teachers (PATE).

        stream_dp.label_votes(votes, ["q1", "q2"], labels=["cat", "dog"], epsilon=4).to_pandas()

    `data`: votes, a row each, as a table of Arrow, pandas or Polars, or columns by name; `query`, `teacher` and `label`
    name its columns.  With `labels`, which must be public, each example gets one of them; without, it gets up to `k` of
    the labels that teachers voted for, or none where their votes are not clear.

    `protect`: all votes of a "teacher", or one "record" of the data that one of the teachers has learned from, which
    needs twice the noise.  What is spent covers all examples, and each call spends it once more.  Raises `BadRequest`.
    """
    chosen: dict[str, Any] = {"k": k} if labels is None else {"bins": [str(each) for each in labels]}
    return _run(
        "label-votes",
        data,
        label,
        teacher,
        "stable" if labels is None else "argmax",
        epsilon,
        delta,
        query,
        ledger=ledger,
        protect=protect,
        examples=[str(each) for each in examples],
        **chosen,
    )


def _run(
    job: JobName,
    data: Any,
    item: str | Sequence[str],
    user: str | None,
    mechanism: str | None,
    epsilon: float,
    delta: float | None,
    query: str = "",
    ledger: Ledger | None = None,
    **parameters: Any,
) -> Answer:
    unit: Unit = "event" if user is None else "user"
    if delta is None:
        delta = _DELTA if ledger is None else ledger.delta_of_a_job
    mechanism = mechanism or default_mechanism(job, parameters)
    asked = {"id": "local", "job": job, "mechanism": mechanism, "unit": unit, "epsilon": epsilon} | parameters
    if takes(job, mechanism, "delta"):
        asked["delta"] = delta
    request = request_from(asked)
    assert isinstance(request, JobRequest)
    calibrated = calibrate(request)
    if calibrated.shared is not None:
        raise BadRequest(
            f"the mechanism {mechanism} draws from a budget that a ledger keeps: run it as a job"
        )
    table = table_of(data, item, *filter(None, (user, query)))
    check_columns(table.schema, user, item, query)
    if ledger is not None:
        ledger.charge(charge_of(request, calibrated))
    rows = _rows(table, item, user, query)
    found = calibrated.run(rows, OneShotNoise.fresh())
    bins = calibrated.bins or []
    names = [bins[place] for place in found.items] if bins else rows.names(found.items)
    queries, labels = columns_of(names) if query else (None, names)
    parameters = calibrated.parameters | found.chosen
    return Answer(
        labels=labels,
        **found.columns(),
        sd=found.sd,
        rank=found.rank,
        bottom=found.bottom,
        mechanism=mechanism,
        parameters=parameters,
        guarantee=guarantee(unit, calibrated),
        queries=queries,
        over_cap=found.over_cap,
        counts_what=counts_what(unit, parameters, found),
    )


def _rows(table: pa.Table, item: str | Sequence[str], user: str | None, query: str) -> Rows:
    collector = RowCollector()
    for batch in table.to_batches():
        add_batch(batch, user, item, collector, query)
    return collector.rows()
