"""Every mechanism that a job may ask for, calibrated to a guarantee (epsilon, delta) for the whole job.

Half of delta goes to the threshold and half to the conversion of rho, except where a pure epsilon is the cheaper
guarantee: then all of it goes to the threshold.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import import_module
from typing import Any

from stream_dp.jobs.calibrated import Calibrated
from stream_dp.jobs.declared import MECHANISMS, REQUIRED, Declared
from stream_dp.jobs.defaults import kbar, tokens
from stream_dp.jobs.request import BadRequest, JobName, JobRequest, nearest

__all__ = ["CHOSEN", "MECHANISMS", "calibrate", "needs", "takes"]

for _file in ("top_k", "set_union", "histogram", "known", "votes", "fitted_jobs"):
    import_module(f"stream_dp.jobs.{_file}")  # each declares its mechanisms

CHOSEN: dict[str, tuple[Callable[[dict[str, Any]], int], str]] = {
    "kbar": (lambda given: kbar(given["k"]), "50 k, at least 5000"),
    "tokens": (lambda given: tokens(given["epsilon"]), "as many as cost nothing"),
}
"""How a parameter that a request leaves out is computed from the others, and that in words."""


def takes(job: JobName, mechanism: str, parameter: str) -> bool:
    """Whether there is such a mechanism, and a parameter of this name among its own."""
    return mechanism in MECHANISMS[job] and parameter in MECHANISMS[job][mechanism].parameters


def needs(mechanism: Declared) -> set[str]:
    """The parameters that only its user can give."""
    return {name for name, each in mechanism.parameters.items() if each is REQUIRED} - CHOSEN.keys()


def calibrate(request: JobRequest, chosen: Mapping[str, Any] | None = None) -> Calibrated:
    """The mechanism of a request; raises `BadRequest`.

    `chosen`: what the job was admitted with where the request gives nothing, in place of today's defaults.
    """
    known = MECHANISMS[request.job]
    if request.mechanism not in known:
        raise BadRequest(nearest(f"mechanism of {request.job}", request.mechanism, known))
    mechanism = known[request.mechanism]
    taken, given = mechanism.parameters, request.parameters
    for name in given:
        if name not in taken:
            raise BadRequest(
                f"the mechanism {request.mechanism} takes no {name}; it takes {', '.join(taken)}",
                name,
                *taken,
            )
    values = {name: default for name, default in taken.items() if default is not REQUIRED}
    values |= {name: value for name, value in (chosen or {}).items() if name in taken} | given
    for name in taken:
        if name not in values and name not in CHOSEN:
            raise BadRequest(f"the mechanism {request.mechanism} needs {name}: give it", name)
    try:
        values |= {name: CHOSEN[name][0](values) for name in taken if name not in values}
        settled = {name: value for name, value in values.items() if value is not None}
        return replace(mechanism.calibrate(**values), parameters=settled)
    except (ValueError, OverflowError) as error:
        sentence = str(error).rstrip(".")
        raise BadRequest(sentence, sentence.partition(" ")[0], "kbar") from None
