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
from stream_dp.events.record import LARGEST_VALUE, Record
from stream_dp.pipeline.intake import Intake
from tests.format_3 import KEY, LEFT


@pytest.mark.parametrize("mechanism", ["binary", "blt"])
def test_however_rounds_end_an_epoch_costs_the_same(mechanism: Literal["binary", "blt"]) -> None:
    """Its cells may coincide with all that its key ever serves, however many events bring their labels."""
    one, million, ticks = (
        Epoch.open(Settings(stream="s", mechanism=mechanism, rounds=rounds), 1, 0)
        for rounds in ("per-event", "every-1000000", "ticks")
    )
    assert charge_of(one).delta == charge_of(million).delta == charge_of(ticks).delta
    assert one.guarantee == million.guarantee == ticks.guarantee


@pytest.mark.parametrize("name", LEFT)
def test_an_epoch_on_record_keeps_its_fingerprint_and_its_settings(name: str) -> None:
    left = LEFT[name]
    assert left.opened.fingerprint == left.fingerprint
    left.opened.check_settings(left.settings_for())


@pytest.mark.parametrize("shown", ["kept", "each-round"])
@pytest.mark.parametrize("name", LEFT)
def test_an_epoch_from_before_labels_were_kept_goes_on_as_it_was(
    name: str, shown: Literal["kept", "each-round"]
) -> None:
    """Whatever the settings say, of which "kept" is the default today."""
    left = LEFT[name]
    assert "shown" not in left.opened.privacy
    assert left.opened.mechanism.shown == "each-round"
    left.opened.check_settings(left.settings_for(shown=shown))


def test_an_epoch_that_named_the_rule_is_held_to_it() -> None:
    settings = Settings(stream="s")
    opened = Epoch.open(settings, 1, 0)
    assert (opened.privacy["shown"], opened.mechanism.shown) == ("kept", "kept")
    opened.check_settings(settings)
    with pytest.raises(EpochRefused, match="shown is kept in the epoch and each-round in the settings"):
        opened.check_settings(Settings(stream="s", shown="each-round"))


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
    epoch = LEFT["binary"].opened
    numbers = {name: getattr(epoch.mechanism, name) for name in epoch.mechanism.__struct_fields__}
    parts = {
        "guarantee": _of(LaterGuarantee, epoch.guarantee, **new.get("guarantee", {})),
        "mechanism": LaterMechanism(**numbers, **new.get("mechanism", {})),
    }
    later: Epoch = _of(LaterEpoch, replace(epoch, **parts), **new.get("epoch", {}))
    return later


def test_fields_that_a_later_program_adds_leave_the_fingerprints_of_earlier_epochs() -> None:
    fingerprint = LEFT["binary"].fingerprint
    assert _later().fingerprint == fingerprint
    for part, new in (
        ("epoch", {"first_barrier": 1}),
        ("guarantee", {"proved": "by machine"}),
        ("mechanism", {"numbers": 7}),
    ):
        assert _later(**{part: new}).fingerprint != fingerprint, part


def test_every_field_of_an_epoch_is_in_its_fingerprint() -> None:
    epoch = LEFT["binary"].opened
    assert isinstance(epoch.mechanism, BinaryMechanism)
    changes: dict[str, Any] = {
        "number": 2,
        "nonce": b"another nonce 16",
        "first_offset": 1,
        "privacy": {**epoch.privacy, "epsilon": 29.0},
        "mechanism": msgspec.structs.replace(epoch.mechanism, horizon=1022),
        "guarantee": replace(epoch.guarantee, rho=1.0),
        "noise_version": 9,
        "first_tick": 1,
        "largest_value": 1000,
        "release_version": 2,
    }
    changed = {replace(epoch, **{name: value}).fingerprint for name, value in changes.items()}
    assert len(changed - {epoch.fingerprint}) == len(changes)


def test_a_setting_that_an_earlier_epoch_does_not_name_has_its_default() -> None:
    left = LEFT["binary"]
    earlier = replace(
        left.opened, privacy={name: value for name, value in left.opened.privacy.items() if name != "release"}
    )
    earlier.check_settings(left.settings_for())
    with pytest.raises(EpochRefused, match="release is every-round in the epoch and every-5 in the settings"):
        earlier.check_settings(left.settings_for(release="every-5"))


def test_an_epoch_from_before_the_limit_of_values_refuses_what_it_would_have_counted() -> None:
    """A larger value is a dead letter where the epoch says so, and nobody can tell it from one that counted before."""
    large = b'{"items":["tea"]}'.ljust(LARGEST_VALUE + 1)
    limited = Epoch.open(Settings(stream="s"), 1, 0)
    assert limited.largest_value == LARGEST_VALUE
    closed = Intake(limited, KEY, "s.events").process([Record(0, 0, None, large)], 1)
    assert closed.admitted == [[]]
    assert [letter.offset for letter in closed.dead_letters] == [0]
    earlier = Intake(LEFT["binary"].opened, KEY, "s.events")
    earlier.process([Record(0, 0, None, large[:-1])], 1)
    with pytest.raises(EpochRefused, match="the record at offset 1 has more than 1048576 bytes"):
        earlier.process([Record(1, 0, None, large)], 1)
