"""Charges on the one source of the tests of ledgers."""

from typing import Any

from redis import Redis

from stream_dp.privacy.loss import gaussian
from stream_dp.store.ledger import (
    Charge,
    Ledger,
)

SOURCE = "shop.events"


def charge(id_: str = "a", rho: float = 0.001, **more: Any) -> Charge:
    named: dict[str, Any] = {
        "what": f"job {id_}",
        "unit": "event",
        "delta": 0.0,
        "first_offset": 0,
        "end_offset": 100,
        "digest": "d",
        "loss": gaussian(2 * rho),
    }
    return Charge(id=id_, rho=rho, **(named | more))


def total(redis: Redis) -> Charge:
    """A charge of all that is left."""
    left = Ledger(redis, SOURCE).room()
    assert left is not None
    return charge("all", left.rho, delta=left.delta)
