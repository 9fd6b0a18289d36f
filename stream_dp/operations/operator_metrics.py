"""Metrics for operators.  All of them are private: times, memory and lag measure how many labels there are."""

import os
import resource
import sys
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from stream_dp.releases.foreign import passed_over

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


SERVERS = "kafka", "redis", "schema-registry"
"""What a worker may have to wait for."""


class OperatorMetrics:
    """One gauge, counter or histogram per attribute, all in `registry`."""

    def __init__(self, stream: str) -> None:
        self.registry = CollectorRegistry()
        self.lag = self._gauge("lag_records", "Records of the events topic that are not counted yet.", stream)
        self.lag_barriers = self._gauge(
            "lag_barriers",
            "Barriers that are written and not counted yet, where rounds end by ticks.",
            stream,
        )
        self.labels = self._gauge("labels_seen", "Labels in the state, released or not.", stream)
        self.unsaved = self._gauge("unsaved_rounds", "Rounds closed since the last checkpoint.", stream)
        self.checkpointed = self._gauge(
            "checkpoint_timestamp_seconds", "When the last checkpoint was written, as Unix time.", stream
        )
        memory = self._gauge("resident_memory_bytes", "Memory of the process.", stream)
        memory.set_function(resident_bytes)
        self.batches = self._histogram("batch_seconds", "Time to count and send one batch.", stream)
        self.checkpoints = self._histogram("checkpoint_seconds", "Time to write one checkpoint.", stream)
        self.records = self._counter("records", "Records that were counted, valid events or not.").labels(
            stream
        )
        self.dead_letters = self._counter("dead_letters", "Records that were not valid events.").labels(
            stream
        )
        foreign = self._gauge(
            "foreign_releases",
            "Records among the releases that are none of this stream, passed over.",
            stream,
        )
        foreign.set_function(lambda: passed_over(stream))
        self.dead_letters_waiting = self._gauge(
            "dead_letters_waiting", "Dead letters that are not written to their topic yet.", stream
        )
        lost = self._counter("dead_letters_lost", "Dead letters for which no room was left to wait in.")
        self.dead_letters_lost = lost.labels(stream)
        outages = self._counter("outages", "Times that the worker began to wait for a server.", "server")
        self.waiting = Gauge(
            "stream_dp_operator_waiting_seconds",
            "Seconds without progress although there is something to do, by what is waited for; none while it works.",
            ["stream", "waiting_for"],
            registry=self.registry,
        )
        self.topic_changes = self._counter(
            "topic_changes", "Times that a topic was found to be another one, which ends the worker.", "topic"
        )
        self.outages = {server: outages.labels(stream, server) for server in SERVERS}

    def _gauge(self, name: str, meaning: str, stream: str) -> Gauge:
        return Gauge(f"stream_dp_operator_{name}", meaning, ["stream"], registry=self.registry).labels(stream)

    def _histogram(self, name: str, meaning: str, stream: str) -> Histogram:
        return Histogram(
            f"stream_dp_operator_{name}", meaning, ["stream"], registry=self.registry, buckets=_SECONDS
        ).labels(stream)

    def _counter(self, name: str, meaning: str, *labels: str) -> Counter:
        return Counter(f"stream_dp_operator_{name}", meaning, ["stream", *labels], registry=self.registry)


def resident_bytes() -> float:
    """The memory of this process; where the system does not tell, the most it ever had."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return float(peak if sys.platform == "darwin" else peak * 1024)
    return float(pages * os.sysconf("SC_PAGE_SIZE"))
