"""Each role of a stream as a Faust app, by the name of what works in it.

    STREAM_DP_STREAM=shop faust -A topologies.roles:running_histogram worker
    STREAM_DP_STREAM=shop faust -A topologies.roles:top_k worker

`stream-dp worker` and `jobs worker` host the same workers.  Faust keeps the lifecycle, the supervision and the signals.
Records are not read through an agent: the state in Redis or the topic of results says where work resumes, not the
group's offset, and no request may be passed over.
"""

from collections.abc import Callable
from functools import cache

import faust

from stream_dp.config.reading import load_settings
from stream_dp.config.settings import Settings
from stream_dp.jobs.worker import JobWorker
from stream_dp.workers.histogram import Worker
from topologies.host import Runs, WorkerService, hosted
from topologies.jobs import Jobs

ROLES: dict[str, Callable[[Settings], Runs]] = {
    "running_histogram": Worker,  # events in, releases out
    "top_k": lambda settings: Jobs(JobWorker(settings, ("top-k", "histogram"))),  # requests in, results out
    "set_union": lambda settings: Jobs(JobWorker(settings, ("set-union",))),
}


@cache  # Faust asks twice, and a worker takes its ports when it is made
def _app(role: str) -> faust.App:
    return hosted(WorkerService(ROLES[role](load_settings())), role)


def __getattr__(name: str) -> faust.App:
    """The app of a role, made when Faust asks: importing this module needs no settings."""
    if name in ROLES:
        return _app(name)
    raise AttributeError(name)
