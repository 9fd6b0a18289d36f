"""What forked processes would each load on first use is loaded here, once: they are forked from what imported this."""

import encodings.idna

import stream_dp.config.redis_commands
from stream_dp.counters import MECHANISMS
from stream_dp.counters.calibration import calibrate
from stream_dp.engine.histogram import RunningHistogram
from stream_dp.privacy.keyed_noise import KeyedNoise

__all__ = ["encodings", "stream_dp"]

for _name in MECHANISMS:
    _mechanism, _ = calibrate(1.0, 1e-6, 31, 1, _name)
    list(RunningHistogram(_mechanism, KeyedNoise(bytes(32), "preloaded", bytes(16))).observe([["label"]]))
