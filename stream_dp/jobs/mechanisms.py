"""Every mechanism that a job may ask for, by name, calibrated to a guarantee (epsilon, delta) for the whole job.

Half of delta goes to the threshold and half to the conversion of rho, except where a pure epsilon is the cheaper
guarantee: then all of it goes to the threshold.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from stream_dp.batch.set_union_thresholds import tokens_at_no_cost
from stream_dp.jobs.calibrated import Calibrated
from stream_dp.jobs.defaults import kbar
from stream_dp.jobs.histogram import (
    calibrate_gaussian_histogram,
    calibrate_known_histogram,
    calibrate_laplace_histogram,
    calibrate_sparse_vector,
)
from stream_dp.jobs.request import BadRequest, JobName, JobRequest, nearest
from stream_dp.jobs.set_union import (
    calibrate_count,
    calibrate_count_gaussian,
    calibrate_greedy,
    calibrate_greedy_transfer,
    calibrate_policy,
    calibrate_policy_gaussian,
    calibrate_sips,
    calibrate_weighted,
    calibrate_weighted_gaussian,
)
from stream_dp.jobs.top_k import (
    calibrate_gap,
    calibrate_gap_gaussian,
    calibrate_gaussian_top_k,
    calibrate_gumbel_known,
    calibrate_gumbel_top_k,
    calibrate_laplace_top_k,
    calibrate_pay_what_you_get,
    calibrate_ptr_gaussian,
    calibrate_ptr_laplace,
    calibrate_stable_fixed_k,
    calibrate_stable_gaussian,
    calibrate_stable_top_k,
)
from stream_dp.jobs.votes import calibrate_argmax_votes, calibrate_stable_votes

MECHANISMS: dict[str, dict[str, Callable[..., Calibrated]]] = {
    "top-k": {
        "laplace": calibrate_laplace_top_k,
        "gaussian": calibrate_gaussian_top_k,
        "gumbel": calibrate_gumbel_top_k,
        "gumbel-known": calibrate_gumbel_known,
        "pay-what-you-get": calibrate_pay_what_you_get,
        "stable": calibrate_stable_top_k,
        "stable-gaussian": calibrate_stable_gaussian,
        "stable-fixed-k": calibrate_stable_fixed_k,
        "ptr-laplace": calibrate_ptr_laplace,
        "ptr-gaussian": calibrate_ptr_gaussian,
        "gap": calibrate_gap,
        "gap-gaussian": calibrate_gap_gaussian,
    },
    "set-union": {
        "sips": calibrate_sips,
        "policy": calibrate_policy,
        "policy-gaussian": calibrate_policy_gaussian,
        "weighted": calibrate_weighted,
        "weighted-gaussian": calibrate_weighted_gaussian,
        "count": calibrate_count,
        "count-gaussian": calibrate_count_gaussian,
        "greedy": calibrate_greedy,
        "greedy-transfer": calibrate_greedy_transfer,
    },
    "histogram": {
        "laplace": calibrate_laplace_histogram,
        "gaussian": calibrate_gaussian_histogram,
        "known": calibrate_known_histogram,
        "sparse-vector": calibrate_sparse_vector,
    },
    "label-votes": {
        "stable": calibrate_stable_votes,
        "argmax": calibrate_argmax_votes,
    },
}
"""Job, then mechanism.  Parameters without a default, and not in `CHOSEN`, are required."""

CHOSEN: dict[str, Callable[[dict[str, Any]], int]] = {
    "kbar": lambda given: kbar(given["k"]),
    "tokens": lambda given: tokens_at_no_cost(min(given["epsilon"], 4.0)),  # more would only make it slower
}
"""How a parameter that a request leaves out is computed from the others."""


def takes(job: JobName, mechanism: str, parameter: str) -> bool:
    """Whether there is such a mechanism, and a parameter of this name among its own."""
    found = MECHANISMS[job].get(mechanism)
    return found is not None and parameter in inspect.signature(found).parameters


def calibrate(request: JobRequest, chosen: Mapping[str, Any] | None = None) -> Calibrated:
    """The mechanism of a request; raises `BadRequest`.

    `chosen`: what the job was admitted with where the request gives nothing, in place of today's defaults.
    """
    known = MECHANISMS[request.job]
    if request.mechanism not in known:
        raise BadRequest(nearest(f"mechanism of {request.job}", request.mechanism, known))
    mechanism = known[request.mechanism]
    taken = inspect.signature(mechanism).parameters
    given = request.parameters
    for name in given:
        if name not in taken:
            raise BadRequest(
                f"the mechanism {request.mechanism} takes no {name}; it takes {', '.join(taken)}",
                name,
                *taken,
            )
    values = {name: each.default for name, each in taken.items() if each.default is not each.empty}
    values |= {name: value for name, value in (chosen or {}).items() if name in taken} | given
    for name in taken:
        if name not in values and name not in CHOSEN:
            raise BadRequest(f"the mechanism {request.mechanism} needs {name}: give it", name)
    try:
        values |= {name: CHOSEN[name](values) for name in taken if name not in values}
        return replace(mechanism(**values), parameters=values)
    except (ValueError, OverflowError) as error:
        sentence = str(error).rstrip(".")
        raise BadRequest(sentence, sentence.partition(" ")[0], "kbar") from None
