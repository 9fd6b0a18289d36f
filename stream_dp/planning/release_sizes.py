"""How many bytes a day releases take where they are kept: compressed as they are sent, a batch at a time.

Neighbouring snapshots are much alike, so a batch of many takes far less than as many batches of one.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from stream_dp.config.settings import Settings
from stream_dp.counters.calibration import calibrate
from stream_dp.counters.protocol import CalibratedCounter, Hits
from stream_dp.engine.histogram import HistogramState, RunningHistogram
from stream_dp.kafka import log
from stream_dp.privacy.keyed_noise import KEY_BYTES, NONCE_BYTES, KeyedNoise
from stream_dp.privacy.release_tags import ReleaseTags
from stream_dp.releases.encoder import ReleaseEncoder
from stream_dp.sinks.framing import LARGEST_BATCH

REPLICAS = 3
"""How many brokers keep each record, where nobody says otherwise."""

MUCH_A_DAY = 100e9
"""Bytes a day, in all replicas together, from which on the operator is warned."""

DAY_SECONDS = 86_400
_TOGETHER_SECONDS = 0.01
"""What a worker that keeps up has to send is sent about so often (`python -m benchmarks sizes`)."""

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
"""The choices of the setting `compression`, in the order of their numbers in a record batch."""

_LATEST = 253_402_300_799_999  # milliseconds: the end of the year 9999
_YOUNGEST_SECONDS = 60.0  # a topic of less than that says little about a day
_SAMPLE_RELEASES = 256
_MOST_LABELS = 20_000  # of a sample: beyond that, the share that is left no longer changes
_NONE = np.empty(0, np.int64)
_START = 0b10101010100000000  # five nodes in the prefix: neither the best nor the worst place of a stream


@dataclass(frozen=True)
class Growth:
    """Bytes a day of one copy of a topic, and how many copies brokers keep."""

    bytes_a_day: float
    replicas: int

    @property
    def everywhere(self) -> float:
        """Bytes a day in all replicas together."""
        return self.bytes_a_day * self.replicas

    @property
    def is_much(self) -> bool:
        """Whether the operator should be warned."""
        return self.everywhere > MUCH_A_DAY

    def advice(self, compression: str) -> str:
        """What to do about it, as the end of a sentence."""
        smaller = "" if compression == "zstd" else 'set compression = "zstd", '
        return (
            f'{smaller}leave rounds out with release = "every-1000ms" or "every-100", or keep them for a while only '
            "with releases_retention_days"
        )

    def __str__(self) -> str:
        copies = "" if self.replicas == 1 else f" ({size_text(self.everywhere)} in {self.replicas} replicas)"
        return f"{size_text(self.bytes_a_day)} a day{copies}"


def size_text(size: float) -> str:
    """A number of bytes for people, as `1.84 TB`.

    >>> size_text(1.84e12), size_text(300e6)
    ('1.84 TB', '300 MB')
    """
    for unit, unit_bytes in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if size >= unit_bytes:
            return f"{size / unit_bytes:.3g} {unit}"
    return f"{size / 1e3:.3g} kB"


def growth_of(settings: Settings) -> Growth | None:
    """How the releases topic grew in the last day that it saw; None while it holds less than a minute.

    Read from the public topic: how often its records came, and what the newest take when they are compressed again.
    Raises KafkaError.
    """
    kafka, topic = settings.kafka_address, settings.releases
    held = log.offsets(kafka, topic)
    newest = list(log.read(kafka, topic, max(held.first, held.end - _SAMPLE_RELEASES), held.end))
    if not newest:
        return None
    last = newest[-1]
    day_before = datetime.fromtimestamp(max(0, min(last.timestamp, _LATEST) / 1000 - DAY_SECONDS), UTC)
    since = log.offset_at(kafka, topic, day_before)
    start = held.first if since is None else since
    [first] = log.read(kafka, topic, start, start + 1)
    seconds = (last.timestamp - first.timestamp) / 1000
    if seconds < _YOUNGEST_SECONDS:
        return None
    per_second = (last.offset - first.offset) / seconds
    values = [record.value or b"" for record in newest]
    stored = stored_bytes(values, settings.compression, sent_together(per_second)) / len(values)
    return Growth(DAY_SECONDS * per_second * stored, log.replicas_of(kafka, topic))


def sent_together(releases_per_second: float) -> int:
    """How many releases a worker that keeps up sends in one batch."""
    return max(1, round(releases_per_second * _TOGETHER_SECONDS))


def stored_bytes(values: Sequence[bytes], compression: str, together: int) -> int:
    """Bytes that record batches of `together` values each take, by the codec of this name; none is above the limit."""
    stored, batch, records = 0, _batch(compression), 0
    for value in values:
        if records == together or batch.append(records, 0, b"stream", value, []) is None:
            stored += len(batch.build())
            batch, records = _batch(compression), 0
            batch.append(0, 0, b"stream", value, [])
        records += 1
    return stored + (len(batch.build()) if records else 0)


def _batch(compression: str) -> DefaultRecordBatchBuilder:
    codec = CODECS.index(compression)
    return DefaultRecordBatchBuilder(2, codec, 0, -1, -1, 0, LARGEST_BATCH)


def compressed_share(visible: int, label_bytes: int, releases_per_second: float, compression: str) -> float:
    """The share of the releases' bytes that is left of them, for a made-up stream of this size."""
    values = sample_releases(min(visible, _MOST_LABELS), label_bytes)
    stored = stored_bytes(values, compression, sent_together(releases_per_second))
    return stored / sum(map(len, values))


def sample_releases(visible: int, label_bytes: int) -> list[bytes]:
    """Consecutive releases of labels whose first halves are the same, and the others random letters.

    Counts fall like 1 / rank to three thresholds of epsilon 1 and delta 1e-6.  There are fewer where they are long.
    """
    mechanism, guarantee = calibrate(1.0, 1e-6, 2**20 - 1, 4, "binary")
    noise = KeyedNoise(bytes(KEY_BYTES), "sizes", bytes(NONCE_BYTES))
    letters = random.Random(visible)
    alike = "label " * label_bytes
    names = [
        alike[: label_bytes // 2]
        + "".join(letters.choices("abcdefghijklmnopqrstuvwxyz", k=label_bytes - label_bytes // 2))
        for _ in range(visible)
    ]
    names = list(dict.fromkeys(names)) or [""]
    state = far_along(mechanism, noise, names, 0)
    ranks = np.arange(1, len(names) + 1)
    state.counts[:] = 3 * mechanism.tau(mechanism.horizon) * (len(names) / ranks) if visible else 0
    histogram = RunningHistogram(mechanism, noise, state)
    tags = ReleaseTags(bytes(KEY_BYTES), "sizes", bytes(NONCE_BYTES))
    encoder = ReleaseEncoder("sizes", 1, bytes(NONCE_BYTES), mechanism, guarantee, tags)
    releases = min(_SAMPLE_RELEASES, max(4, 2 * LARGEST_BATCH // (1 + visible * (label_bytes + 9))))
    rounds = [[names[number % len(names)]] for number in range(releases)]
    return [
        part
        for block in histogram.blocks(rounds)
        for parts in encoder.encode(block, [0] * len(block.sizes))
        for part in parts
    ]


def far_along(
    mechanism: CalibratedCounter, noise: KeyedNoise, names: list[str], visible: int
) -> HistogramState:
    """The state of a stream at round 87,296 that knows `names`, the first `visible` of them far above the threshold."""
    state = HistogramState.before_any_round(names)
    state.counts[:visible] = 10 * mechanism.tau(mechanism.horizon)
    ids = noise.label_ids(name.encode() for name in names)
    counter = mechanism.counter(noise)
    counter.advance(ids[:0], [bytes(32)] * _START, Hits(_NONE, _NONE), _NONE, np.array([_START]))
    counter.advance(ids, [], Hits(_NONE, _NONE), np.full(len(names), _START))
    state.counter = counter.state()
    return state
