"""How a one-shot mechanism declares itself: by the function that calibrates it to (epsilon, delta).

The function's parameters, with their defaults, are those of requests, options and the library; `request.Parameters` has
what each means, and `bounds.py` what it may be.  What it returns says what is charged, whom it protects, and what runs.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, wraps
from typing import Any, Literal

from stream_dp.jobs.bounds import check
from stream_dp.jobs.calibrated import Calibrated
from stream_dp.jobs.request import EVERY_JOB, JobName

REQUIRED = inspect.Parameter.empty
"""In the place of a default: a request must give the parameter, unless `mechanisms.CHOSEN` computes it."""

Released = Literal["labels", "counts", "rank"]


@dataclass(frozen=True)
class Declared:
    """A mechanism of a job.

    `enumerated`: requests, without job and mechanism, whose whole law `stream-dp audit --exact` counts, noise of
    integers or coins taken in turn.  A mechanism whose noise decides an order has a formula in the audit instead.
    """

    job: JobName
    name: str
    calibrate: Callable[..., Calibrated]
    releases: Released = "labels"
    enumerated: tuple[Mapping[str, Any], ...] = ()

    @cached_property
    def parameters(self) -> dict[str, Any]:
        """Their defaults by name, `REQUIRED` for those that have none."""
        return {name: each.default for name, each in inspect.signature(self.calibrate).parameters.items()}


MECHANISMS: dict[str, dict[str, Declared]] = {job: {} for job in EVERY_JOB}
"""Job, then mechanism: filled by the modules that `mechanisms.py` imports."""


def one_shot(
    job: JobName, name: str, releases: Released = "labels", enumerated: tuple[Mapping[str, Any], ...] = ()
) -> Callable[[Callable[..., Calibrated]], Callable[..., Calibrated]]:
    """Declares the function as the mechanism of this name; it is called with values that are within their bounds."""

    def declare(calibrate: Callable[..., Calibrated]) -> Callable[..., Calibrated]:
        signature = inspect.signature(calibrate)

        @wraps(calibrate)
        def checked(*args: Any, **given: Any) -> Calibrated:
            check(signature.bind(*args, **given).arguments)
            return calibrate(*args, **given)

        MECHANISMS[job][name] = Declared(job, name, checked, releases, enumerated)
        return checked

    return declare
