"""Known noise of every counter, drawn at each start, to notice a machine or a library that computes different noise.

Each counter walks through all that it can do: several rounds at once, and labels that come late.  So lanes, recursions,
starts and the cells of the Gaussian are all in its digest.  One more draw than here, or one bit of one, and every digit
differs.
"""

from functools import cache
from hashlib import blake2b
from typing import Any

import numpy as np

from stream_dp.counters.protocol import CalibratedCounter, Hits
from stream_dp.counters.registry import kind_of
from stream_dp.privacy.keyed_noise import (
    EMPTY_HISTORY,
    KEY_BYTES,
    NOISE_VERSION,
    NONCE_BYTES,
    KeyedNoise,
    WrongNoise,
)

_HORIZON, _LABELS, _ROUNDS = 63, 64, 48
_NO_HITS = Hits(np.empty(0, np.int64), np.empty(0, np.int64))


@cache
def check_golden_noise(mechanism: str) -> None:
    """Raise `WrongNoise` where the counter of this name draws other noise here than it should."""
    kind = kind_of(mechanism)
    digest = _digest(kind.golden(_HORIZON))
    if digest != kind.golden_digest:
        raise WrongNoise(
            f"this machine draws noise of the mechanism {mechanism!r} that differs from the golden draw of noise "
            f"version {NOISE_VERSION} ({digest} instead of {kind.golden_digest}): the noise would not be the same "
            "after a restart elsewhere, so nothing is released; check the cryptography and numpy packages"
        )


def _digest(mechanism: CalibratedCounter) -> str:
    noise = KeyedNoise(bytes(range(KEY_BYTES)), "golden", bytes(NONCE_BYTES))
    ids = noise.label_ids(b"%d" % i for i in range(_LABELS))
    heads = [EMPTY_HISTORY, *noise.extend_histories(EMPTY_HISTORY, 1, [["b", "a"]] * _ROUNDS)]
    seen = blake2b(digest_size=16)
    everyone: Any = mechanism.counter(noise)  # one of them all the way

    def advance(labels: int, last: int, first_seen: list[int]) -> None:
        histories, known = heads[everyone.round + 1 : last + 1], everyone.labels
        drawn = everyone.advance(ids[:labels], histories, _NO_HITS, np.array(first_seen, np.int64))
        seen.update(drawn[:, :known].astype("<i4").tobytes() + drawn[-1].astype("<i4").tobytes())

    advance(24, 3, [0] * 24)
    advance(32, 11, [3] * 4 + [11] * 4)
    advance(48, 32, [11] * 8 + [13] * 8)
    advance(_LABELS, _ROUNDS, [32] * 8 + [37] * 8)
    seen.update(everyone.current().astype("<i4").tobytes())
    return seen.hexdigest()
