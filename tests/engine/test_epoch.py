"""What an epoch promises when it opens, and what of it the ledger is charged."""

from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import msgspec
import pytest

from stream_dp.config.settings import Settings
from stream_dp.counters.binary import BinaryMechanism
from stream_dp.counters.calibration import Guarantee
from stream_dp.engine.epoch import Epoch, EpochRefused
from stream_dp.epochs.charges import charge_of
from stream_dp.events.barrier_chain import Barrier
from stream_dp.events.mapping.mapping import Mapping

OPENED = Epoch.open(Settings(stream="s", mechanism="binary"), 1, 0)


@pytest.mark.parametrize("mechanism", ["binary", "blt"])
def test_however_rounds_end_an_epoch_costs_the_same(mechanism: Literal["binary", "blt"]) -> None:
    """Its cells may coincide with all that its key ever serves, however many events bring their labels."""
    one, million, ticks = (
        Epoch.open(Settings(stream="s", mechanism=mechanism, rounds=rounds, discover="every-round"), 1, 0)
        for rounds in ("per-event", "every-1000000", "ticks")
    )
    assert charge_of(one).delta == charge_of(million).delta == charge_of(ticks).delta
    assert one.guarantee == million.guarantee == ticks.guarantee


def test_an_epoch_that_named_the_rule_is_held_to_it() -> None:
    settings = Settings(stream="s", mechanism="binary")
    opened = Epoch.open(settings, 1, 0)
    assert (opened.privacy["shown"], opened.mechanism.shown) == ("kept", "kept")
    opened.check_settings(settings)
    with pytest.raises(EpochRefused, match="shown is kept in the epoch and each-round in the settings"):
        opened.check_settings(Settings(stream="s", shown="each-round", mechanism="binary"))


@dataclass(frozen=True)
class LaterGuarantee(Guarantee):
    """One that also says something new."""

    proved: str = "on paper"


class LaterMechanism(BinaryMechanism, frozen=True, tag="binary"):
    """One that has one more number."""

    numbers: int = 0


@dataclass(frozen=True)
class LaterEpoch(Epoch):
    """One that has one more field."""

    first_barrier: int = 0


def _of(kind: Any, earlier: Any, **new: Any) -> Any:
    return kind(**{field.name: getattr(earlier, field.name) for field in fields(earlier)}, **new)


def _later(**new: dict[str, Any]) -> Epoch:
    """An epoch as a later program would know it, with the new fields of its parts where they are given."""
    epoch = OPENED
    numbers = {name: getattr(epoch.mechanism, name) for name in epoch.mechanism.__struct_fields__}
    parts = {
        "guarantee": _of(LaterGuarantee, epoch.guarantee, **new.get("guarantee", {})),
        "mechanism": LaterMechanism(**numbers, **new.get("mechanism", {})),
    }
    later: Epoch = _of(LaterEpoch, replace(epoch, **parts), **new.get("epoch", {}))
    return later


def test_fields_that_a_later_program_adds_leave_the_fingerprints_of_earlier_epochs() -> None:
    fingerprint = OPENED.fingerprint
    assert _later().fingerprint == fingerprint
    for part, new in (
        ("epoch", {"first_barrier": 1}),
        ("guarantee", {"proved": "by machine"}),
        ("mechanism", {"numbers": 7}),
    ):
        assert _later(**{part: new}).fingerprint != fingerprint, part


def test_every_field_of_an_epoch_is_in_its_fingerprint() -> None:
    epoch = OPENED
    assert isinstance(epoch.mechanism, BinaryMechanism)
    changes: dict[str, Any] = {
        "number": 2,
        "nonce": b"another nonce 16",
        "first_offset": 1,
        "privacy": {**epoch.privacy, "epsilon": 29.0},
        "mechanism": msgspec.structs.replace(epoch.mechanism, horizon=1022),
        "guarantee": replace(epoch.guarantee, rho=1.0),
        "noise_version": 9,
        "further_offsets": (3,),
        "after_barrier": Barrier("c", 1, 2, 3, 4, {"0": 4}, {}, "00"),
        "mapping": Mapping(),
        "known": "0" * 32,
        "first_day": 7,
        "log_rounds": 5,
    }
    assert changes.keys() == {field.name for field in fields(Epoch)}
    changed = {replace(epoch, **{name: value}).fingerprint for name, value in changes.items()}
    assert len(changed - {epoch.fingerprint}) == len(changes)
