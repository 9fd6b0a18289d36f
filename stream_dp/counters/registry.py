"""The classes of all counters, by the name that the setting `mechanism` gives them."""

from importlib import import_module
from typing import TYPE_CHECKING, TypeAlias, Union

from stream_dp.counters import RUNNING, WINDOW
from stream_dp.counters.discovery import DiscoveryMechanism
from stream_dp.counters.discrete import DiscreteCounter
from stream_dp.counters.protocol import CalibratedCounter
from stream_dp.privacy.charge import Unit


def _kind(name: str, of: str) -> type[CalibratedCounter]:
    found: type[CalibratedCounter] = getattr(import_module(f"stream_dp.counters.{name}"), of)
    return found


COUNTERS = {name: _kind(name, of) for name, of in (RUNNING | {WINDOW: "WindowMechanism"}).items()}

DISCRETE = {name: kind for name, kind in COUNTERS.items() if issubclass(kind, DiscreteCounter)}
"""Those whose noise hides unit shifts of discrete Gaussians."""

if TYPE_CHECKING:
    Mechanism: TypeAlias = CalibratedCounter
else:
    Mechanism = Union[(*COUNTERS.values(), DiscoveryMechanism)]  # msgspec reads any of them by its tag


def kind_of(name: str, unit: Unit = "event") -> type[CalibratedCounter]:
    """The class of a counter that can protect this unit.  Raises ValueError for a name that none has."""
    if name not in COUNTERS:
        raise ValueError(f"mechanism must be one of {', '.join(COUNTERS)}, not {name!r}")
    if unit in COUNTERS[name].refused_units:
        raise ValueError(COUNTERS[name].refused_units[unit])
    return COUNTERS[name]
