"""What forked processes would each load on first use is loaded here, once: they are forked from what imported this."""

import encodings.idna
import gc

import stream_dp.cli.barriers
import stream_dp.cli.jobs
import stream_dp.cli.worker
import stream_dp.config.redis_commands
import stream_dp.dashboard.server
import tests.dashboard.running
import tests.jobs.worker_process
import tests.local.killed_job
import tests.system.forked_program
from stream_dp.counters import MECHANISMS
from stream_dp.counters.calibration import calibrate
from stream_dp.counters.window_poles import best_window_gaps
from stream_dp.dev.wire import SERVED
from stream_dp.engine.histogram import RunningHistogram
from stream_dp.privacy.keyed_noise import KeyedNoise

stream_dp.histogram({"user": ["u"], "item": ["label"]})

__all__ = ["encodings", "stream_dp", "tests"]

for _name in MECHANISMS:
    _mechanism, _ = calibrate(1.0, 1e-6, 31, 1, _name)
    list(RunningHistogram(_mechanism, KeyedNoise(bytes(32), "preloaded", bytes(16))).observe([["label"]]))
for _window in (5, 12):  # those of most tests: each takes a third of a second
    best_window_gaps(_window)
for _message, _oldest, _newest in SERVED.values():  # kafka-python compiles how each is written and read
    _request = _message()
    _message.decode(_request.encode(version=_newest), version=_newest)
    _request.with_header()
    _answer = _request.header.get_response_class()
    _answer.decode(_answer().encode(version=_newest))
gc.collect()
gc.freeze()  # no forked process need look through what all of them share
