"""How noise moves from round to round, of a release: its mechanism's own declaration, looked up once."""

from functools import lru_cache

from stream_dp.counters.noise_shape import NoiseShape, NoiseState
from stream_dp.counters.protocol import CalibratedCounter
from stream_dp.counters.registry import COUNTERS


@lru_cache(maxsize=16)
def noise_shape(mechanism: str, horizon: int) -> NoiseShape:
    """The noise shape of a counter whose labels are kept.  Raises ValueError for an unknown mechanism."""
    return running_kind(mechanism).noise_shape(horizon)


@lru_cache(maxsize=16)
def noise_state(mechanism: str, horizon: int) -> NoiseState:
    """The noise state of a counter.  Raises ValueError for an unknown mechanism."""
    return running_kind(mechanism).noise_state(horizon)


def running_kind(mechanism: str) -> type[CalibratedCounter]:
    """A counter up to a horizon.  Raises ValueError for an unknown one: a release may be of a later version."""
    kind = COUNTERS.get(mechanism)
    if kind is None or kind.size_name != "horizon":
        raise ValueError(f"no mechanism is called {mechanism!r}")
    return kind
