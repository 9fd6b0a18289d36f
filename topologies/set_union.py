"""Set-union jobs as a Faust app: requests from `<stream>.jobs`, results to `<stream>.results`.

    stream-dp jobs worker --stream shop --job set-union
    STREAM_DP_STREAM=shop faust -A topologies.set_union worker

It shares the jobs topic, Redis and every ledger with `topologies/top_k.py`, which answers the other jobs.
"""

from typing import Any

from stream_dp.config.reading import load_settings
from stream_dp.jobs.worker import JobWorker
from topologies.top_k import Jobs, create_app


def __getattr__(name: str) -> Any:
    """`app` for the `faust` command, made when it asks: importing this module needs no settings."""
    if name == "app":
        return create_app(Jobs(JobWorker(load_settings(), ("set-union",))))
    raise AttributeError(name)
